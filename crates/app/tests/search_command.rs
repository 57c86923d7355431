//! `callgate search` is a call of `vector/search`. R-17.

use crate::support::drive::{Serve, chain, cli};
use crate::support::workspace::trusted_with;

/// It is a call like every other: recorded, under the owner's rules, and through the gate that
/// runs.
#[test]
fn the_command_goes_through_the_gate() {
    let folder = trusted_with(&[("callgate.toml", ""), ("a.rs", "fn sheep() {}\n")]);
    cli(&folder, &["index", "--lexical"]).good();
    let search = || cli(&folder, &["search", "sheep"]);
    let recorded = || {
        let records = chain(&folder);
        let ours = records.iter().filter(|one| one["tool"] == "vector/search");
        ours.count()
    };
    let alone = search().good().out;
    assert!(alone.starts_with("a.rs:1\n"), "{alone}");
    let once = recorded();
    assert!(once > 0);
    let serve = Serve::start(&folder);
    assert_eq!(search().good().out, alone);
    assert_eq!(recorded(), 2 * once);
    assert!(serve.stop().success());
    let lost = cli(&folder, &["--socket", "nowhere.sock", "search", "sheep"]);
    assert!(lost.code() == 1 && lost.err.contains("no gate"), "{lost:?}");
    let rule = "[[policy]]\ntools = [\"vector/search\"]\ndecision = \"deny\"\n";
    folder.write("callgate.toml", rule);
    cli(&folder, &["trust"]).good();
    let refused = search();
    assert!(
        refused.code() == 1 && refused.err.contains("denied"),
        "{refused:?}"
    );
    let refused = cli(&folder, &["search", "sheep", "--json"]);
    assert_eq!(refused.json()["fault"]["kind"], "denied", "{refused:?}");
}
