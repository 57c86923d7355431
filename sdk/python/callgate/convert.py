"""JSON values into what a typed function expects.

A converter takes a decoded JSON value and returns the argument: an object
becomes a dataclass, a string an enum member, an array a tuple, a whole-numbered
float an int. Where an annotation asks for nothing of the kind there is no
converter, and the value is passed on as it came: the gate has checked it
against the tool's schema already.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Literal, Optional

from . import schema

Converter = Callable[[Any], Any]


class Mismatch(ValueError):
    """A value that does not fit, and where in the argument it lies."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def under(self, step: str) -> Mismatch:
        return Mismatch(self.reason, step + self.path)


def converter(annotation: Any) -> Optional[Converter]:
    """What turns a JSON value into this annotation's, or None if nothing need be done."""
    if annotation is int:
        return _whole
    if schema.is_enum(annotation):
        return _enum(annotation)
    if schema.is_dataclass(annotation) or schema.is_typed_dict(annotation):
        return _class(annotation)
    if hasattr(annotation, "__supertype__"):
        return converter(annotation.__supertype__)
    origin = typing.get_origin(annotation) or annotation
    arguments = typing.get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return converter(arguments[0])
    if origin in schema.UNIONS:
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is Literal or not arguments:
        return None
    inner = converter(arguments[-1])
    if inner is None:
        return None
    return _object(inner) if origin in schema.OBJECTS else _array(inner)


def _whole(value: Any) -> Any:
    # 3.0 is an integer to JSON Schema.
    if type(value) is float and value.is_integer():
        return int(value)
    return value


def _enum(cls: Any) -> Converter:
    members = {(type(member.value), member.value): member for member in cls}

    def convert(value: Any) -> Any:
        try:
            return members[type(value), value]
        except (KeyError, TypeError):
            raise Mismatch(f"not a {cls.__name__}") from None

    return convert


def _class(cls: type) -> Converter:
    """For a dataclass and for a TypedDict: both are made from named members."""
    converters: dict[str, Optional[Converter]] = {}
    required: list[str] = []

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Mismatch(f"not an object for {cls.__name__}")
        if not converters:  # on first use, because a class may mention itself
            _learn(cls, converters, required)
        _check_members(cls, value, converters, required)
        return cls(**_members(value, converters))

    return convert


def _learn(cls: type, converters: dict[str, Optional[Converter]], required: list[str]) -> None:
    for name, member in schema.members_of(cls).items():
        converters[name] = converter(member.annotation)
        if member.required:
            required.append(name)


def _check_members(
    cls: type, value: dict[str, Any], converters: dict[str, Optional[Converter]], required: list[str]
) -> None:
    for name in required:
        if name not in value:
            raise Mismatch(f"{cls.__name__} needs `{name}`")
    for name in value:
        if name not in converters:
            raise Mismatch(f"{cls.__name__} has no `{name}`")


def _members(value: dict[str, Any], converters: dict[str, Optional[Converter]]) -> dict[str, Any]:
    found = {}
    for name, item in value.items():
        convert = converters[name]
        try:
            found[name] = item if convert is None else convert(item)
        except Mismatch as mismatch:
            raise mismatch.under(f".{name}") from None
    return found


def _array(inner: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise Mismatch("not an array")
        return _items(value, [inner] * len(value))

    return convert


def _tuple(arguments: tuple[Any, ...]) -> Converter:
    if not arguments or arguments == ((),):
        return _bare_tuple
    if len(arguments) == 2 and arguments[1] is ...:
        inner = converter(arguments[0])
        return lambda value: tuple(_items(_bare_tuple(value), [inner] * len(value)))
    places = [converter(argument) for argument in arguments]

    def convert(value: Any) -> Any:
        items = _bare_tuple(value)
        if len(items) != len(places):
            raise Mismatch(f"not an array of {len(places)}")
        return tuple(_items(items, places))

    return convert


def _bare_tuple(value: Any) -> Any:
    if not isinstance(value, list):
        raise Mismatch("not an array")
    return tuple(value)


def _items(values: Any, converters: list[Any]) -> list[Any]:
    found = []
    for item, convert in zip(values, converters):
        try:
            found.append(item if convert is None else convert(item))
        except Mismatch as mismatch:
            raise mismatch.under(f"[{len(found)}]") from None
    return found


def _object(inner: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Mismatch("not an object")
        return _members(value, dict.fromkeys(value, inner))

    return convert


def _union(arguments: tuple[Any, ...]) -> Optional[Converter]:
    members = [(argument, converter(argument)) for argument in arguments]
    if all(convert is None for _, convert in members):
        return None

    def convert(value: Any) -> Any:
        reason = Mismatch("fits none of the types it may have")
        for annotation, inner in members:
            if not _looks_like(annotation, value):
                continue
            try:
                return value if inner is None else inner(value)
            except Mismatch as mismatch:
                reason = mismatch
        raise reason

    return convert


def _looks_like(annotation: Any, value: Any) -> bool:
    """Whether a value is of the JSON kind an annotation stands for; members unseen."""
    if hasattr(annotation, "__supertype__"):
        return _looks_like(annotation.__supertype__, value)
    if hasattr(annotation, "__metadata__"):
        return _looks_like(typing.get_args(annotation)[0], value)
    if annotation in (None, type(None)):
        return value is None
    if annotation is int:
        return type(value) is int or (type(value) is float and value.is_integer())
    if annotation is float:
        return type(value) in (int, float)
    if annotation in (str, bool):
        return type(value) is annotation
    if schema.is_enum(annotation):
        return True  # its converter decides
    if schema.is_dataclass(annotation) or schema.is_typed_dict(annotation):
        return isinstance(value, dict)
    origin = typing.get_origin(annotation) or annotation
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in typing.get_args(annotation))
    if origin is tuple or origin in schema.ARRAYS:
        return isinstance(value, list)
    if origin in schema.OBJECTS:
        return isinstance(value, dict)
    return True
