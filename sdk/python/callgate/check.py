"""Checks JSON values against a JSON Schema (2020-12), or as much of it as tools use.

Serves `Parent`, which checks the arguments of its functions, and `ask`, which
checks answers. The keywords that say something about a value are those of
`_RULES`, beside `$ref` into the same schema; those of `_NOTES` and every name
that begins with `x-` say nothing about it. Any other keyword is a `ValueError`
where the schema is given: a rule that is not checked must not look as if it
were. `pattern` is read as Python reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sized
from typing import Any, Optional

Schema = Any  # an object, or `true` and `false`, which admit everything and nothing
Problem = tuple[str, str]  # where, as `a/0/b`, and what

_NOTES = frozenset(
    "title description default examples deprecated readOnly writeOnly format enumNames "
    "contentEncoding contentMediaType $schema $id $comment $defs".split()
)


class Checker:
    """One schema, read once."""

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._read(schema, "the schema")

    def problem(self, value: Any) -> Optional[Problem]:
        """The first thing that is wrong with `value`."""
        try:
            return self._problem(self._root, value)
        except RecursionError:
            return "", "is nested too deeply to be checked"

    def _problem(self, schema: Schema, value: Any) -> Optional[Problem]:
        if schema is True:
            return None
        if schema is False:
            return "", "is not allowed"
        if "$ref" in schema:
            found = self._problem(self._resolve(schema["$ref"]), value)
            if found:
                return found
        for keyword, rule in schema.items():
            check = _RULES.get(keyword)
            found = check(self, schema, rule, value) if check is not None else None
            if found:
                return found
        return None

    def _resolve(self, reference: Any) -> Schema:
        found = self._root
        steps = str(reference).split("/")
        try:
            if steps.pop(0) != "#":
                raise KeyError
            for step in steps:
                found = found[step.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise ValueError(f"`$ref` {reference!r} leads to nothing in the schema") from None
        return found

    def _read(self, schema: Schema, where: str) -> None:
        """Refuse what can not be checked."""
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise ValueError(f"{where} is neither an object nor a boolean")
        for keyword, rule in schema.items():
            known = keyword in _RULES or keyword in _NOTES or keyword == "$ref"
            if not known and not keyword.startswith("x-"):
                raise ValueError(f"{where}: `{keyword}` can not be checked here")
            fits = _SHAPES.get(keyword)
            if fits is not None and not fits(rule):
                raise ValueError(f"{where}: `{keyword}` is malformed")
        if "$ref" in schema:
            self._resolve(schema["$ref"])
        for keyword in ("properties", "$defs"):
            for name, inner in schema.get(keyword, {}).items():
                self._read(inner, f"{where}/{keyword}/{name}")
        for keyword in ("prefixItems", "anyOf", "oneOf", "allOf"):
            for number, inner in enumerate(schema.get(keyword, [])):
                self._read(inner, f"{where}/{keyword}/{number}")
        for keyword in ("items", "additionalProperties"):
            if keyword in schema:
                self._read(schema[keyword], f"{where}/{keyword}")


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and value == value // 1,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON is: `1` is `1.0`, and not `true`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)


def _under(step: Any, found: Optional[Problem]) -> Optional[Problem]:
    return found and (f"{step}/{found[0]}".rstrip("/"), found[1])


Rule = Callable[[Checker, dict[str, Any], Any, Any], Optional[Problem]]


def _type(_: Checker, __: Any, rule: Any, value: Any) -> Optional[Problem]:
    names = [rule] if isinstance(rule, str) else rule
    if any(_TYPES[name](value) for name in names):
        return None
    return "", f"is not of type {' or '.join(names)}"


def _enum(_: Checker, __: Any, rule: Any, value: Any) -> Optional[Problem]:
    return None if any(_same(word, value) for word in rule) else ("", "is none of the values it may have")


def _const(_: Checker, __: Any, rule: Any, value: Any) -> Optional[Problem]:
    return None if _same(rule, value) else ("", "is not the value it must be")


def _properties(checker: Checker, _: Any, rule: Any, value: Any) -> Optional[Problem]:
    if isinstance(value, dict):
        for name, inner in rule.items():
            found = _under(name, checker._problem(inner, value[name])) if name in value else None
            if found:
                return found
    return None


def _additional(checker: Checker, schema: dict[str, Any], rule: Any, value: Any) -> Optional[Problem]:
    if isinstance(value, dict):
        for name in value:
            if name not in schema.get("properties", ()):
                if rule is False:
                    return name, f"unexpected: {name}"
                found = _under(name, checker._problem(rule, value[name]))
                if found:
                    return found
    return None


def _required(_: Checker, __: Any, rule: Any, value: Any) -> Optional[Problem]:
    missing = [name for name in rule if name not in value] if isinstance(value, dict) else []
    return (missing[0], "is required") if missing else None


def _items(checker: Checker, schema: dict[str, Any], rule: Any, value: Any) -> Optional[Problem]:
    if isinstance(value, list):
        for place in range(len(schema.get("prefixItems", ())), len(value)):
            found = _under(place, checker._problem(rule, value[place]))
            if found:
                return found
    return None


def _prefix_items(checker: Checker, _: Any, rule: Any, value: Any) -> Optional[Problem]:
    if isinstance(value, list):
        for place, (inner, item) in enumerate(zip(rule, value)):
            found = _under(place, checker._problem(inner, item))
            if found:
                return found
    return None


def _unique(_: Checker, __: Any, rule: Any, value: Any) -> Optional[Problem]:
    if rule and isinstance(value, list):
        for place, item in enumerate(value):
            if any(_same(item, other) for other in value[:place]):
                return str(place), "is there twice"
    return None


def _pattern(_: Checker, __: Any, rule: Any, value: Any) -> Optional[Problem]:
    if isinstance(value, str) and not re.search(rule, value):
        return "", f"does not match {rule}"
    return None


def _any_of(checker: Checker, _: Any, rule: Any, value: Any) -> Optional[Problem]:
    problems = [checker._problem(inner, value) for inner in rule]
    return None if None in problems else ("", "is nothing of what it may be")


def _one_of(checker: Checker, _: Any, rule: Any, value: Any) -> Optional[Problem]:
    fits = sum(checker._problem(inner, value) is None for inner in rule)
    return None if fits == 1 else ("", f"is {fits} of the things of which it must be one")


def _all_of(checker: Checker, _: Any, rule: Any, value: Any) -> Optional[Problem]:
    found = (checker._problem(inner, value) for inner in rule)
    return next((problem for problem in found if problem), None)


def _bound(measure: Callable[[Any], Any], holds: Callable[[Any, Any], bool], words: str) -> Rule:
    """A rule that compares a number, of a value that has one, with its own."""

    def check(_: Checker, __: Any, rule: Any, value: Any) -> Optional[Problem]:
        size = measure(value)
        return None if size is None or holds(size, rule) else ("", f"{words} {rule}")

    return check


def _length(*kinds: type[Sized]) -> Callable[[Any], Optional[int]]:
    return lambda value: len(value) if isinstance(value, kinds) else None


def _number(value: Any) -> Any:
    return value if _is_number(value) else None


def _at_least(size: Any, bound: Any) -> bool:
    return bool(size >= bound)


def _at_most(size: Any, bound: Any) -> bool:
    return bool(size <= bound)


_RULES: dict[str, Rule] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "prefixItems": _prefix_items,
    "items": _items,
    "uniqueItems": _unique,
    "pattern": _pattern,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "minimum": _bound(_number, _at_least, "is less than"),
    "maximum": _bound(_number, _at_most, "is more than"),
    "exclusiveMinimum": _bound(_number, lambda size, bound: bool(size > bound), "is not more than"),
    "exclusiveMaximum": _bound(_number, lambda size, bound: bool(size < bound), "is not less than"),
    "minLength": _bound(_length(str), _at_least, "is shorter than"),
    "maxLength": _bound(_length(str), _at_most, "is longer than"),
    "minItems": _bound(_length(list), _at_least, "has fewer items than"),
    "maxItems": _bound(_length(list), _at_most, "has more items than"),
    "minProperties": _bound(_length(dict), _at_least, "has fewer members than"),
    "maxProperties": _bound(_length(dict), _at_most, "has more members than"),
}


def _is_type(rule: Any) -> bool:
    names = [rule] if isinstance(rule, str) else rule
    return isinstance(names, list) and bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_size(rule: Any) -> bool:
    return _TYPES["integer"](rule) and bool(rule >= 0)


def _is_list(rule: Any) -> bool:
    return isinstance(rule, list) and bool(rule)


def _is_pattern(rule: Any) -> bool:
    try:
        re.compile(rule)
    except (re.error, TypeError):
        return False
    return True


_SHAPES: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "enum": _is_list,
    "required": lambda rule: isinstance(rule, list) and all(isinstance(name, str) for name in rule),
    "pattern": _is_pattern,
    **dict.fromkeys(("properties", "$defs"), lambda rule: isinstance(rule, dict)),
    **dict.fromkeys(("prefixItems", "anyOf", "oneOf", "allOf"), _is_list),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_size),
}
