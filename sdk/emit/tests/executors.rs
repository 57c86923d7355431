//! The vectors that every executor SDK is held to: the same steps give the same bytes. Ids and
//! times are the only difference that is allowed, and are made equal before bytes are compared.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::thread::JoinHandle;

use callgate_emit::{EmitError, Level, Run};
use callgate_wires::stream::Ack;
use serde_json::Value;

const CASES: &str = include_str!("../../../vectors/stream/executors.json");
const ACKS: &str = include_str!("../../../vectors/stream/acks.json");
const FILE_WRITE: &[u8] = b"\x85\xa4type\xaafile_write";

#[test]
fn the_same_steps_give_the_same_bytes() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut played = 0;
    for case in &cases {
        let steps = case["steps"].as_array().unwrap();
        // Values are JSON here, which has no bytes; an artifact's and a file's are apart.
        if steps
            .iter()
            .any(|step| step[0] == "item" && step.to_string().contains("$bytes"))
        {
            continue;
        }
        played += 1;
        let frames = case["frames"].as_array().unwrap();
        let wanted: Vec<&str> = frames.iter().map(|f| f["hex"].as_str().unwrap()).collect();
        assert_eq!(play(case), wanted, "{}", case["name"]);
    }
    assert!(played >= 6, "{played} cases");
}

/// ST-75: answers to a file, in two parts.
#[test]
fn answers_at_every_split() {
    let cases: Vec<Value> = serde_json::from_str(ACKS).unwrap();
    for case in &cases {
        let bytes = notation(case["bytes"].as_str().unwrap());
        for cut in 0..=bytes.len() {
            let told = answer(&bytes[..cut], &bytes[cut..]);
            let wanted = case["ack"]["error"].as_str();
            assert_eq!(told.as_deref(), wanted, "{}, cut at {cut}", case["name"]);
        }
    }
}

/// Why the first file of a run is refused, if it is, by an answer that comes in two parts.
fn answer(first: &[u8], rest: &[u8]) -> Option<String> {
    let (requests, request) = rustix::pipe::pipe().unwrap();
    // Nobody reads what is written: it fits.
    let (_stream, output) = rustix::pipe::pipe().unwrap();
    let waiting = requests.try_clone().unwrap();
    let mut request = File::from(request);
    writeln!(request, r#"{{"run_id":"r","attempt":1,"job":null}}"#).unwrap();
    let mut run = Run::from_pipes(requests, output).unwrap();
    request.write_all(first).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while rustix::io::ioctl_fionread(&waiting).unwrap() > 0 {
                std::thread::yield_now();
            }
            request.write_all(rest).unwrap();
        });
        match run.put("notes.txt", "text/plain", b"") {
            Err(EmitError::Refused { reason, .. }) => Some(reason),
            told => told.map(|()| None).unwrap(),
        }
    })
}

/// Hex digits and text in quotes.
fn notation(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, part) in text.split('\'').enumerate() {
        match at % 2 {
            0 => bytes.extend(
                part.split_whitespace()
                    .map(|byte| u8::from_str_radix(byte, 16).unwrap()),
            ),
            _ => bytes.extend_from_slice(part.as_bytes()),
        }
    }
    bytes
}

/// The payloads that a run of the case's steps writes, in hex.
fn play(case: &Value) -> Vec<String> {
    let (requests, request) = rustix::pipe::pipe().unwrap();
    let (stream, output) = rustix::pipe::pipe().unwrap();
    let mut request = File::from(request);
    writeln!(request, "{}", case["request"]).unwrap();
    let mut run = Run::from_pipes(requests, output).unwrap();
    let acks = case["acks"].as_array().cloned().unwrap_or_default();
    let other = serve(File::from(stream), request, acks);
    for step in case["steps"].as_array().unwrap() {
        match take(&mut run, step) {
            Err(EmitError::Refused { reason, .. }) => run.log(Level::Warn, &reason).unwrap(),
            taken => taken.unwrap(),
        }
    }
    run.finish();
    alike(&other.join().unwrap())
}

fn take(run: &mut Run, step: &Value) -> Result<(), EmitError> {
    const BINARY: &str = "application/octet-stream";
    let text = |at: usize| step[at].as_str();
    let word = |at: usize| text(at).unwrap();
    let level = |word: &str| match word {
        "warn" => Level::Warn,
        _ => Level::Info,
    };
    match word(0) {
        "item" => run.item(word(1), &step[2]),
        "artifact" => run.artifact(word(1), BINARY, &bytes(&step[2])).map(drop),
        "checkpoint" => run.checkpoint(word(1), text(2)),
        "enqueue" => run.enqueue(word(1), &step[2], None, None),
        "rotate_proxy" => run.rotate_proxy(text(1)),
        "log" if step[3].is_null() => run.log(level(word(1)), word(2)),
        "log" => run.log_with(level(word(1)), word(2), &step[3]),
        "put" => run.put(word(1), BINARY, &bytes(&step[2])),
        "run_error" => run.run_error(word(1), word(2), text(3)),
        "run_complete" => run.run_complete_with(&step[1]),
        other => panic!("no step `{other}`"),
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    let hex = value["$bytes"].as_str().unwrap().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.chunks(2).map(byte).collect()
}

/// Reads payloads, and answers files as the case says.
fn serve(mut from: File, mut to: File, acks: Vec<Value>) -> JoinHandle<Vec<Vec<u8>>> {
    std::thread::spawn(move || {
        let (mut payloads, mut acks) = (Vec::new(), acks.into_iter());
        let mut prefix = [0; 4];
        while from.read_exact(&mut prefix).is_ok() {
            let mut payload = vec![0; u32::from_be_bytes(prefix) as usize];
            from.read_exact(&mut payload).unwrap();
            if payload.starts_with(FILE_WRITE) {
                let answer = acks.next().unwrap();
                let written = payloads
                    .iter()
                    .filter(|p: &&Vec<u8>| p.starts_with(FILE_WRITE));
                let ack = Ack {
                    write_id: u32::try_from(written.count()).unwrap() + 1,
                    ok: answer["ok"] == true,
                    error: answer["error"].as_str(),
                };
                let mut out = Vec::new();
                ack.write(&mut out);
                to.write_all(&out).unwrap();
            }
            payloads.push(payload);
        }
        payloads
    })
}

/// In hex, ids numbered as they come, all times one.
fn alike(payloads: &[Vec<u8>]) -> Vec<String> {
    const ID: &str = "xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx";
    const TIME: &str = "dddd-dd-ddTdd:dd:dd.dddZ";
    let mut ids: HashMap<Vec<u8>, String> = HashMap::new();
    let mut told = Vec::new();
    for payload in payloads {
        let (mut out, mut rest) = (Vec::new(), &payload[..]);
        while let Some(first) = rest.first() {
            if let Some(id) = fitting(rest, ID) {
                let number = ids.len() + 1;
                let name = ids.entry(id.to_vec());
                let name = name.or_insert_with(|| format!("00000000-0000-4000-8000-{number:012}"));
                out.extend_from_slice(name.as_bytes());
                rest = &rest[ID.len()..];
            } else if fitting(rest, TIME).is_some() {
                out.extend_from_slice(b"2000-01-01T00:00:00.000Z");
                rest = &rest[TIME.len()..];
            } else {
                out.push(*first);
                rest = &rest[1..];
            }
        }
        told.push(out.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    told
}

/// The beginning of `bytes`, if it has this form.
fn fitting<'a>(bytes: &'a [u8], form: &str) -> Option<&'a [u8]> {
    let start = bytes.get(..form.len())?;
    let fits = start
        .iter()
        .zip(form.bytes())
        .all(|(byte, form)| match form {
            b'x' => byte.is_ascii_hexdigit(),
            b'd' => byte.is_ascii_digit(),
            literal => *byte == literal,
        });
    fits.then_some(start)
}
