//! `callgate bridge-config`: the entry by which an MCP client starts a bridge to this
//! workspace's gate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgate_call::Caller;
use callgate_doors::bridge::parent::{schema_of, schemas};
use callgate_registry::environment::Environment;
use callgate_registry::paths::BridgePaths;
use callgate_wires::bridge::ToolSchema;
use clap::Args;
use serde_json::json;

use crate::bridge::{self, List, in_order, write_schema_file};
use crate::cli::{Done, Place};
use crate::compose;
use crate::error::CommandError;
use crate::show;

/// Print the entry of an MCP client that reaches this workspace's tools by a bridge.
#[derive(Args)]
pub struct BridgeConfig {
    /// Offer only these tools; all of the gate's if none is named
    #[arg(value_name = "TOOL")]
    tools: Vec<String>,
    /// Where their list is written (0600), instead of the state folder
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
}

pub fn run(environment: &Environment, place: &Place, args: &BridgeConfig) -> Done {
    let paths = place.paths(environment)?;
    let served = BridgePaths::beside(&paths.socket);
    if !served.schema.exists() && args.schema.is_none() {
        show::say("`callgate serve` must run for this entry to work: it lists the tools");
    }
    let schema = match &args.schema {
        Some(path) => {
            let path = environment.current_dir.join(path);
            write(&path, &listed(environment, place, args)?)?;
            path
        }
        None if args.tools.is_empty() => served.schema,
        None => {
            let listed = listed(environment, place, args)?;
            let list = List::new(&args.tools);
            list.keep(&paths.state)?;
            let path = bridge::schema_of(&served, &list);
            // Who serves next writes it. Looked at only now: whoever has begun to serve since
            // then may have read the lists before this one was kept.
            if served.schema.exists() {
                write(&path, &listed)?;
            }
            path
        }
    };
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("{} is not UTF-8, and JSON is", path.display())),
    };
    let program = std::fs::read_link(&environment.program)
        .map_err(|error| format!("find this program: {error}"))?;
    let entry = json!({
        "type": "stdio",
        "command": text(&program)?,
        "args": ["bridge", text(&served.socket)?, text(&schema)?],
    });
    show::json(&json!({ "mcpServers": { "callgate": entry } }));
    Ok(ExitCode::SUCCESS)
}

/// The tools that are asked for, as a schema file has them.
fn listed(
    environment: &Environment,
    place: &Place,
    args: &BridgeConfig,
) -> Result<Vec<ToolSchema>, CommandError> {
    let environment = &environment.of_no_tool();
    let parts = super::open(environment, place)?;
    let setup = parts.setup()?;
    let gate = compose::gate(&parts, setup);
    let caller = Caller::uid(environment.uid);
    let listed: Result<Vec<ToolSchema>, CommandError> = if args.tools.is_empty() {
        Ok(schemas(&gate, &caller))
    } else {
        let one = |name: &String| match gate.visible(name, &caller, None) {
            Ok(entry) => Ok(schema_of(&entry.tool)),
            Err(fault) => Err(CommandError::NoTool(fault)),
        };
        args.tools.iter().map(one).collect()
    };
    super::close(&parts);
    listed.map(in_order)
}

fn write(path: &Path, listed: &[ToolSchema]) -> Result<(), CommandError> {
    write_schema_file(path, listed).map_err(CommandError::file("write", path))
}
