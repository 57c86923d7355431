//! Signed heads: `head.json` says how far the chain goes, signed with the workspace's Ed25519
//! key, so that a cut or rewritten end shows. Only records that the disk has are signed, or a
//! power cut would look like a crime.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use callgate_call::bounded::{read_path, read_path_text};
use callgate_call::{Digest, Timestamp};
use callgate_text::{decode_hex_array, encode_hex};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::{SMALL_FILE_BYTES_MAX, Store, StoreError};

/// A head is signed at least every so many records, where somebody folds or maintains.
pub(crate) const RECORDS_PER_HEAD: u64 = 65_536;

/// A signed head: whoever keeps it can tell later if the chain was cut or rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The newest record it covers.
    pub seq: u64,
    /// That record's hash.
    pub hash: Digest,
    /// When it was signed.
    pub at: Timestamp,
    /// The workspace's Ed25519 public key.
    pub public_key: [u8; 32],
    /// Over `callgate-head-v1`, seq, hash and at.
    pub signature: [u8; 64],
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadDoc {
    at: u64,
    hash: String,
    public_key: String,
    seq: u64,
    signature: String,
}

impl Head {
    fn sign(key: &SigningKey, seq: u64, hash: Digest, at: Timestamp) -> Self {
        Self {
            seq,
            hash,
            at,
            public_key: key.verifying_key().to_bytes(),
            signature: key.sign(&message(seq, hash, at)).to_bytes(),
        }
    }

    /// True if the signature is that of the key in the head.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        VerifyingKey::from_bytes(&self.public_key).is_ok_and(|key| {
            let signature = Signature::from_bytes(&self.signature);
            key.verify_strict(&message(self.seq, self.hash, self.at), &signature)
                .is_ok()
        })
    }

    /// One line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let doc = HeadDoc {
            at: self.at.0,
            hash: self.hash.to_hex(),
            public_key: encode_hex(&self.public_key),
            seq: self.seq,
            signature: encode_hex(&self.signature),
        };
        serde_json::to_string(&doc).expect("plain values become JSON")
    }

    /// Reads what `to_json` wrote, byte for byte.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let doc: HeadDoc = serde_json::from_str(text).ok()?;
        let head = Self {
            seq: doc.seq,
            hash: Digest::from_hex(&doc.hash)?,
            at: Timestamp(doc.at),
            public_key: decode_hex_array(&doc.public_key)?,
            signature: decode_hex_array(&doc.signature)?,
        };
        (head.to_json() == text).then_some(head)
    }
}

fn message(seq: u64, hash: Digest, at: Timestamp) -> Vec<u8> {
    format!("callgate-head-v1\n{seq}\n{hash}\n{at}\n").into_bytes()
}

/// The newest record of the kept head, without looking at the signature; why there is none where
/// one was kept. Whoever writes asks: to sign a new one would hide that.
pub(crate) fn signed_seq(state: &Path) -> Result<Option<u64>, &'static str> {
    match read_path(state.join("head.json"), SMALL_FILE_BYTES_MAX) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            let head = text.strip_suffix('\n').and_then(Head::from_json);
            head.map(|head| Some(head.seq)).ok_or(NOT_AS_WRITTEN)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match state.join("head.pub").exists() {
                true => Err(MISSING),
                false => Ok(None),
            }
        }
        // There may be no descriptors left.
        Err(_) => Ok(None),
    }
}

const MISSING: &str = "the signed head is missing";
const NOT_AS_WRITTEN: &str = "the signed head is not as it was written";

/// What is kept of heads.
pub(crate) enum KeptHead {
    /// None was ever signed.
    None,
    /// One, rightly signed by the workspace's key.
    Good(Head),
    /// Something that is not that.
    Bad(&'static str),
}

/// Reads the kept head and checks it.
pub(crate) fn kept(state: &Path) -> Result<KeptHead, StoreError> {
    let read = |name: &str| -> Result<Option<String>, StoreError> {
        let path = state.join(name);
        match read_path(&path, SMALL_FILE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::read(&path, e)),
        }
    };
    let text = read("head.json")?;
    let public = read("head.pub")?;
    let (text, public) = match (text, public) {
        (None, None) => return Ok(KeptHead::None),
        (None, Some(_)) => return Ok(KeptHead::Bad(MISSING)),
        // The very first head was written, and its maker killed before the key was.
        (Some(text), None) => (text, None),
        (Some(text), Some(public)) => (text, Some(public)),
    };
    let Some(head) = text.strip_suffix('\n').and_then(Head::from_json) else {
        return Ok(KeptHead::Bad(NOT_AS_WRITTEN));
    };
    if public.is_some_and(|public| public != format!("{}\n", encode_hex(&head.public_key))) {
        return Ok(KeptHead::Bad(
            "the signed head has another key than head.pub",
        ));
    }
    if !head.is_signed() {
        return Ok(KeptHead::Bad("the signature of the head is wrong"));
    }
    Ok(KeptHead::Good(head))
}

/// Returns the public key of a workspace's heads, if its state has one. Nothing is made or locked.
#[must_use]
pub fn public_key_of(state: &Path) -> Option<[u8; 32]> {
    let text = read_path_text(state.join("head.pub"), SMALL_FILE_BYTES_MAX).ok()?;
    decode_hex_array(text.trim_end())
}

impl crate::state::Inner {
    /// True if many records are not covered by a head.
    pub(crate) fn head_is_due(&mut self) -> bool {
        let seq = self.journal.position().seq;
        if seq < self.signed_seq + RECORDS_PER_HEAD {
            return false;
        }
        // Another process may have signed.
        self.signed_seq = signed_seq(&self.dir).ok().flatten().unwrap_or(0);
        seq >= self.signed_seq + RECORDS_PER_HEAD
    }
}

impl Store {
    /// The newest signed head.
    pub fn head(&self) -> Result<Option<Head>, StoreError> {
        match kept(&self.dir)? {
            KeptHead::None => Ok(None),
            KeptHead::Good(head) => Ok(Some(head)),
            KeptHead::Bad(reason) => Err(StoreError::Refused {
                reason: reason.to_owned(),
            }),
        }
    }

    /// Signs the present end of the chain and keeps that head. `None` for an empty chain.
    pub fn sign_head(&self) -> Result<Option<Head>, StoreError> {
        let at = self.commit(|inner, _| {
            inner.flush()?;
            Ok(inner.journal.position())
        })?;
        if at.seq == 0 {
            return Ok(None);
        }
        // The records are on the disk before a head says that they are: a head that covers a record
        // that a loss of power took would make the chain look cut.
        self.sync_now()?;
        let key = self.signing_key()?;
        let head = Head::sign(&key, at.seq, Digest(at.hash), self.clock.now());
        self.commit(|inner, _| {
            let signed = signed_seq(&self.dir);
            let signed = signed.map_err(|reason| inner.journal.set_damaged(head.seq, reason))?;
            if signed.is_none_or(|signed| signed < head.seq) {
                self.replace("head.json", &format!("{}\n", head.to_json()))?;
            }
            if !self.dir.join("head.pub").exists() {
                self.replace("head.pub", &format!("{}\n", encode_hex(&head.public_key)))?;
            }
            inner.signed_seq = head.seq;
            Ok(())
        })?;
        Ok(Some(head))
    }

    /// A secret of this workspace for one purpose, the same for all its processes.
    pub fn secret(&self, purpose: &str) -> Result<[u8; 32], StoreError> {
        let key = self.signing_key()?;
        let context = format!("callgate workspace secret v1: {purpose}");
        Ok(blake3::derive_key(&context, key.as_bytes()))
    }

    fn signing_key(&self) -> Result<SigningKey, StoreError> {
        // Under the lock, so that a workspace has one key.
        self.commit(|_, _| {
            let path = self.dir.join("signing.key");
            match read_path_text(&path, SMALL_FILE_BYTES_MAX) {
                Ok(text) => {
                    let secret = decode_hex_array(text.trim_end()).ok_or_else(|| {
                        StoreError::read(&path, io::Error::from(io::ErrorKind::InvalidData))
                    })?;
                    return Ok(SigningKey::from_bytes(&secret));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(StoreError::read(&path, e)),
            }
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).map_err(|_| StoreError::Random)?;
            self.replace("signing.key", &format!("{}\n", encode_hex(&secret)))?;
            // Once in the life of a state, and before anything is signed or sealed with the key: a
            // loss of power must not leave a head whose key is gone.
            let names = std::fs::File::open(&self.dir).and_then(|dir| dir.sync_all());
            names.map_err(|error| StoreError::write(&path, error))?;
            Ok(SigningKey::from_bytes(&secret))
        })
    }

    /// Writes a small file of the state folder, whole or not at all. Needs the commit lock.
    ///
    /// The bytes are on the disk before the name leads to them. The name itself is not synced: a
    /// loss of power may bring the earlier file back, and an earlier head is as true as a newer one.
    pub(crate) fn replace(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let path = self.dir.join(name);
        let fresh = self.dir.join(format!("{name}.new"));
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            std::fs::rename(&fresh, &path)
        };
        write().map_err(|e| StoreError::write(&path, e))
    }
}
