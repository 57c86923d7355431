//! `tools/list` of the running program, against the schema that it serves of it.

use std::collections::BTreeMap;

use callgate_gate::Schema;
use callgate_testing::shapes::method_schemas;
use serde_json::{Value, json};

use crate::support::Folder;
use crate::support::desk::Desk;
use crate::support::drive::Host;
use crate::support::rpc::{Posts, request, rpc};
use crate::support::web::Web;

const TOOLPACK: &str = r#"{
    "toolpack_id": "toolpack.t", "toolpack_version": "2.5", "trust_tier": "tier2_untrusted",
    "tools": [{ "aid": "AID.ELSEWHERE.v1", "name": "elsewhere", "tags": ["tag.t"] }]
}"#;

/// JR-33 to JR-45, R-4, R-14: `tools/list` is no tool, so that no gate looks at what it gives. It
/// keeps to its schema all the same, on pipes and on a port, for tools of every origin, page by
/// page; and tells their own versions.
#[test]
fn tools_list_keeps_to_its_schema() {
    let desk = Desk::installed();
    let config = "toolpacks = [\"pack.json\"]\n[[tool]]\nname = \"plain\"\n\
                  rate_limit = { per_second = 2.5, burst = 3 }\n\
                  runner = { kind = \"process\", command = [\"/bin/echo\", \"{}\"] }\n";
    desk.workspace.write("pack.json", TOOLPACK);
    desk.workspace.write("callgate.toml", config);
    desk.go(&["trust"]).good();
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let methods = method_schemas(|method, params| client.good(method, params));
    let output = methods["tools/list"].1.as_ref().expect("a schema");
    let check = Schema::compile(output).expect("it compiles");
    let versions = |mut ask: Box<dyn FnMut(Value) -> Value + '_>| {
        let mut versions = BTreeMap::new();
        let mut cursor = Value::Null;
        loop {
            let result = ask(json!({ "limit": 7, "cursor": cursor }))["result"].clone();
            assert_eq!(check.check_output(&result), Ok(()), "{result}");
            for tool in result["tools"].as_array().expect("tools") {
                let text = |name: &str| tool[name].as_str().expect("a text").to_owned();
                versions.insert(text("name"), text("version"));
            }
            cursor = result["next_cursor"].clone();
            if cursor.is_null() {
                return versions;
            }
        }
    };
    let mut host = Host::spawn(&mut desk.command(&["rpc"]));
    let by_pipes = versions(Box::new(|params| {
        host.ask(&request(1, "tools/list", params))
    }));
    let web = Web::start_with(&desk.workspace, |command| {
        command
            .env("XDG_CONFIG_HOME", desk.home.path())
            .arg("--no-auth");
    });
    let mut posts = Posts::new(web.port, "/rpc");
    let by_port = versions(Box::new(|params| posts.ask("tools/list", params)));
    assert_eq!(by_pipes, by_port);
    for (name, version) in [
        ("acme.greeter/say_hello", "0.1.0"),
        ("elsewhere", "2.5"),
        ("plain", "1.0.0"),
        ("files/read", "1.0.0"),
    ] {
        assert_eq!(by_pipes[name], version, "{name}");
    }
}
