//! An exported chain from an auditor's side: whether it is consistent, whose key signed it, and
//! what is in it. Nothing here needs the workspace that it came from, or its state.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use callgate_registry::environment::Environment;
use callgate_store::{Filter, Verdict, public_key_of, show_file, verify_file};
use callgate_text::encode_hex;
use serde_json::json;

use super::{head_json, show_records, verdict_json};
use crate::cli::Place;
use crate::error::CommandError;
use crate::show;

/// Whose key signed an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signer {
    /// The key that the auditor brought.
    Given,
    /// The key of this workspace.
    Own,
    /// Neither the key that was given nor, where none was, the one of this workspace.
    Foreign {
        /// The key it was compared with.
        instead: [u8; 32],
        /// That key was given, so that the export is refused.
        given: bool,
    },
    /// There is no key to compare with.
    Unknown,
}

impl Signer {
    fn of(key: &[u8; 32], given: Option<&[u8; 32]>, own: Option<&[u8; 32]>) -> Self {
        match (given, own) {
            (Some(given), _) if given == key => Self::Given,
            (Some(given), _) => Self::Foreign {
                instead: *given,
                given: true,
            },
            (None, Some(own)) if own == key => Self::Own,
            (None, Some(own)) => Self::Foreign {
                instead: *own,
                given: false,
            },
            (None, None) => Self::Unknown,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Own => "own",
            Self::Foreign { .. } => "foreign",
            Self::Unknown => "unknown",
        }
    }

    /// The export is known to be of the gate that was meant.
    fn is_known(self) -> bool {
        matches!(self, Self::Given | Self::Own)
    }

    fn is_refused(self) -> bool {
        matches!(self, Self::Foreign { given: true, .. })
    }
}

/// `audit verify FILE`.
pub fn verify(
    environment: &Environment,
    place: &Place,
    file: &Path,
    key: Option<&[u8; 32]>,
) -> Result<ExitCode, CommandError> {
    let verdict = verify_file(&mut open(file)?, None).map_err(CommandError::file("read", file))?;
    let own = place.paths(environment).ok();
    let own = own.and_then(|paths| public_key_of(&paths.state));
    let Some(head) = verdict.head.as_ref().filter(|_| verdict.is_good()) else {
        if place.json {
            show::json(&verdict_json(&verdict));
        } else {
            complain(&verdict);
        }
        return Ok(ExitCode::FAILURE);
    };
    let signer = Signer::of(&head.public_key, key, own.as_ref());
    if place.json {
        let mut body = verdict_json(&verdict);
        body["ok"] = json!(!signer.is_refused());
        body["head"] = head_json(head);
        body["consistent"] = json!(true);
        body["signer"] = json!({
            "public_key": encode_hex(&head.public_key),
            "is": signer.word(),
            "proves_origin": signer.is_known(),
        });
        if signer.is_refused() {
            body["bad"] = json!({
                "seq": head.seq, "segment": 0, "offset": verdict.records + 1,
                "reason": "it is signed by a foreign key",
            });
        }
        show::json(&body);
    } else {
        tell(&verdict, head.seq, &encode_hex(&head.public_key), signer);
    }
    Ok(match signer.is_refused() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn tell(verdict: &Verdict, seq: u64, key: &str, signer: Signer) {
    const ITSELF: &str = "This proves only that the export agrees with itself: whoever has such a \
        key can make one. For its origin, get the gate's key from its owner (`callgate audit \
        head`) and pass it as --public-key";
    let records = verdict.records;
    let signed = |by: &str| format!("{records} records, signed at record {seq} by {by} {key}\n");
    match signer {
        Signer::Given => show::data(&format!("good: {}", signed("the given key"))),
        Signer::Own => show::data(&format!("good: {}", signed("this workspace's key"))),
        Signer::Unknown => {
            show::data(&format!("consistent: {}", signed("an unknown key")));
            show::say(ITSELF);
        }
        Signer::Foreign { instead, given } => {
            let instead = encode_hex(&instead);
            if given {
                return show::complain(&format!(
                    "signed by a foreign key, {key}, and not by the given one, {instead}; its \
                     {records} records are consistent"
                ));
            }
            show::data(&format!("consistent: {}", signed("a foreign key")));
            show::say(&format!("It is not this workspace's, {instead}. {ITSELF}"));
        }
    }
}

/// `audit show FILE`: the records that follow one from the other; where that ends is said.
pub fn show(place: &Place, file: &Path, filter: &Filter) -> Result<ExitCode, CommandError> {
    let last = filter.last.unwrap_or(usize::MAX);
    let mut newest: VecDeque<String> = VecDeque::new();
    let verdict = show_file(&mut open(file)?, None, &mut |record| {
        if last == 0 || !filter.fits(&record) {
            return;
        }
        if newest.len() == last {
            newest.pop_front();
        }
        newest.push_back(record.body.to_owned());
    });
    let verdict = verdict.map_err(CommandError::file("read", file))?;
    show_records(place, newest.iter().map(String::as_str));
    if verdict.is_good() {
        return Ok(ExitCode::SUCCESS);
    }
    complain(&verdict);
    Ok(ExitCode::FAILURE)
}

fn complain(verdict: &Verdict) {
    if let Some(bad) = &verdict.bad {
        show::complain(&format!(
            "record {} is bad: {} (line {}); {} records before it are consistent",
            bad.seq, bad.reason, bad.offset, verdict.records
        ));
    }
}

fn open(file: &Path) -> Result<BufReader<File>, CommandError> {
    let opened = File::open(file).map_err(CommandError::file("open", file))?;
    Ok(BufReader::new(opened))
}
