//! Ports of a tool's own loopback that lead to hosts its owner named, and to nobody else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use callgate_call::{Asker, Guarantee, Ipc, Needs, Network};
use callgate_runners::{ProcessRunner, ProcessSettings};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::{Bench, spawner};

/// Tries each port of the loopback and says what came back.
const SCRIPT: &str = r#"
import json, socket, sys
asked = json.load(sys.stdin)
told = {}
for port in asked["ports"]:
    try:
        one = socket.create_connection(("127.0.0.1", port), 20)
        for part in range(asked.get("parts", 1)):
            one.sendall(b"x" * asked.get("size", 1))
        one.shutdown(socket.SHUT_WR)
        got = b""
        while True:
            piece = one.recv(65536)
            if not piece:
                break
            got += piece
        told[port] = got[:1].decode() + str(len(got))
    except OSError as error:
        told[port] = type(error).__name__
print(json.dumps(told))
"#;

/// A host that gives back what it gets, after its name.
async fn host(name: &'static str) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = to.write_all(name.as_bytes()).await;
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

fn bench(needs: Needs) -> Bench {
    let words = ["/usr/bin/python3", "-I", "-c", SCRIPT].map(Into::into);
    let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    let settings = ProcessSettings::new(words.into(), env, PathBuf::from("/"));
    let mut bench = Bench::new(Arc::new(ProcessRunner::new(spawner(), settings)));
    bench.plan.confinement = Some(Arc::new(needs));
    bench
}

#[tokio::test]
async fn forwarded_ports_reach_their_hosts() {
    let (a, b) = (host("A").await, host("B").await);
    for (network, ipc) in [
        (Network::None, Ipc::None),
        (Network::None, Ipc::Private),
        (
            Network::Hosts(vec!["host.test:443".to_owned()]),
            Ipc::Private,
        ),
    ] {
        let bench = bench(Needs {
            forwards: vec![
                (5432, a.to_string()),
                (80, format!("localhost:{}", b.port())),
            ],
            network,
            ipc,
            ..Needs::default()
        });
        let ports = [5432, 80, 5433, a.port()];
        let told = bench.value(json!({ "ports": ports })).await;
        assert_eq!((&told["5432"], &told["80"]), (&json!("A2"), &json!("B2")));
        // Neither another port of its own network nor the host itself.
        for port in ["5433".to_owned(), a.port().to_string()] {
            let refused = ["ConnectionRefusedError", "PermissionError"].map(Value::from);
            assert!(refused.contains(&told[&port]), "{port}: {told}");
        }
        // More than any buffer on the way holds.
        let large = json!({ "ports": [5432], "parts": 64, "size": 65536 });
        let told = bench.value(large).await;
        assert_eq!(told["5432"], format!("A{}", 1 + 64 * 65536));
    }
}

#[tokio::test]
async fn a_promise_outranks_forwarded_ports() {
    let host = host("A").await;
    let mut needs = Needs {
        forwards: vec![(5432, host.to_string())],
        ..Needs::default()
    };
    needs.guarantees.require(Guarantee::NoNetwork, Asker::User);
    let told = bench(needs).value(json!({ "ports": [5432] })).await;
    assert_eq!(told["5432"], "PermissionError");
}

/// A host that does not answer shows as a connection that ends, and is told with the call.
#[tokio::test]
async fn a_host_that_is_not_there_is_told() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let bench = bench(Needs {
        forwards: vec![(5432, closed.to_string())],
        ..Needs::default()
    });
    let told = bench.value(json!({ "ports": [5432] })).await;
    let words = told["5432"].as_str().unwrap();
    assert!(words == "0" || words.ends_with("Error"), "{told}");
    let told = bench.sink.fact_of("network_refused");
    assert_eq!(told, format!("1: {closed} unreachable"));
}

#[tokio::test]
async fn ports_that_can_not_be_forwarded_are_refused() {
    let to = || "127.0.0.1:1".to_owned();
    let sixteen: Vec<(u16, String)> = (1..=16).map(|port| (port, to())).collect();
    let mut seventeen = sixteen.clone();
    seventeen.push((17, to()));
    for (forwards, fits) in [
        (sixteen, true),
        (seventeen, false),
        (vec![(0, to())], false),
        (vec![(5, to()), (5, to())], false),
        (vec![(3128, to())], true),
        (vec![(5, "no port".to_owned())], false),
        (vec![(5, "*.test:5".to_owned())], false),
        (vec![(5, "a.test:*".to_owned())], false),
    ] {
        let bench = bench(Needs {
            forwards: forwards.clone(),
            ..Needs::default()
        });
        let ran = bench.run(json!({ "ports": [] })).await;
        assert_eq!(ran.is_ok(), fits, "{forwards:?}: {ran:?}");
    }
    // The way to its hosts has the port already.
    let bench = bench(Needs {
        forwards: vec![(3128, to())],
        network: Network::Hosts(vec!["host.test:443".to_owned()]),
        ..Needs::default()
    });
    assert!(bench.run(json!({ "ports": [] })).await.is_err());
}
