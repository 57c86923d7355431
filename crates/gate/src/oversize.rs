//! An output that does not fit its caller's wire: the fault says so, and where its bytes are kept,
//! among the newest artifacts, which `files/read` reads. T-19b.

use callgate_call::{Fault, Output};
use callgate_store::{Store, StoreError};

/// The fault, with the artifact beside it. Where none can be written the fault is all there is.
pub(crate) fn kept(store: &Store, fault: Fault, output: &Output) -> Fault {
    if !matches!(fault, Fault::TooLarge { .. }) {
        return fault;
    }
    let keep = || -> Result<String, StoreError> {
        let mut spill = store.spill()?;
        spill.write(output.json.text().as_bytes())?;
        Ok(format!("artifact:b3-{}", spill.keep()?.to_hex()))
    };
    match keep() {
        Ok(name) => fault.with("artifact", name),
        Err(error) => {
            tracing::debug!(%error, "an oversize output is not kept");
            fault
        }
    }
}
