"""What a script holds while it runs: what it was asked, and every way to answer."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, Mapping
from typing import Any, Optional

from . import msgpack
from .acks import Acks
from .artifact import Cutter, Source, cut
from .request import ProxyEndpoint, RunRequest
from .stream import CHUNK_BYTES_MAX, Stream

LEVELS = ("debug", "info", "warn", "error")
# Longest name and content type of an artifact. A longer one the runtime would end the run for.
TEXT_BYTES_MAX = 1024
_BINARY = "application/octet-stream"


class Context:
    """A run, from the inside.

    Every method returns once the runtime's pipe has taken what it says, and may
    be called from any thread. A value that can not be sent raises `TypeError` or
    `ValueError` and leaves the run as it was. After `run_complete` or
    `run_error` every method raises `TerminalEventError`.
    """

    def __init__(self, request: RunRequest, stream: Stream, acks: Acks) -> None:
        self._request = request
        self._stream = stream
        self.storage = Storage(request, stream, acks)
        # The result tells of a proxy that the script has looked at.
        self.proxy_was_read = False
        # What the terminal event said of an error.
        self.error: Optional[dict[str, Any]] = None

    @property
    def run_id(self) -> str:
        return self._request.run_id

    @property
    def attempt(self) -> int:
        return self._request.attempt

    @property
    def job(self) -> Any:
        """What the run is to work on."""
        return self._request.job

    @property
    def job_id(self) -> Optional[str]:
        return self._request.job_id

    @property
    def parent_run_id(self) -> Optional[str]:
        return self._request.parent_run_id

    @property
    def proxy(self) -> Optional[ProxyEndpoint]:
        """What to go through. Whoever asks is taken to use it: the run's result then says so."""
        self.proxy_was_read = True
        return self._request.proxy

    @property
    def browser_ws_endpoint(self) -> Optional[str]:
        return self._request.browser_ws_endpoint

    def item(self, item_type: str, data: Mapping[str, Any]) -> None:
        """One thing that was found."""
        self._event("item", {"item_type": _text("item_type", item_type), "data": _members("data", data)})

    def artifact(self, name: str, source: Source, content_type: str = _BINARY) -> str:
        """Bytes of any size: bytes, a `pathlib.Path`, a binary file, or an iterable of bytes.

        Returns the artifact's id. It exists once this has returned; if `source`
        fails midway, what was sent of it is collected by the runtime.
        """
        cutter, commit = self._begin(name, content_type)
        cut(source, cutter)
        return self._commit(commit, cutter)

    async def artifact_from(self, name: str, source: AsyncIterable[bytes], content_type: str = _BINARY) -> str:
        """The same of bytes that come as an `async for`."""
        cutter, commit = self._begin(name, content_type)
        async for piece in source:
            cutter.push(piece)
        cutter.end()
        return self._commit(commit, cutter)

    def checkpoint(self, checkpoint_id: str, note: Optional[str] = None) -> None:
        """How far the script has come."""
        self._event("checkpoint", {"checkpoint_id": _text("checkpoint_id", checkpoint_id), **_given(note=note)})

    def enqueue(
        self,
        target: str,
        params: Mapping[str, Any],
        source: Optional[str] = None,
        category: Optional[str] = None,
    ) -> None:
        """More work: a script and its job."""
        payload = {"target": _text("target", target), "params": _members("params", params)}
        self._event("enqueue", {**payload, **_given(source=source, category=category)})

    def rotate_proxy(self, reason: Optional[str] = None) -> None:
        """The proxy should be another one next time."""
        self._event("rotate_proxy", _given(reason=reason))

    def log(self, level: str, message: str, fields: Optional[Mapping[str, Any]] = None) -> None:
        """A line for people, of one of the four `LEVELS`."""
        if level not in LEVELS:
            raise ValueError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
        payload: dict[str, Any] = {"level": level, "message": _text("message", message)}
        if fields is not None:
            payload["fields"] = _members("fields", fields)
        self._event("log", payload)

    def run_error(self, error_type: str, message: str, stack: Optional[str] = None) -> None:
        """The run has failed. Terminal."""
        payload = {"error_type": _text("error_type", error_type), "message": _text("message", message)}
        self._event("run_error", {**payload, **_given(stack=stack)}, is_terminal=True)
        self.error = {"stack": stack, **payload}

    def run_complete(self, summary: Optional[Mapping[str, Any]] = None) -> None:
        """The run has done what it was to do. Terminal."""
        payload = {} if summary is None else {"summary": _members("summary", summary)}
        self._event("run_complete", payload, is_terminal=True)

    def _begin(self, name: str, content_type: str) -> tuple[Cutter, dict[str, Any]]:
        artifact_id = str(uuid.uuid4())
        # Packed once before any byte goes out, so that a bad name is told in time.
        commit = {"artifact_id": artifact_id, "name": _short("name", name), "content_type": _short("content_type", content_type)}
        msgpack.pack(commit)
        return Cutter(self._stream, artifact_id), commit

    def _commit(self, commit: dict[str, Any], cutter: Cutter) -> str:
        self._event("artifact", {**commit, "size_bytes": cutter.size_bytes})
        artifact_id: str = commit["artifact_id"]
        return artifact_id

    def _event(self, kind: str, payload: dict[str, Any], is_terminal: bool = False) -> None:
        self._stream.event(kind, msgpack.pack(payload), is_terminal)


class Storage:
    """Small files beside the events."""

    def __init__(self, request: RunRequest, stream: Stream, acks: Acks) -> None:
        self._place = request.storage
        self._stream = stream
        self._acks = acks

    def put(self, filename: str, data: Any, content_type: str = _BINARY) -> Optional[str]:
        """Keep at most 8 MiB under a name without folders; its key, where the runtime said where.

        Raises `StorageError` when the runtime refuses, a name written twice for
        one; the run goes on.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data of type {type(data).__name__}: files are bytes")
        octets = bytes(data)
        if not _text("filename", filename) or any(bad in filename for bad in ("/", "\\", "..")):
            raise ValueError(f"{filename!r} can not be a file's name: no folders, not empty, no `..`")
        if len(octets) > CHUNK_BYTES_MAX:
            raise ValueError(f"a file of {len(octets)} bytes; at most {CHUNK_BYTES_MAX}: send an artifact")
        write_id = self._stream.file_write(filename, _text("content_type", content_type), octets, self._acks.expect)
        self._acks.wait(write_id)
        return None if self._place is None else self._place.key(filename)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is text, not {type(value).__name__}")
    return value


def _short(name: str, value: Any) -> str:
    """Text of a length that every runtime takes."""
    size = len(_text(name, value).encode("utf-8"))
    if size > TEXT_BYTES_MAX:
        raise ValueError(f"{name} is at most {TEXT_BYTES_MAX} bytes long, not {size}")
    return str(value)


def _members(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(type(value), "__dataclass_fields__"):
        return value
    raise TypeError(f"{name} is an object, not {type(value).__name__}")


def _given(**options: Optional[str]) -> dict[str, Any]:
    """Options that were left out have no key."""
    return {name: _text(name, value) for name, value in options.items() if value is not None}
