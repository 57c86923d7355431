//! Shows the owner what a server defines: hidden characters are visible, and nothing is left out.

use std::fmt::Write as _;

use callgate_call::visible_lines;
use callgate_registry::lock::LockedServer;
use callgate_registry::servers::review::{DefinitionChange, MemberChange};
use serde_json::{Value, json};

use crate::show;

/// Shows what a server defines that is not pinned.
pub fn show(name: &str, listed: &LockedServer, differences: &[DefinitionChange], as_json: bool) {
    if as_json {
        let list: Vec<Value> = differences.iter().map(json_of).collect();
        show::json(&json!({ "server": name, "program": listed.program, "changes": list }));
        return;
    }
    let count = listed.tools.len();
    let mut text = format!("{name} ({}): {count} tools", listed.program);
    if differences.is_empty() {
        text.push_str(", all as they are pinned\n");
    } else {
        text.push('\n');
        differences
            .iter()
            .for_each(|change| write_change(change, &mut text));
    }
    show::data(&visible_lines(&text));
}

fn write_change(change: &DefinitionChange, out: &mut String) {
    // Writing to a String succeeds.
    let _ = match change {
        DefinitionChange::Instructions { before, after } => {
            let words = |text: &Option<String>| text.clone().map_or(Value::Null, Value::String);
            let (before, after) = (words(before), words(after));
            writeln!(out, "  instructions\n    - {before}\n    + {after}")
        }
        DefinitionChange::Added {
            kind,
            name,
            definition,
        } => {
            let is_shown = |(member, _): &(&String, &Value)| *member != "name";
            let members = definition.as_object().into_iter().flatten();
            let _ = writeln!(out, "  + {} {name}", kind.as_str());
            members
                .filter(is_shown)
                .try_for_each(|(member, value)| writeln!(out, "      {member}: {value}"))
        }
        DefinitionChange::Removed { kind, name } => {
            writeln!(out, "  - {} {name}: not listed any more", kind.as_str())
        }
        DefinitionChange::Changed {
            kind,
            name,
            members,
        } => {
            let _ = writeln!(out, "  ~ {} {name}", kind.as_str());
            members
                .iter()
                .try_for_each(|change| write_member(change, out))
        }
    };
}

fn write_member(change: &MemberChange, out: &mut String) -> std::fmt::Result {
    writeln!(out, "      {}", change.member)?;
    for (sign, value) in [('-', &change.before), ('+', &change.after)] {
        if let Some(value) = value {
            writeln!(out, "        {sign} {value}")?;
        }
    }
    Ok(())
}

fn json_of(change: &DefinitionChange) -> Value {
    match change {
        DefinitionChange::Instructions { before, after } => {
            json!({ "change": "instructions", "before": before, "after": after })
        }
        DefinitionChange::Added {
            kind,
            name,
            definition,
        } => {
            json!({ "change": "added", "kind": kind.as_str(), "name": name, "definition": definition })
        }
        DefinitionChange::Removed { kind, name } => {
            json!({ "change": "removed", "kind": kind.as_str(), "name": name })
        }
        DefinitionChange::Changed {
            kind,
            name,
            members,
        } => {
            let members = members.iter().map(|change| {
                json!({ "member": change.member, "before": change.before, "after": change.after })
            });
            json!({
                "change": "changed", "kind": kind.as_str(), "name": name,
                "members": members.collect::<Vec<_>>(),
            })
        }
    }
}
