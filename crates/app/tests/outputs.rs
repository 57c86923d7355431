//! Where data goes, and what is done where it can not go: what is not written is a failure, what
//! was done is not told as one, terminals are told nothing to act on, and a folder that is gone is
//! no workspace.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::support::callgate;
use crate::support::drive::{cli, script, verified};
use crate::support::workspace::{ONE, effects, trusted, workspace};

/// The folder one stands in may have been removed: that is not the root of the machine.
#[test]
fn a_folder_that_is_gone_is_no_workspace() {
    let folder = workspace(ONE);
    let gone = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\"";
    for words in ["tools", "call files/list path=.", "mcp --standalone"] {
        let ran = script(&callgate(&folder), &format!("{gone} {words} </dev/null"));
        assert_eq!((ran.code(), ran.out.as_str()), (1, ""), "{words}");
        assert!(ran.err.contains("No such file"), "{words}: {}", ran.err);
    }
    let whole = format!("{gone} --workspace \"$HOME\" tools");
    script(&callgate(&folder), &whole).good();
}

/// Data that could not be written is told, and by the exit code; a reader that has enough is not.
#[test]
fn data_that_is_not_written() {
    let folder = trusted(ONE);
    for args in [
        &["call", "builtin/echo", "a=1"][..],
        &["audit", "head"],
        &["completions", "bash"],
        &["tools"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let told = callgate(&folder)
            .args(args)
            .stdout(Stdio::from(full.unwrap()))
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{args:?}: {words}");
        let why = "error: write to standard output: No space left on device";
        assert!(words.contains(why), "{args:?}: {words}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let told = callgate(&folder).args(args).stdout(writer).output();
        let told = told.unwrap();
        assert_eq!(told.status.code(), Some(0), "{args:?}: {told:?}");
        let words = String::from_utf8_lossy(&told.stderr);
        assert!(!words.contains("error"), "{args:?}: {words}");
    }
}

/// T-12 is the toolhost's: on every other wire nothing is done that can not be recorded.
#[test]
fn nothing_is_done_without_a_record() {
    let folder = trusted(ONE);
    cli(&folder, &["call", "one", "text=first"]).good();
    let before = verified(&folder);
    // No file of the state may grow.
    let ran = script(
        &callgate(&folder),
        "ulimit -f 0; exec \"$0\" call one text=second",
    );
    assert_eq!(ran.code(), 1, "{ran:?}");
    assert_eq!(effects(&folder), 1, "{ran:?}");
    assert_eq!(verified(&folder), before);
    cli(&folder, &["call", "one", "text=third"]).good();
    assert_eq!(effects(&folder), 2);
}

/// What a configuration or a tool says can not redraw what the owner decides by.
#[test]
fn terminals_are_told_nothing_to_act_on() {
    let config = ONE.replace(
        "\"tool.sh\"]",
        "\"tool.sh\", \"\\u001b[2K\\u001b[1Gharmless\\u202e\"]",
    );
    let folder = workspace(&config);
    let ran = cli(&folder, &["trust", "--show"]).good();
    assert!(ran.out.contains("harmless"), "{ran:?}");
    let acted = |text: &str| text.contains(['\u{1b}', '\u{202e}']);
    assert!(!acted(&ran.out) && !acted(&ran.err), "{ran:?}");
    let ran = cli(&folder, &["call", "x\u{1b}[2J"]);
    assert_eq!(ran.code(), 1);
    assert!(!acted(&ran.err), "{ran:?}");
    let ran = cli(&folder, &["audit", "show"]).good();
    assert!(ran.out.contains("[2J") && !acted(&ran.out), "{ran:?}");
}

/// What is asked for and can not be is told before anything is done for it.
#[test]
fn places_that_can_not_be() {
    let folder = trusted(ONE);
    let ran = cli(&folder, &["index", "nope", "--json"]);
    assert_eq!(ran.code(), 1);
    assert_eq!(ran.json()["fault"]["kind"], "not_found");
    for place in ["nowhere/report.json", "."] {
        let args = ["run", "--report", place, "--", "/bin/sh", "-c", "touch ran"];
        let ran = cli(&folder, &args);
        assert_eq!(ran.code(), 2, "{ran:?}");
        assert!(ran.err.contains(&format!("--report {place}")), "{ran:?}");
    }
    assert!(!folder.join("ran").exists());
    assert_eq!(effects(&folder), 0);
}

/// Words that can be no input are a wrong command line; a value that is not what the tool takes
/// is the call's own failure. Nothing runs.
#[test]
fn words_that_are_no_input() {
    let folder = trusted(ONE);
    for (words, code, said) in [
        (&["n"][..], 2, "neither JSON nor key=value"),
        (&["n=1", "text"], 2, "neither JSON nor key=value"),
        (&["n=1", "n=2"], 2, "`n` is given twice"),
        (&["n=1", "-"], 2, "`-` is the whole input or none of it"),
        (&["{}", "n=1"], 2, "`{}` is the whole input or none of it"),
        (&["{\"n\":"], 2, "input is not JSON"),
        (&["n:=x"], 2, "`n` is not JSON"),
        (&["n=x"], 1, "n: \"x\" is not an integer"),
    ] {
        let ran = cli(&folder, &[&["call", "one"], words].concat());
        assert_eq!(ran.code(), code, "{words:?}: {ran:?}");
        assert!(ran.err.contains(said), "{words:?}: {ran:?}");
    }
    assert_eq!(effects(&folder), 0);
}
