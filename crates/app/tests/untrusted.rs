//! What a configuration may do that nobody has trusted: nothing. It sets no option, holds
//! nobody up, and loses its tools when the trust is taken back.

use crate::support::drive::{Serve, cli};
use crate::support::workspace::{ONE, effects, trusted};
use serde_json::json;

/// G-9, G-3: keys do not become shorter-lived by a file that is not trusted.
#[test]
fn store_options_wait_for_trust() {
    let folder = trusted(ONE);
    let note = ["call", "memory/append", "text=hello", "--key", "k"];
    let first = cli(&folder, &note).good().out;
    let hostile = format!("{ONE}\n[store]\nkey_life_ms = 1\nkeys_max = 0\n");
    folder.write("callgate.toml", &hostile);
    let again = cli(&folder, &note).good();
    assert_eq!(again.out, first);
    assert!(again.err.contains("earlier call"), "{}", again.err);
}

/// G-9: trust that is taken back is taken from a running gate too.
#[test]
fn a_running_gate_gives_up_what_is_no_longer_trusted() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let call = json!({ "tool": "one", "input": {} });
    assert_eq!(serve.call(&call)["ok"], true);
    cli(&folder, &["trust", "--revoke"]).good();
    serve.wait_said("trust was taken back");
    assert_eq!(serve.call(&call)["fault"]["kind"], "unknown_tool");
    assert_eq!(effects(&folder), 1);
    assert!(serve.stop().success());
}

/// On our own wire an empty key is a slip, and told.
#[test]
fn an_empty_key_is_refused() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let reply = serve.call(&json!({ "tool": "one", "input": {}, "idempotency_key": "" }));
    assert_eq!(reply["fault"]["kind"], "bad_request");
    assert!(serve.stop().success());
    assert_ne!(cli(&folder, &["call", "one", "--key", ""]).code(), 0);
    assert_eq!(effects(&folder), 0);
}
