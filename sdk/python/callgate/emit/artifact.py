"""Bytes of any size, cut into chunks: never more than one chunk of them is held."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import IO, Any, Union

from .stream import CHUNK_BYTES_MAX, Stream

_PIECE_BYTES = 1024 * 1024

Source = Union[bytes, bytearray, memoryview, "os.PathLike[str]", IO[bytes], Iterable[bytes]]


class Cutter:
    """Takes pieces and sends chunks. The last chunk is known by nothing coming after it."""

    def __init__(self, stream: Stream, artifact_id: str) -> None:
        self._stream = stream
        self._artifact_id = artifact_id
        self._held = bytearray()
        self._seq = 0
        self.size_bytes = 0

    def push(self, piece: Any) -> None:
        view = _view(piece)
        while len(view):
            if len(self._held) == CHUNK_BYTES_MAX:
                self._send(memoryview(self._held), is_last=False)
                self._held = bytearray()
            part = view[: CHUNK_BYTES_MAX - len(self._held)]
            self._held += part
            view = view[len(part) :]

    def push_whole(self, octets: Any) -> None:
        """All of it at once, straight from where it is."""
        view = _view(octets)
        for start in range(0, max(len(view), 1), CHUNK_BYTES_MAX):
            part = view[start : start + CHUNK_BYTES_MAX]
            self._send(part, is_last=start + len(part) == len(view))

    def end(self) -> None:
        self._send(memoryview(self._held), is_last=True)
        self._held = bytearray()

    def _send(self, data: memoryview, is_last: bool) -> None:
        self._seq += 1
        self._stream.chunk(self._artifact_id, self._seq, is_last, data)
        self.size_bytes += len(data)


def cut(source: Source, cutter: Cutter) -> None:
    if isinstance(source, (bytes, bytearray, memoryview)):
        cutter.push_whole(source)
        return
    for piece in _pieces(source):
        cutter.push(piece)
    cutter.end()


def _pieces(source: Any) -> Iterator[bytes]:
    if isinstance(source, str):
        raise TypeError("a str is neither bytes nor a path: encode it, or give a pathlib.Path")
    if isinstance(source, os.PathLike):
        with open(source, "rb", buffering=0) as file:
            yield from _read(file)
    elif hasattr(source, "read"):
        yield from _read(source)
    else:
        yield from source


def _read(file: Any) -> Iterator[bytes]:
    while True:
        piece = file.read(_PIECE_BYTES)
        if piece is None:
            raise BlockingIOError("the stream has nothing at present: give a blocking one")
        if not len(piece):
            return
        yield piece


def _view(octets: Any) -> memoryview:
    if not isinstance(octets, (bytes, bytearray, memoryview)):
        raise TypeError(f"a piece of type {type(octets).__name__}: pieces are bytes")
    view = memoryview(octets)
    return view.cast("B") if view.c_contiguous else memoryview(bytes(view))
