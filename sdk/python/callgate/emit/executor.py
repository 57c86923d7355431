"""A script's life: request, guard, run, terminal event, result, exit code.

Exit 0 is a completed run, 1 a script that failed, 2 one that could not be
loaded or whose runtime is gone, 3 a bad request.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, Optional, TypeVar

from . import request as requests
from .acks import Acks
from .context import Context
from .request import BadRequest, RunRequest
from .stream import SinkFailedError, Stream

COMPLETED, SCRIPT_ERROR, CRASH, BAD_REQUEST = 0, 1, 2, 3
MESSAGE_CHARS_MAX = 16 * 1024
STACK_CHARS_MAX = 64 * 1024
_MODULE = "__callgate_script__"
_MARK = "__callgate_run__"

Script = Callable[[Context], Any]
_Script = TypeVar("_Script", bound=Script)


class NotLoadable(Exception):
    """There is no script where one was named."""


def run(script: _Script) -> _Script:
    """Mark the function that is a script's run, whatever its name.

    In the file that is the program itself the run begins here, so the function
    stands last in it.
    """
    if script.__module__ == "__main__":
        main(script)
    setattr(script, _MARK, True)
    return script


def main(script: Script) -> NoReturn:
    """Run a function as this process's run, and exit as the contract says.

    Call it before anything is written to standard output: what is there
    already the runtime has taken for a frame.
    """
    sys.exit(execute(lambda: script))


def run_file(path: str, arguments: list[str]) -> int:
    """Run the script in a file; its exit code."""
    return execute(lambda: load(path, arguments))


def execute(find: Callable[[], Script]) -> int:
    """Everything between the start of the process and its exit code."""
    try:
        incoming, outgoing = _take_pipes()
        request, rest = requests.read(incoming)
    except (BadRequest, OSError) as error:
        print(f"callgate.emit: {error}", file=sys.stderr)
        return BAD_REQUEST
    stream = Stream(outgoing, request)
    context = Context(request, stream, Acks(incoming, rest))
    try:
        return _conduct(find, request, stream, context)
    except SinkFailedError as error:
        print(f"callgate.emit: {error}", file=sys.stderr)
        return CRASH
    finally:
        stream.close()


def _conduct(find: Callable[[], Script], request: RunRequest, stream: Stream, context: Context) -> int:
    try:
        script = find()
    except BaseException as error:
        traceback.print_exc()
        stream.result(_outcome("crash", _described(error)), _proxy_used(request, context))
        return CRASH
    failure = _run(script, context)
    if stream.failure is not None:
        raise SinkFailedError(f"nothing reaches the runtime any more: {stream.failure}")
    if stream.terminal is not None:
        if failure is not None:
            # The run had ended; its result stands.
            traceback.print_exception(type(failure), failure, failure.__traceback__)
    elif failure is not None:
        context.run_error(**_described(failure))
    else:
        context.run_complete()
    has_failed = stream.terminal == "run_error"
    stream.result(_outcome("error" if has_failed else "completed", context.error), _proxy_used(request, context))
    return SCRIPT_ERROR if has_failed else COMPLETED


def _run(script: Script, context: Context) -> Optional[BaseException]:
    """What the script ended with, if not well."""
    try:
        given = script(context)
        if hasattr(given, "__await__"):
            # Not for scripts that do without: it is most of what a start costs.
            import asyncio

            asyncio.run(_wait_for(given))
    except SystemExit as error:
        return None if error.code in (None, 0) else error
    except BaseException as error:  # a script may raise anything
        return error
    return None


async def _wait_for(given: Any) -> None:
    await given


def _described(error: BaseException) -> dict[str, str]:
    try:
        message = str(error)
    except Exception:
        message = "an error that does not say what it is"
    # Innermost frames come last, and matter most.
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-STACK_CHARS_MAX:]
    return {
        "error_type": type(error).__name__,
        "message": _sendable(message[:MESSAGE_CHARS_MAX]),
        "stack": _sendable(stack),
    }


def _sendable(text: str) -> str:
    """Without halves of surrogate pairs, as names of files may have."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _outcome(status: str, error: Optional[dict[str, Any]]) -> dict[str, Any]:
    known = error or {}
    return {"status": status, **{name: known.get(name) for name in ("message", "error_type", "stack")}}


def _proxy_used(request: RunRequest, context: Context) -> Optional[dict[str, Any]]:
    return request.proxy.redacted() if request.proxy is not None and context.proxy_was_read else None


def _take_pipes() -> tuple[int, int]:
    """The pipes to the runtime, moved out of reach.

    What is printed, by native code and children too, goes to standard error;
    who reads standard input finds its end. Neither pipe is inherited.
    """
    _fill_standard()
    incoming, outgoing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Lines in the order in which they were written, whichever way.
        sys.stdout.reconfigure(line_buffering=True)
    return incoming, outgoing


def _fill_standard() -> None:
    """A closed standard descriptor would be the number of the next pipe."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return
        os.set_inheritable(fd, True)


def load(path: str, arguments: list[str]) -> Script:
    """The function of a script: the one marked with `@run`, else the one named `run`."""
    path = os.path.abspath(path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise NotLoadable(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
    marked = [value for value in vars(module).values() if getattr(value, _MARK, False)]
    found: Any = marked[0] if marked else getattr(module, "run", None)
    if not callable(found) or found is run:
        raise NotLoadable(f"{path} has no function `run`")
    return found  # type: ignore[no-any-return]
