"""`@tool`: declare a tool from a typed function.

    @tool(tier=1, side_effects=["filesystem_write"])
    def append_line(line: str, times: int = 1) -> Appended:
        '''Appends a line to the notes.

        Args:
            line: what to append
            times: how often
        '''

The function stays what it was. It gains `spec`, the tool's definition with the
schemas its annotations imply, and a second way in for the worker, which calls
it with a payload. Nothing is registered anywhere and no input is checked here:
the gate does both, from the definition.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Optional, TypedDict, TypeVar, Union, overload

from . import docstring, schema
from .convert import Mismatch, converter

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import ParamSpec

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class Tool(Protocol[P, R_co]):
        """A function declared with `@tool`."""

        spec: ToolSpec
        __name__: str

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


TIER_MAX = 3
_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")
_VARARGS, _VARKEYWORDS = 0x04, 0x08  # code flags


class Runner(TypedDict):
    kind: str
    entry: str


class _Always(TypedDict):
    name: str
    aid: str
    description: str
    input_schema: schema.Schema
    runner: Runner


class ToolSpec(_Always, total=False):
    """A tool's definition, under the names that `callgate.toml` uses."""

    output_schema: schema.Schema
    tier: int
    tags: list[str]
    deterministic: bool
    idempotent: bool
    side_effects: list[str]
    timeout_ms: int
    slots: bool


@overload
def tool(function: Callable[P, R_co], /) -> Tool[P, R_co]: ...
@overload
def tool(
    *,
    name: Optional[str] = None,
    aid: Optional[str] = None,
    description: Optional[str] = None,
    tier: Optional[int] = None,
    tags: Iterable[str] = (),
    deterministic: bool = False,
    idempotent: bool = False,
    side_effects: Iterable[str] = (),
    timeout_ms: Optional[int] = None,
    slots: bool = False,
) -> Callable[[Callable[P, R_co]], Tool[P, R_co]]: ...
def tool(
    function: Optional[Callable[..., Any]] = None,
    /,
    *,
    name: Optional[str] = None,
    aid: Optional[str] = None,
    description: Optional[str] = None,
    tier: Optional[int] = None,
    tags: Iterable[str] = (),
    deterministic: bool = False,
    idempotent: bool = False,
    side_effects: Iterable[str] = (),
    timeout_ms: Optional[int] = None,
    slots: bool = False,
) -> Any:
    """Declare a tool. Use it bare (`@tool`) or with options (`@tool(tier=1)`).

    Args:
        name: the tool's name; the function's unless given
        aid: its action id; made from the name unless given
        description: the docstring's first paragraph unless given
        tier: how dangerous it is, 0 to 3; the gate derives it from the side effects unless given
        tags: words to select it by
        deterministic: equal inputs give equal outputs
        idempotent: running it twice does no more than running it once
        side_effects: what it touches, such as `filesystem_write`
        timeout_ms: how long one call may take
        slots: whether it takes an argument `slots`, a dict from slot number to artifact that it may change
    """

    def declare(function: Callable[..., Any]) -> Any:
        parameters = _Parameters(function, slots)
        words = docstring.parse(function.__doc__)
        tool_name = name if name is not None else function.__name__
        spec: ToolSpec = {
            "name": tool_name,
            "aid": aid if aid is not None else aid_of(tool_name),
            "description": words.summary if description is None else description,
            "input_schema": parameters.schema(words.params),
            "runner": {"kind": "python", "entry": f"{function.__module__}:{function.__qualname__}"},
        }
        output = parameters.hints.get("return")
        if schema.is_dataclass(output) or schema.is_typed_dict(output):
            spec["output_schema"] = schema.of_type(output)
        if tier is not None:
            spec["tier"] = _checked_tier(tier)
        if timeout_ms is not None:
            spec["timeout_ms"] = _checked_timeout(timeout_ms)
        for key, listed in (("tags", list(tags)), ("side_effects", list(side_effects))):
            if listed:
                spec[key] = listed  # type: ignore[literal-required]
        for key, said in (("deterministic", deterministic), ("idempotent", idempotent), ("slots", slots)):
            if said:
                spec[key] = True  # type: ignore[literal-required]
        function.spec = spec  # type: ignore[attr-defined]
        function.__callgate_call__ = parameters.binder(function)  # type: ignore[attr-defined]
        return function

    return declare if function is None else declare(function)


def aid_of(name: str) -> str:
    """The action id of a tool that was given none: `files/read` is `AID.FILES.READ.v1`."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a tool's name is made of letters, digits and `_ . - /`, unlike {name!r}")
    segments = re.sub(r"[^A-Z0-9_/]", "_", name.upper()).split("/")
    if len(segments) == 1:
        segments.insert(0, "TOOL")
    return ".".join(["AID", *segments, "v1"])


class _Parameters:
    """A function's parameters: as a schema, and as a way to call it with a payload."""

    def __init__(self, function: Callable[..., Any], slots: bool) -> None:
        code = function.__code__
        if code.co_flags & (_VARARGS | _VARKEYWORDS) or code.co_posonlyargcount:
            raise TypeError(f"{function.__name__}: a tool's parameters must all have names to pass them by")
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        self.takes_slots = slots
        if slots:
            if "slots" not in names:
                raise TypeError(f"{function.__name__}: a tool with slots takes an argument named `slots`")
            names.remove("slots")
        self.names = names
        self.hints: dict[str, Any] = typing.get_type_hints(function, include_extras=True)
        self.defaults = _defaults(function)

    def schema(self, descriptions: dict[str, str]) -> schema.Schema:
        members = {
            name: schema.Member(
                self.hints.get(name, Any),
                required=name not in self.defaults,
                default=self.defaults.get(name, ...),
                description=descriptions.get(name, ""),
            )
            for name in self.names
        }
        return schema.of_members(members)

    def binder(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What the worker calls: the payload's members become keyword arguments."""
        found = {name: converter(self.hints.get(name, Any)) for name in self.names}
        converters = {name: convert for name, convert in found.items() if convert is not None}
        takes_slots = self.takes_slots

        def call(payload: Any, slots: Optional[dict[int, Any]] = None) -> Any:
            if not isinstance(payload, dict):
                raise ValueError("the input is not an object")
            for name, convert in converters.items():
                if name in payload:
                    try:
                        payload[name] = convert(payload[name])
                    except Mismatch as mismatch:
                        raise ValueError(f"{name}{mismatch.path}: {mismatch.reason}") from None
            if takes_slots:
                return function(**payload, slots={} if slots is None else slots)
            return function(**payload)

        return call


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    code = function.__code__
    positional = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(positional) : code.co_argcount]
    return {**dict(zip(names, positional)), **(function.__kwdefaults__ or {})}


def _checked_tier(tier: int) -> int:
    if type(tier) is not int or not 0 <= tier <= TIER_MAX:
        raise ValueError(f"a tier is an integer from 0 to {TIER_MAX}, not {tier!r}")
    return tier


def _checked_timeout(timeout_ms: int) -> int:
    if type(timeout_ms) is not int or timeout_ms <= 0:
        raise ValueError(f"timeout_ms is a positive integer, not {timeout_ms!r}")
    return timeout_ms
