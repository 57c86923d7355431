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
from collections.abc import Callable, Iterable, Mapping
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


class _Entry(TypedDict):
    kind: str
    entry: str


class Runner(_Entry, total=False):
    """How it is carried out."""

    env: dict[str, str]
    limits: dict[str, Any]
    pool: dict[str, Any]
    preload: list[str]


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
    title: str
    aliases: list[str]
    replay_inputs: list[str]
    timeout_max_ms: int
    concurrency_max: int
    rate_limit: dict[str, Any]
    tasks: str
    gives_content: bool
    writes: list[str]
    reads: list[str]
    code: list[str]
    network: Union[bool, dict[str, list[str]]]
    guarantees: dict[str, Any]
    purity: str
    sandbox: Union[bool, str]
    ipc: bool
    isolation: str
    allow_unsafe_execution: bool


@overload
def tool(function: Callable[P, R_co], /) -> Tool[P, R_co]: ...
@overload
def tool(
    *,
    name: Optional[str] = None,
    aid: Optional[str] = None,
    description: Optional[str] = None,
    title: Optional[str] = None,
    tier: Optional[int] = None,
    tags: Iterable[str] = (),
    aliases: Iterable[str] = (),
    deterministic: bool = False,
    idempotent: bool = False,
    side_effects: Iterable[str] = (),
    replay_inputs: Iterable[str] = (),
    timeout_ms: Optional[int] = None,
    timeout_max_ms: Optional[int] = None,
    rate_limit: Optional[Mapping[str, Any]] = None,
    concurrency_max: Optional[int] = None,
    tasks: Optional[str] = None,
    slots: bool = False,
    gives_content: bool = False,
    writes: Optional[Iterable[str]] = None,
    reads: Optional[Iterable[str]] = None,
    code: Optional[Iterable[str]] = None,
    network: Union[bool, Iterable[str], None] = None,
    env: Optional[Mapping[str, str]] = None,
    limits: Optional[Mapping[str, Any]] = None,
    pool: Optional[Mapping[str, Any]] = None,
    preload: Optional[Iterable[str]] = None,
    guarantees: Optional[Mapping[str, Any]] = None,
    purity: Optional[str] = None,
    sandbox: Union[bool, str, None] = None,
    ipc: Optional[bool] = None,
    isolation: Optional[str] = None,
    allow_unsafe_execution: Optional[bool] = None,
) -> Callable[[Callable[P, R_co]], Tool[P, R_co]]: ...
def tool(function: Optional[Callable[..., Any]] = None, /, **options: Any) -> Any:
    """Declare a tool. Use it bare (`@tool`) or with options (`@tool(tier=1)`).

    What a tool asks for here (`writes`, `network`, `env` and the like) it has once
    `callgate trust` has shown it to the owner, and not before.

    Args:
        name: the tool's name; the function's unless given
        aid: its action id; made from the name unless given
        description: the docstring's first paragraph unless given
        title: a name for people
        tier: how dangerous it is, 0 to 3; the gate derives it from the side effects unless given
        tags: words to select it by
        aliases: other names
        deterministic: equal inputs give equal outputs
        idempotent: running it twice does no more than running it once
        side_effects: what it touches, such as `filesystem_write`
        replay_inputs: what a strict replay needs
        timeout_ms: how long one call may take
        timeout_max_ms: how long progress may keep a call alive
        rate_limit: `{"per_second": 5, "burst": 10}`, for each caller
        concurrency_max: calls at the same time; further ones are refused
        tasks: `"allowed"`, `"required"` or `"forbidden"`, for MCP
        slots: whether it takes an argument `slots`, a dict from slot number to artifact that it may change
        gives_content: its output is `{"content": [...]}` as MCP has it
        writes: paths inside the workspace it may write
        reads: further paths it may read
        code: files and folders (`lib/**`) of the workspace it imports, beside its own package
        network: True, or the hosts it may reach, as `["api.example.com:443"]`
        env: its variables; `${NAME}` takes one of the gate's
        limits: such as `{"memory_bytes": 268435456}`
        pool: how its workers are kept
        preload: modules that are imported once where `isolation` is `call`
        guarantees: such as `{"no_subprocess": True}`
        purity: `"pure"` or `"impure"`
        sandbox: `"strict"`, or False for none
        ipc: sockets, memory and processes of its own
        isolation: `"worker"`, `"call"` or `"cold"`
        allow_unsafe_execution: run even where a promise cannot be kept
    """
    unknown = [key for key in options if key not in _OPTIONS]
    if unknown:
        raise TypeError(f"tool() has no option {unknown[0]!r}")
    said = {key: _OPTIONS[key](key, value) for key, value in options.items() if value is not None}

    def declare(function: Callable[..., Any]) -> Any:
        parameters = _Parameters(function, said.get("slots", False))
        words = docstring.parse(function.__doc__)
        spec: dict[str, Any] = {"name": function.__name__, "description": words.summary}
        spec.update((key, value) for key, value in said.items() if key not in _OF_RUNNER and _is_said(key, value))
        spec.setdefault("aid", aid_of(spec["name"]))
        spec["input_schema"] = parameters.schema(words.params)
        output = parameters.hints.get("return")
        if schema.is_dataclass(output) or schema.is_typed_dict(output):
            spec["output_schema"] = schema.of_type(output)
        runner = {"kind": "python", "entry": f"{function.__module__}:{function.__qualname__}"}
        spec["runner"] = {**runner, **{key: said[key] for key in _OF_RUNNER if key in said}}
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


def _is_said(key: str, value: Any) -> bool:
    """What says no more than the absence of it is left out; what may be granted is kept."""
    return key in _GRANTS or value not in (False, [])


def _tier(key: str, tier: Any) -> int:
    if type(tier) is not int or not 0 <= tier <= TIER_MAX:
        raise ValueError(f"a tier is an integer from 0 to {TIER_MAX}, not {tier!r}")
    return tier


def _count(key: str, value: Any) -> int:
    if type(value) is not int or value <= 0:
        raise ValueError(f"{key} is a positive integer, not {value!r}")
    return value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key} is a text, not {value!r}")
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{key} is True or False, not {value!r}")
    return value


def _texts(key: str, value: Any) -> list[str]:
    texts = value if isinstance(value, str) else list(value)
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{key} is a list of texts, not {value!r}")
    return texts


def _table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{key} is a table, not {value!r}")
    return dict(value)


def _env(key: str, value: Any) -> dict[str, str]:
    return {_text(key, name): _text(key, text) for name, text in _table(key, value).items()}


def _network(key: str, value: Any) -> Union[bool, dict[str, list[str]]]:
    if isinstance(value, bool):
        return value
    return {"allow": _texts(key, value["allow"] if isinstance(value, Mapping) else value)}


def _sandbox(key: str, value: Any) -> Union[bool, str]:
    if value != "strict" and not isinstance(value, bool):
        raise ValueError(f"sandbox is True, False or 'strict', not {value!r}")
    return value  # type: ignore[no-any-return]


_OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("name", "aid", "description", "title", "tasks", "purity", "isolation"), _text),
    **dict.fromkeys(("tags", "aliases", "side_effects", "replay_inputs"), _texts),
    **dict.fromkeys(("writes", "reads", "code", "preload"), _texts),
    **dict.fromkeys(("deterministic", "idempotent", "slots", "gives_content", "ipc"), _flag),
    **dict.fromkeys(("timeout_ms", "timeout_max_ms", "concurrency_max"), _count),
    **dict.fromkeys(("rate_limit", "limits", "pool", "guarantees"), _table),
    "allow_unsafe_execution": _flag,
    "env": _env,
    "network": _network,
    "sandbox": _sandbox,
    "tier": _tier,
}
_OF_RUNNER = ("env", "limits", "pool", "preload")
_GRANTS = ("writes", "reads", "code", "network", "guarantees", "sandbox", "ipc", "isolation", "allow_unsafe_execution")
