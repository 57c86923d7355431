//! Memory: notes that are appended and found again by their words and, with a model, by what
//! they mean. Durable, shared by all processes of a workspace; the index is made of them.

use std::sync::Arc;

use callgate_call::{Cancel, Fault, Job, Output, RunFuture, Runner, Secrets, Tier, Tool, Wire};
use callgate_search::{Engine, SearchError, counted};
use callgate_store::{NOTE_BYTES_MAX, Note, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::arguments::{NaturalNumber, arguments};
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
        let (input, wire) = (job.call.input.clone(), job.call.wire);
        Box::pin(async move {
            let work = move |stop: &Cancel| query((&store, &engine), input.value(), wire, stop);
            waited_for(&job, work).await
        })
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

/// The arguments of `memory/append`. Others are allowed, and ignored.
#[derive(Deserialize)]
pub(crate) struct MemoryAppendArguments<'a> {
    text: &'a str,
    stream: Option<&'a str>,
    /// Kept as it is.
    meta: Option<Map<String, Value>>,
}

/// The schema of the input of `memory/append`.
pub(crate) fn append_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "minLength": 1, "description": "What to remember" },
            "stream": stream_schema("The notes it belongs to"),
            "meta": { "type": "object", "description": "Anything to keep beside it" },
        },
        "required": ["text"],
    })
}

fn append_tool(store: Arc<Store>, secrets: Secrets) -> Tool {
    let function = move |job: &Job<'_>| append(&store, &secrets, job.call.input.value());
    Tool {
        tier: Tier::Write,
        side_effects: vec!["memory_append".to_owned()],
        aliases: vec!["memory_append".to_owned(), "save_memory".to_owned()],
        ..builtin(
            "memory/append",
            "AID.MEMORY.APPEND.v1",
            "Remembers a text",
            append_schema(),
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

/// The arguments of `memory/query`. Others are allowed, and ignored.
#[derive(Deserialize)]
pub(crate) struct MemoryQueryArguments<'a> {
    query: &'a str,
    stream: Option<&'a str>,
    #[serde(borrow)]
    k: Option<NoteCount<'a>>,
}

/// How many notes a query asks for: the contract's own example has decimal text.
#[derive(Deserialize)]
#[serde(untagged)]
enum NoteCount<'a> {
    Number(NaturalNumber),
    Text(&'a str),
}

impl NoteCount<'_> {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number.0),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// A note in the answer of a query.
#[derive(Serialize)]
struct NoteMatch {
    id: u64,
    text: String,
    at_ms: u64,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Value>,
}

/// The part of a note's meta that names its stream.
#[derive(Deserialize)]
struct NoteMeta<'a> {
    stream: Option<&'a str>,
}

impl NoteMatch {
    fn new(note: Note) -> Self {
        Self {
            id: note.id,
            text: note.text,
            at_ms: note.at.0,
            score: note.score,
            meta: note.meta.and_then(|meta| serde_json::from_str(&meta).ok()),
        }
    }

    fn is_of(&self, stream: &str) -> bool {
        let meta = self.meta.as_ref().map(NoteMeta::deserialize);
        meta.is_some_and(|meta| meta.is_ok_and(|meta| meta.stream == Some(stream)))
    }
}

/// The answer of a query.
#[derive(Serialize)]
struct NoteMatches<'a> {
    results: &'a [NoteMatch],
    /// The toolhost's first implementation has this and the next member too.
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<&'a [NoteMatch]>,
}

/// The schema of the input of `memory/query`.
pub(crate) fn query_schema() -> Value {
    json!({
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
    })
}

fn query_tool(store: Arc<Store>, engine: Arc<Engine>) -> Tool {
    Tool {
        idempotent: true,
        aliases: vec!["memory_query".to_owned(), "search_memory".to_owned()],
        ..builtin(
            "memory/query",
            "AID.MEMORY.QUERY.v1",
            "Finds remembered texts by their words and, with a model, by what they mean",
            query_schema(),
            Arc::new(QueryRunner { store, engine }),
        )
    }
}

fn append(store: &Store, secrets: &Secrets, input: &Value) -> Result<Output, Fault> {
    let asked: MemoryAppendArguments<'_> = arguments(input)?;
    let text = asked.text;
    if text.len() > NOTE_BYTES_MAX {
        let max_bytes = u64::try_from(NOTE_BYTES_MAX).unwrap_or(u64::MAX);
        return Err(Fault::too_large("text", max_bytes));
    }
    let text = secrets.cleaned(text).unwrap_or_else(|| text.to_owned());
    let mut meta = asked.meta;
    if let Some(stream) = asked.stream {
        let members = meta.get_or_insert_default();
        members.insert(STREAM.to_owned(), stream.into());
    }
    let meta = meta.map(|members| {
        let mut meta = Value::Object(members);
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
    let asked: MemoryQueryArguments<'_> = arguments(input)?;
    let k = match asked.k.map_or(Some(K_DEFAULT), NoteCount::number) {
        Some(k) if (1..=K_MAX).contains(&k) => usize::try_from(k).unwrap_or(usize::MAX),
        _ => {
            return Err(Fault::bad_value(format!("k must be from 1 to {K_MAX}")));
        }
    };
    let MemoryQueryArguments { query, stream, .. } = asked;
    // The index knows no streams: more is looked through until there are enough of one.
    let mut looked = if stream.is_some() { 4 * k } else { k };
    let results = loop {
        let notes = best(store, engine, query, looked, stop)?;
        let is_all = notes.len() < looked || looked >= LOOKED_THROUGH_MAX;
        let matches = notes.into_iter().map(NoteMatch::new);
        let mut shown: Vec<NoteMatch> = match stream {
            None => matches.collect(),
            Some(stream) => matches.filter(|note| note.is_of(stream)).collect(),
        };
        if stream.is_none() || is_all || shown.len() >= k {
            shown.truncate(k);
            break shown;
        }
        looked = (looked * 4).min(LOOKED_THROUGH_MAX);
    };
    let is_toolhost = wire == Wire::Toolhost;
    let is_small = || json!(results).to_string().len() <= MATCHES_BYTES_MAX;
    let output = NoteMatches {
        results: &results,
        ok: is_toolhost.then_some(true),
        matches: (is_toolhost && is_small()).then_some(&*results),
    };
    Ok(Output::from_value(json!(output)))
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
