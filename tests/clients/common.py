"""What the Python drivers share: the operations, on a client that each of them adapts."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, Protocol

UNICODE = "Zoë \U0001d11e \u2028\u2029 日本 \"\\\n\t 👩\u200d🚀 \u007f"
LARGE = "".join(f"{number:07d} " for number in range(125_000))
WAIT_S = 60


class Adapter(Protocol):
    """One client, connected."""

    async def names(self) -> list[str]: ...

    async def call(self, name: str, arguments: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        """`{"text": …, "error": bool}`, or `{"code": …}` for an error of the protocol."""
        ...


async def observe(client: Adapter, version: str, mark: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"version": version}
    seen["list"] = await client.names()
    seen["call"] = await client.call("text_greet", {"name": "Ada"})
    seen["tool_error"] = await client.call("text_fail", {})
    seen["unknown_tool"] = await client.call("text_nothing", {})
    unicode = await client.call("text_greet", {"name": UNICODE})
    seen["unicode"] = json.loads(unicode["text"]) == {"message": f"Hello {UNICODE}"}
    large = await client.call("text_large", {})
    seen["large"] = len(large["text"]) if large["text"] == LARGE else large["text"][:200]
    steps: list[list[Any]] = []

    async def progress(done: float, total: Any, message: Any) -> None:
        steps.append([done, total, message])
        # The tool waits for it: what is seen here is seen while it runs.
        open(f"{mark}-{len(steps)}", "w").close()

    await client.call("text_steps", {"mark": mark}, progress)
    seen["progress"] = steps
    seen["cancel"] = await cancel(client, mark)
    return seen


async def cancel(client: Adapter, mark: str) -> dict[str, Any]:
    """Cancels a call whose tool has begun, waits for the tool's end, and calls again."""
    call = asyncio.ensure_future(client.call("shell_hang", {"mark": mark}))
    await until(lambda: os.path.exists(mark))
    assert runs(mark), "the tool is to be seen"
    call.cancel()
    try:
        await call
        ended = "answered"
    except asyncio.CancelledError:
        ended = "cancelled"
    await until(lambda: not runs(mark))
    after = await client.call("text_greet", {"name": "Ada"})
    return {"ended": ended, "tool": "gone", "after": after}


def runs(mark: str) -> bool:
    """Whether a process has `mark` among its arguments. A tool's own pid may be another's outside."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if mark.encode() in file.read().split(b"\0"):
                    return True
        except OSError:
            pass  # it ended while we looked
    return False


async def until(holds: Any) -> None:
    for _ in range(WAIT_S * 100):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


def told(text: str, is_error: bool) -> dict[str, Any]:
    return {"text": text, "error": is_error}


def main(run: Any) -> None:
    """Runs a driver with its argument and prints what it saw."""
    seen = asyncio.run(run(json.loads(sys.argv[1])))
    print(json.dumps(seen, ensure_ascii=True))
