//! Servers that were installed and then run confined, without a network: they list their tools.

use crate::support::{Scene, confined_tools_of, request};

/// Two servers that end at once where a machine shows them less: one of Node that asks for its own
/// memory, one of Python whose database asks for processors and limits.
#[tokio::test]
async fn servers_list_their_tools_confined() {
    let scene = Scene::new();
    for (spec, args, env, tool) in [
        (
            "npm:@sentry/mcp-server@0.39.0",
            &["--access-token=none"][..],
            &[][..],
            "find_organizations",
        ),
        (
            "pypi:mcp-server-motherduck==1.1.0",
            &["--db-path", ":memory:", "--read-write"][..],
            &[][..],
            "execute_query",
        ),
    ] {
        let (installed, _) = scene.install(&request(spec)).await.unwrap();
        let tools = confined_tools_of(&scene, &installed, args, env).await;
        eprintln!("{spec}: {tools:?}");
        let tools = tools.unwrap_or_else(|stderr| panic!("{spec}: {stderr}"));
        assert!(tools.iter().any(|name| name == tool), "{spec}: {tools:?}");
    }
}
