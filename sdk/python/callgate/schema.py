"""JSON Schema (2020-12) from Python annotations.

Serves `@tool`. Objects that come from a dataclass or a TypedDict admit no
unknown members. A type that mentions itself goes to `$defs`; all others are
written in place, because many readers of tool schemas follow no references.
Left out: formats, bounds and patterns. An annotation that has no schema is a
`TypeError` where the tool is declared, not a tool that takes anything.
"""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from typing import Any, Literal, Union

Schema = dict[str, Any]

_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ARRAYS = (list, collections.abc.Sequence, collections.abc.Iterable)
OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
# `X | Y` has an origin of its own from Python 3.10 on.
UNIONS: tuple[Any, ...] = (Union, getattr(types, "UnionType", Union))


def of_members(members: dict[str, Member]) -> Schema:
    """The schema of an object with exactly these members."""
    builder = _Builder()
    schema = builder.object_of(members)
    if builder.definitions:
        schema["$defs"] = builder.definitions
    return schema


def of_type(annotation: Any) -> Schema:
    """The schema of one annotation."""
    builder = _Builder()
    schema = builder.schema_of(annotation)
    if builder.definitions:
        schema = {**schema, "$defs": builder.definitions}
    return schema


class Member:
    """One member of an object: a parameter, a field or a key."""

    def __init__(self, annotation: Any, *, required: bool, default: Any = ..., description: str = "") -> None:
        self.annotation = annotation
        self.required = required
        self.default = default
        self.description = description


def members_of(cls: type) -> dict[str, Member]:
    """The members of a dataclass or of a TypedDict."""
    hints = typing.get_type_hints(cls, include_extras=True)
    if is_typed_dict(cls):
        required: frozenset[str] = getattr(cls, "__required_keys__", frozenset(hints))
        return {name: Member(_bare(hint), required=name in required) for name, hint in hints.items()}
    from dataclasses import MISSING, fields

    members = {}
    for field in fields(cls):
        if field.init:
            optional = field.default is not MISSING or field.default_factory is not MISSING
            default = ... if field.default is MISSING else field.default
            members[field.name] = Member(hints[field.name], required=not optional, default=default)
    return members


def is_typed_dict(annotation: Any) -> bool:
    return _is_class(annotation) and issubclass(annotation, dict) and hasattr(annotation, "__total__")


def is_dataclass(annotation: Any) -> bool:
    return _is_class(annotation) and hasattr(annotation, "__dataclass_fields__")


def is_enum(annotation: Any) -> bool:
    return _is_class(annotation) and issubclass(annotation, enum.Enum)


def _is_class(annotation: Any) -> bool:
    # Before Python 3.11 `list[int]` claims to be a class as well.
    return isinstance(annotation, type) and typing.get_origin(annotation) is None


class _Builder:
    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._open: list[type] = []
        self._names: dict[type, str] = {}  # of the types that mention themselves

    def schema_of(self, annotation: Any) -> Schema:
        if annotation is Any or annotation is object:
            return {}
        if annotation is None:
            return {"type": "null"}
        if _is_class(annotation) and annotation in _SCALARS:
            return {"type": _SCALARS[annotation]}
        if is_enum(annotation):
            return _one_of([member.value for member in annotation], annotation)
        if is_typed_dict(annotation) or is_dataclass(annotation):
            return self._named(annotation)
        if hasattr(annotation, "__supertype__"):  # typing.NewType
            return self.schema_of(annotation.__supertype__)
        return self._generic(annotation)

    def _generic(self, annotation: Any) -> Schema:
        origin = typing.get_origin(annotation) or annotation
        arguments = typing.get_args(annotation)
        if origin in UNIONS:
            return {"anyOf": [self.schema_of(argument) for argument in arguments]}
        if origin is Literal:
            return _one_of(list(arguments), annotation)
        if hasattr(annotation, "__metadata__"):  # typing.Annotated
            return self._annotated(arguments[0], annotation.__metadata__)
        if origin is tuple:
            return self._tuple(annotation, arguments)
        if origin in ARRAYS:
            return {"type": "array", **({"items": self.schema_of(arguments[0])} if arguments else {})}
        if origin in OBJECTS:
            return self._mapping(annotation, arguments)
        raise TypeError(f"no JSON Schema for the annotation {annotation!r}")

    def _annotated(self, annotation: Any, metadata: tuple[Any, ...]) -> Schema:
        schema = self.schema_of(annotation)
        words = [note for note in metadata if isinstance(note, str)]
        return {**schema, "description": words[0]} if words else schema

    def _tuple(self, annotation: Any, arguments: tuple[Any, ...]) -> Schema:
        if len(arguments) == 2 and arguments[1] is ...:
            return {"type": "array", "items": self.schema_of(arguments[0])}
        if annotation is tuple or annotation is typing.Tuple:
            return {"type": "array"}
        places = [self.schema_of(argument) for argument in arguments if argument != ()]
        if not places:
            return {"type": "array", "maxItems": 0}
        return {"type": "array", "prefixItems": places, "items": False, "minItems": len(places)}

    def _mapping(self, annotation: Any, arguments: tuple[Any, ...]) -> Schema:
        if not arguments:
            return {"type": "object"}
        if arguments[0] is not str:
            raise TypeError(f"the keys of a JSON object are strings, unlike those of {annotation!r}")
        values = self.schema_of(arguments[1])
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}

    def _named(self, cls: type) -> Schema:
        if cls in self._open or cls in self._names:
            name = self._names.setdefault(cls, self._fresh_name(cls))
            return {"$ref": f"#/$defs/{name}"}
        self._open.append(cls)
        schema = self.object_of(members_of(cls))
        self._open.pop()
        if cls not in self._names:
            return schema
        self.definitions[self._names[cls]] = schema
        return {"$ref": f"#/$defs/{self._names[cls]}"}

    def _fresh_name(self, cls: type) -> str:
        taken = set(self._names.values())
        name = cls.__name__
        while name in taken:
            name += "_"
        return name

    def object_of(self, members: dict[str, Member]) -> Schema:
        properties = {}
        for name, member in members.items():
            schema = dict(self.schema_of(member.annotation))
            if member.description:
                schema["description"] = member.description
            if member.default is not ...:
                known, default = _json_of(member.default)
                if known:
                    schema["default"] = default
            properties[name] = schema
        schema = {"type": "object", "properties": properties}
        required = [name for name, member in members.items() if member.required]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        return schema


def _bare(annotation: Any) -> Any:
    """Without the `Required[…]` or `NotRequired[…]` around it."""
    origin = typing.get_origin(annotation)
    if origin is not None and getattr(origin, "_name", "") in ("Required", "NotRequired"):
        return typing.get_args(annotation)[0]
    return annotation


def _one_of(values: list[Any], annotation: Any) -> Schema:
    for value in values:
        if type(value) not in _SCALARS and not isinstance(value, (str, int, float)):
            raise TypeError(f"{value!r} in {annotation!r} is not a JSON scalar")
    plain = [_scalar(value) for value in values]
    kinds = {_SCALARS[type(value)] for value in plain}
    return {"type": kinds.pop(), "enum": plain} if len(kinds) == 1 else {"enum": plain}


def _scalar(value: Any) -> Any:
    """Members of `str` and `int` enums as what they are in JSON."""
    if isinstance(value, enum.Enum):
        return _scalar(value.value)
    return value


def _json_of(value: Any) -> tuple[bool, Any]:
    """Whether a default can be shown in a schema, and as what."""
    if isinstance(value, enum.Enum):
        value = value.value
    if type(value) in (str, int, bool, type(None)):
        return True, value
    if type(value) is float:
        return value - value == 0.0, value  # neither infinite nor NaN
    if type(value) in (list, tuple):
        items = [_json_of(item) for item in value]
        return all(known for known, _ in items), [item for _, item in items]
    if type(value) is dict and all(type(key) is str for key in value):
        pairs = {key: _json_of(item) for key, item in value.items()}
        return all(known for known, _ in pairs.values()), {key: item for key, (_, item) in pairs.items()}
    return False, None
