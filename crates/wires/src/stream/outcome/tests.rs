//! Every row of the table, and every pair of things that can contradict each other.

use super::*;

const FAILED: Terminal<'_> = Terminal::Error {
    error_type: "TypeError",
    message: "no x",
};

fn told(status: Status) -> Option<Told<'static>> {
    Some(Told {
        status,
        message: Some("words"),
        error_type: None,
    })
}

fn end(exit: Exit, terminal: Option<Terminal<'_>>, told: Option<Told<'_>>) -> Judgement {
    judge(&Evidence {
        troubles: &[],
        exit: Some(exit),
        terminal,
        told,
    })
}

/// ST-52, ST-53, ST-54, ST-55, ST-56, ST-57, ST-80, ST-81, S-5, S-6, S-7: each end of the
/// executor, each terminal event and each run result, all with all.
#[test]
fn the_whole_table() {
    use Verdict::{ExecutorCrash as Crash, ScriptError as Script, Success};
    let terminals = [None, Some(Terminal::Complete), Some(FAILED)];
    let results = [
        None,
        told(Status::Completed),
        told(Status::Error),
        told(Status::Crash),
    ];
    // By exit code: rows are the terminal events above, columns the run results.
    let table = [
        (
            Exit::Code(0),
            [
                [Crash, Crash, Crash, Crash],
                [Success, Success, Success, Crash],
                [Crash, Success, Success, Crash],
            ],
        ),
        (
            Exit::Code(1),
            [
                [Crash, Script, Script, Crash],
                [Crash, Script, Script, Crash],
                [Script, Script, Script, Crash],
            ],
        ),
        (Exit::Code(2), [[Crash; 4]; 3]),
        (Exit::Code(3), [[Crash; 4]; 3]),
        (Exit::Code(77), [[Crash; 4]; 3]),
        (Exit::Code(-1), [[Crash; 4]; 3]),
        (Exit::Signal(9), [[Crash; 4]; 3]),
        (Exit::Signal(11), [[Crash; 4]; 3]),
        (Exit::Lost, [[Crash; 4]; 3]),
    ];
    for (exit, rows) in table {
        for (terminal, row) in terminals.iter().zip(rows) {
            for (result, wanted) in results.iter().zip(row) {
                let judgement = end(exit, *terminal, *result);
                let about = format!("{exit:?} {terminal:?} {result:?}: {judgement:?}");
                assert_eq!(judgement.verdict, wanted, "{about}");
                assert!(!judgement.message.is_empty(), "{about}");
            }
        }
    }
}

/// ST-53, S-5, S-6: what contradicts the outcome is in its message.
#[test]
fn conflicts_are_named() {
    let complete = Some(Terminal::Complete);
    for (judgement, wanted) in [
        (end(Exit::Code(0), complete, None), "completed"),
        (
            end(Exit::Code(0), complete, told(Status::Completed)),
            "words",
        ),
        (
            end(Exit::Code(0), complete, told(Status::Error)),
            "exit 0 though its run_result says error (words); the exit code counts",
        ),
        (
            end(Exit::Code(0), Some(FAILED), told(Status::Completed)),
            "exit 0 after run_error (TypeError: no x); the exit code counts",
        ),
        (
            end(Exit::Code(0), Some(FAILED), told(Status::Error)),
            "exit 0 after run_error (TypeError: no x), and its run_result says error (words); \
             the exit code counts",
        ),
        (
            end(Exit::Code(0), complete, told(Status::Crash)),
            "its run_result says crash (words); exit 0 contradicts it",
        ),
        (
            end(Exit::Code(2), complete, told(Status::Crash)),
            "its run_result says crash (words)",
        ),
        (
            end(Exit::Code(0), None, told(Status::Completed)),
            "early end: exit 0 without a terminal event; its run_result says completed (words)",
        ),
        (
            end(Exit::Code(0), Some(FAILED), None),
            "early end: exit 0 after run_error (TypeError: no x)",
        ),
        (end(Exit::Code(1), Some(FAILED), None), "TypeError: no x"),
        (
            end(Exit::Code(1), Some(FAILED), told(Status::Error)),
            "words",
        ),
        (
            end(Exit::Code(1), complete, told(Status::Completed)),
            "words; exit 1 though its run_result says completed; exit 1 after run_complete",
        ),
        (
            end(Exit::Code(1), complete, None),
            "exit 1 after run_complete",
        ),
        (
            end(Exit::Signal(11), complete, told(Status::Completed)),
            "killed by signal 11 (SIGSEGV) after run_complete; its run_result says completed (words)",
        ),
        (end(Exit::Signal(40), None, None), "killed by signal 40"),
        (end(Exit::Code(3), None, None), "exit 3"),
    ] {
        assert_eq!(judgement.message, wanted);
    }
    let wordless = Some(Told {
        status: Status::Error,
        message: None,
        error_type: None,
    });
    assert_eq!(end(Exit::Code(1), None, wordless).message, "error");
    assert_eq!(
        end(Exit::Code(1), Some(FAILED), wordless).message,
        "TypeError: no x"
    );
}

/// S-8: policy before version before stream before our own stop, whatever the exit was, and
/// whatever came second is named, a signal that killed it too.
#[test]
fn troubles_come_before_the_exit() {
    use Trouble::{NotStarted, Policy, Stopped, Stream, Version};
    let all = [
        (NotStarted("n"), Verdict::ExecutorCrash, "not started: n"),
        (Stopped("t"), Verdict::ExecutorCrash, "t"),
        (Stream("s"), Verdict::ExecutorCrash, "bad stream: s"),
        (Version("v"), Verdict::VersionMismatch, "v"),
        (Policy("p"), Verdict::PolicyFailure, "not kept: p"),
    ];
    for (at, (trouble, verdict, words)) in all.iter().enumerate() {
        for exit in [None, Some(Exit::Code(0)), Some(Exit::Signal(9))] {
            let judge = |troubles: &[Trouble<'_>]| {
                judge(&Evidence {
                    troubles,
                    exit,
                    terminal: Some(Terminal::Complete),
                    told: told(Status::Completed),
                })
            };
            let killed = match exit {
                Some(Exit::Signal(_)) => "; killed by signal 9 (SIGKILL)",
                _ => "",
            };
            let alone = judge(&[*trouble]);
            assert_eq!(alone.verdict, *verdict);
            assert_eq!(alone.message, format!("{words}{killed}"));
            for (lesser, _, second) in &all[..at] {
                let both = judge(&[*lesser, *trouble]);
                assert_eq!(both.verdict, *verdict);
                assert_eq!(both.message, format!("{words}; {second}{killed}"));
            }
        }
    }
}
