//! A connection that somebody else has read from before.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// First what was read already, then the rest.
pub(super) struct Resumed {
    came: Cursor<Vec<u8>>,
    stream: TcpStream,
}

impl Resumed {
    pub(super) fn new(came: Vec<u8>, stream: TcpStream) -> Self {
        let came = Cursor::new(came);
        Self { came, stream }
    }

    /// The connection, and what of it nobody has read again.
    pub(super) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        let at = usize::try_from(self.came.position()).unwrap_or(usize::MAX);
        let rest = self.came.get_ref().get(at..).unwrap_or_default().to_vec();
        (self.stream, rest)
    }
}

impl AsyncRead for Resumed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let has_rest = self.came.position() < self.came.get_ref().len() as u64;
        match has_rest {
            true => Pin::new(&mut self.came).poll_read(cx, into),
            false => Pin::new(&mut self.stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Resumed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
