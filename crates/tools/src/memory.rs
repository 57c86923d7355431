//! Memory: notes that are appended and found again by their words and, with a model, by what
//! they mean. Durable, shared by all processes of a workspace; the index is made of them.

use std::sync::Arc;

use callgate_call::{
    Cancel, Fault, Job, Output, RunFuture, Runner, Secrets, Tier, Tool, natural_number,
};
use callgate_search::{Engine, SearchError, counted};
use callgate_store::{NOTE_BYTES_MAX, Note, Store, StoreError};
use serde_json::{Value, json};

use crate::{Builtin, builtin, waited_for};

/// Most notes one query gives.
const K_MAX: u64 = 100;
/// Notes a query gives that does not say.
const K_DEFAULT: u64 = 5;
/// New notes that the index takes in together.
const TAKEN_AT_ONCE: usize = 256;
/// New notes whose vectors are made for one query; the others have words until a later one.
const EMBEDDED_AT_ONCE: usize = 16;

pub fn tools(store: &Arc<Store>, engine: &Arc<Engine>, secrets: &Secrets) -> [Tool; 2] {
    [
        append_tool(Arc::clone(store), secrets.clone()),
        query_tool(Arc::clone(store), Arc::clone(engine)),
    ]
}

/// Off the gate's own thread: an index may have to be read first, and vectors to be made.
struct QueryRunner {
    store: Arc<Store>,
    engine: Arc<Engine>,
}

impl Runner for QueryRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        let (store, engine) = (Arc::clone(&self.store), Arc::clone(&self.engine));
        let input = job.call.input.value().clone();
        Box::pin(async move {
            let work = move |stop: &Cancel| query(&store, &engine, &input, stop);
            waited_for(&job, work).await
        })
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
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

fn query_tool(store: Arc<Store>, engine: Arc<Engine>) -> Tool {
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
    Tool {
        idempotent: true,
        aliases: vec!["memory_query".to_owned(), "search_memory".to_owned()],
        ..builtin(
            "memory/query",
            "AID.MEMORY.QUERY.v1",
            "Finds remembered texts by their words and, with a model, by what they mean",
            schema,
            Arc::new(QueryRunner { store, engine }),
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

fn query(store: &Store, engine: &Engine, input: &Value, stop: &Cancel) -> Result<Output, Fault> {
    // The contract's own example has `k` as decimal text.
    let k = match &input["k"] {
        Value::String(text) => text.parse().ok(),
        number @ Value::Number(_) => natural_number(number),
        _ => Some(K_DEFAULT),
    };
    let k = match k {
        Some(k) if (1..=K_MAX).contains(&k) => usize::try_from(k).unwrap_or(usize::MAX),
        _ => {
            return Err(Fault::bad_value(format!("k must be from 1 to {K_MAX}")));
        }
    };
    let words = input["query"].as_str().unwrap_or_default();
    let notes = match found(store, engine, words, k, stop) {
        Ok(notes) => notes,
        // What was remembered is found, if less well, where its index can not be used.
        Err(Unfound::Index) => {
            let found = store.memory_query(words, k);
            found.map_err(|error| fault(&error))?
        }
        Err(Unfound::Stopped) => return Err(Fault::Cancelled),
        Err(Unfound::Store(error)) => return Err(fault(&error)),
    };
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

/// Why the index gave nothing.
enum Unfound {
    Index,
    Stopped,
    Store(StoreError),
}

impl From<SearchError> for Unfound {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Stopped => Self::Stopped,
            _ => Self::Index,
        }
    }
}

impl From<StoreError> for Unfound {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The `k` notes that fit best. The index takes in what is new first.
fn found(
    store: &Store,
    engine: &Engine,
    words: &str,
    k: usize,
    stop: &Cancel,
) -> Result<Vec<Note>, Unfound> {
    if counted(&[words]).is_empty() {
        return Ok(Vec::new());
    }
    loop {
        let new = store.memory_after(engine.newest_note()?, TAKEN_AT_ONCE)?;
        if new.is_empty() {
            break;
        }
        if stop.is_cancelled() {
            return Err(Unfound::Stopped);
        }
        engine.take_notes(new.into_iter().map(|note| (note.id, note.text)).collect())?;
    }
    engine.embed_notes(EMBEDDED_AT_ONCE, stop)?;
    if engine.newest_note()? == 0 {
        return Ok(Vec::new());
    }
    let mut notes = Vec::new();
    for (id, score) in engine.find_notes(words, k)? {
        let score = f64::from(score);
        let note = store.memory_note(id)?;
        // BM25 has no end; 1 has been ours.
        notes.extend(note.map(|note| Note {
            score: score / (1.0 + score.abs()),
            ..note
        }));
    }
    Ok(notes)
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
