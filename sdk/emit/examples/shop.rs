//! An executor: it reads pages of a shop (which it makes up), emits what is on them, keeps each
//! page as an artifact and asks for the next one.
//!
//! ```text
//! callgate run --job '{"page": 1}' -- target/debug/examples/shop
//! ```

use std::process::ExitCode;

use callgate_emit::{EmitError, Level};
use serde_json::json;

fn main() -> ExitCode {
    callgate_emit::main(|run| {
        let page = run.request().job["page"].as_u64().unwrap_or(1);
        run.log(Level::Info, &format!("reading page {page}"))?;
        let html = format!("<ul><li>Lamp {page}</li><li>Chair {page}</li></ul>");
        for product in ["Lamp", "Chair"] {
            run.item("product", &json!({ "name": product, "page": page }))?;
        }
        run.artifact(&format!("page-{page}.html"), "text/html", html.as_bytes())?;
        // Others may have kept it before us: that is no reason to fail.
        match run.put("notes.txt", "text/plain", b"two products a page") {
            Err(EmitError::Refused { reason, .. }) => run.log(Level::Warn, &reason)?,
            other => other?,
        }
        if page < 3 {
            run.enqueue("shop", &json!({ "page": page + 1 }), None, None)?;
        }
        run.run_complete_with(&json!({ "items": 2 }))
    })
}
