//! Server-sent events, as written to a response body.

/// Appends one event with `data` (which must not hold a newline), and an id where resuming is
/// offered.
pub fn write_event(id: Option<&str>, data: &[u8], out: &mut Vec<u8>) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"event: message\ndata: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

/// Appends an event without a message: an id to come back with, and after how many
/// milliseconds.
pub fn write_priming(id: &str, retry_ms: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("id: {id}\nretry: {retry_ms}\ndata: \n\n").as_bytes());
}

/// Appends an id to come back with and nothing else: no client sees an event.
pub fn write_place(id: &str, retry_ms: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("id: {id}\nretry: {retry_ms}\n\n").as_bytes());
}

/// A line that says we are still there, which clients skip.
pub const HEARTBEAT: &[u8] = b": \n\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events() {
        let mut out = Vec::new();
        write_priming("s-0", 500, &mut out);
        write_event(Some("s-1"), b"{}", &mut out);
        write_event(None, b"[]", &mut out);
        write_place("s-2", 9, &mut out);
        assert_eq!(
            out,
            b"id: s-0\nretry: 500\ndata: \n\nid: s-1\nevent: message\ndata: {}\n\nevent: message\ndata: []\n\nid: s-2\nretry: 9\n\n"
        );
    }
}
