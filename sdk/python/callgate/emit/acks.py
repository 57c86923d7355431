"""The runtime's answers to file writes, read from where the run request came.

A runtime that closes the pipe without one answer is one from before there were
any: writes then succeed unacknowledged. After the first answer the end of the
pipe is the end of the runtime.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Any, Optional

from . import msgpack

# Larger frames are no answer of ours and are read past.
ACK_BYTES_MAX = 1024 * 1024
_READ_BYTES = 64 * 1024


class StorageError(Exception):
    """A file was not kept. The run goes on, and so does every later emit."""


class Acks:
    def __init__(self, fd: int, received: bytes) -> None:
        self._fd = fd
        self._received = received
        self._changed = threading.Condition()
        self._waiting: dict[int, Optional[dict[str, Any]]] = {}
        self._reader: Optional[threading.Thread] = None
        self._has_seen_one = False
        self._has_ended = False

    def expect(self, write_id: int) -> None:
        with self._changed:
            self._waiting[write_id] = None
            if self._reader is None:
                # A daemon: nothing that is still unanswered keeps the process.
                self._reader = threading.Thread(target=self._read, name="callgate-acks", daemon=True)
                self._reader.start()

    def wait(self, write_id: int) -> None:
        """Until the write is answered: `StorageError` if it was refused."""
        with self._changed:
            try:
                while self._waiting[write_id] is None and not self._has_ended:
                    self._changed.wait()
            finally:
                ack = self._waiting.pop(write_id)
            is_old_runtime = not self._has_seen_one
        if ack is None and not is_old_runtime:
            raise StorageError("the runtime went away before it answered")
        if ack is not None and ack.get("ok") is not True:
            raise StorageError(str(ack.get("error") or "refused without a reason"))

    def _read(self) -> None:
        try:
            while True:
                (size,) = struct.unpack(">I", self._exactly(4))
                if size > ACK_BYTES_MAX:
                    self._skip(size)
                else:
                    self._take(self._exactly(size))
        except (EOFError, OSError):
            pass
        finally:
            # Whatever it was: who waits must not wait for a reader that is gone.
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _take(self, payload: bytes) -> None:
        """Frames that are no answer, or answer nothing that is waited for, are ignored."""
        try:
            ack = msgpack.unpack(payload)
        except ValueError:
            return
        if not isinstance(ack, dict) or ack.get("type") != "file_write_ack":
            return
        with self._changed:
            self._has_seen_one = True
            write_id = ack.get("write_id")
            if type(write_id) is int and write_id in self._waiting:
                self._waiting[write_id] = ack
                self._changed.notify_all()

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._received += self._more()
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _skip(self, size: int) -> None:
        while size > len(self._received):
            size -= len(self._received)
            self._received = self._more()
        self._received = self._received[size:]

    def _more(self) -> bytes:
        part = os.read(self._fd, _READ_BYTES)
        if not part:
            raise EOFError
        return part
