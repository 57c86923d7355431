//! What the owner of a gate is shown of a server before its tools are offered: every definition the
//! first time, and afterwards what differs from the pinned ones.

use std::collections::BTreeMap;

use callgate_runners::PINNED_MEMBERS;
use serde_json::Value;

use crate::lock::{LockedDefinition, LockedServer};

/// A kind of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefinitionKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
}

impl DefinitionKind {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
        }
    }
}

/// A difference between two entries of a server in the lock.
#[derive(Clone, Debug, PartialEq)]
pub enum DefinitionChange {
    /// The words for models are others.
    Instructions {
        /// Those that are pinned.
        before: Option<String>,
        /// Those of now.
        after: Option<String>,
    },
    /// A definition that nobody has seen.
    Added {
        /// Its kind.
        kind: DefinitionKind,
        /// Its name.
        name: String,
        /// All of it.
        definition: Value,
    },
    /// A definition that the server does not list any more.
    Removed {
        /// Its kind.
        kind: DefinitionKind,
        /// Its name.
        name: String,
    },
    /// A definition with other members.
    Changed {
        /// Its kind.
        kind: DefinitionKind,
        /// Its name.
        name: String,
        /// The members that differ.
        members: Vec<MemberChange>,
    },
}

/// A member of a definition that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberChange {
    /// Its name.
    pub member: &'static str,
    /// What is pinned.
    pub before: Option<Value>,
    /// What the server lists now.
    pub after: Option<Value>,
}

/// The differences between the pinned entry of a server and what it lists now, in the order in which
/// they are shown.
pub fn changes(before: Option<&LockedServer>, after: &LockedServer) -> Vec<DefinitionChange> {
    let empty = LockedServer::default();
    let before = before.unwrap_or(&empty);
    let mut all = Vec::new();
    if before.instructions != after.instructions {
        all.push(DefinitionChange::Instructions {
            before: before.instructions.clone(),
            after: after.instructions.clone(),
        });
    }
    for (kind, before, after) in [
        (DefinitionKind::Tool, &before.tools, &after.tools),
        (DefinitionKind::Prompt, &before.prompts, &after.prompts),
    ] {
        add_changes(kind, before, after, &mut all);
    }
    all
}

fn add_changes(
    kind: DefinitionKind,
    before: &[LockedDefinition],
    after: &[LockedDefinition],
    all: &mut Vec<DefinitionChange>,
) {
    let by_name = |list: &'_ [LockedDefinition]| -> BTreeMap<String, Value> {
        let pairs = list
            .iter()
            .map(|one| (one.name.clone(), one.definition.clone()));
        pairs.collect()
    };
    let (before, after) = (by_name(before), by_name(after));
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        let name = name.clone();
        all.push(DefinitionChange::Removed { kind, name });
    }
    for (name, definition) in after {
        match before.get(&name) {
            None => all.push(DefinitionChange::Added {
                kind,
                name,
                definition,
            }),
            Some(pinned) => {
                let members = member_changes(pinned, &definition);
                if !members.is_empty() {
                    all.push(DefinitionChange::Changed {
                        kind,
                        name,
                        members,
                    });
                }
            }
        }
    }
}

fn member_changes(before: &Value, after: &Value) -> Vec<MemberChange> {
    let value = |definition: &Value, member| {
        let value = definition.get(member).filter(|value| !value.is_null());
        value.cloned()
    };
    let changes = PINNED_MEMBERS.into_iter().map(|member| MemberChange {
        member,
        before: value(before, member),
        after: value(after, member),
    });
    changes
        .filter(|change| change.before != change.after)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(tools: &[Value]) -> LockedServer {
        let tools = tools.iter().cloned().filter_map(LockedDefinition::of);
        LockedServer {
            name: "s".to_owned(),
            tools: tools.collect(),
            ..LockedServer::default()
        }
    }

    /// U-22: each difference has its name.
    #[test]
    fn differences() {
        let before = server(&[
            json!({ "name": "a", "description": "A.", "inputSchema": { "x": 1 } }),
            json!({ "name": "b" }),
        ]);
        let mut after = server(&[
            json!({ "name": "a", "description": "A!", "icons": [], "inputSchema": { "x": 1 } }),
            json!({ "name": "c" }),
        ]);
        assert!(changes(Some(&before), &before).is_empty());
        after.instructions = Some("new".to_owned());
        let kind = DefinitionKind::Tool;
        assert_eq!(
            changes(Some(&before), &after),
            [
                DefinitionChange::Instructions {
                    before: None,
                    after: Some("new".to_owned())
                },
                DefinitionChange::Removed {
                    kind,
                    name: "b".to_owned()
                },
                DefinitionChange::Changed {
                    kind,
                    name: "a".to_owned(),
                    members: vec![MemberChange {
                        member: "description",
                        before: Some(json!("A.")),
                        after: Some(json!("A!")),
                    }],
                },
                DefinitionChange::Added {
                    kind,
                    name: "c".to_owned(),
                    definition: json!({ "name": "c" })
                },
            ]
        );
        assert_eq!(changes(None, &before).len(), 2);
    }
}
