//! What a server lists: tools, prompts, resources and templates of resources, page by page and
//! bounded.

use std::collections::BTreeMap;

use callgate_wires::json::{DEPTH_MAX, parse_output};
use callgate_wires::mcp::RawJson;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::pins::{DefinitionPin, ListedDefinitions};

/// Definitions of one kind.
const ITEMS_MAX: usize = 2_000;

/// Pages of one list.
const PAGES_MAX: usize = 64;

/// Bytes of all definitions of one kind.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Everything that a server says of itself, with the definitions as the bytes they came as.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The revision of the protocol that it speaks.
    pub protocol_version: String,
    /// Its identity, as it presents itself.
    pub server_info: Value,
    /// Its capabilities.
    pub capabilities: Value,
    /// Its words for the model.
    pub instructions: Option<String>,
    /// Its tools.
    pub tools: Vec<RawJson>,
    /// Its prompts.
    pub prompts: Vec<RawJson>,
    /// Its resources.
    pub resources: Vec<RawJson>,
    /// Its templates of resources.
    pub resource_templates: Vec<RawJson>,
}

/// A kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The member of the result that has the definitions.
    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The capability without which there is no such list.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }
}

/// Why a list can not be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ListError {
    #[error("its {0} has no list `{1}`")]
    NoList(&'static str, &'static str),
    #[error("its {method} has more than {max} {unit}")]
    TooLong {
        method: &'static str,
        max: usize,
        unit: &'static str,
    },
    #[error("a definition of its tools/list is not strict JSON: {0}")]
    NotStrict(String),
    #[error("a definition of its tools/list has no `name`")]
    NoName,
}

/// The pages of one list that have come so far.
#[derive(Debug)]
pub(super) struct Pages {
    kind: ListKind,
    items: Vec<RawJson>,
    pages: usize,
    bytes: usize,
}

impl Pages {
    pub fn new(kind: ListKind) -> Self {
        Self {
            kind,
            items: Vec::new(),
            pages: 0,
            bytes: 0,
        }
    }

    pub fn kind(&self) -> ListKind {
        self.kind
    }

    /// Takes one page, and returns the cursor of the next one.
    pub fn take(&mut self, result: &str) -> Result<Option<String>, ListError> {
        let method = self.kind.method();
        let too_long = |max, unit| ListError::TooLong { method, max, unit };
        self.pages += 1;
        self.bytes += result.len();
        if self.pages > PAGES_MAX {
            return Err(too_long(PAGES_MAX, "pages"));
        }
        if self.bytes > BYTES_MAX {
            return Err(too_long(BYTES_MAX, "bytes"));
        }
        let no_list = || ListError::NoList(method, self.kind.member());
        let members: BTreeMap<String, &RawValue> =
            serde_json::from_str(result).map_err(|_| no_list())?;
        let list = members.get(self.kind.member()).ok_or_else(no_list)?;
        let items = Vec::<&RawValue>::deserialize(*list).map_err(|_| no_list())?;
        if self.items.len() + items.len() > ITEMS_MAX {
            return Err(too_long(ITEMS_MAX, "entries"));
        }
        let items = items
            .into_iter()
            .map(|item| RawJson::from_text(item.get().to_owned()));
        self.items.extend(items.flatten());
        let cursor = members.get("nextCursor").map(|raw| raw.get());
        Ok(cursor.and_then(|cursor| serde_json::from_str(cursor).ok()?))
    }

    pub fn into_items(self) -> Vec<RawJson> {
        self.items
    }
}

/// The tools of a list as they are compared with pins.
pub(super) fn listed_tools(tools: &[RawJson]) -> Result<ListedDefinitions, ListError> {
    let mut listed = ListedDefinitions::new();
    for raw in tools {
        add_definition(&mut listed, raw)?;
    }
    Ok(listed)
}

/// The prompts of a list as they are compared with pins. A malformed definition counts as not
/// listed, so that a prompt cannot keep the tools of its server from being called.
pub(super) fn listed_prompts(prompts: &[RawJson]) -> ListedDefinitions {
    let mut listed = ListedDefinitions::new();
    for raw in prompts {
        let _ = add_definition(&mut listed, raw);
    }
    listed
}

/// Adds one definition. Two different definitions of one name match no pin: nobody knows which of
/// them the server would carry out.
fn add_definition(listed: &mut ListedDefinitions, raw: &RawJson) -> Result<(), ListError> {
    let definition = parse_output(raw.get().as_bytes(), DEPTH_MAX)
        .map_err(|error| ListError::NotStrict(error.to_string()))?;
    let name = definition.get("name").and_then(Value::as_str);
    let name = name.ok_or(ListError::NoName)?.to_owned();
    let pin = DefinitionPin::of(&definition);
    let known = listed.entry(name).or_insert_with(|| pin.clone());
    if *known != pin {
        *known = DefinitionPin::ambiguous();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn page(count: usize, cursor: &Value) -> String {
        let tools: Vec<Value> = (0..count)
            .map(|n| json!({ "name": n.to_string() }))
            .collect();
        json!({ "tools": tools, "nextCursor": cursor }).to_string()
    }

    #[test]
    fn pages_are_collected_within_bounds() {
        let mut pages = Pages::new(ListKind::Tools);
        assert_eq!(
            pages.take(&page(1000, &json!("c"))),
            Ok(Some("c".to_owned()))
        );
        assert_eq!(pages.take(&page(1000, &Value::Null)), Ok(None));
        assert!(pages.take(&page(1, &Value::Null)).is_err());
        assert_eq!(pages.into_items().len(), ITEMS_MAX);
        let mut pages = Pages::new(ListKind::Tools);
        for _ in 0..PAGES_MAX {
            assert_eq!(pages.take(&page(0, &json!("c"))), Ok(Some("c".to_owned())));
        }
        assert!(pages.take(&page(0, &json!("c"))).is_err());
        let mut pages = Pages::new(ListKind::Tools);
        let filler = "x".repeat(BYTES_MAX / 2);
        let half = json!({ "tools": [], "x": filler }).to_string();
        assert!(pages.take(&half[..]).is_ok() && pages.take(&half).is_err());
        for wrong in ["{}", "[]", r#"{"tools":{}}"#, "7"] {
            assert!(Pages::new(ListKind::Tools).take(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn definitions_stay_the_bytes_they_came_as() {
        let mut pages = Pages::new(ListKind::Templates);
        let text = r#"{"resourceTemplates":[ {"b": 1.0, "a":"\u00e9"} ]}"#;
        assert_eq!(pages.take(text), Ok(None));
        assert_eq!(pages.into_items()[0].get(), r#"{"b": 1.0, "a":"\u00e9"}"#);
    }

    #[test]
    fn two_definitions_of_one_name_match_no_pin() {
        let raw = |text: &str| RawJson::from_text(text.to_owned()).unwrap();
        let (one, two) = (r#"{"name":"a"}"#, r#"{"name":"a","title":"A"}"#);
        let pin = DefinitionPin::of(&json!({ "name": "a" }));
        let same = listed_tools(&[raw(one), raw(one)]).unwrap();
        assert_eq!(same["a"], pin);
        let other = listed_tools(&[raw(one), raw(two), raw(one)]).unwrap();
        assert_ne!(other["a"], pin);
    }

    #[test]
    fn tools_need_strict_definitions() {
        let raw = |text: &str| [RawJson::from_text(text.to_owned()).unwrap()];
        assert!(listed_tools(&raw(r#"{"name":"a"}"#)).is_ok());
        for wrong in [r#"{"name":7}"#, "7", r#"{"name":"a","name":"b"}"#] {
            assert!(listed_tools(&raw(wrong)).is_err(), "{wrong}");
            assert!(listed_prompts(&raw(wrong)).is_empty(), "{wrong}");
        }
    }
}
