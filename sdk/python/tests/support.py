"""What the tests share: the SDK on the path, workspaces, programs, a worker on a socketpair."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from collections.abc import Callable
from typing import Any, Optional

SDK = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if SDK not in sys.path:
    sys.path.insert(0, SDK)

WORKER = os.path.join(SDK, "callgate", "worker.py")
WAIT_S = 60.0


class Workspace(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        return path

    def program(self, name: str, body: str) -> str:
        """A Python program that can be executed by its path."""
        path = self.write(name, f"#!{sys.executable} -IS\n" + textwrap.dedent(body))
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def read(self, name: str) -> str:
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {WAIT_S} s: {what}")
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def end(process: subprocess.Popen[str]) -> None:
    """Kill a program, whatever of it is left, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class WorkerProcess:
    """A real worker, spoken to as the gate speaks to it."""

    def __init__(self, folder: str, argv: Optional[list[str]] = None, **env: str) -> None:
        # Files, not pipes: nobody drains them while a call runs, and a tool may print a lot.
        self.stdout, self.stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.stream, theirs = socket.socketpair()
        self.stream.settimeout(WAIT_S)
        self.process = subprocess.Popen(
            argv or [sys.executable, WORKER],
            cwd=folder,
            env={**os.environ, **env, "CALLGATE_FD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.stdout,
            stderr=self.stderr,
        )
        theirs.close()
        self._received = b""

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.stdout.close()
        self.stderr.close()

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)

    def receive(self) -> Any:
        return json.loads(self.receive_line())

    def receive_line(self) -> bytes:
        while b"\n" not in self._received:
            data = self.stream.recv(1 << 16)
            if not data:
                raise AssertionError("the worker closed the stream")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def call(self, entry: str, payload: Any = None, **more: Any) -> Any:
        self.send(request(entry, payload, **more))
        return self.receive()

    def end(self) -> tuple[int, str, str]:
        """Close the stream; the worker's exit code and what was printed."""
        self.stream.shutdown(socket.SHUT_WR)
        return (self.process.wait(WAIT_S), *self.printed())

    def printed(self) -> tuple[str, str]:
        """What is on its standard output and error so far."""
        return tuple(os.pread(file.fileno(), 1 << 22, 0).decode() for file in (self.stdout, self.stderr))


def request(entry: str, payload: Any = None, *, call: str = "c1", **more: Any) -> bytes:
    message = {"call": call, "tool": "t", "entry": entry, "input": {} if payload is None else payload, **more}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
