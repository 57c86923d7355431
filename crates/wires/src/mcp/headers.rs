//! The headers of a modern request over HTTP. They repeat parts of the body for those who
//! route without reading it; policy reads the body, and a header that says something else is
//! refused.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{HEADER_MISMATCH, Params};
use crate::jsonrpc::RpcError;

/// Gives a header's value by its lower-case name.
pub type HeaderCheck<'a> = &'a dyn Fn(&str) -> Option<&'a [u8]>;

/// Checks the mirrored headers against the body. `schema` is the called tool's, whose
/// properties may ask for headers of their own.
pub fn check_headers<'a>(
    header: HeaderCheck<'a>,
    version: &str,
    method: &str,
    params: &Params,
    schema: Option<&Value>,
) -> Result<(), RpcError> {
    let required = |name: &str, wanted: &str| match header(name) {
        None => Err(mismatch(format!("the header {name} is missing"))),
        // Nearly always, and then there is nothing to decode.
        Some(value) if value == wanted.as_bytes() && is_verbatim(value) => Ok(()),
        Some(value) => match decode_header(value) {
            Some(value) if value == wanted => Ok(()),
            Some(_) => Err(mismatch(format!("the header {name} differs from the body"))),
            None => Err(mismatch(format!("the header {name} can not be read"))),
        },
    };
    required("mcp-protocol-version", version)?;
    required("mcp-method", method)?;
    // A body without it is refused for that where it is read.
    if let Some(name) = params.mirrored_name(method) {
        required("mcp-name", name)?;
    }
    match schema {
        Some(schema) => check_params(header, schema, params),
        None => Ok(()),
    }
}

/// Returns whether a schema marks a property with `x-mcp-header`.
#[must_use]
pub fn asks_for_headers(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    let marked = |property: &Value| property.get("x-mcp-header").is_some();
    properties.is_some_and(|properties| properties.values().any(marked))
}

/// Checks `Mcp-Param-*` for the properties a schema marks with `x-mcp-header`.
fn check_params<'a>(
    header: HeaderCheck<'a>,
    schema: &Value,
    params: &Params,
) -> Result<(), RpcError> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (property, declared) in properties {
        let Some(mark) = declared.get("x-mcp-header").and_then(Value::as_str) else {
            continue;
        };
        let name = format!("mcp-param-{}", mark.to_ascii_lowercase());
        let given = header(&name);
        let wanted = match params.argument(property) {
            None | Some(Value::Null) => {
                if given.is_some() {
                    return Err(mismatch(format!("the header {name} has nothing to mirror")));
                }
                continue;
            }
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        match given.map(decode_header) {
            Some(Some(value)) if value == wanted => {}
            Some(_) => return Err(mismatch(format!("the header {name} differs from the body"))),
            None => return Err(mismatch(format!("the header {name} is missing"))),
        }
    }
    Ok(())
}

/// A header's value: visible ASCII and blanks, or `=?base64?…?=` for other texts. Blanks
/// around it do not count.
#[must_use]
pub fn decode_header(value: &[u8]) -> Option<Cow<'_, str>> {
    let value = value.trim_ascii();
    if !value
        .iter()
        .all(|&byte| matches!(byte, b'\t' | b' '..=b'~'))
    {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    match text
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    {
        None => Some(Cow::Borrowed(text)),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?)
            .ok()
            .map(Cow::Owned),
    }
}

/// A text that a header can say as it is.
fn is_verbatim(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic) && !text.starts_with(b"=")
}

fn mismatch(message: String) -> RpcError {
    RpcError::new(HEADER_MISMATCH, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(
        headers: &[(&str, &[u8])],
        method: &str,
        params: &Value,
        schema: &Value,
    ) -> Option<i32> {
        let find = |name: &str| {
            headers
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
        };
        // As they are read where nothing is unusual, and where something is.
        let call = crate::jsonrpc::ReadParams::of(method, params.clone());
        let code = |params: &Params| {
            check_headers(&find, "2026-07-28", method, params, Some(schema))
                .err()
                .map(|error| error.code)
        };
        let told = code(&Params::Other(params.clone()));
        assert_eq!(code(&call), told);
        told
    }

    #[test]
    fn mirrors() {
        let schema =
            json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
        let params = json!({"name": "a", "arguments": {"region": "us"}});
        let all: [(&str, &[u8]); 4] = [
            ("mcp-protocol-version", b"2026-07-28"),
            ("mcp-method", b"tools/call"),
            ("mcp-name", b" a\t"),
            ("mcp-param-region", b"=?base64?dXM=?="),
        ];
        assert_eq!(check(&all, "tools/call", &params, &schema), None);
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            some.remove(missing);
            let code = check(&some, "tools/call", &params, &schema);
            assert_eq!(code, Some(HEADER_MISMATCH), "{missing}");
            for wrong in [&b"A"[..], b"", b"a\x80", b"=?base64?!!!!?=", b"tools/Call"] {
                let mut some = all.to_vec();
                some[missing].1 = wrong;
                let code = check(&some, "tools/call", &params, &schema);
                assert_eq!(code, Some(HEADER_MISMATCH), "{missing} {wrong:?}");
            }
        }
        assert_eq!(
            check(&all[..2], "tools/list", &json!({}), &schema),
            Some(HEADER_MISMATCH)
        );
        let nothing = json!({"name": "a", "arguments": {}});
        assert_eq!(
            check(&all, "tools/call", &nothing, &schema),
            Some(HEADER_MISMATCH)
        );
        assert_eq!(check(&all[..3], "tools/call", &nothing, &schema), None);
    }

    #[test]
    fn base64_texts() {
        for (text, wanted) in [
            ("", Some("")),
            ("TQ==", Some("M")),
            ("TWE=", Some("Ma")),
            ("TWFu", Some("Man")),
            ("w7w=", Some("ü")),
            ("TQ=", None),
            ("T===", None),
            ("TQ==TQ==", None),
            ("T!==", None),
        ] {
            let header = format!("=?base64?{text}?=");
            assert_eq!(
                decode_header(header.as_bytes()).as_deref(),
                wanted,
                "{text}"
            );
        }
    }
}
