//! A raw HTTP client: connections that stay open, requests made beforehand, answers looked at
//! no further than to find their end. Every server gets the same one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::lines::Lines;

/// Connections to one server, each with one request at a time.
pub struct Connections(Vec<Connection>);

impl Connections {
    pub fn open(port: u16, count: usize) -> Result<Self, Failure> {
        let all = (0..count).map(|_| Connection::open(port));
        Ok(Self(all.collect::<Result<_, Failure>>()?))
    }

    /// Sends every request, each connection in its turn, and waits for the answers. Returns
    /// how long that took.
    pub fn exchange(&mut self, requests: &Lines) -> Result<Duration, Failure> {
        let (count, width) = (requests.len(), self.0.len());
        let began = Instant::now();
        for sent in 0..count + width {
            let connection = &mut self.0[sent % width];
            if sent >= width {
                connection.receive()?;
            }
            if sent < count {
                connection.send(requests.slice(sent, sent + 1))?;
            }
        }
        Ok(began.elapsed())
    }
}

/// One connection.
pub struct Connection {
    stream: TcpStream,
    /// One answer, as it comes.
    answer: Vec<u8>,
    chunk: Vec<u8>,
}

impl Connection {
    pub fn open(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            answer: Vec::new(),
            chunk: vec![0; 64 * 1024],
        })
    }

    /// Sends a request and gives back its answer.
    pub fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>, Failure> {
        self.send(request)?;
        let body = self.receive()?;
        let (head, body) = (&self.answer[..body.start], &self.answer[body]);
        Ok(Answer { head, body })
    }

    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.write_all(request)?)
    }

    /// Waits for the whole of an answer that is a success, and says where its body is.
    fn receive(&mut self) -> Result<Range<usize>, Failure> {
        self.answer.clear();
        loop {
            let read = self.stream.read(&mut self.chunk)?;
            if read == 0 {
                return Err("hung up before it answered".into());
            }
            self.answer.extend_from_slice(&self.chunk[..read]);
            let Some(body) = body_start(&self.answer) else {
                continue;
            };
            if !self.answer.starts_with(b"HTTP/1.1 20") {
                return Err(format!("answered {}", String::from_utf8_lossy(&self.answer)).into());
            }
            if is_whole(&self.answer[..body], &self.answer[body..])? {
                return Ok(body..self.answer.len());
            }
        }
    }
}

fn body_start(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// No answer follows another that nobody waited for, so the end is where the bytes end.
fn is_whole(head: &[u8], body: &[u8]) -> Result<bool, Failure> {
    match field(head, "content-length") {
        Some(length) => Ok(body.len() >= std::str::from_utf8(length)?.parse::<usize>()?),
        // A body that is never there has no length either.
        None if head.starts_with(b"HTTP/1.1 202") || head.starts_with(b"HTTP/1.1 204") => Ok(true),
        None => Ok(body.ends_with(b"\r\n0\r\n\r\n")),
    }
}

/// A header field of an answer.
fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (found, rest) = line.split_at_checked(name.len())?;
        let value = rest.strip_prefix(b":")?;
        found
            .eq_ignore_ascii_case(name.as_bytes())
            .then(|| value.trim_ascii())
    })
}

/// A whole answer.
pub struct Answer<'a> {
    head: &'a [u8],
    body: &'a [u8],
}

impl Answer<'_> {
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        field(self.head, name)
    }

    /// Its bytes, as they came.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head, self.body].concat()
    }

    /// The messages in it: one, or as many as its stream of events has.
    pub fn messages(&self) -> Result<Vec<serde_json::Value>, Failure> {
        let body = match self.field("content-length") {
            Some(_) => self.body.to_vec(),
            None => unchunked(self.body)?,
        };
        if !self.is_stream() {
            return Ok(vec![serde_json::from_slice(&body)?]);
        }
        let lines = body.split(|byte| *byte == b'\n');
        let events = lines.filter_map(|line| line.strip_prefix(b"data:"));
        // The first event of a stream that can be taken up again is empty.
        events
            .filter(|event| !event.trim_ascii().is_empty())
            .map(|event| Ok(serde_json::from_slice(event)?))
            .collect()
    }

    pub fn is_stream(&self) -> bool {
        let kind = self.field("content-type").unwrap_or_default();
        kind.starts_with(b"text/event-stream")
    }
}

fn unchunked(mut body: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut whole = Vec::new();
    while let Some(at) = memchr::memmem::find(body, b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&body[..at])?, 16)?;
        let chunk = body.get(at + 2..at + 2 + length);
        whole.extend_from_slice(chunk.ok_or("a chunk that is cut")?);
        body = body.get(at + 4 + length..).unwrap_or_default();
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_answers_are_found() {
        let whole = |bytes: &[u8]| {
            let body = body_start(bytes).unwrap();
            is_whole(&bytes[..body], &bytes[body..]).unwrap()
        };
        assert!(whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"));
        assert!(!whole(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"));
        assert!(whole(b"HTTP/1.1 202 Accepted\r\n\r\n"));
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        assert!(whole(chunked));
        assert!(!whole(&chunked[..chunked.len() - 1]));
    }

    #[test]
    fn messages_of_a_stream_are_read() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        let body = b"a\r\ndata: {}\n\n\r\nb\r\ndata: \n\ndat\r\n7\r\na: [1]\n\r\n0\r\n\r\n";
        let answer = Answer { head, body };
        let messages = answer.messages().unwrap();
        assert_eq!(messages, [serde_json::json!({}), serde_json::json!([1])]);
    }
}
