//! `callgate audit`: the chain of what happened.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgate_call::Digest;
use callgate_store::{Filter, Head, Verdict, give_file_with, verify_file};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{Done, Place};
use crate::compose::chain;
use crate::environment::Environment;
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
    Verify {
        /// An exported chain, instead of this workspace's
        file: Option<PathBuf>,
        /// Whose signed head must be on the exported chain (64 hex digits, from `audit head`)
        #[arg(long, value_name = "HEX", requires = "file")]
        public_key: Option<String>,
    },
    /// Show records, newest last
    Show {
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
}

pub fn run(environment: &Environment, place: &Place, audit: &Audit) -> Done {
    if let AuditCommand::Verify {
        file: Some(file),
        public_key,
    } = &audit.command
    {
        let key = public_key.as_deref().map(read_key).transpose()?;
        let opened =
            File::open(file).map_err(|error| format!("open {}: {error}", file.display()))?;
        let verdict = verify_file(&mut BufReader::new(opened), key.as_ref())
            .map_err(|error| format!("read {}: {error}", file.display()))?;
        return Ok(report(place, &verdict));
    }
    let parts = super::open(environment, place)?;
    let store = &parts.store;
    match &audit.command {
        AuditCommand::Verify { .. } => {
            let verdict = store.verify().map_err(|error| chain(&error))?;
            return Ok(report(place, &verdict));
        }
        AuditCommand::Show {
            last,
            kind,
            tool,
            call,
        } => {
            let filter = Filter {
                last: Some(*last),
                kind: kind.clone(),
                tool: tool.clone(),
                call: call.clone(),
                from_seq: None,
            };
            let mut rows = Vec::new();
            let mut lines = String::new();
            store
                .show(&filter, &mut |record| {
                    if place.json {
                        lines.push_str(record.body);
                        lines.push('\n');
                    } else {
                        rows.push(row(record.body));
                    }
                    true
                })
                .map_err(|error| chain(&error))?;
            if place.json {
                show::data(&lines);
            } else {
                let head = ["SEQ", "AT", "KIND", "TOOL", "CALL", "DETAIL"];
                show::table_or(&head, &rows, "no such records");
            }
        }
        AuditCommand::Export { file } => {
            show::say(&match export(store, file)? {
                Some(head) => format!("{} records, head {}", head.seq, head.hash),
                None => "the chain is empty".to_owned(),
            });
        }
        AuditCommand::Head => match store.sign_head().map_err(|error| chain(&error))? {
            Some(head) => show::json(&head_json(&head)),
            None => show::say("the chain is empty"),
        },
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

/// Whole or not at all.
fn export(store: &callgate_store::Store, file: &Path) -> Result<Option<Head>, String> {
    if file.as_os_str() == "-" {
        return store
            .export(&mut std::io::stdout().lock())
            .map_err(|error| chain(&error));
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
    let head = head.map_err(|error| chain(&error))?;
    given.map_err(|error| chain(&error))?;
    Ok(head)
}

fn read_key(text: &str) -> Result<[u8; 32], String> {
    Digest::from_hex(text)
        .map(|digest| digest.0)
        .ok_or_else(|| "a public key is 64 hex digits".to_owned())
}

fn report(place: &Place, verdict: &Verdict) -> ExitCode {
    if place.json {
        show::json(&json!({
            "ok": verdict.is_good(),
            "records": verdict.records,
            "torn_bytes": verdict.torn_bytes,
            "head": verdict.head.as_ref().map(head_json),
            "bad": verdict.bad.as_ref().map(|bad| json!({
                "seq": bad.seq, "segment": bad.segment, "offset": bad.offset, "reason": bad.reason,
            })),
        }));
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
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    json!({
        "seq": head.seq,
        "hash": head.hash.to_hex(),
        "at_ms": head.at.0,
        "public_key": hex(&head.public_key),
        "signature": hex(&head.signature),
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
