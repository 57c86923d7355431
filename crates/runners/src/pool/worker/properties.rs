//! What holds of any bytes of a worker: lines mean the same in whatever pieces they come. For the
//! seeded mutations and the fuzz target `worker-lines`.

use std::sync::{Arc, Mutex, PoisonError};

use callgate_call::{
    Call, CallId, Caller, Cancel, Document, Log, Patience, Plan, Progress, RunFuture, Runner, Sink,
    Tool, Wire,
};
use serde_json::{Value, json};

use super::*;

const CALL: &str = "0000000000000000000000000000abcd";

/// The most a line may hold here.
const MAX: usize = 300;

struct Nothing;

impl Runner for Nothing {
    fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
        unreachable!("nobody runs it")
    }

    fn kind(&self) -> &'static str {
        "nothing"
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Sink for Told {
    fn chunk(&self, _: Stream, _: &[u8]) {}

    fn progress(&self, progress: &Progress) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(format!("{progress:?}"));
    }

    fn log(&self, log: &Log) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(format!("{log:?}"));
    }
}

/// What came of some pieces: how it ended, what stands where the answer is, what was told.
fn heard(tool: &Tool, forks: bool, pieces: &[&[u8]]) -> (String, Vec<u8>, Vec<String>) {
    let input = Document::from_value(json!({}));
    let (caller, id) = (Caller::uid(0), CallId(0xabcd));
    let call = Call::new(id, &tool.name, input, caller, Wire::Gate, Cancel::new());
    let (plan, patience, sink) = (
        Plan::default(),
        Patience::fixed(LAST_BREATH),
        Told::default(),
    );
    let job = Job {
        call: &call,
        tool,
        plan: &plan,
        timeout: &patience,
        sink: &sink,
    };
    let mut talk = Talk {
        reports: Reports::new(job, CALL.as_bytes()),
        forks,
        line_at: 0,
        searched: 0,
        passed_over: 0,
        max: MAX,
    };
    let mut reply = Vec::new();
    let mut ended = None;
    for piece in pieces {
        reply.extend_from_slice(piece);
        ended = talk.hear(&mut reply);
        if ended.is_some() {
            break;
        }
        assert!(
            reply.len() - talk.line_at <= MAX,
            "no more is kept than a line"
        );
    }
    let (how, answer) = match ended {
        None => ("open".to_owned(), 0),
        Some(Exchange::Overlong) => ("overlong".to_owned(), 0),
        Some(Exchange::Line(length)) => ("line".to_owned(), length),
        Some(Exchange::Judged { answer, verdict }) => (
            format!("{answer:?} {verdict:?}"),
            answer.unwrap_or_default(),
        ),
        Some(Exchange::HungUp | Exchange::Stopped(_)) => unreachable!("nobody listens"),
    };
    reply.truncate(answer);
    (
        how,
        reply,
        sink.0.into_inner().unwrap_or_else(PoisonError::into_inner),
    )
}

/// What became of some bytes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Came {
    /// No answer.
    Nothing,
    /// An answer that is no output.
    Answer,
    /// An output.
    Output,
}

/// A tool that is never run.
pub(crate) fn test_tool() -> Tool {
    Tool {
        input_schema: Value::Bool(true),
        ..Tool::new("test/tool", Arc::new(Nothing))
    }
}

/// Panics unless `pieces` come to the same as the lines of `bytes`, and an output is read the same
/// when written again.
pub(crate) fn check_lines(
    tool: &Tool,
    forks: bool,
    slots: bool,
    bytes: &[u8],
    pieces: &[&[u8]],
) -> Came {
    let whole: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let wanted = heard(tool, forks, &whole);
    let shown = bytes.escape_ascii();
    assert_eq!(heard(tool, forks, pieces), wanted, "{shown}");
    let (_, answer, _) = wanted;
    let Ok(read) = Answer::read(&answer) else {
        return Came::Nothing;
    };
    let (asks, exits) = (read.asks().is_some(), read.exits().is_some());
    assert!(!(asks && exits), "{shown}");
    let Ok(output) = read.into_result(slots, MAX, None) else {
        return Came::Answer;
    };
    assert!(!asks && !exits, "{shown}");
    let again = crate::answer::read_output(output.json.text().as_bytes());
    assert_eq!(
        again.map(|again| again.json.into_value()).ok().as_ref(),
        Some(output.json.value())
    );
    Came::Output
}
