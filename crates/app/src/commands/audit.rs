//! `callgate audit`: the chain of what happened.

mod exported;

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgate_call::{Digest, bounded, canonical_json};
use callgate_registry::environment::Environment;
use callgate_store::StoreError;
use callgate_store::{Filter, Head, Verdict, give_file_with};
use callgate_text::encode_hex;
use callgate_wires::json::{self, DEPTH_MAX};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{Done, Place};
use crate::error::{ArgumentError, CommandError};
use crate::show;

/// Show, verify and export the chain of what happened.
#[derive(Args)]
pub struct Audit {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Check every record; names the first bad one and exits 1
    ///
    /// Of an exported chain the key that signed it is named. Without --public-key it is compared
    /// with this workspace's; if it is another, or there is none, the export proves only that it
    /// agrees with itself. With --public-key a foreign key is an error.
    Verify {
        /// An exported chain, instead of this workspace's
        file: Option<PathBuf>,
        /// Whose signed head must be on the exported chain (64 hex digits, from `audit head`)
        #[arg(long, value_name = "HEX", requires = "file")]
        public_key: Option<String>,
    },
    /// Show records, newest last
    Show {
        /// An exported chain, instead of this workspace's
        file: Option<PathBuf>,
        /// So many of the newest
        #[arg(long, default_value_t = 50)]
        last: usize,
        /// Only this kind, such as call, outcome, refusal or lease
        #[arg(long)]
        kind: Option<String>,
        /// Only this tool
        #[arg(long)]
        tool: Option<String>,
        /// Only this call
        #[arg(long)]
        call: Option<String>,
    },
    /// Write the whole chain as JSON lines, with a signed head at its end
    Export {
        /// Where to; `-` is standard output
        file: PathBuf,
    },
    /// Sign and print the present head, for safekeeping elsewhere
    Head,
    /// Print the digest that records have as `input` of a call with this input
    ///
    /// BLAKE3 of the JSON in canonical form: RFC 8785, and whole numbers of 64 bits from 2^53 on
    /// as their digits and `e0`. With --canonical that form is printed instead, for `b3sum`.
    Digest {
        /// The call's input as JSON; `-` is standard input
        input: String,
        /// Print the canonical form, without a line end
        #[arg(long)]
        canonical: bool,
    },
}

pub fn run(environment: &Environment, place: &Place, audit: &Audit) -> Done {
    match &audit.command {
        AuditCommand::Verify {
            file: Some(file),
            public_key,
        } => {
            let key = public_key.as_deref().map(read_key).transpose()?;
            return Ok(exported::verify(environment, place, file, key.as_ref())?);
        }
        AuditCommand::Show {
            file: Some(file),
            last,
            kind,
            tool,
            call,
        } => {
            let filter = filter(*last, kind, tool, call);
            return Ok(exported::show(place, file, &filter)?);
        }
        AuditCommand::Digest { input, canonical } => {
            return Ok(digest(place, input, *canonical)?);
        }
        _ => {}
    }
    let parts = super::open(environment, place)?;
    let store = &parts.store;
    match &audit.command {
        AuditCommand::Verify { .. } => {
            let verdict = store.verify()?;
            return Ok(report(place, &verdict));
        }
        AuditCommand::Show {
            file: _,
            last,
            kind,
            tool,
            call,
        } => {
            let mut bodies = Vec::new();
            store.show(&filter(*last, kind, tool, call), &mut |record| {
                bodies.push(record.body.to_owned());
                true
            })?;
            show_records(place, bodies.iter().map(String::as_str));
        }
        AuditCommand::Digest { .. } => unreachable!("done without the state"),
        AuditCommand::Export { file } => {
            show::say(&match export(store, file)? {
                Some(head) => format!("{} records, head {}", head.seq, head.hash),
                None => "the chain is empty".to_owned(),
            });
        }
        AuditCommand::Head => match store.sign_head()? {
            Some(head) => show::json(&head_json(&head)),
            None => show::say("the chain is empty"),
        },
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn filter(
    last: usize,
    kind: &Option<String>,
    tool: &Option<String>,
    call: &Option<String>,
) -> Filter {
    Filter {
        last: Some(last),
        kind: kind.clone(),
        tool: tool.clone(),
        call: call.clone(),
        from_seq: None,
    }
}

/// Prints bodies of records: a line of JSON each, or a table for people.
fn show_records<'a>(place: &Place, bodies: impl Iterator<Item = &'a str>) {
    if place.json {
        let lines: String = bodies.map(|body| format!("{body}\n")).collect();
        return show::data(&lines);
    }
    let rows: Vec<Vec<String>> = bodies.map(row).collect();
    let head = ["SEQ", "AT", "KIND", "TOOL", "CALL", "DETAIL"];
    show::table_or(&head, &rows, "no such records");
}

/// `audit digest`.
fn digest(place: &Place, input: &str, canonical: bool) -> Result<ExitCode, CommandError> {
    const INPUT_BYTES_MAX: u64 = 16 * 1024 * 1024;
    let bytes = match input {
        "-" => bounded::read_all(std::io::stdin().lock(), INPUT_BYTES_MAX)
            .map_err(CommandError::system("read standard input"))?,
        text => text.as_bytes().to_vec(),
    };
    let value = json::parse(&bytes, DEPTH_MAX).map_err(|source| ArgumentError::Json {
        name: "the input".to_owned(),
        source,
    })?;
    let mut form = Vec::new();
    canonical_json(&value, &mut form);
    let form = String::from_utf8_lossy(&form);
    let digest = Digest::of_json(&value);
    let earlier = Digest::of_json_as_doubles(&value);
    if place.json {
        let mut body = json!({ "digest": digest.to_hex(), "canonical": form });
        if let Some(earlier) = earlier {
            body["digest_of_0_1_0"] = json!(earlier.to_hex());
        }
        show::json(&body);
    } else if canonical {
        show::data(&form);
    } else {
        show::data(&format!("{digest}\n"));
        if let Some(earlier) = earlier {
            show::say(&format!(
                "release 0.1.0, which rounded such integers, recorded {earlier}"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whole or not at all.
fn export(store: &callgate_store::Store, file: &Path) -> Result<Option<Head>, StoreError> {
    if file.as_os_str() == "-" {
        return store.export(&mut std::io::stdout().lock());
    }
    let mut head = Ok(None);
    let given = give_file_with(file, 0o644, |out| {
        let mut out = BufWriter::new(out);
        head = store.export(&mut out);
        match &head {
            Ok(_) => out.flush(),
            Err(_) => Err(std::io::ErrorKind::Other.into()),
        }
    });
    let head = head?;
    given?;
    Ok(head)
}

fn read_key(text: &str) -> Result<[u8; 32], ArgumentError> {
    Digest::from_hex(text)
        .map(|digest| digest.0)
        .ok_or(ArgumentError::PublicKey)
}

fn verdict_json(verdict: &Verdict) -> Value {
    json!({
        "ok": verdict.is_good(),
        "records": verdict.records,
        "torn_bytes": verdict.torn_bytes,
        "head": verdict.head.as_ref().map(head_json),
        "bad": verdict.bad.as_ref().map(|bad| json!({
            "seq": bad.seq, "segment": bad.segment, "offset": bad.offset, "reason": bad.reason,
        })),
    })
}

fn report(place: &Place, verdict: &Verdict) -> ExitCode {
    if place.json {
        show::json(&verdict_json(verdict));
    } else if let Some(bad) = &verdict.bad {
        show::complain(&format!(
            "record {} is bad: {} (segment {}, offset {}); {} records before it are good",
            bad.seq, bad.reason, bad.segment, bad.offset, verdict.records
        ));
    } else {
        let head = match &verdict.head {
            Some(head) => format!("signed head at record {}", head.seq),
            None => "no signed head yet".to_owned(),
        };
        show::data(&format!("good: {} records, {head}\n", verdict.records));
    }
    if verdict.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn head_json(head: &Head) -> Value {
    json!({
        "seq": head.seq,
        "hash": head.hash.to_hex(),
        "at_ms": head.at.0,
        "public_key": encode_hex(&head.public_key),
        "signature": encode_hex(&head.signature),
    })
}

/// A record for people: the columns all have, then what else it says.
fn row(body: &str) -> Vec<String> {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let rest: Vec<String> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !["seq", "at", "kind", "tool", "call"].contains(&name.as_str()))
        .map(|(name, value)| match value {
            Value::String(text) if text.len() == 64 => format!("{name}={}…", &text[..12]),
            Value::String(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        })
        .collect();
    vec![
        value["seq"].to_string(),
        show::time(value["at"].as_u64().unwrap_or_default()),
        text("kind"),
        text("tool"),
        text("call"),
        rest.join(" "),
    ]
}
