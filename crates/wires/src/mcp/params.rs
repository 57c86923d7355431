//! Requests of clients as they are read: the params of a call straight from the bytes into their
//! type, because calls are nearly all there is; those of other methods as JSON, which their door
//! reads by [`fields::read`].

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::capabilities::ClientCapabilities;
use super::fields::{self, FieldError};
use super::meta::{CAPABILITIES, CLIENT, KEY};
use super::tools::CallToolParams;
use super::{RawJson, RequestMeta, invalid};
use crate::json;
use crate::json::quick::Quick;
use crate::jsonrpc::{self, Malformed, ReadParams, RpcError};

/// A message of a client.
pub type Message = jsonrpc::Message<Params>;

/// Reads one message of a client.
pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
    jsonrpc::parse_as(bytes)
}

/// Params of a request.
#[derive(Debug, PartialEq)]
pub enum Params {
    /// Of `tools/call`, well-formed.
    CallTool(Box<CallToolParams>),
    /// Of any other method; those of a `tools/call` which are not what that takes.
    Other(Value),
}

impl Default for Params {
    fn default() -> Self {
        Self::Other(Value::Object(Map::new()))
    }
}

impl Params {
    /// Reads them into the type of their method.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FieldError> {
        match self {
            Self::Other(params) => fields::read(params),
            // Nobody else asks for those.
            Self::CallTool(params) => fields::read(&serde_json::json!(params)),
        }
    }

    /// Returns whether they are an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        match self {
            Self::CallTool(_) => true,
            Self::Other(params) => params.is_object(),
        }
    }

    /// Takes the metadata out.
    pub fn take_meta(&mut self) -> Result<RequestMeta, RpcError> {
        match self {
            Self::CallTool(params) => Ok(std::mem::take(&mut params.meta)),
            Self::Other(params) => {
                let members = params.as_object_mut();
                match members.and_then(|members| members.remove("_meta")) {
                    None => Ok(RequestMeta::default()),
                    Some(Value::Object(members)) => RequestMeta::of(members),
                    Some(_) => Err(invalid("_meta must be an object")),
                }
            }
        }
    }

    /// Returns the member that the header `Mcp-Name` repeats, if the method has one and it is a
    /// string.
    pub(super) fn mirrored_name(&self, method: &str) -> Option<&str> {
        let member = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return None,
        };
        match self {
            Self::CallTool(params) => Some(&params.name),
            Self::Other(params) => params.get(member).and_then(Value::as_str),
        }
    }

    /// Returns an argument of a call.
    pub(super) fn argument(&self, name: &str) -> Option<&Value> {
        match self {
            Self::CallTool(params) => params.arguments.as_ref()?.get(name),
            Self::Other(params) => params.get("arguments")?.get(name),
        }
    }
}

impl ReadParams for Params {
    fn quickly(quick: &mut Quick<'_>, method: Option<&str>) -> Option<Self> {
        match method {
            Some("tools/call") => {
                let params = call_tool(quick)?;
                Some(Self::CallTool(Box::new(params)))
            }
            _ => quick.value(INSIDE).map(Self::Other),
        }
    }

    fn of(method: &str, params: Value) -> Self {
        if method != "tools/call" || !params.is_object() {
            return Self::Other(params);
        }
        // The reader of malformed params gets the error when it reads them again.
        match CallToolParams::of(params) {
            Ok(params) => Self::CallTool(Box::new(params)),
            Err(params) => Self::Other(params),
        }
    }

    fn is_structured(&self) -> bool {
        match self {
            Self::CallTool(_) => true,
            Self::Other(params) => params.is_structured(),
        }
    }
}

/// The depth that is left inside the object of a message.
const INSIDE: usize = json::DEPTH_MAX - 1;

/// Params of a call with nothing unusual to them.
fn call_tool(quick: &mut Quick<'_>) -> Option<CallToolParams> {
    let (mut params, mut name, mut has_meta) = (CallToolParams::default(), None, false);
    quick.members(|quick, member| {
        let is_first = match member {
            "name" => name.replace(quick.string()?.into_owned()).is_none(),
            "arguments" => {
                let arguments = object(quick, INSIDE - 1)?;
                params.arguments.replace(arguments).is_none()
            }
            "_meta" => {
                params.meta = read_meta(quick, INSIDE - 1)?;
                !std::mem::replace(&mut has_meta, true)
            }
            "requestState" => params
                .request_state
                .replace(quick.string()?.into_owned())
                .is_none(),
            "inputResponses" => {
                let responses = object(quick, INSIDE - 1)?;
                params.input_responses.replace(responses).is_none()
            }
            other => {
                let value = quick.value(INSIDE - 1)?;
                params.extra.insert(other.to_owned(), value).is_none()
            }
        };
        is_first.then_some(())
    })?;
    params.name = name?;
    Some(params)
}

fn object(quick: &mut Quick<'_>, depth_left: usize) -> Option<Map<String, Value>> {
    match quick.value(depth_left)? {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// Metadata with nothing unusual to it, nested at most `depth_left` deep.
pub(crate) fn read_meta(quick: &mut Quick<'_>, depth_left: usize) -> Option<RequestMeta> {
    let (mut meta, inside) = (RequestMeta::default(), depth_left.checked_sub(1)?);
    quick.members(|quick, name| {
        let is_first = match name {
            "progressToken" => {
                let token = quick.value(0)?;
                let is_token = token.is_string() || token.is_number();
                meta.progress_token.replace(token).is_none() && is_token
            }
            CAPABILITIES => meta
                .capabilities
                .replace(capabilities(quick, inside)?)
                .is_none(),
            CLIENT => {
                let client = RawJson::from_text(quick.raw_value(inside)?.to_owned())?;
                meta.client.replace(client).is_none()
            }
            _ => match meta.place_of(name) {
                Some(place) => {
                    let text = quick.string()?;
                    let is_good = name != KEY || !text.is_empty();
                    place.replace(text.into_owned()).is_none() && is_good
                }
                None => {
                    let value = quick.value(inside)?;
                    meta.others.insert(name.to_owned(), value).is_none()
                }
            },
        };
        is_first.then_some(())
    })?;
    Some(meta)
}

fn capabilities(quick: &mut Quick<'_>, depth_left: usize) -> Option<Box<ClientCapabilities>> {
    let mut capabilities = Box::<ClientCapabilities>::default();
    let inside = depth_left.checked_sub(1)?;
    quick.members(|quick, name| {
        let is_first = match name {
            "elicitation" => settings(quick, inside, &mut capabilities.elicitation)?,
            "experimental" => settings(quick, inside, &mut capabilities.experimental)?,
            "extensions" => settings(quick, inside, &mut capabilities.extensions)?,
            "roots" => settings(quick, inside, &mut capabilities.roots)?,
            "sampling" => settings(quick, inside, &mut capabilities.sampling)?,
            other => {
                let value = quick.value(inside)?;
                capabilities.extra.insert(other.to_owned(), value).is_none()
            }
        };
        is_first.then_some(())
    })?;
    Some(capabilities)
}

/// The settings of one capability, most often none; false if there were some before.
fn settings<T: DeserializeOwned + Default>(
    quick: &mut Quick<'_>,
    depth_left: usize,
    place: &mut Option<T>,
) -> Option<bool> {
    let text = quick.raw_value(depth_left)?;
    let settings = match text {
        "{}" => T::default(),
        _ => serde_json::from_str(text).ok()?,
    };
    Some(place.replace(settings).is_none())
}
