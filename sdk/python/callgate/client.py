"""A persistent client of `callgate toolhost --serve PLUGIN`.

    with ToolhostClient("examples/hello") as client:
        reply = client.call("AID.DEMO.GREET.v1", {"name": "Ada"})
        if reply.succeeded:
            print(reply.output["message"])

One process serves all calls, in order; its slots are mirrored in
`client.slots`. A call is sent at most once. When the process is late, dies or
answers nonsense, its group is killed, the call raises, and the next call starts
a new process. Whether the failed call took effect is then unknown: give it an
`idempotency_key` and `retry=True`, and it is sent once more under that key,
which the gate runs no second time.

Left out: pools (the pipe is sequential by contract; make several clients) and
leases (they come from `callgate lease grant`; pass the token along).
"""

from __future__ import annotations

import copy
import json
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from . import _process

TIMEOUT_S = 30.0
LINE_BYTES_MAX = 1024 * 1024
SLOT_MAX = 255
CLOSE_S = 2.0
_READ_BYTES = 64 * 1024
_STDERR_BYTES_KEPT = 4096
_UNSURE = object()  # a slot of which it is not known what the host holds

Artifact = dict[str, Any]


class ToolhostError(Exception):
    """A call got no usable reply. `replies` holds those of a batch that came before."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.replies: list[Reply] = []


class ToolhostUnavailable(ToolhostError):
    """The process could not be started; no call was sent."""


class ToolhostTimeout(ToolhostError, TimeoutError):
    """No reply in time; the call may or may not have taken effect."""


class ToolhostDied(ToolhostError, ConnectionError):
    """The process ended before it replied; the call may or may not have taken effect."""


class ToolhostProtocolError(ToolhostError):
    """The process answered with something that is not a reply."""


@dataclass(frozen=True)
class Call:
    """One call of a batch."""

    aid: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: Optional[str] = None
    lease_token: Optional[str] = None


@dataclass(frozen=True)
class Reply:
    """What the host said. `ok` is that it took the call, `status` is how the call went."""

    ok: bool
    status: str
    output: Any
    error: str
    idempotent_hit: bool
    slots: dict[int, Artifact]
    removed_slots: tuple[int, ...]
    raw: dict[str, Any] = field(repr=False)

    @property
    def succeeded(self) -> bool:
        return self.ok and self.status == "OK"


class ToolhostClient:
    """Calls tools over one persistent toolhost process. Safe to share between threads.

    Args:
        plugin: a workspace, a pack, a manifest, or the word `builtin`
        program: path or name; one called `toolhost` or `machina_toolhost` is run without the subcommand
        env: variables to set for the process, over the current environment
        timeout_s: how long to wait for each reply; the process is told, so that a
            late tool is answered for before that
        cwd: the process's working folder
    """

    def __init__(
        self,
        plugin: str = ".",
        program: str = "callgate",
        env: Optional[Mapping[str, str]] = None,
        timeout_s: float = TIMEOUT_S,
        *,
        cwd: Optional[str] = None,
    ) -> None:
        self.slots: dict[int, Artifact] = {}
        self._plugin = os.fspath(plugin)
        self._program = os.fspath(program)
        self._env = dict(env or {})
        self._timeout_s = _positive(timeout_s)
        self._cwd = cwd
        self._lock = threading.Lock()
        self._pipe: Optional[_Pipe] = None
        self._held: dict[int, Any] = {}  # what the host holds, as far as it has told us

    def __enter__(self) -> ToolhostClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process: politely first, then its whole group. The next call starts another."""
        with self._lock:
            if self._pipe is not None:
                self._pipe.close()
            self._forget()

    def call(
        self,
        aid: str,
        inputs: Optional[Mapping[str, Any]] = None,
        *,
        idempotency_key: Optional[str] = None,
        lease_token: Optional[str] = None,
        timeout_s: Optional[float] = None,
        retry: bool = False,
    ) -> Reply:
        """Call a tool and wait for its reply.

        Args:
            aid: the tool's action id
            inputs: its input, an object
            idempotency_key: names this call, so that it is run once however often it is sent
            lease_token: permission for a tool that needs one
            timeout_s: overrides the client's; the process keeps to the client's
            retry: send once more, to a new process, if no reply comes; needs an idempotency_key
        """
        if retry and not idempotency_key:
            raise ValueError("retry needs an idempotency_key: without one the call might run twice")
        calls = [Call(aid, inputs or {}, idempotency_key, lease_token)]
        try:
            return self._exchange(calls, timeout_s)[0]
        except (ToolhostTimeout, ToolhostDied):
            if not retry:
                raise
        return self._exchange(calls, timeout_s)[0]

    def call_many(
        self, calls: Iterable[Union[Call, tuple[str, Mapping[str, Any]]]], *, timeout_s: Optional[float] = None
    ) -> list[Reply]:
        """Send calls back to back, without waiting in between; replies come in the same order.

        Each reply has `timeout_s` from the one before. Slots changed locally go
        with the first call. If the process fails midway, the exception's
        `replies` are those that arrived.
        """
        return self._exchange([call if isinstance(call, Call) else Call(*call) for call in calls], timeout_s)

    def _exchange(self, calls: list[Call], timeout_s: Optional[float]) -> list[Reply]:
        timeout_s = self._timeout_s if timeout_s is None else _positive(timeout_s)
        if not calls:
            return []
        with self._lock:
            pipe = self._connect()
            delta = self._delta()
            lines = [_request(call, delta if index == 0 else None) for index, call in enumerate(calls)]
            replies: list[Reply] = []
            try:
                pipe.send(b"".join(lines))
                for index in range(len(calls)):
                    reply = _reply(pipe.next_line(timeout_s))
                    self._apply(reply, delta if index == 0 else None)
                    replies.append(reply)
            except BaseException as error:
                # Whatever it was, replies and calls may no longer match.
                if isinstance(error, ToolhostError):
                    error.replies = replies
                pipe.kill()
                self._forget()
                raise
            return replies

    def _connect(self) -> _Pipe:
        if self._pipe is not None and not self._pipe.is_ready():
            self._pipe.kill()
            self._forget()
        if self._pipe is None:
            self._pipe = _Pipe(self._start())
        return self._pipe

    def _start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "MACHINA_TOOLHOST_TIMEOUT_MS": str(_host_timeout_ms(self._timeout_s)), **self._env}
        try:
            program = _process.find(self._program)
            subcommand = [] if os.path.basename(program) in ("toolhost", "machina_toolhost") else ["toolhost"]
            return _process.start([program, *subcommand, "--serve", self._plugin], cwd=self._cwd, env=env)
        except (_process.ProgramMissing, OSError) as error:
            raise ToolhostUnavailable(f"cannot start the toolhost: {error}") from error

    def _forget(self) -> None:
        """A new process begins with no slots; all of ours will be sent to it."""
        self._pipe = None
        self._held = {}

    def _delta(self) -> Optional[dict[str, Any]]:
        """What the host must be told so that its slots are ours; None if nothing."""
        changed: dict[str, Artifact] = {}
        for number, artifact in self.slots.items():
            if type(number) is not int or not 0 <= number <= SLOT_MAX:
                raise ValueError(f"slot numbers are integers from 0 to {SLOT_MAX}, not {number!r}")
            if not isinstance(artifact, dict):
                raise TypeError(f"slot {number} is not a dict")
            if self._held.get(number) != artifact:
                changed[str(number)] = artifact
        removed = [number for number in self._held if number not in self.slots]
        if not changed and not removed:
            return None
        return {"delta": True, "slots": copy.deepcopy(changed), "removed_slots": removed}

    def _apply(self, reply: Reply, delta: Optional[dict[str, Any]]) -> None:
        if delta is not None:
            # A refused, failed or replayed call may not have taken our changes in.
            taken = reply.succeeded and not reply.idempotent_hit
            for number, artifact in delta["slots"].items():
                self._held[int(number)] = artifact if taken else _UNSURE
            for number in delta["removed_slots"]:
                if taken:
                    self._held.pop(number, None)
                else:
                    self._held[number] = _UNSURE
        for slot, artifact in reply.slots.items():
            self.slots[slot] = copy.deepcopy(artifact)
            self._held[slot] = copy.deepcopy(artifact)
        for slot in reply.removed_slots:
            self.slots.pop(slot, None)
            self._held.pop(slot, None)


class _Pipe:
    """Lines to and from one toolhost process; writes and reads at once, so neither side can block the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._stdin = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._stderr = process.stderr.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._selector.register(self._stderr, selectors.EVENT_READ)
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._searched = 0  # of what was received, how much holds no newline
        self._said = b""  # the end of its stderr

    def is_ready(self) -> bool:
        """Alive and silent: a line nobody asked for would pass for the next call's reply."""
        if self._received:
            return False
        try:
            os.read(self._stdout, 1)
            return False  # an unasked byte, or the end
        except BlockingIOError:
            return not _process.has_exited(self._process)

    def send(self, data: bytes) -> None:
        """Queue bytes; what does not fit into the pipe now goes out while replies are awaited."""
        # A host may answer a request before it has read all of it.
        self._unsent = memoryview(bytes(self._unsent) + data)
        self._write()
        if self._unsent and self._stdin not in self._selector.get_map():
            self._selector.register(self._stdin, selectors.EVENT_WRITE)

    def next_line(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        while True:
            line = self._take_line()
            if line is not None:
                return line
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ToolhostTimeout(f"no reply within {timeout_s:g} s; the call may have taken effect")
            for key, _ in self._selector.select(left_s):
                if key.fd == self._stdout:
                    self._read_stdout()
                elif key.fd == self._stderr:
                    self._read_stderr()
                else:
                    self._write()

    def kill(self) -> None:
        self._selector.close()
        _process.end(self._process)

    def close(self) -> None:
        """End of input is the host's signal to end; what is still there afterwards is killed."""
        assert self._process.stdin
        self._process.stdin.close()
        deadline = time.monotonic() + CLOSE_S
        pause_s = 0.0005
        while not _process.has_exited(self._process) and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)
        self.kill()

    def _take_line(self) -> Optional[bytes]:
        end = self._received.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._received)
            if self._searched > LINE_BYTES_MAX:
                raise ToolhostProtocolError("the reply line exceeds 1 MiB")
            return None
        if end > LINE_BYTES_MAX:
            raise ToolhostProtocolError("the reply line exceeds 1 MiB")
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        self._searched = 0
        return line

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = self._unsent[:0]  # its stdout will tell that it is gone
        if self._stdin in self._selector.get_map():
            self._selector.unregister(self._stdin)

    def _read_stdout(self) -> None:
        try:
            data = os.read(self._stdout, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._read_stderr()
            said = self._said.decode("utf-8", "replace").strip()
            raise ToolhostDied(
                "the toolhost ended before it replied; the call may have taken effect"
                + (f". It said: {said}" if said else "")
            )
        self._received += data

    def _read_stderr(self) -> None:
        try:
            data = os.read(self._stderr, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._said = (self._said + data)[-_STDERR_BYTES_KEPT:]
        elif self._stderr in self._selector.get_map():
            self._selector.unregister(self._stderr)


def _request(call: Call, delta: Optional[dict[str, Any]]) -> bytes:
    request: dict[str, Any] = {"aid": call.aid, "input_json": _encode(dict(call.inputs))}
    if delta is not None:
        request["ds_state"] = delta
    if call.idempotency_key is not None:
        request["idempotency_key"] = call.idempotency_key
    if call.lease_token is not None:
        request["_lease_token"] = call.lease_token
    return _encode(request).encode("ascii") + b"\n"


def _encode(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _reply(line: bytes) -> Reply:
    try:
        raw = json.loads(line)
        if not isinstance(raw, dict) or not isinstance(raw.get("ok"), bool):
            raise ValueError("no `ok`")
        output_json = raw.get("output_json") or "null"
        state = raw.get("ds_state") or {}
        return Reply(
            ok=raw["ok"],
            status=str(raw.get("status", "")),
            output=json.loads(output_json) if isinstance(output_json, str) else output_json,
            error=str(raw.get("error", "")),
            idempotent_hit=raw.get("idempotent_hit") is True,
            slots={int(number): dict(artifact) for number, artifact in state.get("slots", {}).items()},
            removed_slots=tuple(int(number) for number in state.get("removed_slots", [])),
            raw=raw,
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        shown = line[:200].decode("utf-8", "replace")
        raise ToolhostProtocolError(f"not a reply ({error}): {shown}") from None


def _positive(timeout_s: float) -> float:
    if not 0 < timeout_s < float("inf"):
        raise ValueError(f"timeout_s must be positive and finite, not {timeout_s!r}")
    return timeout_s


def _host_timeout_ms(timeout_s: float) -> int:
    # The host takes half a second off, to answer for a late tool before we give up.
    return max(1000, int(timeout_s * 1000))
