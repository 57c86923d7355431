"""The run request: what a run is told before it begins.

One JSON object on a line of its own. What does not fit the contract ends the
executor before any script is loaded.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Optional
from urllib.parse import quote

# As large as a frame may be.
REQUEST_BYTES_MAX = 16 * 1024 * 1024
_READ_BYTES = 64 * 1024
_ATTEMPT_MAX = (1 << 32) - 1
_PROTOCOLS = ("http", "https", "socks5")


class BadRequest(Exception):
    """A run request that is none."""


@dataclass(frozen=True)
class ProxyEndpoint:
    """The proxy that a run is to go through."""

    protocol: str
    host: str
    port: int
    username: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """As HTTP libraries take it, password included: not for logs."""
        user = "" if self.username is None else f"{quote(self.username, '')}:{quote(self.password or '', '')}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{user}{host}:{self.port}"

    def redacted(self) -> dict[str, Any]:
        """What a result may tell of it."""
        told: dict[str, Any] = {"protocol": self.protocol, "host": self.host, "port": self.port}
        if self.username is not None:
            told["username"] = self.username
        return told


@dataclass(frozen=True)
class StoragePlace:
    """Where the runtime keeps what the run emits."""

    dataset: str
    source: str
    category: str
    day: str
    run_id: str

    def key(self, filename: str) -> str:
        return (
            f"datasets/{self.dataset}/partitions/source={self.source}/category={self.category}"
            f"/day={self.day}/run_id={self.run_id}/files/{filename}"
        )


@dataclass(frozen=True)
class RunRequest:
    run_id: str
    attempt: int
    job: Any
    job_id: Optional[str] = None
    parent_run_id: Optional[str] = None
    proxy: Optional[ProxyEndpoint] = None
    browser_ws_endpoint: Optional[str] = None
    storage: Optional[StoragePlace] = None


def read(fd: int) -> tuple[RunRequest, bytes]:
    """The request, and what came with its last read and is not part of it."""
    received = bytearray()
    while True:
        part = os.read(fd, _READ_BYTES)
        end = part.find(b"\n")
        if end >= 0 or not part:
            line = bytes(received + part[: max(end, 0)])
            if len(line) > REQUEST_BYTES_MAX:
                raise BadRequest(f"a run request of more than {REQUEST_BYTES_MAX} bytes")
            return parse(line), part[end + 1 :]
        received += part
        if len(received) > REQUEST_BYTES_MAX:
            raise BadRequest(f"a run request of more than {REQUEST_BYTES_MAX} bytes")


def parse(line: bytes) -> RunRequest:
    members = _object("the run request", _json(line))
    attempt, parent = members.get("attempt"), _text(members, "parent_run_id")
    if isinstance(attempt, bool) or not isinstance(attempt, int) or not 1 <= attempt <= _ATTEMPT_MAX:
        raise BadRequest("`attempt` is not an integer of 1 or more")
    if (attempt > 1) != (parent is not None):
        raise BadRequest("`parent_run_id` belongs to attempts after the first, and to all of them")
    if "job" not in members:
        raise BadRequest("`job` is missing")
    return RunRequest(
        run_id=_needed(members, "run_id"),
        attempt=attempt,
        job=members["job"],
        job_id=_text(members, "job_id"),
        parent_run_id=parent,
        proxy=_proxy(members.get("proxy")),
        browser_ws_endpoint=_text(members, "browser_ws_endpoint") or None,
        storage=_storage(members.get("storage")),
    )


def _json(line: bytes) -> Any:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
        if b"\\u" in line:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair raises
        return value
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the run request is not JSON: {error}") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _object(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is not an object")
    return value


def _text(members: dict[str, Any], name: str) -> Optional[str]:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"`{name}` is not a string")
    return value


def _needed(members: dict[str, Any], name: str) -> str:
    value = _text(members, name)
    if not value:
        raise BadRequest(f"`{name}` is missing or empty")
    return value


def _proxy(value: Any) -> Optional[ProxyEndpoint]:
    if value is None:
        return None
    members = _object("`proxy`", value)
    protocol, port = _needed(members, "protocol"), members.get("port")
    if protocol not in _PROTOCOLS:
        raise BadRequest(f"`protocol` of the proxy is none of {', '.join(_PROTOCOLS)}")
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise BadRequest("`port` of the proxy is not 1 to 65535")
    username, password = _text(members, "username"), _text(members, "password")
    if (username is None) != (password is None):
        raise BadRequest("`username` and `password` of the proxy come together")
    return ProxyEndpoint(protocol, _needed(members, "host"), port, username, password)


def _storage(value: Any) -> Optional[StoragePlace]:
    if value is None:
        return None
    members = _object("`storage`", value)
    return StoragePlace(*(_needed(members, name) for name in ("dataset", "source", "category", "day", "run_id")))
