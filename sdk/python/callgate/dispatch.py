"""One call, one process: `PROGRAM tool_exec AID`, request on stdin, one line back.

`dispatch` returns the decoded output, `run_machina_toolhost` the same output as
a JSON string, for programs written against the function of that name. Neither
raises for a call that fails: both return a `DispatchFailure`, a dict with the
members `error` (true), `aid`, `type` and `detail`.

| type           | the program                                          |
|----------------|------------------------------------------------------|
| `not_found`    | does not exist                                       |
| `timeout`      | did not end in time; its process group was killed    |
| `crash`        | ended with another code than 0                       |
| `empty_output` | printed nothing                                      |
| `parse_error`  | printed no JSON, or more than 1 MB                   |
| `tool_error`   | answered `ok: false`, or a status other than `OK`    |
| `exception`    | could not be asked or understood: input that is not JSON, not executable, not UTF-8, not an object |

Left out: slots, keys and leases (use `ToolhostClient`), and any retry.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from typing import IO, Any, NamedTuple, Optional, Union

from . import _process

TIMEOUT_S = 30.0
STDOUT_BYTES_MAX = 1024 * 1024
STDERR_BYTES_KEPT = 64 * 1024
DETAIL_CHARS_MAX = 4096
RAW_CHARS_SHOWN = 200
_READ_BYTES = 64 * 1024
_LOOK_S = 0.05


class DispatchFailure(dict[str, Any]):
    """A failed call: `{"error": true, "aid": …, "type": …, "detail": …}`."""

    def __init__(self, aid: str, type: str, detail: str) -> None:
        super().__init__(error=True, aid=aid, type=type, detail=detail)

    @property
    def type(self) -> str:
        return str(self["type"])

    @property
    def detail(self) -> str:
        return str(self["detail"])


def dispatch(
    aid: str,
    inputs: Mapping[str, Any],
    *,
    program: Optional[str] = None,
    root: Optional[str] = None,
    timeout_s: Optional[float] = None,
) -> Any:
    """Call a tool and return its decoded output, or a `DispatchFailure`.

    Args:
        aid: the tool's action id
        inputs: its input
        program: path or name; else `build/machina_cli` under the root if it is there, else `callgate`
        root: the workspace, and the program's working folder; else `MACHINA_ROOT`, else the current folder
        timeout_s: else `MACHINA_TOOLHOST_TIMEOUT`, else 30
    """
    text = run_machina_toolhost(aid, inputs, program=program, root=root, timeout_s=timeout_s)
    if isinstance(text, DispatchFailure) or text == "":
        return text or None
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        return DispatchFailure(aid, "parse_error", f"output_json is not JSON: {text[:RAW_CHARS_SHOWN]}")


def run_machina_toolhost(
    aid: str,
    inputs: Mapping[str, Any],
    *,
    program: Optional[str] = None,
    root: Optional[str] = None,
    timeout_s: Optional[float] = None,
) -> Union[str, DispatchFailure]:
    """As `dispatch`, with the output as the JSON string it came in."""
    try:
        request = _encode({"aid": aid, "inputs": dict(inputs)}) + b"\n"
        run = _prepare(aid, program, root, timeout_s)
        return _output(_exchange(run, request))
    except _Failed as failed:
        return DispatchFailure(aid, failed.type, failed.detail)
    except _process.ProgramMissing as missing:
        return DispatchFailure(aid, "not_found", str(missing))
    except Exception as error:
        return DispatchFailure(aid, "exception", f"{type(error).__name__}: {error}"[:DETAIL_CHARS_MAX])


class _Failed(Exception):
    def __init__(self, type: str, detail: str) -> None:
        super().__init__(detail)
        self.type = type
        self.detail = detail


class _Run(NamedTuple):
    argv: list[str]
    cwd: Optional[str]
    env: dict[str, str]
    timeout_s: float


class _Printed(NamedTuple):
    stdout: bytes
    stderr: bytes
    returncode: int


def _prepare(aid: str, program: Optional[str], root: Optional[str], timeout_s: Optional[float]) -> _Run:
    env = dict(os.environ)
    root = root or env.get("MACHINA_ROOT") or None
    if root is not None:
        root = os.path.abspath(root)
        env["MACHINA_ROOT"] = root  # the program's workspace is the folder it runs in
    if program is None:
        program = os.path.join(root, "build", "machina_cli") if root else ""
        if not os.path.exists(program):
            program = "callgate"
    found = _process.find(os.fspath(program))
    if root is not None and not os.path.isdir(root):
        raise NotADirectoryError(f"root is not a folder: {root}")
    run = _Run([found, "tool_exec", aid], root, env, _timeout_s(timeout_s, env))
    if timeout_s is not None:
        # Or the program would keep to its own limit, which may be the shorter one.
        env["MACHINA_TOOLHOST_TIMEOUT"] = f"{run.timeout_s:.3f}".rstrip("0").rstrip(".")
    return run


def _timeout_s(given: Optional[float], env: Mapping[str, str]) -> float:
    if given is not None:
        if not 0 < given < math.inf:
            raise ValueError(f"timeout_s must be positive and finite, not {given!r}")
        return float(given)
    try:
        seconds = float(env.get("MACHINA_TOOLHOST_TIMEOUT", ""))
    except ValueError:
        return TIMEOUT_S
    return seconds if seconds > 0 and math.isfinite(seconds) else TIMEOUT_S


def _exchange(run: _Run, request: bytes) -> _Printed:
    process = _process.start(run.argv, cwd=run.cwd, env=run.env)
    pump = _Pump(process, request)
    try:
        pump.run(run.timeout_s)
    finally:
        pump.close()
        returncode = _process.end(process)
    return _Printed(bytes(pump.stdout), bytes(pump.stderr), returncode)


class _Pump:
    """Feeds the request and gathers both outputs at once, within bounds and a deadline."""

    def __init__(self, process: subprocess.Popen[bytes], request: bytes) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._unsent = memoryview(request)
        self._selector = selectors.DefaultSelector()
        self._selector.register(process.stdin, selectors.EVENT_WRITE, self._feed)
        self._selector.register(process.stdout, selectors.EVENT_READ, self._read_stdout)
        self._selector.register(process.stderr, selectors.EVENT_READ, self._read_stderr)
        self.stdout = bytearray()
        self.stderr = bytearray()

    def run(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        pause_s = 0.0005
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise _Failed("timeout", f"no end within {timeout_s:g} s")
            # With all pipes open a pipe wakes us; the pause only bounds how late we
            # notice that the program left somebody behind who keeps one open.
            if self._selector.get_map():
                ready = self._selector.select(min(left_s, _LOOK_S))
            else:
                time.sleep(min(left_s, pause_s))
                pause_s = min(pause_s * 2, _LOOK_S)
                ready = []
            for key, _ in ready:
                key.data(key.fileobj)
            if not ready and _process.has_exited(self._process):
                return

    def close(self) -> None:
        self._selector.close()

    def _feed(self, pipe: IO[bytes]) -> None:
        try:
            self._unsent = self._unsent[os.write(pipe.fileno(), self._unsent[:_READ_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = self._unsent[:0]  # it may answer without having read all
        if not self._unsent:
            self._selector.unregister(pipe)
            pipe.close()

    def _read_stdout(self, pipe: IO[bytes]) -> None:
        # One byte past the limit tells that it was passed; no more is ever held.
        self.stdout += self._read(pipe, STDOUT_BYTES_MAX + 1 - len(self.stdout))
        if len(self.stdout) > STDOUT_BYTES_MAX:
            raise _Failed("parse_error", "output exceeds 1 MB")

    def _read_stderr(self, pipe: IO[bytes]) -> None:
        data = self._read(pipe, _READ_BYTES)
        self.stderr += data[: STDERR_BYTES_KEPT - len(self.stderr)]

    def _read(self, pipe: IO[bytes], bytes_max: int) -> bytes:
        try:
            data = os.read(pipe.fileno(), min(bytes_max, _READ_BYTES))
        except BlockingIOError:
            return b""
        if not data:
            self._selector.unregister(pipe)
        return data


def _output(printed: _Printed) -> str:
    if printed.returncode != 0:
        said = b"\n".join((printed.stdout, printed.stderr)).decode("utf-8", "replace").strip()
        raise _Failed("crash", said[:DETAIL_CHARS_MAX] or f"rc={printed.returncode}")
    text = printed.stdout.decode("utf-8").strip()
    if not text:
        raise _Failed("empty_output", "the program printed nothing")
    line = text.partition("\n")[0]
    try:
        reply = _decode(line)
    except (ValueError, RecursionError):
        raise _Failed("parse_error", f"the reply is not JSON: {line[:RAW_CHARS_SHOWN]}") from None
    if not isinstance(reply, dict):
        raise _Failed("exception", "the reply is not an object")
    return _checked(reply)


def _checked(reply: dict[str, Any]) -> str:
    """The output of a reply that says in every way it can that the call went well."""
    status = reply.get("status")
    error = reply.get("error")
    if status is not None and status != "OK":
        raise _Failed("tool_error", _words(error) or f"tool_exec status={status}")
    if reply.get("ok", status == "OK") is not True:
        raise _Failed("tool_error", _words(error) or "the reply does not say ok")
    output = reply.get("output_json", "")
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _words(error: Any) -> str:
    if not error:
        return ""
    return (error if isinstance(error, str) else json.dumps(error))[:DETAIL_CHARS_MAX]


def _encode(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _decode(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
