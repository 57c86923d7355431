//! The servers other people wrote, each with one tool that gives back its message. `cargo xtask
//! bench` fetches and builds them and says where they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// Where they are; none but those a bench asks for must be there.
#[derive(Clone, Default)]
pub struct Rivals {
    /// A binary.
    pub rmcp: Option<PathBuf>,
    /// An interpreter.
    pub node: Option<PathBuf>,
    /// A folder.
    pub typescript: Option<PathBuf>,
    /// An interpreter.
    pub python: Option<PathBuf>,
}

impl Rivals {
    /// rmcp on pipes.
    pub fn rmcp(&self) -> Result<Command, Failure> {
        Ok(Command::new(known(&self.rmcp, "--rmcp")?))
    }

    /// The TypeScript SDK on pipes.
    pub fn typescript(&self) -> Result<Command, Failure> {
        let mut command = Command::new(known(&self.node, "--node")?);
        command.arg(known(&self.typescript, "--typescript")?.join("echo.mjs"));
        Ok(command)
    }

    /// MCP's own filesystem server on pipes, for the folders that are added.
    pub fn filesystem(&self) -> Result<Command, Failure> {
        let mut command = Command::new(known(&self.node, "--node")?);
        let packages = known(&self.typescript, "--typescript")?.join("node_modules");
        command.arg(packages.join("@modelcontextprotocol/server-filesystem/dist/index.js"));
        Ok(command)
    }

    /// FastMCP on pipes.
    pub fn fastmcp(&self) -> Result<Command, Failure> {
        let mut command = Command::new(known(&self.python, "--python")?);
        command.arg("bench/rivals/python/fastmcp_echo.py");
        Ok(command)
    }
}

fn known<'a>(path: &'a Option<PathBuf>, option: &str) -> Result<&'a Path, Failure> {
    let missing = || format!("{option} PATH is needed: run it as `cargo xtask bench`").into();
    path.as_deref().ok_or_else(missing)
}
