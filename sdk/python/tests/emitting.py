"""An executor of streamed runs as its runtime sees it: pipes, frames, an exit code.

The decoder here is written from the msgpack specification and shares nothing
with the one under test.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from typing import IO, Any, Optional

from support import SDK, WAIT_S

REQUEST: dict[str, Any] = {"run_id": "r-1", "attempt": 1, "job": {"q": 1}}


class Executor:
    """A started executor. Its standard error is a file: nobody drains it meanwhile."""

    def __init__(self, argv: list[str], cwd: str, request: Any = REQUEST, is_blocking: bool = True) -> None:
        self.stderr = tempfile.TemporaryFile()
        reader, writer = os.pipe()
        os.set_blocking(writer, is_blocking)
        self.stdout: IO[bytes] = open(reader, "rb", buffering=0)
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": SDK},
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=writer,
            stderr=self.stderr,
        )
        os.close(writer)
        if request is not None:
            line = request if isinstance(request, bytes) else json.dumps(request).encode()
            self.stdin.write(line + b"\n")

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def frame_bytes(self) -> Optional[bytes]:
        """The next frame's payload, or None at the end of the stream."""
        prefix = exactly(self.stdout, 4)
        if not prefix:
            return None
        payload = exactly(self.stdout, int.from_bytes(prefix, "big"))
        return payload

    def frame(self) -> Any:
        payload = self.frame_bytes()
        return None if payload is None else decode(payload)

    def frames(self) -> list[Any]:
        return list(iter(self.frame, None))

    def ack(self, write_id: int, ok: bool = True, error: Optional[str] = None) -> None:
        self.stdin.write(ack(write_id, ok, error))

    def end(self) -> int:
        return self.process.wait(WAIT_S)

    def printed(self) -> str:
        return os.pread(self.stderr.fileno(), 1 << 22, 0).decode()


def ack(write_id: int, ok: bool = True, error: Optional[str] = None) -> bytes:
    """As the first runtime wrote it: the id in four bytes, `error` only where there is one."""
    payload = bytes([0x83 if error is None else 0x84]) + b"\xa4type\xaefile_write_ack\xa8write_id\xce"
    payload += struct.pack(">I", write_id) + b"\xa2ok" + (b"\xc3" if ok else b"\xc2")
    if error is not None:
        payload += b"\xa5error\xd9" + bytes([len(error.encode())]) + error.encode()
    return struct.pack(">I", len(payload)) + payload


def exactly(pipe: IO[bytes], size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = pipe.read(size - len(parts))
        if not part:
            assert not parts, "the stream ended within a frame"
            break
        parts += part
    return bytes(parts)


class Ext(tuple):  # type: ignore[type-arg]
    """An extension: its type and its bytes."""


def decode(payload: bytes) -> Any:
    value, rest = _decode(payload)
    assert not rest, "bytes behind the value"
    return value


def _decode(data: bytes) -> tuple[Any, bytes]:
    first, rest = data[0], data[1:]
    if first <= 0x7F:
        return first, rest
    if first >= 0xE0:
        return first - 256, rest
    if first >> 4 == 0x8:
        return _many(rest, first & 15, pairs=True)
    if first >> 4 == 0x9:
        return _many(rest, first & 15, pairs=False)
    if first >> 5 == 0b101:
        return rest[: first & 31].decode(), rest[first & 31 :]
    simple = {0xC0: None, 0xC2: False, 0xC3: True}
    if first in simple:
        return simple[first], rest
    numbers = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if first in numbers:
        size = struct.calcsize(numbers[first])
        return struct.unpack(numbers[first], rest[:size])[0], rest[size:]
    if first in (0xD6, 0xD7):
        size = 1 + (4 if first == 0xD6 else 8)
        return Ext((rest[0], rest[1:size])), rest[size:]
    widths = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    width = widths[first]
    size, rest = int.from_bytes(rest[:width], "big"), rest[width:]
    if first <= 0xC6:
        return rest[:size], rest[size:]
    if first == 0xC7:
        return Ext((rest[0], rest[1 : size + 1])), rest[size + 1 :]
    if first <= 0xDB:
        return rest[:size].decode(), rest[size:]
    return _many(rest, size, pairs=first >= 0xDE)


def _many(rest: bytes, count: int, pairs: bool) -> tuple[Any, bytes]:
    found: list[Any] = []
    for _ in range(count * 2 if pairs else count):
        value, rest = _decode(rest)
        found.append(value)
    if not pairs:
        return found, rest
    keys = found[::2]
    assert len(set(keys)) == len(keys), "a key twice"
    return dict(zip(keys, found[1::2])), rest


def python_executor(script: str) -> list[str]:
    return [sys.executable, "-m", "callgate.emit", script]
