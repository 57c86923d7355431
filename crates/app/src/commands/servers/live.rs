//! What the running gate says of its servers.

use std::collections::BTreeMap;

use callgate_registry::environment::Environment;
use hyper::Method;
use serde_json::Value;

use crate::cli::{Place, runtime};
use crate::commands::running_gate;
use crate::error::CommandError;

/// Asks the running gate, which must be there.
pub fn ask(
    environment: &Environment,
    place: &Place,
    method: Method,
    path: &str,
) -> Result<Value, CommandError> {
    let answer = try_ask(environment, place, method, path)?;
    let answer = answer.ok_or(CommandError::NoGateRuns)?;
    match answer.pointer("/fault/message").and_then(Value::as_str) {
        Some(message) => Err(CommandError::Gate(message.to_owned())),
        None => Ok(answer),
    }
}

/// The servers of the running gate by their names; none where no gate runs.
pub fn servers(
    environment: &Environment,
    place: &Place,
) -> Result<BTreeMap<String, Value>, CommandError> {
    let answer = try_ask(environment, place, Method::GET, "/v1/servers")?;
    let list = answer
        .as_ref()
        .and_then(|answer| answer["servers"].as_array());
    let named = list.into_iter().flatten().filter_map(|server| {
        let name = server["name"].as_str()?.to_owned();
        Some((name, server.clone()))
    });
    Ok(named.collect())
}

fn try_ask(
    environment: &Environment,
    place: &Place,
    method: Method,
    path: &str,
) -> Result<Option<Value>, CommandError> {
    let paths = place.paths(environment)?;
    runtime()?.block_on(async {
        match running_gate(place, &paths).await? {
            None => Ok(None),
            Some(client) => Ok(Some(client.ask(method, path, String::new()).await?)),
        }
    })
}

/// The state of a server in words for people.
pub fn words(server: Option<&Value>) -> String {
    let Some(server) = server else {
        return "served".to_owned();
    };
    let state = server["state"].as_str().unwrap_or_default();
    let count = server["processes"].as_array().map_or(0, Vec::len);
    let refused = server["refused_tools"].as_array().map_or(0, Vec::len);
    let mut words = match (state, count) {
        ("ready", 1) => "ready".to_owned(),
        ("ready", count) => format!("ready, {count} processes"),
        ("crash_loop", _) => "keeps crashing".to_owned(),
        (state, _) => state.to_owned(),
    };
    if refused > 0 {
        words.push_str(&format!(
            ", {refused} tools changed: callgate servers trust"
        ));
    }
    words
}
