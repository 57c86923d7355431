//! Two processes that write the workspace's files at once, over JSON-RPC. What is read and written,
//! and what is refused, is tested in `doors`. R-7.

use crate::support::drive::Host;
use crate::support::rpc::request;
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

fn rpc(folder: &Folder) -> Host {
    Host::spawn(callgate(folder).arg("rpc"))
}

fn ask(host: &mut Host, method: &str, params: Value) -> Value {
    let answer = host.ask(&request(1, method, params));
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"]),
        (&json!("2.0"), &json!(1))
    );
    answer
}

fn good(host: &mut Host, method: &str, params: Value) -> Value {
    let answer = ask(host, method, params);
    assert_eq!(answer.get("error"), None, "{method}");
    answer["result"].clone()
}

/// JR-22, R-7: of two processes that name the same etag at the same time one wins, every time, and
/// the other is told so.
#[test]
fn one_of_two_writers_wins() {
    let folder = Folder::new();
    folder.write("n", "0");
    let mut hosts = [rpc(&folder), rpc(&folder)];
    let mut wins = [0, 0];
    for round in 0..200 {
        let etag = good(&mut hosts[0], "files/read", json!({ "path": "n" }))["etag"].clone();
        let content = |who: usize| format!("{round} by {who}");
        for who in [round % 2, 1 - round % 2] {
            let params = json!({ "path": "n", "content": content(who), "etag": etag });
            assert!(hosts[who].send(&request(1, "files/write", params)));
        }
        let answers = hosts.each_ref().map(Host::reply);
        let winner = usize::from(answers[0].get("result").is_none());
        let (won, lost) = (&answers[winner]["result"], &answers[1 - winner]["error"]);
        assert_eq!(won["overwritten"], true, "{answers:?}");
        let told = (&lost["code"], &lost["data"]["etag"]);
        assert_eq!(told, (&json!(1005), &won["etag"]), "{answers:?}");
        assert_eq!(folder.read("n"), Some(content(winner)));
        wins[winner] += 1;
    }
    eprintln!("wins: {wins:?}");
}
