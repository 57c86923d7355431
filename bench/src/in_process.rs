//! A gate inside the harness, for what can not be seen from outside: where the time of a call
//! goes, and how often the store syncs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use callgate_call::{Clock, Secrets, Timestamp, Tool};
use callgate_gate::{Catalog, Gate, Setup};
use callgate_sandbox::{Confinement, Spawner};
use callgate_search::Engine;
use callgate_store::{Durability, Options, Store};
use serde_json::{Value, json};

use crate::Failure;

/// Tools in the catalog.
const TOOLS: usize = 50;

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The AID of one of the tools.
pub fn aid(number: usize) -> String {
    format!("AID.BENCH.ROWS_{}.v1", number % TOOLS)
}

/// The input schema of every tool: what a tool of some care asks for.
pub fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "minLength": 1, "maxLength": 4096 },
            "limit": { "type": "integer", "minimum": 1, "maximum": 1000 },
            "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 16 },
            "dry_run": { "type": "boolean" },
            "page": { "type": "integer", "minimum": 0 },
        },
        "required": ["query", "limit"],
        "additionalProperties": false,
    })
}

/// A gate with its store. The tools give back their input, as `builtin/echo` does.
pub fn gate(state: &Path, durability: Durability, seed: u64) -> Result<Arc<Gate>, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = Options {
        durability,
        ..Options::default()
    };
    let store = Arc::new(Store::open(state, options, Arc::clone(&clock))?);
    let notes = Arc::new(Engine::new(state, None, Arc::clone(&clock)));
    let echo = callgate_tools::builtins(&store, &notes, &Secrets::default())
        .into_iter()
        .find(|tool| tool.name == "builtin/echo")
        .ok_or("there is no builtin/echo")?;
    let mut catalog = Catalog::default();
    for number in 0..TOOLS {
        catalog.add(Tool {
            aid: aid(number),
            description: "Gives back rows".to_owned(),
            input_schema: schema(),
            idempotent: true,
            deterministic: true,
            ..Tool::new(&format!("bench/rows_{number}"), Arc::clone(&echo.runner))
        })?;
    }
    let setup = Setup {
        catalog,
        ..Setup::default()
    };
    Ok(Arc::new(Gate::new(
        setup,
        store,
        // Never asked for a child: the tools of this gate have none.
        Arc::new(Confinement::new(Spawner::new(PathBuf::new()))),
        clock,
        seed,
    )))
}

/// A runtime like the product's own.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}
