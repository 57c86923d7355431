//! `callgate.sig`: who signed a pack, and over which files. The signature is Ed25519 over the
//! digest of all files; the list of files is beside it, so that a change can be named.

use callgate_call::Digest;
use callgate_wires::json;
use callgate_wires::tool_protocol::is_pack_id;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde_json::{Value, json};

use super::files::{Listed, digest};
use super::{Pack, PackManifest};

/// The signature's file in a pack.
pub const SEAL_FILE: &str = "callgate.sig";
/// What a signature's file and message begin with.
const FORMAT: &str = "callgate-pack-v1";
/// What a key's text begins with.
const KEY_MARK: &str = "ed25519:";

/// A key that verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{KEY_MARK}{}", Digest(self.0).to_hex())
    }
}

/// Why a text is no public key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not written as one.
    #[error("a key is {KEY_MARK} and 64 hex digits")]
    Form,
    /// No point of the curve, or one of small order.
    #[error("that is no Ed25519 key")]
    NoKey,
}

impl std::str::FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = text.strip_prefix(KEY_MARK).and_then(Digest::from_hex);
        let bytes = bytes.ok_or(KeyError::Form)?;
        // Keys of small order would let one signature fit many texts.
        match VerifyingKey::from_bytes(&bytes.0) {
            Ok(key) if !key.is_weak() => Ok(Self(bytes.0)),
            _ => Err(KeyError::NoKey),
        }
    }
}

/// A key that signs.
pub struct Signer {
    /// What its owner calls it.
    pub name: String,
    key: SigningKey,
}

impl Signer {
    /// Out of 32 secret bytes.
    pub fn new(name: String, secret: &[u8; 32]) -> Self {
        Self {
            name,
            key: SigningKey::from_bytes(secret),
        }
    }

    /// What a key's file says.
    pub fn from_text(name: String, text: &str) -> Option<Self> {
        let secret = Digest::from_hex(text.trim_end())?;
        Some(Self::new(name, &secret.0))
    }

    /// What others verify with.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.key.verifying_key().to_bytes())
    }
}

/// What is written into a key's file.
pub fn key_text(secret: &[u8; 32]) -> String {
    format!("{}\n", Digest(*secret).to_hex())
}

/// Who signed what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Name of the pack.
    pub pack: String,
    /// Version of the pack.
    pub version: String,
    /// What the signer calls the key. Nothing rests on it.
    pub signer: String,
    /// The public key that signed.
    pub key: PublicKey,
    /// When, as the signer wrote it.
    pub signed_at: String,
    /// Digest over the list of files.
    pub digest: Digest,
    /// The files and their digests.
    pub files: Vec<Listed>,
    signature: [u8; 64],
}

impl Seal {
    /// Signs a pack as it is.
    pub fn sign(pack: &Pack, signer: &Signer, signed_at: String) -> Self {
        let files = pack.files.list();
        let PackManifest { id, version, .. } = &pack.manifest;
        let mut seal = Self {
            pack: id.clone(),
            version: version.clone(),
            signer: signer.name.clone(),
            key: signer.public(),
            signed_at,
            digest: digest(&files),
            files,
            signature: [0; 64],
        };
        seal.signature = signer.key.sign(&seal.message()).to_bytes();
        seal
    }

    /// True if the signature is that of the key it names.
    pub fn is_signed(&self) -> bool {
        VerifyingKey::from_bytes(&self.key.0).is_ok_and(|key| {
            let signature = Signature::from_bytes(&self.signature);
            key.verify_strict(&self.message(), &signature).is_ok()
        })
    }

    fn message(&self) -> Vec<u8> {
        let Self {
            pack,
            version,
            signer,
            signed_at,
            digest,
            ..
        } = self;
        format!("{FORMAT}\n{pack}\n{version}\n{signer}\n{signed_at}\n{digest}\n").into_bytes()
    }

    /// As a file.
    pub fn to_text(&self) -> String {
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|file| {
                let hex = file.digest.to_hex();
                json!({ "path": file.path, "bytes": file.bytes, "blake3": hex })
            })
            .collect();
        let (low, high) = self.signature.split_at(32);
        let half = |bytes: &[u8]| {
            bytes
                .try_into()
                .map(Digest)
                .map_or_else(|_| String::new(), Digest::to_hex)
        };
        let doc = json!({
            "format": FORMAT,
            "pack": self.pack,
            "version": self.version,
            "signer": self.signer,
            "key": self.key.to_string(),
            "signed_at": self.signed_at,
            "digest": self.digest.to_hex(),
            "signature": format!("{}{}", half(low), half(high)),
            "files": files,
        });
        format!("{doc:#}\n")
    }

    /// Reads a signature's file; `None` if it is none of ours.
    pub fn from_text(bytes: &[u8]) -> Option<Self> {
        let doc = json::parse(bytes, json::DEPTH_MAX).ok()?;
        let text = |name: &str| doc[name].as_str().filter(|text| is_line(text));
        if text("format")? != FORMAT {
            return None;
        }
        let signature = text("signature")?;
        let (low, high) = signature.split_at_checked(64)?;
        let halves = [Digest::from_hex(low)?.0, Digest::from_hex(high)?.0];
        let files: Option<Vec<Listed>> = doc["files"].as_array()?.iter().map(listed).collect();
        Some(Self {
            pack: text("pack").filter(|id| is_pack_id(id))?.to_owned(),
            version: text("version")?.to_owned(),
            signer: text("signer")?.to_owned(),
            key: text("key")?.parse().ok()?,
            signed_at: text("signed_at")?.to_owned(),
            digest: Digest::from_hex(text("digest")?)?,
            files: files?,
            signature: halves.concat().try_into().ok()?,
        })
    }
}

/// A text of the message must be one line, so that two messages can not be one text.
fn is_line(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_control)
}

fn listed(file: &Value) -> Option<Listed> {
    Some(Listed {
        path: file["path"].as_str()?.to_owned(),
        bytes: file["bytes"].as_u64()?,
        digest: Digest::from_hex(file["blake3"].as_str()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    const WORDS: [&[u8]; 12] = [
        b"{",
        b"}",
        b"\"",
        b",",
        b":",
        b"0",
        b"ed25519:",
        b"\"files\": [],",
        b"\\n",
        b"\xff",
        b"null",
        b"\"1\"",
    ];

    fn seal() -> Seal {
        let signer = Signer::new("alice".to_owned(), &[7; 32]);
        let file = |path: &str| Listed {
            path: path.to_owned(),
            bytes: 3,
            digest: Digest::of_bytes(path.as_bytes()),
        };
        let files = vec![file("a"), file("b/c")];
        let mut seal = Seal {
            pack: "acme.greeter".to_owned(),
            version: "1".to_owned(),
            signer: "alice".to_owned(),
            key: signer.public(),
            signed_at: "2026-01-01T00:00:00.000Z".to_owned(),
            digest: digest(&files),
            files,
            signature: [0; 64],
        };
        assert!(!seal.is_signed());
        seal.signature = signer.key.sign(&seal.message()).to_bytes();
        seal
    }

    /// P-11: mutations never panic, what is read is read the same again, and no change of what
    /// was signed keeps its signature.
    #[test]
    fn mutations() {
        let whole = seal();
        assert!(whole.is_signed());
        let text = whole.to_text();
        assert_eq!(Seal::from_text(text.as_bytes()).as_ref(), Some(&whole));
        let mut random = Random::new("seals");
        let (mut read, mut signed) = (0, 0);
        for _ in 0..20_000 {
            let bytes = mutant(&mut random, &[text.as_bytes()], &WORDS);
            let Some(seal) = Seal::from_text(&bytes) else {
                continue;
            };
            read += 1;
            assert_eq!(
                Seal::from_text(seal.to_text().as_bytes()).as_ref(),
                Some(&seal)
            );
            if seal.is_signed() {
                signed += 1;
                assert_eq!((seal.message(), seal.key), (whole.message(), whole.key));
            }
        }
        eprintln!("{read} read, {signed} signed");
        assert!(read > 0 && signed < read, "{read} read, {signed} signed");
    }
}
