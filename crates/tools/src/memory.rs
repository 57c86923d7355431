//! Memory: notes that are appended and found again by their words. Durable, shared by all
//! processes of a workspace.

use std::sync::Arc;

use callgate_call::{Fault, Job, Output, Secrets, Tier, Tool};
use callgate_store::{NOTE_BYTES_MAX, Store, StoreError};
use serde_json::{Value, json};

use crate::{Builtin, builtin};

/// Most notes one query gives.
const K_MAX: u64 = 100;
/// Notes a query gives that does not say.
const K_DEFAULT: u64 = 5;

pub fn tools(store: &Arc<Store>, secrets: &Secrets) -> [Tool; 2] {
    [
        append_tool(Arc::clone(store), secrets.clone()),
        query_tool(Arc::clone(store)),
    ]
}

fn append_tool(store: Arc<Store>, secrets: Secrets) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "minLength": 1, "description": "What to remember" },
            "meta": { "type": "object", "description": "Anything to keep beside it" },
        },
        "required": ["text"],
    });
    let function = move |job: &Job<'_>| append(&store, &secrets, job.call.input.value());
    Tool {
        tier: Tier::Write,
        side_effects: vec!["memory_append".to_owned()],
        aliases: vec!["memory_append".to_owned(), "save_memory".to_owned()],
        ..builtin(
            "memory/append",
            "AID.MEMORY.APPEND.v1",
            "Remembers a text",
            schema,
            Arc::new(Builtin {
                function,
                pure: false,
            }),
        )
    }
}

fn query_tool(store: Arc<Store>) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "Words to look for" },
            "k": {
                "description": "How many notes at most",
                "anyOf": [
                    { "type": "integer", "minimum": 1, "maximum": K_MAX },
                    { "type": "string", "pattern": "^[0-9]{1,3}$" },
                ],
            },
        },
        "required": ["query"],
    });
    let function = move |job: &Job<'_>| query(&store, job.call.input.value());
    Tool {
        idempotent: true,
        aliases: vec!["memory_query".to_owned(), "search_memory".to_owned()],
        ..builtin(
            "memory/query",
            "AID.MEMORY.QUERY.v1",
            "Finds remembered texts by their words",
            schema,
            Arc::new(Builtin {
                function,
                pure: false,
            }),
        )
    }
}

fn append(store: &Store, secrets: &Secrets, input: &Value) -> Result<Output, Fault> {
    let text = input["text"].as_str().unwrap_or_default();
    if text.len() > NOTE_BYTES_MAX {
        let max_bytes = u64::try_from(NOTE_BYTES_MAX).unwrap_or(u64::MAX);
        return Err(Fault::too_large("text", max_bytes));
    }
    let text = secrets.cleaned(text).unwrap_or_else(|| text.to_owned());
    let meta = input.get("meta").cloned().map(|mut meta| {
        secrets.clean_value(&mut meta);
        meta.to_string()
    });
    let id = store
        .memory_append(&text, meta.as_deref())
        .map_err(|error| fault(&error))?;
    Ok(Output::from_value(json!({ "id": id })))
}

fn query(store: &Store, input: &Value) -> Result<Output, Fault> {
    // The contract's own example has `k` as decimal text.
    let k = match &input["k"] {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64(),
        _ => Some(K_DEFAULT),
    };
    let k = match k {
        Some(k) if (1..=K_MAX).contains(&k) => usize::try_from(k).unwrap_or(usize::MAX),
        _ => {
            return Err(Fault::bad_value(format!("k must be from 1 to {K_MAX}")));
        }
    };
    let words = input["query"].as_str().unwrap_or_default();
    let notes = store
        .memory_query(words, k)
        .map_err(|error| fault(&error))?;
    let results: Vec<Value> = notes
        .into_iter()
        .map(|note| {
            let mut found = json!({
                "id": note.id,
                "text": note.text,
                "at_ms": note.at.0,
                "score": note.score,
            });
            if let Some(meta) = note.meta.and_then(|meta| serde_json::from_str(&meta).ok()) {
                found["meta"] = meta;
            }
            found
        })
        .collect();
    Ok(Output::from_value(json!({ "results": results })))
}

fn fault(error: &StoreError) -> Fault {
    match error {
        StoreError::Full { .. } => Fault::Unavailable {
            reason: error.to_string(),
        },
        _ => Fault::Internal {
            message: error.to_string(),
        },
    }
}
