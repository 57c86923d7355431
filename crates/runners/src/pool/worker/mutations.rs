//! Seeded mutations of what workers say, 100,000: nothing panics, and lines mean the same in
//! whatever pieces they come.

use std::sync::{Arc, Mutex};

use callgate_call::{
    Call, CallId, Caller, Cancel, Document, Log, Patience, Plan, Progress, RunFuture, Runner, Sink,
    Tool, Wire,
};
use serde_json::{Value, json};

use super::*;
use callgate_testing::{Random, mutant};

const CASES: usize = 100_000;

const CALL: &str = "0000000000000000000000000000abcd";

const LINES: [&[u8]; 6] = [
    b"{\"call\":\"0000000000000000000000000000abcd\",\"output\":{\"a\":[1,2.5,null]}}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"progress\":{\"progress\":1,\"total\":2}}\n{\"call\":\"0000000000000000000000000000abcd\",\"output\":1}\n\t{\"exit\":0}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"log\":{\"level\":\"info\",\"data\":{\"x\":1}}}\n{\"call\":\"0000000000000000000000000000abcd\",\"error\":{\"type\":\"E\",\"message\":\"m\"}}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"ask\":{\"q\":{\"message\":\"?\"}}}\n\t{\"signal\":9,\"left\":true}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"output\":{},\"slots\":{\"6\":{\"type\":\"t\",\"content_json\":\"{}\",\"size_bytes\":2}},\"removed_slots\":[1]}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"exit\":3}\nmore\n\n",
];

const WORDS: [&[u8]; 20] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\"",
    b"\n",
    b"\t",
    b"\t{\"exit\":0}\n",
    b"null",
    b"1e309",
    b"\\ud800",
    b"\xff",
    b"\"output\":1",
    b"\"call\":\"x\"",
    b"\"exit\":0",
    b"\"progress\":{\"progress\":1e308}",
    b"\"log\":{\"level\":\"loud\",\"data\":1}",
    b"\0",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

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
        self.0.lock().unwrap().push(format!("{progress:?}"));
    }

    fn log(&self, log: &Log) {
        self.0.lock().unwrap().push(format!("{log:?}"));
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
    (how, reply, sink.0.into_inner().unwrap())
}

#[test]
fn lines() {
    let mut random = Random::new("worker lines");
    let tool = Tool {
        input_schema: Value::Bool(true),
        ..Tool::new("test/tool", Arc::new(Nothing))
    };
    let (mut answers, mut outputs) = (0, 0);
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &LINES, &WORDS);
        let forks = random.one_in(2);
        let whole: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        let wanted = heard(&tool, forks, &whole);
        let mut cuts: Vec<usize> = (0..random.below(5))
            .map(|_| random.below(bytes.len() + 1))
            .collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let shown = bytes.escape_ascii();
        assert_eq!(heard(&tool, forks, &pieces), wanted, "{shown} at {cuts:?}");

        let (_, answer, _) = wanted;
        let Ok(read) = Answer::read(&answer) else {
            continue;
        };
        answers += 1;
        let (asks, exits) = (read.asks().is_some(), read.exits().is_some());
        assert!(!(asks && exits), "{shown}");
        if let Ok(output) = read.into_result(random.one_in(2), MAX, None) {
            outputs += 1;
            assert!(!asks && !exits, "{shown}");
            let again = crate::answer::read_output(output.json.text().as_bytes());
            assert_eq!(
                again.map(|again| again.json.into_value()).ok().as_ref(),
                Some(output.json.value())
            );
        }
    }
    eprintln!("{answers} answers and {outputs} outputs of {CASES}");
    assert!(outputs > 0 && outputs < answers && answers < CASES);
}
