//! JSON-RPC in lines: the envelope, batches, `tools/list`, `rpc/discover` and what an existing client
//! of the contract can live with. R-1, R-2, R-4, R-14, R-16.

use callgate_testing::scripts::ONE;
use callgate_testing::wait_for;
use serde_json::{Value, json};

use crate::support::host::Host;
use callgate_testing_workspace::{records, trusted, trusted_with};

fn request(id: Value, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// JR-1, JR-2, JR-3, JR-4, JR-5, JR-6, JR-7, JR-8, JR-13, JR-14, JR-15, JR-16: what is no request,
/// what has no method, what has wrong params.
#[test]
fn the_envelope() {
    let folder = trusted(ONE);
    let mut host = Host::rpc(&folder);
    let raw = |host: &mut Host, line: &str| {
        assert!(host.send_bytes(format!("{line}\n").as_bytes()));
        host.reply()
    };
    for (line, id, code) in [
        ("{", json!(null), -32700),
        ("7", json!(null), -32600),
        ("[]", json!(null), -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, json!(1), -32600),
        (
            r#"{"jsonrpc":"2.0","id":"x","method":"no/such"}"#,
            json!("x"),
            -32601,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"one","params":[1]}"#,
            json!(2),
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"files/read","params":{}}"#,
            json!(3),
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":4,"method":"one.v2"}"#,
            json!(4),
            -32601,
        ),
    ] {
        let reply = raw(&mut host, line);
        assert_eq!(
            (&reply["id"], &reply["error"]["code"]),
            (&id, &json!(code)),
            "{line}"
        );
    }
    // Ids come back as they were written.
    assert!(host.send_bytes(
        b"{\"jsonrpc\":\"2.0\",\"id\":1.50,\"method\":\"one.v1\",\"params\":{\"n\":1}}\n"
    ));
    let reply = host.reply();
    assert_eq!(
        (&reply["jsonrpc"], &reply["id"]),
        (&json!("2.0"), &json!(1.5))
    );
    assert!(reply.get("result").is_some() && reply.get("error").is_none());
    // A notification is carried out and not answered.
    assert!(host.send(&json!({
        "jsonrpc": "2.0", "method": "files/write", "params": { "path": "told", "content": "x" },
    })));
    wait_for("the file", || folder.join("told").exists().then_some(()));
    let next = host.ask(&request(json!(9), "files/stat", json!({ "path": "told" })));
    assert_eq!(next["id"], 9, "nothing came before it");
    host.end();
}

/// R-2: up to 64 at once, answered in their order; one too many is refused whole.
#[test]
fn batches() {
    let folder = trusted(ONE);
    let mut host = Host::rpc(&folder);
    let many = |count: usize| -> Vec<Value> {
        (0..count)
            .map(|id| request(json!(id), "one", json!({ "n": id })))
            .collect()
    };
    for count in [1, 63, 64] {
        let replies = host.ask(&Value::Array(many(count)));
        let ids: Vec<u64> = replies
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|r| r["id"].as_u64())
            .collect();
        assert_eq!(ids, (0..count as u64).collect::<Vec<_>>());
    }
    assert_eq!(host.ask(&Value::Array(many(65)))["error"]["code"], -32600);
    // Requests, notifications and nonsense in one: answers for all but the notifications.
    let mixed = json!([
        request(json!(1), "one", json!({ "n": 1 })),
        { "jsonrpc": "2.0", "method": "one", "params": { "n": 2 } },
        7,
        [request(json!(2), "one", json!({}))],
    ]);
    let replies = host.ask(&mixed);
    let codes: Vec<Value> = replies
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["error"]["code"].clone())
        .collect();
    assert_eq!(codes, [Value::Null, json!(-32600), json!(-32600)]);
}

/// Many lines at once are all answered, however few run at the same time.
#[test]
fn many_lines_at_once() {
    let folder = trusted(ONE);
    let mut host = Host::rpc(&folder);
    let lines: String = (0..2000)
        .map(|id| {
            format!(
                "{}\n",
                request(json!(id), "builtin/echo", json!({ "n": id }))
            )
        })
        .collect();
    assert!(host.send_bytes(lines.as_bytes()));
    let mut ids: Vec<u64> = (0..2000)
        .map(|_| {
            let reply = host.reply();
            assert_eq!(reply["result"]["n"], reply["id"]);
            reply["id"].as_u64().unwrap()
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..2000).collect::<Vec<_>>());
    host.end();
}

/// JR-10, JR-27, JR-28, JR-29, JR-30, JR-31, JR-32, JR-33, JR-34, JR-35, JR-36, JR-37, JR-38,
/// JR-39, JR-40, JR-41, JR-42, JR-43, JR-44, JR-45, R-4, R-14.
#[test]
fn tools_are_listed() {
    let folder = trusted(ONE);
    let mut host = Host::rpc(&folder);
    let mut list = |params: Value| host.ask(&request(json!(1), "tools/list", params));
    let all = list(json!({}))["result"]["tools"]
        .as_array()
        .unwrap()
        .clone();
    let read = all
        .iter()
        .find(|tool| tool["name"] == "files/read")
        .unwrap();
    let fields = [
        "name",
        "title",
        "description",
        "version",
        "input_schema",
        "output_schema",
        "tags",
        "auth_required",
        "rate_limit",
        "server",
        "enabled",
    ];
    let found: Vec<&str> = read
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert!(fields.iter().all(|field| found.contains(field)) && found.len() == fields.len());
    assert_eq!(
        (&read["title"], &read["auth_required"]),
        (&json!("Read File"), &json!(false))
    );
    assert_eq!(
        read["server"],
        json!({ "id": "callgate", "transport": "stdio", "endpoint": null })
    );
    assert_eq!(read["input_schema"]["additionalProperties"], false);
    // One after the other, by cursor, is the same list.
    let (mut paged, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = list(json!({ "limit": 2, "cursor": cursor }))["result"].clone();
        paged.extend(page["tools"].as_array().unwrap().clone());
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(paged, all);
    let names = |reply: Value| -> Vec<String> {
        let tools = reply["result"]["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(
        names(list(json!({ "filter": { "names": ["one", "none"] } }))),
        ["one"]
    );
    assert!(names(list(json!({ "filter": { "tags": ["fs", "none"] } }))).len() >= 7);
    assert!(names(list(json!({ "filter": { "enabled": false } }))).is_empty());
    let enabled = names(list(json!({ "limit": 200, "filter": { "enabled": true } })));
    assert_eq!(enabled.len(), all.len());
    for (params, field) in [
        (json!({ "limit": 0 }), "limit"),
        (json!({ "limit": 201 }), "limit"),
        (json!({ "cursor": "abc" }), "cursor"),
        (json!({ "cursor": 7 }), "cursor"),
        (json!({ "filter": { "names": "one" } }), "filter.names"),
        (json!({ "filter": { "x": 1 } }), "filter.x"),
        (json!({ "x": 1 }), "x"),
    ] {
        let error = list(params)["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["field"]),
            (&json!(-32602), &json!(field))
        );
    }
}

/// `rpc/discover` tells of the very schemas that calls are checked by.
#[test]
fn discovered() {
    let folder = trusted(ONE);
    let mut host = Host::rpc(&folder);
    let found = host.ask(&request(json!(1), "rpc/discover", json!({})))["result"].clone();
    let methods = found["methods"].as_array().unwrap();
    let write = methods
        .iter()
        .find(|method| method["name"] == "files/write")
        .unwrap();
    let params = write["params"].as_array().unwrap();
    let path = params.iter().find(|param| param["name"] == "path").unwrap();
    assert_eq!(
        (&path["required"], &path["schema"]["type"]),
        (&json!(true), &json!("string"))
    );
    assert_eq!(params.len(), 9);
    assert!(methods.iter().any(|method| method["name"] == "tools/list"));
    // OpenRPC: what may be left out stands behind what may not.
    for method in methods {
        let params = method["params"].as_array().unwrap();
        let required: Vec<bool> = params
            .iter()
            .map(|param| param["required"] == true)
            .collect();
        assert!(required.is_sorted_by(|one, next| one >= next), "{method}");
    }
}

/// R-14, R-16: a tool may have a version in its name, and one that can not run says so.
#[test]
fn tools_as_they_are_called() {
    let pack = json!({
        "toolpack_id": "toolpack.t", "toolpack_version": "1.0.0", "trust_tier": "tier2_untrusted",
        "tools": [{
            "aid": "AID.ELSEWHERE.v1", "name": "elsewhere", "deterministic": true, "tags": ["tag.t"],
            "inputs_schema": { "type": "object" }, "outputs_schema": { "type": "object" },
            "estimate_model": { "mode": "ConservativeBound", "notes": "" },
            "side_effects": ["none"], "replay_inputs": [],
        }],
    });
    let config = "toolpacks = [\"pack.json\"]\n[[tool]]\nname = \"one.v3\"\n\
                  runner = { kind = \"process\", command = [\"/bin/echo\", \"{}\"] }\n";
    let folder = trusted_with(&[("callgate.toml", config), ("pack.json", &pack.to_string())]);
    let mut host = Host::rpc(&folder);
    let result = host.ask(&request(json!(1), "one.v3", json!({ "n": 1 })));
    assert!(result["result"].is_object(), "{result}");
    for unknown in ["one", "one.v1", "one.v2"] {
        let error = host.ask(&request(json!(1), unknown, json!({})))["error"].clone();
        assert_eq!(error["code"], -32601, "{unknown}");
    }
    let off = json!({ "filter": { "enabled": false } });
    let off = host.ask(&request(json!(1), "tools/list", off))["result"]["tools"].clone();
    assert_eq!(
        (&off[0]["name"], &off[0]["enabled"], &off[1]),
        (&json!("elsewhere"), &json!(false), &Value::Null)
    );
    let error = host.ask(&request(json!(1), "elsewhere", json!({})))["error"].clone();
    assert_eq!(error["code"], 1006);
}

/// R-13, R-14: a limit by pattern holds built-in tools too, and is listed.
#[test]
fn limits_by_pattern() {
    let limits = "[[limit]]\ntools = [\"files/r*\"]\nper_second = 0.001\nburst = 2\n\
                  [[limit]]\ntools = [\"files/*\"]\nper_second = 1000\nburst = 1000\n";
    let folder = trusted(limits);
    folder.write("a", "a");
    let mut host = Host::rpc(&folder);
    let mut read = || host.ask(&request(json!(1), "files/read", json!({ "path": "a" })));
    assert_eq!(read()["result"]["content"], "a");
    assert_eq!(read()["result"]["content"], "a");
    let error = read()["error"].clone();
    assert_eq!(error["code"], 1004);
    assert!(error["data"]["retry_after_ms"].as_u64().unwrap() > 1000);
    let names = json!({ "filter": { "names": ["files/read", "files/stat", "exec/run"] } });
    let listed = host.ask(&request(json!(1), "tools/list", names))["result"]["tools"].clone();
    let rates: Vec<&Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["rate_limit"]["burst"])
        .collect();
    assert_eq!(rates, [&Value::Null, &json!(2), &json!(1000)]);
}

/// D-11: reading a file is one record, made before the answer is told. With a key it is a start
/// and an outcome, as what changes something always is.
#[test]
fn a_read_is_one_record() {
    let folder = trusted(ONE);
    folder.write("a.txt", "hello");
    let mut host = Host::rpc(&folder);
    let kinds = |tool: &str| -> Vec<Value> {
        let records = records(&folder);
        let of_tool = records.iter().filter(|record| record["tool"] == tool);
        of_tool.map(|record| record["kind"].clone()).collect()
    };
    let read = |id: u64| request(id.into(), "files/read", json!({ "path": "a.txt" }));
    assert_eq!(host.ask(&read(1))["result"]["content"], "hello");
    assert_eq!(kinds("files/read"), ["call"]);
    let missing = request(2.into(), "files/read", json!({ "path": "b.txt" }));
    assert!(host.ask(&missing)["error"].is_object());
    assert_eq!(kinds("files/read"), ["call", "call"]);
    let mut keyed = read(3);
    keyed["callgate"] = json!({ "idempotency_key": "k" });
    assert_eq!(host.ask(&keyed)["result"]["content"], "hello");
    assert_eq!(kinds("files/read"), ["call", "call", "start", "outcome"]);
    let params = json!({ "path": "c.txt", "content": "x" });
    assert!(host.ask(&request(4.into(), "files/write", params))["result"].is_object());
    assert_eq!(kinds("files/write"), ["start", "outcome"]);
}
