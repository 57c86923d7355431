"""What a running tool says to whoever waits for it, before its answer.

Outside a worker, in a test of the function say, nobody waits and nothing
happens.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def progress(done: float, total: Optional[float] = None, message: Optional[str] = None) -> None:
    """Tell how far the call has come.

    `done` grows from one report to the next, up to `total` where that is
    known. Each report gives the call its timeout anew, up to `timeout_max_ms`.
    """
    report: dict[str, Any] = {"progress": number("done", done)}
    if total is not None:
        report["total"] = number("total", total)
    if message is not None:
        report["message"] = str(message)
    tell("progress", report)


def log(level: str, data: Any, logger: Optional[str] = None) -> None:
    """Tell something, of one of the eight `LEVELS`, to whoever watches the call."""
    if level not in LEVELS:
        raise ValueError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
    report: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        report["logger"] = str(logger)
    tell("log", report)


def number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    return value


def tell(kind: str, report: dict[str, Any]) -> None:
    # The worker is no module of ours: it runs as a program, and imports none of us.
    worker: Any = sys.modules.get("callgate._running")
    if worker is not None:
        worker.tell(kind, report)
