//! The owner's word, by digest, that a workspace's configuration counts (G-9).

use callgate_call::Digest;

use crate::{Store, StoreError, records};

impl Store {
    /// Records that what is at `path` counts, as long as it has this digest.
    pub fn trust(&self, path: &str, digest: Digest) -> Result<(), StoreError> {
        self.commit(|inner, now| {
            if inner.overlay.small.trust.get(path) != Some(&digest.to_hex()) {
                records::trust(&mut inner.pending, now, path, Some(digest));
            }
            Ok(())
        })
    }

    /// The digest that counts for `path`.
    pub fn trusted(&self, path: &str) -> Result<Option<Digest>, StoreError> {
        self.read(|inner, _| {
            let trusted = inner.overlay.small.trust.get(path);
            Ok(trusted.and_then(|digest| Digest::from_hex(digest)))
        })
    }

    /// Takes the word back. False if there was none.
    pub fn untrust(&self, path: &str) -> Result<bool, StoreError> {
        self.commit(|inner, now| {
            let known = inner.overlay.small.trust.contains_key(path);
            if known {
                records::trust(&mut inner.pending, now, path, None);
            }
            Ok(known)
        })
    }
}
