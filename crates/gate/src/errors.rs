//! Errors of the store as faults of a call.

use callgate_call::{Fault, chain};
use callgate_store::StoreError;

/// Returns the fault of a call whose record could not be read or written.
pub(crate) fn internal(error: &StoreError) -> Fault {
    let message = chain(error);
    match error {
        StoreError::Full { .. } => Fault::Unavailable { reason: message },
        _ => Fault::Internal { message },
    }
}

/// The same where a person named something that may not be there, or not be so any more.
pub(crate) fn not_found(error: &StoreError) -> Fault {
    match error {
        StoreError::NotFound { .. } => Fault::NotFound {
            message: error.to_string(),
        },
        StoreError::Refused { .. } => Fault::conflict(error.to_string()),
        other => internal(other),
    }
}
