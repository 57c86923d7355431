//! `vector/search` of the workspace contract, and what puts things there that are no files. R-17.

mod indexer;
pub(crate) mod schemas;
mod walk;
mod watch;

use std::path::Path;
use std::sync::Arc;

use callgate_call::{Cancel, Fault, Job, Output, RunFuture, Runner, Secrets, Tier, Tool};
use callgate_search::{Answer, Ask, Found, Item, SearchError, VectorStore};
use callgate_store::search::NewChunk;
use serde_json::{Value, json};

use crate::arguments::{NaturalNumber, arguments};
use crate::files::Files;
use crate::{builtin, waited_for};
pub use indexer::{IndexError, Report, Scope, count, index};
use schemas::{
    VectorDeleteArguments, VectorItemArguments, VectorSearchArguments, VectorUpsertArguments,
};
pub use watch::{Changed, Watcher};

/// Text that is told of a piece.
const SNIPPET_BYTES_MAX: usize = 4096;
/// Matches where nobody says how many.
const TOP_K_DEFAULT: usize = 5;

/// What the tools share.
pub struct Vectors {
    /// What finds.
    pub store: Arc<dyn VectorStore>,
    /// Whose lists say what may be told.
    pub files: Arc<Files>,
    /// What is never kept. R-15.
    pub secrets: Secrets,
}

type Function = fn(&Vectors, &Value, &Cancel) -> Result<Value, Fault>;

/// Off the gate's own thread: an index may have to be read first.
struct VectorRunner {
    vectors: Arc<Vectors>,
    function: Function,
}

impl Runner for VectorRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        let (vectors, function) = (Arc::clone(&self.vectors), self.function);
        let input = job.call.input.clone();
        Box::pin(async move {
            let work = move |stop: &Cancel| function(&vectors, input.value(), stop);
            waited_for(&job, work).await.map(Output::from_value)
        })
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

/// Every tool of this module.
#[must_use]
pub fn tools(vectors: &Arc<Vectors>) -> Vec<Tool> {
    let tool = |name: &str, title: &str, about: &str, function: Function, schemas: [Value; 2]| {
        let [input, output] = schemas;
        let aid = format!("AID.{}.v1", name.replace('/', ".").to_uppercase());
        let vectors = Arc::clone(vectors);
        let runner = Arc::new(VectorRunner { vectors, function });
        let mut tool = builtin(name, &aid, about, input, runner);
        tool.output_schema = Some(output);
        tool.face.title = Some(title.to_owned());
        tool.tags.push("search".to_owned());
        tool.idempotent = true;
        tool
    };
    let writes = |tool: Tool| Tool {
        tier: Tier::Write,
        side_effects: vec!["index_write".to_owned()],
        ..tool
    };
    vec![
        tool(
            "vector/search",
            "Search the Workspace",
            "Find pieces of the workspace by words and by meaning",
            search,
            schemas::search(),
        ),
        writes(tool(
            "vector/upsert",
            "Put Into the Index",
            "Put texts and vectors of your own into a namespace",
            upsert,
            schemas::upsert(),
        )),
        writes(tool(
            "vector/delete",
            "Remove From the Index",
            "Remove what was put into a namespace",
            delete,
            schemas::delete(),
        )),
    ]
}

fn search(vectors: &Vectors, input: &Value, stop: &Cancel) -> Result<Value, Fault> {
    let ask = ask(arguments(input)?)?;
    let may = |path: &str| vectors.files.shows(Path::new(path));
    let answer = vectors.store.search(&ask, &may, stop);
    let answer = answer.map_err(|e| fault(&e))?;
    Ok(shown(&answer))
}

fn ask(asked: VectorSearchArguments) -> Result<Ask, Fault> {
    Ok(Ask {
        query: asked.query,
        embedding: numbers(asked.embedding.as_deref(), "embedding")?,
        top_k: asked.top_k.map_or(TOP_K_DEFAULT, NaturalNumber::count),
        namespace: asked.namespace.unwrap_or_default(),
        path_prefix: asked.filter.path_prefix.unwrap_or_default(),
        tags: asked.filter.tags,
        include_vectors: asked.include_vectors,
        rerank: asked.rerank,
    })
}

/// Numbers as the index has them.
fn numbers(asked: Option<&[f64]>, field: &'static str) -> Result<Option<Vec<f32>>, Fault> {
    let Some(all) = asked else {
        return Ok(None);
    };
    let numbers: Vec<f32> = all.iter().map(|number| *number as f32).collect();
    if numbers.is_empty() || numbers.iter().any(|number| !number.is_finite()) {
        return Err(wrong(
            field,
            "must be numbers that a vector can have, and some",
        ));
    }
    Ok(Some(numbers))
}

/// Exactly what the contract has.
fn shown(answer: &Answer) -> Value {
    let matches: Vec<Value> = answer.found.iter().map(shown_match).collect();
    json!({
        "matches": matches,
        "usage": {
            "embedding_model": answer.embedding_model,
            "embed_time_ms": answer.embed_time_ms,
            "rerank_model": answer.rerank_model,
        },
    })
}

fn shown_match(found: &Found) -> Value {
    let told = &found.told;
    let cut = told.text.floor_char_boundary(SNIPPET_BYTES_MAX);
    json!({
        "id": told.key,
        "score": found.score,
        "vector": found.vector,
        "metadata": {
            "path": told.path,
            "line_start": told.lines.map(|lines| lines.0),
            "line_end": told.lines.map(|lines| lines.1),
            "lang": told.lang,
            "commit": told.commit,
            "shard_id": null,
            "etag": told.etag,
            "tags": told.tags,
            "snippet": &told.text[..cut],
        },
    })
}

fn upsert(vectors: &Vectors, input: &Value, stop: &Cancel) -> Result<Value, Fault> {
    let asked: VectorUpsertArguments<'_> = arguments(input)?;
    let items = asked.items.into_iter();
    let items = items.map(|asked| item(asked, &vectors.secrets));
    let items: Vec<Item> = items.collect::<Result<_, _>>()?;
    let upserted = vectors.store.upsert(asked.namespace, items, stop);
    Ok(json!({ "upserted": upserted.map_err(|e| fault(&e))? }))
}

/// An item as the index has it, without secrets.
fn item(asked: VectorItemArguments<'_>, secrets: &Secrets) -> Result<Item, Fault> {
    let cleaned = |text: &str| secrets.cleaned(text).unwrap_or_else(|| text.to_owned());
    let (key, about) = (cleaned(asked.id), asked.metadata);
    let embedding = numbers(asked.embedding.as_deref(), "items.embedding")?;
    let text = asked.text.map(cleaned);
    if embedding.is_none() && text.is_none() {
        return Err(wrong(
            "items",
            "an item has a text or an embedding, or both",
        ));
    }
    let line = |line: Option<NaturalNumber>| line.and_then(|line| u32::try_from(line.0).ok());
    let chunk = NewChunk {
        path: about.path.map_or_else(|| key.clone(), cleaned),
        key,
        lines: line(about.line_start).zip(line(about.line_end)),
        lang: about.lang.map(cleaned),
        commit: about.commit.map(cleaned),
        etag: about.etag.map(cleaned),
        tags: about.tags.into_iter().map(cleaned).collect(),
        text: text.unwrap_or_default(),
        ..NewChunk::default()
    };
    if chunk.tags.iter().any(|tag| tag.contains('\n')) {
        return Err(wrong("items.metadata.tags", "a tag is one line"));
    }
    Ok(Item { chunk, embedding })
}

fn delete(vectors: &Vectors, input: &Value, stop: &Cancel) -> Result<Value, Fault> {
    let asked: VectorDeleteArguments<'_> = arguments(input)?;
    let deleted = vectors.store.delete(asked.namespace, &asked.ids, stop);
    Ok(json!({ "deleted": deleted.map_err(|e| fault(&e))? }))
}

fn wrong(field: &str, reason: &str) -> Fault {
    Fault::bad_value(format!("{field}: {reason}"))
        .with("field", field)
        .with("reason", reason)
}

/// 1003 for what makes no sense, 1010 for an index that can not be used.
fn fault(error: &SearchError) -> Fault {
    match error {
        SearchError::Wrong { field, reason } => wrong(field, reason),
        SearchError::Stopped => Fault::Cancelled,
        SearchError::Missing
        | SearchError::Locked
        | SearchError::NoVectors(_)
        | SearchError::OtherModel { .. }
        | SearchError::Server { .. }
        | SearchError::Model(_)
        | SearchError::Full
        | SearchError::Broken(_) => Fault::Unavailable {
            reason: error.to_string(),
        },
    }
}
