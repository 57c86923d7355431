//! The faults of calls of tools that are beyond their caller's scope.

use callgate_call::{Fault, Scope, Tool};

/// Checks that a scope allows a tool, which its caller called by `name`.
pub(crate) fn check_scope(scope: Option<&Scope>, tool: &Tool, name: &str) -> Result<(), Fault> {
    match scope {
        Some(scope) if !scope.allows(tool) => Err(Fault::UnknownTool {
            tool: name.to_owned(),
            why: scope.why_not(tool),
        }),
        _ => Ok(()),
    }
}

/// The fault of a tool that was not found. It says of the scope what that of a tool beyond the scope
/// says.
pub(crate) fn unknown_within(fault: Fault, scope: Option<&Scope>) -> Fault {
    match fault {
        Fault::UnknownTool { tool, why } => {
            let why = why.or_else(|| scope?.why_not_named(&tool));
            Fault::UnknownTool { tool, why }
        }
        fault => fault,
    }
}
