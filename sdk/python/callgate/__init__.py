"""Callgate for Python: declare tools, run them, call them.

    tool              declare a tool from a typed function
    progress, log     what a running tool says before its answer
    ask               what a running tool asks its caller's user
    dispatch          one call, one process, decoded output or a failure dict
    ToolhostClient    many calls over one persistent toolhost
    Parent            functions of this program as tools of MCP clients

Names are loaded on first use, so that a worker which needs only `tool` pays
for nothing else. POSIX only, standard library only.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ask import Declined as Declined
    from .ask import ask as ask
    from .bridge import Parent as Parent
    from .client import Call as Call
    from .client import Reply as Reply
    from .client import ToolhostClient as ToolhostClient
    from .client import ToolhostDied as ToolhostDied
    from .client import ToolhostError as ToolhostError
    from .client import ToolhostProtocolError as ToolhostProtocolError
    from .client import ToolhostTimeout as ToolhostTimeout
    from .client import ToolhostUnavailable as ToolhostUnavailable
    from .dispatch import DispatchFailure as DispatchFailure
    from .dispatch import dispatch as dispatch
    from .dispatch import run_machina_toolhost as run_machina_toolhost
    from .report import log as log
    from .report import progress as progress
    from .tool import tool as tool

__version__ = "0.1.0"

_HOMES = {
    "Call": "client",
    "Declined": "ask",
    "Parent": "bridge",
    "Reply": "client",
    "ToolhostClient": "client",
    "ToolhostDied": "client",
    "ToolhostError": "client",
    "ToolhostProtocolError": "client",
    "ToolhostTimeout": "client",
    "ToolhostUnavailable": "client",
    "DispatchFailure": "dispatch",
    "ask": "ask",
    "dispatch": "dispatch",
    "run_machina_toolhost": "dispatch",
    "log": "report",
    "progress": "report",
    "tool": "tool",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = __import__(f"{__name__}.{home}", fromlist=[name])
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(type(sys)):  # type: ignore[misc]
    """Keeps `callgate.tool` and `callgate.dispatch` the functions.

    The import system binds a loaded submodule to its package under its own
    name, which here is also the function's; whoever imports
    `callgate.tool` first must not change what `from callgate import tool` means.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, type(sys)):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
