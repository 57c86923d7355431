//! One echo tool behind rmcp's own server on pipes, as its documentation writes it.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::transport::stdio_pipes;
use rmcp::{ServerHandler, ServiceExt as _, schemars, tool, tool_handler, tool_router};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Said {
    message: String,
}

struct Echo;

#[tool_router]
impl Echo {
    #[tool(name = "builtin_echo", description = "Gives back the message")]
    async fn echo(&self, Parameters(said): Parameters<Said>) -> String {
        said.message
    }
}

#[tool_handler]
impl ServerHandler for Echo {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Echo.serve(stdio_pipes()).await?.waiting().await?;
    Ok(())
}
