"""The frames of a run, in order, down one descriptor.

A frame is written whole before the next begins, and a write returns when the
pipe has taken it: a runtime that does not read stalls whoever emits, and there
is no buffer to grow. Every thread of a script may emit.
"""

from __future__ import annotations

import os
import select
import struct
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Optional, Union

from . import msgpack
from .request import RunRequest

# What runtimes compare. Ours accepts any version of its own major.
CONTRACT_VERSION = "0.13.4"
# The contract's 16 MiB, which count the prefix.
PAYLOAD_BYTES_MAX = 16 * 1024 * 1024 - 4
CHUNK_BYTES_MAX = 8 * 1024 * 1024
_WRITE_ID_MAX = (1 << 32) - 1

Bytes = Union[bytes, memoryview]


class TerminalEventError(Exception):
    """The run has announced its end: nothing more can be emitted."""


class SinkFailedError(Exception):
    """The runtime is gone, or a frame was cut short: nothing more can be emitted."""


class Stream:
    """What the runtime reads."""

    def __init__(self, fd: int, request: RunRequest) -> None:
        self._fd = fd
        self._lock = threading.RLock()
        self._writing = False
        self._seq = 0
        self._write_id = 0
        self._has_result = False
        self.terminal: Optional[str] = None
        self.failure: Optional[BaseException] = None
        self._open, self._middle, self._close = _envelope(request)

    def event(self, kind: str, payload: bytes, is_terminal: bool = False) -> None:
        """The next event; `payload` is packed."""
        with self._turn():
            ts = datetime.now(timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z"
            body = b"".join(
                (
                    self._open,
                    msgpack.text(str(uuid.uuid4())),
                    self._middle,
                    msgpack.text(kind),
                    b"\xa2ts",
                    msgpack.text(ts),
                    b"\xa7payload",
                    payload,
                    self._close,
                    msgpack.integer(self._seq + 1),
                )
            )
            _fits(len(body))
            self._seq += 1
            if is_terminal:
                self.terminal = kind
            self._write(body)

    def chunk(self, artifact_id: str, seq: int, is_last: bool, data: Bytes) -> None:
        head = {"type": "artifact_chunk", "artifact_id": artifact_id, "seq": seq, "is_last": is_last}
        with self._turn():
            self._write(_with_data(head, len(data)), data)

    def file_write(self, filename: str, content_type: str, data: Bytes, expect: Any) -> int:
        """`expect` is told the write's id before the frame is out: the answer may be quick."""
        with self._turn():
            self._write_id = self._write_id % _WRITE_ID_MAX + 1
            head = {"type": "file_write", "write_id": self._write_id, "filename": filename, "content_type": content_type}
            body = _with_data(head, len(data))
            _fits(len(body) + len(data))
            expect(self._write_id)
            self._write(body, data)
            return self._write_id

    def result(self, outcome: dict[str, Any], proxy_used: Optional[dict[str, Any]]) -> None:
        """The frame that closes the run; a second one is not sent. ST-44."""
        frame: dict[str, Any] = {"type": "run_result", "outcome": outcome}
        if proxy_used is not None:
            frame["proxy_used"] = proxy_used
        body = msgpack.pack(frame)
        with self._alone():
            if self._has_result:
                return
            self._has_result = True
            self._write(body)

    def close(self) -> None:
        """The runtime sees the end of the stream."""
        with self._lock:
            if self.failure is None:
                self.failure = SinkFailedError("the run is over")
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._lock:
            if self.terminal is not None:
                raise TerminalEventError(f"the run has ended with {self.terminal}")
            with self._alone():
                yield

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            if self._writing:
                # A signal's handler, while its thread is in a write.
                raise RuntimeError("emit within an emit")
            if self.failure is not None:
                raise SinkFailedError(f"nothing reaches the runtime any more: {self.failure}") from None
            yield

    def _write(self, *parts: Bytes) -> None:
        self._writing = True
        try:
            _write_all(self._fd, [struct.pack(">I", sum(map(len, parts))), *parts])
        except BaseException as error:
            # Whatever it was, part of a frame may be out.
            self.failure = error
            if isinstance(error, OSError):
                raise SinkFailedError(f"nothing reaches the runtime any more: {error}") from error
            raise
        finally:
            self._writing = False


def _envelope(request: RunRequest) -> tuple[bytes, bytes, bytes]:
    """What every envelope of a run has in common, around id, type, time, payload and number."""
    close = _pair("attempt", request.attempt)
    members = 8
    for name, value in (("job_id", request.job_id), ("parent_run_id", request.parent_run_id)):
        if value is not None:
            close += _pair(name, value)
            members += 1
    opening = msgpack.map_head(members) + _pair("contract_version", CONTRACT_VERSION) + msgpack.text("event_id")
    return opening, _pair("run_id", request.run_id) + msgpack.text("type"), close + msgpack.text("seq")


def _pair(name: str, value: Any) -> bytes:
    return msgpack.text(name) + msgpack.pack(value)


def _with_data(head: dict[str, Any], size: int) -> bytes:
    """A map whose last member is bytes, up to where those begin: they are not copied."""
    members = b"".join(_pair(name, value) for name, value in head.items())
    return msgpack.map_head(len(head) + 1) + members + msgpack.text("data") + msgpack.bytes_head(size)


def _fits(payload_bytes: int) -> None:
    if payload_bytes > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a frame of {payload_bytes} bytes; at most {PAYLOAD_BYTES_MAX}: send an artifact")


def _write_all(fd: int, parts: Sequence[Bytes]) -> None:
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        try:
            written = os.writev(fd, left)
        except BlockingIOError:
            # Somebody made the pipe non-blocking; an emit waits all the same. ST-77.
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
            continue
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
