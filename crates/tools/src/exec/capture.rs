//! What a program prints on one stream: without secrets, the beginning and the end of it kept
//! for the answer, the whole for an artifact where it is longer than that, all of it passed on
//! while it comes.

use std::collections::VecDeque;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Digest, Redactor, Secrets, Sink, Stream};
use callgate_store::{Store, StoreError};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What an answer has of each stream; the middle of what is longer is left out.
const SHOWN_BYTES_MAX: usize = 8 * 1024 * 1024;
const HALF_BYTES: usize = SHOWN_BYTES_MAX / 2;
/// The most that an artifact holds.
const ARTIFACT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Largest read, and what is read into before there was much to read: most programs print
/// little, and room for more would cost a short one's call more than all it prints.
const READ_BYTES: usize = 64 * 1024;
const FIRST_READ_BYTES: usize = 2 * 1024;
/// Pieces on their way to the disk; the program waits for the disk after that.
const PIECES_MAX: usize = 16;
/// How long a flood is left to wait after each read once nothing of it is kept: some 12 MiB a
/// second, at next to no cost to the gate.
const FLOOD_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Capture<'a> {
    stream: Stream,
    pipe: Option<pipe::Receiver>,
    redactor: Redactor,
    sink: &'a dyn Sink,
    store: Arc<Store>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    spilling: Option<Spilling>,
}

impl<'a> Capture<'a> {
    /// The near end, and the far one for the program.
    pub fn new(
        stream: Stream,
        store: &Arc<Store>,
        secrets: &Secrets,
        sink: &'a dyn Sink,
    ) -> io::Result<(Self, OwnedFd)> {
        let (near, far) = io::pipe()?;
        let capture = Self {
            stream,
            pipe: Some(pipe::Receiver::from_owned_fd(near.into())?),
            redactor: Redactor::new(secrets),
            sink,
            store: Arc::clone(store),
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            spilling: None,
        };
        Ok((capture, far.into()))
    }

    /// Reads to the end of the stream.
    pub async fn pump(&mut self) {
        let mut buffer = vec![0; FIRST_READ_BYTES];
        while let Some(pipe) = &self.pipe {
            if pipe.readable().await.is_err() {
                break;
            }
            match pipe.try_read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    let told = self.redactor.feed(&buffer[..read]);
                    self.take(told).await;
                    if read == buffer.len() {
                        buffer.resize(READ_BYTES, 0);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            if self.spilling.as_ref().is_some_and(Spilling::is_over) {
                tokio::time::sleep(FLOOD_PAUSE).await;
            }
        }
        self.pipe = None;
    }

    async fn take(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.sink.chunk(self.stream, &bytes);
        self.total += bytes.len() as u64;
        if self.spilling.is_none() && self.total > SHOWN_BYTES_MAX as u64 {
            let mut all = std::mem::take(&mut self.head);
            let begun = all.len();
            all.extend(&self.tail);
            let mut spilling = Spilling::begin(&self.store);
            spilling.write(&all).await;
            all.truncate(begun);
            self.head = all;
            self.spilling = Some(spilling);
        }
        self.hold(&bytes);
        if let Some(spilling) = &mut self.spilling {
            spilling.write(&bytes).await;
        }
    }

    /// The first half goes to the head, the last is the tail.
    fn hold(&mut self, bytes: &[u8]) {
        let first = bytes.len().min(HALF_BYTES - self.head.len());
        let (first, rest) = bytes.split_at(first);
        self.head.extend_from_slice(first);
        self.tail
            .extend(&rest[rest.len().saturating_sub(HALF_BYTES)..]);
        let spare = self.tail.len().saturating_sub(HALF_BYTES);
        self.tail.drain(..spare);
    }

    /// All of it as text, or what an answer has room for. What is not UTF-8 shows as U+FFFD.
    pub async fn text(mut self) -> String {
        let rest = self.redactor.finish();
        self.take(rest).await;
        let tail = self.tail.make_contiguous();
        let Some(spilling) = self.spilling else {
            self.head.extend_from_slice(tail);
            return lossy(self.head);
        };
        let tail = from_whole_character(tail);
        self.head.truncate(to_whole_character(&self.head));
        let left_out = self.total - (self.head.len() + tail.len()) as u64;
        let kept = spilling.end(self.total).await;
        let mut text = lossy(self.head);
        text.push_str(&format!(
            "\n[callgate: {left_out} bytes are left out here; {kept}]\n"
        ));
        text.push_str(&String::from_utf8_lossy(tail));
        text
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// How much of `bytes` does not end inside a character.
fn to_whole_character(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3)..bytes.len();
    for at in last.rev() {
        let needed = match bytes[at] {
            0xC0..0xE0 => 2,
            0xE0..0xF0 => 3,
            0xF0.. => 4,
            0x80..0xC0 => continue,
            0..0x80 => 1,
        };
        return if at + needed > bytes.len() {
            at
        } else {
            bytes.len()
        };
    }
    bytes.len()
}

/// `bytes` without the end of a character that began before them.
fn from_whole_character(bytes: &[u8]) -> &[u8] {
    let inside = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let skipped = bytes.iter().take(3).take_while(inside).count();
    &bytes[skipped..]
}

enum Piece {
    Bytes(Vec<u8>),
    /// Without it nobody wants the artifact any more.
    End,
}

/// An artifact that is being written, off the gate's own thread: disks may be slow.
struct Spilling {
    pieces: mpsc::Sender<Piece>,
    writer: JoinHandle<Result<Option<Digest>, StoreError>>,
    written: u64,
}

impl Spilling {
    fn begin(store: &Arc<Store>) -> Self {
        let (pieces, come) = mpsc::channel(PIECES_MAX);
        let store = Arc::clone(store);
        Self {
            pieces,
            writer: tokio::task::spawn_blocking(move || write(&store, come)),
            written: 0,
        }
    }

    /// Nothing more of the stream is kept.
    fn is_over(&self) -> bool {
        self.written == ARTIFACT_BYTES_MAX || self.pieces.is_closed()
    }

    async fn write(&mut self, bytes: &[u8]) {
        let room = usize::try_from(ARTIFACT_BYTES_MAX - self.written).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        // A writer that has failed says why at the end.
        if !bytes.is_empty() && self.pieces.send(Piece::Bytes(bytes.to_vec())).await.is_ok() {
            self.written += bytes.len() as u64;
        }
    }

    /// Where all of it can be read, or why not.
    async fn end(self, total: u64) -> String {
        let _ = self.pieces.send(Piece::End).await;
        match self.writer.await {
            Ok(Ok(Some(digest))) => {
                let (name, written) = (digest.to_hex(), self.written);
                format!("artifact:b3-{name} has {written} of all {total}, for files/read")
            }
            Ok(Err(error)) => match error.source() {
                // The store's own words name a place of the gate's.
                Some(source) => format!("they are not kept: {source}"),
                None => "they are not kept".to_owned(),
            },
            Ok(Ok(None)) | Err(_) => "they are not kept".to_owned(),
        }
    }
}

/// Nothing is kept of a stream that was given up.
fn write(store: &Store, mut come: mpsc::Receiver<Piece>) -> Result<Option<Digest>, StoreError> {
    let mut spill = store.spill()?;
    loop {
        match come.blocking_recv() {
            Some(Piece::Bytes(bytes)) => spill.write(&bytes)?,
            Some(Piece::End) => return spill.keep().map(Some),
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_at_a_cut() {
        let text = "aé€🦀z".as_bytes();
        for cut in 0..=text.len() {
            let head = &text[..to_whole_character(&text[..cut])];
            assert!(std::str::from_utf8(head).is_ok(), "{cut}");
            assert!(cut - head.len() < 4);
            let tail = from_whole_character(&text[cut..]);
            assert!(std::str::from_utf8(tail).is_ok(), "{cut}");
        }
        // What is no text is left as it is.
        assert_eq!(to_whole_character(&[0x80; 9]), 9);
        assert_eq!(from_whole_character(&[0x80; 9]).len(), 6);
    }
}
