"""msgpack, as much of it as the stream contract needs.

`pack` writes what the contract's first executor wrote: the smallest width an
integer fits, `str` for text, `bin` for bytes, double floats, timestamps for
`datetime`. `unpack` reads one value and nothing behind it. What storage could
not keep as JSON (a NaN, a key that is no text) is refused here, where the
script can still do something about it.
"""

from __future__ import annotations

import struct
from datetime import datetime, timedelta, timezone
from typing import Any

from ..worker import as_json

DEPTH_MAX = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIMESTAMP = -1


def pack(value: Any) -> bytes:
    """A value as msgpack: `TypeError` or `ValueError` for one that has no form in it."""
    out = bytearray()
    _pack(value, out, DEPTH_MAX)
    return bytes(out)


def _pack(value: Any, out: bytearray, depth: int) -> None:
    if depth < 0:
        raise ValueError(f"a value nested deeper than {DEPTH_MAX}, or holding itself")
    if value is None:
        out.append(0xC0)
    elif isinstance(value, bool):
        out.append(0xC3 if value else 0xC2)
    elif type(value) is str:
        out += text(value)
    elif type(value) is int:
        out += integer(value)
    elif type(value) is float:
        if value - value != 0.0:
            raise ValueError(f"{value} is not a number that can be kept")
        out += struct.pack(">Bd", 0xCB, value)
    elif isinstance(value, dict):
        out += map_head(len(value))
        for key, member in value.items():
            if not isinstance(key, str):
                raise TypeError(f"a key of type {type(key).__name__}: keys are text")
            out += text(str(key))
            _pack(member, out, depth - 1)
    elif isinstance(value, (list, tuple)):
        out += _head(len(value), 0x90, 0xDC)
        for member in value:
            _pack(member, out, depth - 1)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        octets = bytes(value)
        out += bytes_head(len(octets))
        out += octets
    elif isinstance(value, datetime):
        out += _timestamp(value)
    else:
        _pack(_plain(value), out, depth - 1)


def _plain(value: Any) -> Any:
    """Enums, decimals and dataclasses as a tool's output has them; subclasses as their base."""
    for base in (str, int, float):
        if isinstance(value, base) and not hasattr(type(value), "__members__"):
            return base(value)
    return as_json(value)


def text(value: str) -> bytes:
    octets = value.encode("utf-8")
    size = len(octets)
    if size < 32:
        return bytes((0xA0 | size,)) + octets
    if size < 1 << 8:
        return bytes((0xD9, size)) + octets
    if size < 1 << 16:
        return struct.pack(">BH", 0xDA, size) + octets
    return struct.pack(">BI", 0xDB, size) + octets


def integer(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack(">B", value & 0xFF)
    unsigned, signed = ("B", "H", "I", "Q"), ("b", "h", "i", "q")
    for step, bits in enumerate((8, 16, 32, 64)):
        if 0 <= value < 1 << bits:
            return struct.pack(">B" + unsigned[step], 0xCC + step, value)
        if value < 0 and -(1 << (bits - 1)) <= value:
            return struct.pack(">B" + signed[step], 0xD0 + step, value)
    raise ValueError("an integer beyond 64 bits")


def map_head(members: int) -> bytes:
    return _head(members, 0x80, 0xDE)


def bytes_head(size: int) -> bytes:
    if size < 1 << 8:
        return bytes((0xC4, size))
    if size < 1 << 16:
        return struct.pack(">BH", 0xC5, size)
    return struct.pack(">BI", 0xC6, size)


def _head(members: int, fixed: int, wide: int) -> bytes:
    if members < 16:
        return bytes((fixed | members,))
    if members < 1 << 16:
        return struct.pack(">BH", wide, members)
    return struct.pack(">BI", wide + 1, members)


def _timestamp(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise ValueError("a datetime without a time zone: no moment")
    since = value - _EPOCH
    seconds, nanoseconds = since.days * 86_400 + since.seconds, since.microseconds * 1000
    if 0 <= seconds < 1 << 32 and nanoseconds == 0:
        return struct.pack(">BbI", 0xD6, _TIMESTAMP, seconds)
    if 0 <= seconds < 1 << 34:
        return struct.pack(">BbQ", 0xD7, _TIMESTAMP, nanoseconds << 34 | seconds)
    return struct.pack(">BBbIq", 0xC7, 12, _TIMESTAMP, nanoseconds, seconds)


def unpack(data: bytes) -> Any:
    """The one value in `data`: `ValueError` where there is none, or more."""
    reader = _Reader(data)
    try:
        value = reader.value(DEPTH_MAX)
    except (IndexError, struct.error):
        raise ValueError("cut short") from None
    except OverflowError:
        raise ValueError("a moment beyond the calendar") from None
    if reader.at != len(data):
        raise ValueError("bytes behind the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth < 0:
            raise ValueError(f"nested deeper than {DEPTH_MAX}")
        kind = self._number("B")
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 0x100
        if kind < 0x90:
            return self._map(kind & 0x0F, depth)
        if kind < 0xA0:
            return self._list(kind & 0x0F, depth)
        if kind < 0xC0:
            return self._text(kind & 0x1F)
        if kind in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[kind]
        if 0xC4 <= kind <= 0xC6:
            return self._take(self._number("BHI"[kind - 0xC4]))
        if 0xC7 <= kind <= 0xC9:
            return self._extension(self._number("BHI"[kind - 0xC7]))
        if 0xCA <= kind <= 0xD3:
            return self._number("fdBHIQbhiq"[kind - 0xCA])
        if 0xD4 <= kind <= 0xD8:
            return self._extension(1 << (kind - 0xD4))
        if 0xD9 <= kind <= 0xDB:
            return self._text(self._number("BHI"[kind - 0xD9]))
        if 0xDC <= kind <= 0xDD:
            return self._list(self._number("HI"[kind - 0xDC]), depth)
        if 0xDE <= kind <= 0xDF:
            return self._map(self._number("HI"[kind - 0xDE]), depth)
        raise ValueError(f"no value begins with {kind:#x}")

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return number

    def _take(self, size: int) -> bytes:
        if len(self.data) - self.at < size:
            raise IndexError
        self.at += size
        return self.data[self.at - size : self.at]

    def _text(self, size: int) -> str:
        return self._take(size).decode("utf-8")

    def _list(self, members: int, depth: int) -> list[Any]:
        return [self.value(depth - 1) for _ in range(members)]

    def _map(self, members: int, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in range(members):
            key = self.value(depth - 1)
            if not isinstance(key, str) or key in found:
                raise ValueError("a key that is no text, or comes twice")
            found[key] = self.value(depth - 1)
        return found

    def _extension(self, size: int) -> Any:
        kind, octets = self._number("b"), self._take(size)
        if kind != _TIMESTAMP or size not in (4, 8, 12):
            raise ValueError(f"an extension of type {kind}")
        if size == 12:
            nanoseconds, seconds = struct.unpack(">Iq", octets)
        else:
            packed = int.from_bytes(octets, "big")
            nanoseconds, seconds = packed >> 34, packed & ((1 << 34) - 1)
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
