//! What was installed runs confined, without a network.

use callgate_installer::PackageProgram;

use crate::support::{Scene, confined_tools_of, request};

/// A server of Node that asks for its own memory at its start, and ends where it is not told.
#[tokio::test]
async fn a_server_of_node_lists_its_tools() {
    let scene = Scene::new();
    let sentry = request("npm:@sentry/mcp-server@0.39.0");
    let (installed, _) = scene.install(&sentry).await.unwrap();
    let args = ["--access-token=none"];
    let tools = confined_tools_of(&scene, &installed, &args).await.unwrap();
    assert!(
        tools.contains(&"find_organizations".to_owned()),
        "{tools:?}"
    );
}

/// A database that asks for processors and limits, and aborts where it is not told.
#[tokio::test]
async fn duckdb_answers() {
    let scene = Scene::new();
    let mut duckdb = request("pypi:duckdb==1.4.1");
    duckdb.program = PackageProgram::Interpreter;
    let (installed, _) = scene.install(&duckdb).await.unwrap();
    let script = "import duckdb, json
name = str(duckdb.sql('select 6 * 7').fetchone()[0])
print(json.dumps({'id': 2, 'result': {'tools': [{'name': name}]}}))";
    let told = confined_tools_of(&scene, &installed, &["-c", script]).await;
    assert_eq!(told, Ok(vec!["42".to_owned()]));
}
