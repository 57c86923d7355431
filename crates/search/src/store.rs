//! Who keeps pieces with their vectors, and finds them.

use callgate_call::Cancel;

use crate::engine::{Answer, Ask, Engine, Item, SearchError};

/// A place for pieces: of the workspace's files, and of what programs put into namespaces.
/// Everything here may wait for a disk or for a server, and is not for an async thread. It ends
/// soon after `stop` says that nobody waits for it.
pub trait VectorStore: Send + Sync {
    /// What fits best. `may` says whether the caller may know of a path.
    fn search(
        &self,
        ask: &Ask,
        may: &dyn Fn(&str) -> bool,
        stop: &Cancel,
    ) -> Result<Answer, SearchError>;

    /// Puts items into a namespace, all or none; each takes the place of the one with its id.
    fn upsert(
        &self,
        namespace: &str,
        items: Vec<Item>,
        stop: &Cancel,
    ) -> Result<usize, SearchError>;

    /// Removes items from a namespace; how many there were.
    fn delete(&self, namespace: &str, keys: &[String], stop: &Cancel)
    -> Result<usize, SearchError>;

    /// Takes over what was indexed of the workspace's files; how many pieces came and went.
    /// `whole` looks at all that is there, and not only at what has changed here.
    fn take_over(&self, whole: bool, stop: &Cancel) -> Result<usize, SearchError>;
}

impl VectorStore for Engine {
    fn search(
        &self,
        ask: &Ask,
        may: &dyn Fn(&str) -> bool,
        _: &Cancel,
    ) -> Result<Answer, SearchError> {
        Engine::search(self, ask, may)
    }

    fn upsert(&self, namespace: &str, items: Vec<Item>, _: &Cancel) -> Result<usize, SearchError> {
        Engine::upsert(self, namespace, items)
    }

    fn delete(&self, namespace: &str, keys: &[String], _: &Cancel) -> Result<usize, SearchError> {
        Engine::delete(self, namespace, keys)
    }

    /// What is indexed is here.
    fn take_over(&self, _: bool, _: &Cancel) -> Result<usize, SearchError> {
        Ok(0)
    }
}
