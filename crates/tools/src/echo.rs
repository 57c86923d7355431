//! `builtin/echo`: gives back its input. The shortest way through the gate.

use std::sync::Arc;

use callgate_call::{Output, Tool};
use serde_json::json;

use crate::{Builtin, builtin};

pub fn tool() -> Tool {
    let runner = Builtin {
        function: |job: &callgate_call::Job<'_>| Ok(Output::new(job.call.input.clone())),
        pure: true,
    };
    Tool {
        deterministic: true,
        idempotent: true,
        ..builtin(
            "builtin/echo",
            "AID.BUILTIN.ECHO.v1",
            "Gives back its input",
            json!({ "type": "object" }),
            Arc::new(runner),
        )
    }
}
