//! `file_write_ack`: what an executor hears of a sidecar file. ST-75.

use super::encode;
use super::fault::StreamFault;
use super::frame;

/// Whether a sidecar file was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Of the write it answers.
    pub write_id: u32,
    /// It was stored.
    pub ok: bool,
    /// Why it was not; only if it was not.
    pub error: Option<&'a str>,
}

impl<'a> Ack<'a> {
    /// Reads the payload of a frame.
    pub fn parse(payload: &'a [u8]) -> Result<Self, StreamFault> {
        let (write_id, ok, error) = frame::ack(payload)?;
        Ok(Self {
            write_id,
            ok,
            error: error.filter(|_| !ok),
        })
    }

    /// Appends the frame. Only the first 1,024 bytes of an error are sent.
    pub fn write(&self, out: &mut Vec<u8>) {
        const ERROR_BYTES_MAX: usize = 1024;
        let error = self.error.filter(|_| !self.ok);
        let frame = encode::open(out);
        encode::map_head(3 + u32::from(error.is_some()), out);
        encode::text("type", out);
        encode::text(frame::ACK, out);
        encode::text("write_id", out);
        // Always in this width, as other runtimes send it.
        out.push(0xce);
        out.extend_from_slice(&self.write_id.to_be_bytes());
        encode::text("ok", out);
        encode::bool(self.ok, out);
        if let Some(error) = error {
            encode::text("error", out);
            encode::text(&error[..error.floor_char_boundary(ERROR_BYTES_MAX)], out);
        }
        encode::close(frame, 0, out).expect("far below the bound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-75: the bytes that other runtimes send, `error` only with `ok` false, and what is no
    /// acknowledgement.
    #[test]
    fn both_ways() {
        let mut out = Vec::new();
        let ack = Ack {
            write_id: 1,
            ok: true,
            error: Some("not said"),
        };
        ack.write(&mut out);
        let wanted =
            b"\0\0\0\x27\x83\xa4type\xaefile_write_ack\xa8write_id\xce\0\0\0\x01\xa2ok\xc3";
        assert_eq!(out, wanted);
        let read = Ack::parse(&out[4..]).unwrap();
        assert_eq!((read.write_id, read.ok, read.error), (1, true, None));

        let long = "ä".repeat(600);
        let ack = Ack {
            write_id: u32::MAX,
            ok: false,
            error: Some(&long),
        };
        out.clear();
        ack.write(&mut out);
        let read = Ack::parse(&out[4..]).unwrap();
        assert_eq!((read.write_id, read.ok), (u32::MAX, false));
        assert_eq!(read.error, Some("ä".repeat(512).as_str()));

        let no_ok = b"\x82\xa4type\xaefile_write_ack\xa8write_id\x01";
        let fault = Ack::parse(no_ok).unwrap_err();
        assert_eq!(fault.to_string(), "file_write_ack without `ok`");
        let fault = Ack::parse(b"\x81\xa4type\xa4item").unwrap_err();
        assert_eq!(
            fault.to_string(),
            "`type` of a frame is not `file_write_ack`"
        );
        assert!(Ack::parse(b"\x90").is_err() && Ack::parse(b"").is_err());
    }
}
