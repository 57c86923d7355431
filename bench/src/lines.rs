//! Requests of the size agents send, one a line, from a seed.

use std::time::SystemTime;

/// Lines ready to be sent.
#[derive(Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Where each line ends, newline included.
    ends: Vec<usize>,
}

impl Lines {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of the lines `from..to`.
    pub fn slice(&self, from: usize, to: usize) -> &[u8] {
        let start = |line: usize| if line == 0 { 0 } else { self.ends[line - 1] };
        &self.bytes[start(from)..start(to)]
    }

    /// Each line without its newline.
    pub fn each(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|line| {
            let bytes = self.slice(line, line + 1);
            &bytes[..bytes.len() - 1]
        })
    }

    pub fn push(&mut self, line: &str) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.push(b'\n');
        self.ends.push(self.bytes.len());
    }
}

/// Makes lines; never the same key twice.
pub struct Writer {
    random: u64,
    written: u64,
}

impl Writer {
    pub fn new(seed: u64) -> Self {
        Self {
            random: seed,
            written: 0,
        }
    }

    /// Toolhost requests for `aid`, about 180 bytes each; with a key some 35 more.
    pub fn requests(&mut self, aid: &str, count: usize, keyed: bool) -> Lines {
        let mut lines = Lines::default();
        for _ in 0..count {
            let (a, b) = (self.next(), self.next());
            let key = match keyed {
                true => format!(",\"idempotency_key\":\"{:08x}-{}\"", a >> 32, self.written),
                false => String::new(),
            };
            let input = format!(
                r#"{{\"query\":\"rows where id = {:x}\",\"limit\":{},\"tags\":[\"new\",\"{:04x}\"],\"dry_run\":false,\"page\":{}}}"#,
                b >> 16,
                b % 100 + 1,
                a & 0xFFFF,
                a % 7,
            );
            lines.push(&format!(
                "{{\"aid\":\"{aid}\",\"input_json\":\"{input}\"{key}}}"
            ));
            self.written += 1;
        }
        lines
    }

    /// Toolhost requests that greet somebody.
    pub fn greetings(&mut self, aid: &str, count: usize) -> Lines {
        let mut lines = Lines::default();
        for _ in 0..count {
            let name = self.next();
            lines.push(&format!(
                r#"{{"aid":"{aid}","input_json":"{{\"name\":\"caller {name:016x}\"}}"}}"#
            ));
        }
        lines
    }

    /// MCP's `tools/call` of `tool` with a message to give back, about 190 bytes each; `meta` is
    /// the members a modern request must have.
    pub fn tool_calls(&mut self, tool: &str, count: usize, meta: Option<&str>) -> Lines {
        let meta = meta.map_or(String::new(), |meta| format!(",\"_meta\":{meta}"));
        let mut lines = Lines::default();
        for _ in 0..count {
            let (id, said) = (self.written + 1_000_000, self.next());
            lines.push(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"message":"rows where id = {said:016x}, the newest first, ten at a time"}}{meta}}}}}"#
            ));
            self.written += 1;
        }
        lines
    }

    /// Requests of the tool protocol's service form that greet somebody, about 230 bytes each.
    pub fn service_calls(&mut self, tool: &str, entry: &str, count: usize) -> Lines {
        let mut lines = Lines::default();
        for _ in 0..count {
            let (name, trace) = (self.next(), self.next());
            lines.push(&format!(
                r#"{{"protocol_version":1,"tool_name":"{tool}","kind":"python","entry":"{entry}","payload":{{"name":"caller {name:016x}"}},"timeout_ms":10000,"trace_id":"{trace:016x}","project":{{"app_root":"/path/to/app","flow":"demo"}}}}"#
            ));
        }
        lines
    }

    /// Anything.
    pub fn word(&mut self) -> u64 {
        self.next()
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Another one each time.
pub fn random_seed() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Writer::new(since.as_nanos() as u64).next() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests_of_the_size_said() {
        let lines = Writer::new(1).requests("AID.BUILTIN.ECHO.v1", 100, true);
        assert_eq!(lines.len(), 100);
        assert_eq!(
            lines.each().map(|line| line.len() + 1).sum::<usize>(),
            lines.bytes.len()
        );
        for line in lines.each() {
            assert!((150..=230).contains(&line.len()), "{}", line.len());
            let value: serde_json::Value = serde_json::from_slice(line).unwrap();
            let input = value["input_json"].as_str().unwrap();
            assert!(
                serde_json::from_str::<serde_json::Value>(input)
                    .unwrap()
                    .is_object()
            );
        }
    }
}
