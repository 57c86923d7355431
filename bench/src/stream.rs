//! What an executor's stdout costs to read: chunks of 8 MiB through a real pipe, against reading
//! the same pipe and dropping what comes; and small events, whose decoding is all there is to
//! them.

use std::io::{PipeReader, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use callgate_wires::stream::encode::{self, Event};
use callgate_wires::stream::{CHUNK_BYTES_MAX, CONTRACT_VERSION, ChunkHead, Decoder, Piece};
use serde_json::json;

use crate::figure::{Figure, median, number, quiet};
use crate::{Bench, Failure, cpu};

const ROUNDS: usize = 15;
/// Chunks a round; 256 MiB of them.
const CHUNKS: usize = 32;
const EVENTS: usize = 200_000;
/// What is read at once.
const BUFFER_BYTES: usize = 256 * 1024;

const OF_READ_AND_DROP_MIN: f64 = 0.95;
const EVENT_NANOS_MAX: f64 = 300.0;

pub fn run(_: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = vec![chunks()?];
    figures.extend(events()?);
    Ok(figures)
}

/// Takes what was read; gives the bytes of data in it.
type Consumer = fn(&mut PipeReader, &mut [u8]) -> Result<usize, Failure>;

/// What a round took.
#[derive(Default)]
struct Rounds {
    seconds: Vec<f64>,
    cpu_seconds: Vec<f64>,
}

impl Rounds {
    fn gigabytes_per_second(&self) -> f64 {
        gigabytes() / median(&self.seconds)
    }

    fn cpu_per_gigabyte(&self) -> f64 {
        quiet(&self.cpu_seconds) / gigabytes()
    }
}

fn gigabytes() -> f64 {
    (CHUNKS * CHUNK_BYTES_MAX) as f64 / 1e9
}

fn chunks() -> Result<Figure, Failure> {
    let contestants: [Consumer; 2] = [drop_all, decode_all];
    let mut rounds = [Rounds::default(), Rounds::default()];
    for round in 0..ROUNDS {
        for turn in 0..2 {
            // Neither has always the second turn.
            let who = (round + turn) % 2;
            let (took, cpu) = transfer(contestants[who])?;
            rounds[who].seconds.push(took.as_secs_f64());
            rounds[who].cpu_seconds.push(cpu.as_secs_f64());
        }
    }
    let [dropped, decoded] = rounds;
    let compared = format!(
        "{} against {} GB/s; CPU of a GB {} against {} s",
        number(decoded.gigabytes_per_second()),
        number(dropped.gigabytes_per_second()),
        number(decoded.cpu_per_gigabyte()),
        number(dropped.cpu_per_gigabyte()),
    );
    // Of each round, so that both of a pair met the same neighbours.
    let rounds = dropped.seconds.iter().zip(&decoded.seconds);
    let of = median(
        &rounds
            .map(|(drop, decode)| drop / decode)
            .collect::<Vec<_>>(),
    );
    let figure = Figure::new("stream: chunks against read and drop", of, "x");
    Ok(figure.at_least(OF_READ_AND_DROP_MIN).beside(compared))
}

/// Sends all chunks through a pipe; what reading them took.
fn transfer(consume: Consumer) -> Result<(Duration, Duration), Failure> {
    let (mut reader, mut writer) = std::io::pipe()?;
    let sender = thread::spawn(move || -> std::io::Result<()> {
        let data = vec![0x5a; CHUNK_BYTES_MAX];
        for seq in 1..=CHUNKS {
            let mut head = Vec::new();
            let chunk = ChunkHead {
                artifact_id: "0d9d7f6e-3d4f-4c55-9b1c-1a4a4f0c7a52",
                seq: seq as u64,
                is_last: seq == CHUNKS,
                bytes: data.len(),
            };
            encode::chunk_head(&chunk, &mut head).map_err(std::io::Error::other)?;
            writer.write_all(&head)?;
            writer.write_all(&data)?;
        }
        Ok(())
    });
    let mut buffer = vec![0; BUFFER_BYTES];
    let (began, cpu_before) = (Instant::now(), cpu::thread());
    let bytes = consume(&mut reader, &mut buffer)?;
    let took = (began.elapsed(), cpu::thread() - cpu_before);
    sender.join().map_err(|_| "the sender panicked")??;
    if bytes < CHUNKS * CHUNK_BYTES_MAX {
        return Err(format!("only {bytes} bytes came").into());
    }
    Ok(took)
}

fn drop_all(reader: &mut PipeReader, buffer: &mut [u8]) -> Result<usize, Failure> {
    let mut bytes = 0;
    loop {
        match reader.read(buffer)? {
            0 => return Ok(bytes),
            count => bytes += count,
        }
    }
}

fn decode_all(reader: &mut PipeReader, buffer: &mut [u8]) -> Result<usize, Failure> {
    let mut decoder = Decoder::new();
    let mut bytes = 0;
    loop {
        let count = reader.read(buffer)?;
        if count == 0 {
            decoder.end()?;
            return Ok(bytes);
        }
        let mut input = &buffer[..count];
        while let Some(piece) = decoder.next(&mut input)? {
            if let Piece::Bytes(data) = piece {
                bytes += data.len();
            }
        }
    }
}

fn events() -> Result<[Figure; 2], Failure> {
    let stream = stream_of_events()?;
    let (mut decoded, mut written) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        decoded.push(nanos_each(&stream, |_, _| {})?);
        written.push(nanos_each(&stream, |event, line| event.write_json(line))?);
    }
    let compared = format!("{} bytes an event", number((stream.len() / EVENTS) as f64));
    Ok([
        Figure::new("stream: CPU of decoding an event", quiet(&decoded), "ns")
            .at_most(EVENT_NANOS_MAX)
            .beside(compared),
        Figure::new("stream: the same, and its JSON", quiet(&written), "ns"),
    ])
}

fn stream_of_events() -> Result<Vec<u8>, Failure> {
    let mut payload = Vec::new();
    let data = json!({"name": "Lamp", "price": 99.5, "tags": ["a", "b"], "stock": 3});
    encode::value(&json!({"item_type": "product", "data": data}), &mut payload);
    let mut stream = Vec::new();
    for seq in 1..=EVENTS {
        let event = Event {
            contract_version: CONTRACT_VERSION,
            event_id: "0d9d7f6e-3d4f-4c55-9b1c-1a4a4f0c7a52",
            run_id: "run-001",
            seq: seq as u64,
            kind: "item",
            ts: "2026-11-15T09:30:00.000Z",
            payload: &payload,
            attempt: 1,
            job_id: None,
            parent_run_id: None,
        };
        encode::event(&event, &mut stream)?;
    }
    Ok(stream)
}

/// Nanoseconds of this thread for each event, read as a pipe gives them: cut anywhere.
fn nanos_each(
    stream: &[u8],
    mut each: impl FnMut(&callgate_wires::stream::Envelope<'_>, &mut Vec<u8>),
) -> Result<f64, Failure> {
    let mut decoder = Decoder::new();
    let (mut seq, mut line) = (0, Vec::new());
    let before = cpu::thread();
    for mut input in stream.chunks(64 * 1024) {
        line.clear();
        while let Some(piece) = decoder.next(&mut input)? {
            if let Piece::Event(event) = piece {
                seq += 1;
                if event.seq != seq {
                    return Err("an event is not in its place".into());
                }
                each(&event, &mut line);
            }
        }
    }
    let took = cpu::thread() - before;
    decoder.end()?;
    if seq != EVENTS as u64 {
        return Err(format!("only {seq} events came").into());
    }
    Ok(took.as_secs_f64() * 1e9 / EVENTS as f64)
}
