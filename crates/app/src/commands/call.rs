//! `callgate call`: one call from the shell, through the running gate if there is one.

use std::process::ExitCode;
use std::time::Duration;

use callgate_call::{Call, Caller, Cancel, Document, IdempotencyKey, LeaseToken, Wire, bounded};
use callgate_client::Client;
use callgate_doors::http::outcome_body;
use callgate_registry::environment::Environment;
use callgate_wires::json::{self, DEPTH_MAX};
use callgate_wires::toolhost::MAX_STDIN_BYTES;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use hyper::Method;
use serde_json::{Map, Value, json};

use crate::cli::{Done, Failure, Place, runtime};
use crate::compose;
use crate::error::{ArgumentError, CommandError};
use crate::show;

/// Call a tool and print its output.
///
/// The input is a JSON object, `-` for one on standard input, or key=value pairs; without any
/// it is {}. A call goes through the running gate of the workspace, or else runs in this process.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct CallTool {
    /// Name, AID or alias
    tool: String,
    /// A JSON object, `-`, or key=value pairs
    #[arg(value_name = "INPUT", value_parser = word)]
    input: Vec<String>,
    /// Makes a retry safe: the same key never runs the tool twice
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// A lease token from `callgate lease grant`
    #[arg(long, value_name = "TOKEN")]
    lease: Option<String>,
    /// The longest it may take, such as 30s or 500ms; a day at most
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Correlates traces
    #[arg(long, value_name = "ID")]
    trace_id: Option<String>,
    /// Do not use a running gate
    #[arg(long)]
    standalone: bool,
}

const AFTER_HELP: &str = "\
Pairs:
  name=Ada      text, unless the tool's schema says that `name` is something else
  n=3           a number, true or false, null, a list or an object, where the schema says so;
                a value of another type is refused before anything runs
  n:=3          always JSON, whatever the schema says: x:=[1,2] y:='{\"a\":null}'
  a=b=c         the first = counts: `a` is \"b=c\"

Time:
  A tool has its own timeout_ms, else 60 s. --timeout takes the place of the 60 s and shortens
  a tool's own; it never prolongs it. When its time is over the tool is ended with all it
  started, and the call fails with `timeout`; `exec/run` gives what was printed until then.

Exit codes:
  0  the tool gave an output, now or earlier under the same --key
  1  it did not: the fault is on stderr, with --json as an object on stdout
  2  the command line is wrong";

/// The exit code of a wrong command line.
const USAGE: u8 = 2;

/// A word that can be input at all.
fn word(text: &str) -> Result<String, ArgumentError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if is_json(text) {
        parse("input", text)?;
    } else if let Some(name) = name.strip_suffix(':') {
        parse(&format!("`{name}`"), value)?;
    } else if text != "-" && !text.contains('=') {
        return Err(ArgumentError::Input);
    }
    Ok(text.to_owned())
}

/// Reads JSON that is called `name`.
fn parse(name: &str, text: &str) -> Result<Value, ArgumentError> {
    json::parse(text.as_bytes(), DEPTH_MAX).map_err(|source| ArgumentError::Json {
        name: name.to_owned(),
        source,
    })
}

/// True of a word that is meant to be the whole input.
fn is_json(word: &str) -> bool {
    word.trim_start().starts_with(['{', '['])
}

/// The longest timeout, a day.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a timeout.
pub fn timeout(text: &str) -> Result<Duration, ArgumentError> {
    match super::duration(text)? {
        timeout if timeout.is_zero() || timeout > TIMEOUT_MAX => Err(ArgumentError::Timeout),
        timeout => Ok(timeout),
    }
}

pub fn run(environment: &Environment, place: &Place, call: &CallTool) -> Done {
    let input = read_input(environment, place, call)?;
    let body = carry(environment, place, call, input)?;
    let near = || {
        let tools = known_tools(environment, place, call).unwrap_or_default();
        super::tools::unknown(&call.tool, &tools)
    };
    Ok(report(place, &body, near))
}

/// The output of a built-in tool, for a command that shows it in its own way; `Err` once the
/// fault is shown, as `callgate call` shows it.
pub fn output(
    environment: &Environment,
    place: &Place,
    tool: &str,
    input: Value,
) -> Result<Result<Value, ExitCode>, CommandError> {
    let body = asked(environment, place, tool, input)?;
    Ok(output_of(place, body, tool))
}

/// The output that came of a call of `tool`; `Err` once the fault is shown.
pub fn output_of(place: &Place, mut body: Value, tool: &str) -> Result<Value, ExitCode> {
    match body["ok"] == true {
        true => Ok(body["output"].take()),
        false => Err(report(place, &body, || format!("there is no {tool} here"))),
    }
}

/// What came of a call of a built-in tool.
pub fn asked(
    environment: &Environment,
    place: &Place,
    tool: &str,
    input: Value,
) -> Result<Value, CommandError> {
    let call = CallTool {
        tool: tool.to_owned(),
        input: Vec::new(),
        key: None,
        lease: None,
        timeout: None,
        trace_id: None,
        standalone: false,
    };
    carry(&environment.of_builtins(), place, &call, input)
}

/// Through the running gate, or else in this process.
fn carry(
    environment: &Environment,
    place: &Place,
    call: &CallTool,
    input: Value,
) -> Result<Value, CommandError> {
    let paths = place.paths(environment)?;
    runtime()?.block_on(async {
        let gate = match call.standalone {
            true => None,
            false => super::running_gate(place, &paths).await?,
        };
        match gate {
            Some(client) => ask(client, call, input).await,
            None => alone(environment, place, call, input).await,
        }
    })
}

/// The tools that the call could have meant.
fn known_tools(
    environment: &Environment,
    place: &Place,
    call: &CallTool,
) -> Result<Vec<Value>, CommandError> {
    let (tools, _) = match call.standalone {
        true => super::tools::own(environment, place)?,
        false => super::tools::all(environment, place)?,
    };
    Ok(tools)
}

/// Through the running gate.
async fn ask(client: Client, call: &CallTool, input: Value) -> Result<Value, CommandError> {
    let mut body = json!({ "tool": call.tool, "input": input });
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    put("idempotency_key", call.key.clone().map(Value::from));
    put("lease_token", call.lease.clone().map(Value::from));
    put("trace_id", call.trace_id.clone().map(Value::from));
    put(
        "timeout_ms",
        call.timeout
            .map(|t| json!(u64::try_from(t.as_millis()).unwrap_or(u64::MAX))),
    );
    let mut talk = client.talk().await?;
    let answer = talk.ask(Method::POST, "/v1/call", body.to_string());
    answer.await.map_err(|lost| {
        let next = match call.key {
            Some(_) => "the same call with the same --key runs it once at most",
            None => "look at what it did before you call again; with --key a retry is safe",
        };
        CommandError::CallLost { lost, next }
    })
}

/// In this process.
async fn alone(
    environment: &Environment,
    place: &Place,
    asked: &CallTool,
    input: Value,
) -> Result<Value, CommandError> {
    let parts = super::open(environment, place)?;
    let setup = super::setup(&parts)?;
    let (note, doubted) = (setup.note.clone(), setup.doubt.is_some());
    let gate = compose::gate(&parts, setup);
    let caller = Caller::uid(environment.uid);
    let input = Document::from_value(input);
    let (id, cancel) = (gate.next_id(), Cancel::new());
    let mut call = Call::new(id, &asked.tool, input, caller, Wire::Gate, cancel);
    call.key = asked.key.as_deref().and_then(IdempotencyKey::new);
    call.lease = asked.lease.as_deref().map(LeaseToken::new);
    call.trace_id.clone_from(&asked.trace_id);
    if let Some(timeout) = asked.timeout {
        call.default_timeout = timeout;
        call.timeout_max = Some(timeout);
    }
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
        call.cancel.cancel();
        std::future::pending::<()>().await;
    };
    // The signal arm is never ready: it cancels the call, whose outcome is still recorded. Biased so
    // that the signal is watched for before the call starts.
    let outcome = tokio::select! {
        biased;
        () = interrupted => unreachable!("waits for the outcome of the cancelled call"),
        outcome = gate.call(&call) => outcome,
    };
    let body = outcome_body(outcome);
    if body["fault"]["kind"] == "unknown_tool" && !doubted && !note.contains("trusted (") {
        show::say(&note);
    }
    super::close(&parts);
    Ok(body)
}

/// Shows the outcome; exit 0 only for an output. `unknown` has the words for a tool that is not
/// there.
fn report(place: &Place, body: &Value, unknown: impl FnOnce() -> String) -> ExitCode {
    let ok = body["ok"] == true;
    if place.json {
        show::json(body);
    } else if ok {
        show::json(&body["output"]);
    } else {
        let fault = &body["fault"];
        let kind = fault["kind"].as_str().unwrap_or("fault");
        let message = fault["message"].as_str().unwrap_or_default();
        show::complain(&match kind {
            // A message with a reason says more than what is near.
            "unknown_tool" if has_reason(fault) => message.to_owned(),
            "unknown_tool" => unknown(),
            "lease_required" => format!(
                "this tool needs a lease: callgate lease grant {} then --lease TOKEN",
                fault["data"]["tool"].as_str().unwrap_or("TOOL")
            ),
            "outcome_unknown" => {
                format!("{message}; look at what it did, then use a new key to run it again")
            }
            "tool_failed" => format!(
                "{}: {message}",
                fault["data"]["type"].as_str().unwrap_or(kind)
            ),
            "lease_rejected" => message.replacen('_', " ", 1),
            kind if message.starts_with(&kind.replace('_', " ")) => message.to_owned(),
            kind => format!("{kind}: {message}"),
        });
    }
    if !place.json && body["idempotent_hit"] == true {
        show::say("(recorded outcome of an earlier call with this key)");
    }
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Returns whether the fault of an unknown tool says why it is not served.
fn has_reason(fault: &Value) -> bool {
    let tool = fault["data"]["tool"].as_str().unwrap_or_default();
    let words = format!("tool not found: {tool}");
    fault["message"]
        .as_str()
        .is_some_and(|message| message != words)
}

fn read_input(environment: &Environment, place: &Place, call: &CallTool) -> Result<Value, Failure> {
    let usage = |words: String| Failure::from(words).exiting(USAGE);
    match call.input.as_slice() {
        [] => Ok(json!({})),
        [one] if one == "-" => {
            let text = bounded::read_all(std::io::stdin().lock(), MAX_STDIN_BYTES as u64)
                .map_err(|error| format!("read standard input: {error}"))?;
            let text =
                String::from_utf8(text).map_err(|error| format!("read standard input: {error}"))?;
            Ok(parse("input", &text)?)
        }
        [one] if is_json(one) => Ok(parse("input", one)?),
        pairs => {
            let whole = pairs.iter().find(|word| *word == "-" || is_json(word));
            if let Some(whole) = whole {
                return Err(usage(format!("`{whole}` is the whole input or none of it")));
            }
            let tools = known_tools(environment, place, call)?;
            let schema = super::tools::find(&tools, &call.tool)
                .map_or(Value::Null, |tool| tool["input_schema"].clone());
            let mut members = Map::new();
            for pair in pairs {
                let (name, value) = read_pair(pair, &schema)?;
                if members.contains_key(&name) {
                    return Err(usage(format!("`{name}` is given twice")));
                }
                members.insert(name, value);
            }
            Ok(Value::Object(members))
        }
    }
}

fn read_pair(pair: &str, schema: &Value) -> Result<(String, Value), ArgumentError> {
    let (name, text) = pair
        .split_once('=')
        .ok_or_else(|| ArgumentError::Pair(pair.to_owned()))?;
    if let Some(name) = name.strip_suffix(':') {
        return Ok((name.to_owned(), parse(&format!("`{name}`"), text)?));
    }
    let kinds: Vec<&str> = match &schema["properties"][name]["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if kinds.is_empty() || kinds.contains(&"string") {
        return Ok((name.to_owned(), Value::String(text.to_owned())));
    }
    match parse(name, text) {
        Ok(value) if kinds.iter().any(|kind| is_of(&value, kind)) => Ok((name.to_owned(), value)),
        _ => {
            let wanted: Vec<&str> = kinds.iter().map(|kind| in_words(kind)).collect();
            let text: String = text.chars().take(VALUE_CHARS_MAX).collect();
            Err(ArgumentError::Value {
                name: name.to_owned(),
                text,
                wanted: wanted.join(" or "),
            })
        }
    }
}

/// A longer value is cut in messages.
const VALUE_CHARS_MAX: usize = 80;

/// True if `value` is of the schema's type `kind`. A type we do not know is left to the gate.
fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn in_words(kind: &str) -> &str {
    match kind {
        "integer" => "an integer",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a JSON list",
        "object" => "a JSON object",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_follow_the_schema() {
        let schema = json!({"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}});
        let pair = |text| read_pair(text, &schema).unwrap().1;
        assert_eq!(pair("n=3"), json!(3));
        assert_eq!(pair("s=3"), json!("3"));
        assert_eq!(pair("x=3"), json!("3"));
        assert_eq!(pair("x:=[1]"), json!([1]));
        assert_eq!(pair("x=a=b"), json!("a=b"));
        assert_eq!(pair("n=1e2"), json!(1e2));
        assert!(read_pair("nothing", &schema).is_err());
    }

    /// What does not fit its type is quoted, with the type it should have.
    #[test]
    fn bad_values_are_quoted() {
        let schema = json!({"properties": {
            "n": {"type": "integer"}, "x": {"type": ["number", "null"]}, "b": {"type": "boolean"},
            "l": {"type": "array"}, "o": {"type": "object"},
        }});
        let refused = |text| read_pair(text, &schema).unwrap_err().to_string();
        assert_eq!(refused("n=abc"), "n: \"abc\" is not an integer");
        assert_eq!(refused("n=1.5"), "n: \"1.5\" is not an integer");
        assert_eq!(refused("n="), "n: \"\" is not an integer");
        assert_eq!(refused("x=yes"), "x: \"yes\" is not a number or null");
        assert_eq!(refused("b=yes"), "b: \"yes\" is not true or false");
        assert_eq!(refused("l={}"), "l: \"{}\" is not a JSON list");
        assert_eq!(refused("o=[]"), "o: \"[]\" is not a JSON object");
        assert!(refused(&format!("n={}", "y".repeat(10_000))).len() < 200);
    }
}
