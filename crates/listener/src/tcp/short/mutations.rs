//! Seeded mutations of requests, 100,000: whatever goes the short way is read as the library
//! would have read it, whatever came before it on its connection and wherever it was cut.

use super::properties::read_as_by_hyper;
use super::*;
use callgate_testing::{Random, mutant};

const CASES: usize = 100_000;

const REQUESTS: [&[u8]; 5] = [
    b"POST /mcp HTTP/1.1\r\nHost: localhost:7411\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"jsonrpc\":1}",
    b"POST /mcp HTTP/1.1\r\nHost: localhost:7411\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}POST /",
    b"POST /rpc?a=b HTTP/1.1\r\nContent-Length:5\r\nempty:\r\naccept: a, b\r\naccept: c\r\nconnection: keep-alive\r\n\r\nhello",
    b"POST http://localhost/tools HTTP/1.1\nhost: x\ncontent-length: 0\n\n",
    b"POST /mcp HTTP/1.1\r\nx: \xff\t\r\ncontent-length: 00003 \r\n\r\nabc",
];

const WORDS: [&[u8]; 24] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b": ",
    b"0",
    b"1",
    b"99999999999999999999",
    b"+",
    b"-",
    b"content-length: 3\r\n",
    b"Content-Length:",
    b"transfer-encoding: chunked\r\n",
    b"connection: close\r\n",
    b"connection: keep-alive\r\n",
    b"expect: 100-continue\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1\r\n",
    b"GET ",
    b"\0",
    b"\xff",
];

#[tokio::test]
async fn requests() {
    let mut random = Random::new("short requests");
    let mut accepted = 0;
    let mut last = Last::default();
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &REQUESTS, &WORDS);
        let cut = random.below(bytes.len() + 1);
        accepted += usize::from(read_as_by_hyper(&bytes, &mut last, cut).await);
    }
    eprintln!("{accepted} of {CASES} went the short way");
    assert!(accepted > 1000 && accepted < CASES);
}
