//! Whether a pack counts: what its signature is worth here, and what policy says of it.

use std::collections::BTreeMap;

use callgate_call::OriginSource;
use callgate_wires::tool_protocol::{Capabilities, Risk};

use super::files::{Change, PackFiles, changes, digest};
use super::owner::Policy;
use super::seal::{PublicKey, SEAL_FILE, Seal};
use super::{Levels, Pack};

/// What a pack's signature is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Signed by a trusted key, and as it was then.
    Verified {
        /// The owner's name for the key.
        signer: String,
        /// When, as the signer wrote it.
        signed_at: String,
    },
    /// Signed, by a key that nobody here trusts.
    Foreign {
        /// The public key that signed.
        key: PublicKey,
        /// The name that the signer gives for itself.
        calls_itself: String,
    },
    /// Not signed.
    Unsigned,
    /// Signed in the older form, whose digest leaves out code and capabilities. P-11.
    Older,
    /// Not as it was signed.
    Changed(Vec<Change>),
    /// The signature's file is not as it was made, or is another pack's.
    Broken(String),
}

impl Standing {
    /// In a word, for lists.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Verified { .. } => "verified",
            Self::Foreign { .. } | Self::Unsigned | Self::Older => "unverified",
            Self::Changed(_) | Self::Broken(_) => "refused",
        }
    }

    /// For people.
    pub fn reason(&self) -> String {
        match self {
            Self::Verified { signer, signed_at } => format!("signed by {signer}, {signed_at}"),
            Self::Foreign { key, calls_itself } => format!(
                "signed by a key you do not trust, {key}, which calls itself {calls_itself:?}"
            ),
            Self::Unsigned => "not signed".to_owned(),
            Self::Older => {
                "signed in the older form (signature.txt), which covers neither code nor \
                 capabilities"
                    .to_owned()
            }
            Self::Changed(changes) => changed_words(changes),
            Self::Broken(reason) => format!("{SEAL_FILE}: {reason}"),
        }
    }
}

/// The first few changes in words.
pub(super) fn changed_words(changes: &[Change]) -> String {
    const SHOWN: usize = 5;
    let mut words: Vec<String> = changes.iter().take(SHOWN).map(Change::to_string).collect();
    if changes.len() > SHOWN {
        words.push(format!("and {} more", changes.len() - SHOWN));
    }
    format!("changed after it was signed: {}", words.join(", "))
}

/// What changed in files that somebody signed, whoever it was.
pub(super) fn changes_since_signed(files: &PackFiles) -> Option<Vec<Change>> {
    let seal = Seal::from_text(files.beside(SEAL_FILE)?).filter(Seal::is_signed)?;
    let changes = changes(&seal.files, &files.list());
    (!changes.is_empty()).then_some(changes)
}

/// Looks at a pack's signature.
pub fn standing(pack: &Pack, keys: &BTreeMap<String, PublicKey>) -> Standing {
    let Some(text) = pack.files.beside(SEAL_FILE) else {
        return match pack.files.beside("signature.txt") {
            Some(_) => Standing::Older,
            None => Standing::Unsigned,
        };
    };
    let Some(seal) = Seal::from_text(text) else {
        return Standing::Broken("is not a signature of `callgate pack sign`".to_owned());
    };
    if !seal.is_signed() {
        return Standing::Broken("the signature is not that of the key it names".to_owned());
    }
    let found = pack.files.list();
    if digest(&found) != seal.digest {
        let changes = changes(&seal.files, &found);
        return match changes.is_empty() {
            true => Standing::Broken("its files are not those of its digest".to_owned()),
            false => Standing::Changed(changes),
        };
    }
    let manifest = &pack.manifest;
    if (&seal.pack, &seal.version) != (&manifest.id, &manifest.version) {
        let reason = format!("is of {} {}, another pack", seal.pack, seal.version);
        return Standing::Broken(reason);
    }
    match keys.iter().find(|(_, key)| **key == seal.key) {
        Some((name, _)) => Standing::Verified {
            signer: name.clone(),
            signed_at: seal.signed_at,
        },
        None => Standing::Foreign {
            key: seal.key,
            calls_itself: seal.signer,
        },
    }
}

/// Why a pack does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Refusal {
    /// The contract's word for it.
    pub code: &'static str,
    /// For people.
    pub reason: String,
    /// The owner's word is missing or was taken back; nothing on the pack's side changed.
    pub owners: bool,
}

/// Decides whether a pack may be installed or used, with packs of nobody known if the owner
/// allows them for that. The workspace's policy can only add refusals.
pub fn judge(
    pack: &Pack,
    source: OriginSource,
    standing: &Standing,
    unverified: bool,
    owner: &Policy,
    workspace: &Policy,
) -> Result<(), Refusal> {
    let refused = |code, owners, reason| {
        Err(Refusal {
            code,
            reason,
            owners,
        })
    };
    const UNVERIFIED: &str = "pack_unavailable_or_unverified";
    let id = &pack.manifest.id;
    match (standing, source) {
        (Standing::Changed(_) | Standing::Broken(_), OriginSource::LocalPack) => {
            let reason = format!(
                "{}: sign it again, or remove {SEAL_FILE}",
                standing.reason()
            );
            return refused(UNVERIFIED, false, reason);
        }
        (Standing::Changed(_) | Standing::Broken(_), _) => {
            let reason = format!(
                "{}: install it anew, or `callgate pack remove {id}`",
                standing.reason()
            );
            return refused(UNVERIFIED, false, reason);
        }
        // It is as much a part of the workspace as any code of it, and trusted with it.
        (_, OriginSource::LocalPack) | (Standing::Verified { .. }, _) => {}
        _ if unverified => {}
        (Standing::Foreign { key, .. }, _) => {
            let reason = format!(
                "{}: `callgate pack trust NAME {key}` if you know whose it is",
                standing.reason()
            );
            return refused(UNVERIFIED, true, reason);
        }
        _ => {
            let reason = format!(
                "{}: only packs signed by a key you trust are used",
                standing.reason()
            );
            return refused(UNVERIFIED, true, reason);
        }
    }
    for (policy, whose) in [
        (owner, "your policy"),
        (workspace, "the workspace's policy"),
    ] {
        if let Err(reason) = allowed(pack, source, standing, policy) {
            return refused("pack_permission_denied", true, format!("{whose}: {reason}"));
        }
    }
    Ok(())
}

/// Why a policy does not allow a pack.
#[derive(Debug, thiserror::Error)]
enum NotAllowed {
    /// A pack that the policy does not name.
    #[error("allowed_packs does not name {0}")]
    Pack(String),
    /// A signer that the policy does not name.
    #[error("allowed_signers does not name who signed it")]
    Signer,
    /// More harm than the policy allows.
    #[error("its risk is {}, and max_risk is {}", risk.as_str(), max.as_str())]
    Risk {
        /// That of the pack.
        risk: Risk,
        /// The most that is allowed.
        max: Risk,
    },
    /// A tool that needs more than the policy allows.
    #[error("allowed_capabilities: `{tool}` needs {excess}")]
    Capability {
        /// The tool.
        tool: String,
        /// What is too much.
        excess: Excess,
    },
}

/// A capability above its bound, by the words of both levels.
#[derive(Debug, thiserror::Error)]
#[error("{name} {needed}, and {allowed} is allowed")]
struct Excess {
    name: &'static str,
    needed: &'static str,
    allowed: &'static str,
}

fn allowed(
    pack: &Pack,
    source: OriginSource,
    standing: &Standing,
    policy: &Policy,
) -> Result<(), NotAllowed> {
    let id = &pack.manifest.id;
    if let Some(packs) = &policy.allowed_packs
        && !packs.contains(id)
    {
        return Err(NotAllowed::Pack(id.clone()));
    }
    let signed = match standing {
        Standing::Verified { signer, .. } => Some(signer),
        _ => None,
    };
    if let Some(signers) = &policy.allowed_signers
        && source == OriginSource::InstalledPack
        && !signed.is_some_and(|signer| signers.contains(signer))
    {
        return Err(NotAllowed::Signer);
    }
    let risk = pack.risk();
    if let Some(max) = policy.max_risk.filter(|max| risk > *max) {
        return Err(NotAllowed::Risk { risk, max });
    }
    pack.bindings.keys().try_for_each(|tool| {
        within(&pack.capabilities(tool), &policy.allowed_capabilities).map_err(|excess| {
            NotAllowed::Capability {
                tool: tool.clone(),
                excess,
            }
        })
    })
}

fn within(needed: &Capabilities, allowed: &Levels) -> Result<(), Excess> {
    fn bounded<T: PartialOrd + Copy>(
        name: &'static str,
        needed: T,
        allowed: Option<T>,
        word: fn(T) -> &'static str,
    ) -> Result<(), Excess> {
        match allowed {
            Some(max) if needed > max => Err(Excess {
                name,
                needed: word(needed),
                allowed: word(max),
            }),
            _ => Ok(()),
        }
    }
    use callgate_wires::tool_protocol::{Env, Filesystem, Network, Subprocess};
    bounded(
        "filesystem",
        needed.filesystem,
        allowed.filesystem,
        Filesystem::as_str,
    )?;
    bounded("network", needed.network, allowed.network, Network::as_str)?;
    bounded("env", needed.env, allowed.env, Env::as_str)?;
    bounded(
        "subprocess",
        needed.subprocess,
        allowed.subprocess,
        Subprocess::as_str,
    )
}
