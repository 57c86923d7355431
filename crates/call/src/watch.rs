//! Who looks on while runs stream: whoever shows them to a person, or starts what they ask for.

use crate::{RunArtifact, RunEvent, RunStart};

/// Looks at runs from their beginning.
pub trait RunWatch: Send + Sync {
    /// A run begins; its executor is not there yet.
    fn begins(&self, run: &RunStart) -> Box<dyn RunEye>;
}

/// Sees what one run sends, in its order and before any policy does, so that what is dropped is
/// seen too. It is told by whoever reads the run's stream, and must not keep that waiting.
pub trait RunEye: Send {
    /// The next event, without secrets.
    fn event(&mut self, event: &RunEvent<'_>);

    /// So many more bytes of artifacts.
    fn bytes(&mut self, bytes: usize);

    /// An artifact exists.
    fn committed(&mut self, artifact: &RunArtifact<'_>);
}
