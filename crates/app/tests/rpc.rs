//! JSON-RPC over HTTP, and how long a client waits by each way to the program. The envelope and the
//! lists are tested in `doors`..

use std::io::Write as _;

use crate::support::drive::{Host, Serve, run_with};
use crate::support::mcp::serve_http;
use crate::support::processes::started_with;
use crate::support::web::{Reply, Request, hear};
use crate::support::workspace::{ONE, trusted, trusted_with};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

fn rpc(folder: &Folder) -> Host {
    Host::spawn(callgate(folder).arg("rpc"))
}

fn request(id: Value, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn post(port: u16, path: &str, body: &[u8]) -> Reply {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let bytes = Request::new(&format!("POST {path}"), body).bytes("connection: close\r\n");
    // The answer may come before all is said.
    let _ = stream.write_all(&bytes);
    hear(&mut stream)
}

/// whatever has an id is answered with 200, at either path; what only tells gets 204.
#[test]
fn over_http() {
    let folder = trusted(ONE);
    let (_serve, port) = serve_http(&folder);
    for path in ["/", "/rpc"] {
        let good = request(json!(1), "one", json!({ "n": 1 })).to_string();
        let bad = request(json!(2), "files/read", json!({ "path": "none" })).to_string();
        let told = json!({ "jsonrpc": "2.0", "method": "one", "params": { "n": 1 } }).to_string();
        let reply = post(port, path, good.as_bytes());
        assert_eq!(
            (reply.status, &reply.json()["id"]),
            (200, &json!(1)),
            "{path}"
        );
        let reply = post(port, path, bad.as_bytes());
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (200, &json!(1001))
        );
        assert_eq!(post(port, path, told.as_bytes()).status, 204);
        let reply = post(port, path, b"{");
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (200, &json!(-32700))
        );
        let large = vec![b' '; 16 * 1024 * 1024 + 1];
        let reply = post(port, path, &large);
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (200, &json!(1007))
        );
    }
    let reply = post(
        port,
        "/rpc",
        request(json!(1), "tools/list", json!({}))
            .to_string()
            .as_bytes(),
    );
    let server = reply.json()["result"]["tools"][0]["server"].clone();
    assert_eq!(server["transport"], "http");
    assert!(
        server["endpoint"].as_str().unwrap().ends_with("/rpc"),
        "{server}"
    );
}

/// JR-9, G-2b: the methods that may take longer than a client waits are those that are told how long; of
/// any other its client says how long it waits, and the tool is gone by then.
#[test]
fn how_long_a_client_waits() {
    // A time to sleep that no process of another run has.
    let word = format!("98765.{:07}", std::process::id());
    let hang = format!("cat > /dev/null\nexec sleep {word}\n");
    let config = "[[tool]]\nname = \"hangs\"\n\
                  code = [\"hang.sh\"]\nrunner = { kind = \"process\", command = [\"/bin/sh\", \"hang.sh\"] }\n";
    let folder = trusted_with(&[("callgate.toml", config), ("hang.sh", &hang)]);
    let mut host = rpc(&folder);
    let found = host.ask(&request(json!(1), "rpc/discover", json!({})));
    let takes_time = |method: &&Value| method["params"].to_string().contains("timeout_ms");
    let methods = found["result"]["methods"].as_array().expect("methods");
    let mut told = methods
        .iter()
        .filter(takes_time)
        .map(|method| &method["name"]);
    assert_eq!(
        [told.next(), told.next()],
        [Some(&json!("exec/run")), Some(&json!("runs/start"))]
    );
    assert_eq!(told.next(), None);
    let exec = methods.iter().find(|method| method["name"] == "exec/run");
    let exec = exec.expect("it is there").to_string();
    assert!(exec.contains("\"default\":60000"), "{exec}");

    let mut asked = request(json!(2), "hangs", json!({}));
    asked["callgate"] = json!({ "timeout_ms": 300 });
    let reply = host.ask(&asked);
    assert_eq!(reply["callgate"]["fault"], "timeout", "{reply}");
    assert_eq!(reply["error"]["code"], -32603);
    // G-2c: before its client gives up, and so by every wire that is told how long that is.
    let answered = "timed out after 270 ms";
    assert_eq!(reply["error"]["message"], answered, "{reply}");
    assert!(started_with(&word).is_empty());
    let serve = Serve::start(&folder);
    let told = serve.call(&json!({ "tool": "hangs", "input": {}, "timeout_ms": 300 }));
    assert_eq!(told["fault"]["message"], answered, "{told}");
    assert!(serve.stop().success());
    let mut exec = callgate(&folder);
    exec.args(["tool_exec", &callgate_call::aid_of_name("hangs")])
        .env("MACHINA_TOOLHOST_TIMEOUT", "0.3");
    let told = run_with(&mut exec, b"{}").good().json();
    assert_eq!(told["error"], answered, "{told}");
}
