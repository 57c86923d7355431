//! Memory: notes that are appended and found again by their words and, with a model, by what
//! they mean. Durable, shared by all processes of a workspace; the index is made of them.

use std::sync::Arc;

use callgate_call::{
    Cancel, Fault, Job, Output, RunFuture, Runner, Secrets, Tier, Tool, Wire, natural_number,
};
use callgate_search::{Engine, SearchError, counted};
use callgate_store::{NOTE_BYTES_MAX, Note, Store, StoreError};
use serde_json::{Value, json};

use crate::{Builtin, builtin, waited_for};

/// Most notes one query gives.
const K_MAX: u64 = 100;
/// Notes a query gives that does not say.
const K_DEFAULT: u64 = 5;
/// Results that are told twice on the toolhost; larger ones would not fit its replies. T-19.
const MATCHES_BYTES_MAX: usize = 256 * 1024;
/// Longest name of a stream.
const STREAM_CHARS_MAX: usize = 128;
/// Where a note's stream stands in its meta.
const STREAM: &str = "stream";
/// Notes that are looked through for those of one stream.
const LOOKED_THROUGH_MAX: usize = 4096;
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
        let (input, wire) = (job.call.input.value().clone(), job.call.wire);
        Box::pin(async move {
            let work = move |stop: &Cancel| query((&store, &engine), &input, wire, stop);
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
            "stream": stream_schema("The notes it belongs to"),
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

/// The schema of a stream's name: notes of one kind, so that they can be asked for alone.
fn stream_schema(description: &str) -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": STREAM_CHARS_MAX,
        "description": description,
    })
}

fn query_tool(store: Arc<Store>, engine: Arc<Engine>) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "Words to look for" },
            "stream": stream_schema("Only notes that were appended to it"),
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
    let mut meta = input.get("meta").cloned();
    if let Some(stream) = input.get(STREAM) {
        let members = meta.get_or_insert_with(|| json!({}));
        members[STREAM] = stream.clone();
    }
    let meta = meta.map(|mut meta| {
        secrets.clean_value(&mut meta);
        meta.to_string()
    });
    let id = store
        .memory_append(&text, meta.as_deref())
        .map_err(|error| fault(&error))?;
    Ok(Output::from_value(json!({ "id": id })))
}

fn query(
    (store, engine): (&Store, &Engine),
    input: &Value,
    wire: Wire,
    stop: &Cancel,
) -> Result<Output, Fault> {
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
    let stream = input[STREAM].as_str();
    // The index knows no streams: more is looked through until there are enough of one.
    let mut looked = if stream.is_some() { 4 * k } else { k };
    let results = loop {
        let notes = best(store, engine, words, looked, stop)?;
        let is_all = notes.len() < looked || looked >= LOOKED_THROUGH_MAX;
        let shown = notes.into_iter().map(shown);
        let mut shown: Vec<Value> = match stream {
            None => shown.collect(),
            Some(stream) => shown
                .filter(|note| note["meta"][STREAM] == stream)
                .collect(),
        };
        if stream.is_none() || is_all || shown.len() >= k {
            shown.truncate(k);
            break shown;
        }
        looked = (looked * 4).min(LOOKED_THROUGH_MAX);
    };
    let mut output = json!({ "results": results });
    if wire == Wire::Toolhost {
        // The words of the contract's first implementation, beside ours.
        output["ok"] = true.into();
        let text = output["results"].to_string();
        if text.len() <= MATCHES_BYTES_MAX {
            output["matches"] = output["results"].clone();
        }
    }
    Ok(Output::from_value(output))
}

/// The `k` notes that fit best, by their index where that can be used.
fn best(
    store: &Store,
    engine: &Engine,
    words: &str,
    k: usize,
    stop: &Cancel,
) -> Result<Vec<Note>, Fault> {
    match found(store, engine, words, k, stop) {
        Ok(notes) => Ok(notes),
        // What was remembered is found, if less well, where its index can not be used.
        Err(Unfound::Index) => {
            let found = store.memory_query(words, k);
            found.map_err(|error| fault(&error))
        }
        Err(Unfound::Stopped) => Err(Fault::Cancelled),
        Err(Unfound::Store(error)) => Err(fault(&error)),
    }
}

fn shown(note: Note) -> Value {
    let mut shown = json!({
        "id": note.id,
        "text": note.text,
        "at_ms": note.at.0,
        "score": note.score,
    });
    if let Some(meta) = note.meta.and_then(|meta| serde_json::from_str(&meta).ok()) {
        shown["meta"] = meta;
    }
    shown
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
