"""`Parent`: functions of this program as tools of MCP clients.

    parent = Parent()

    @parent.tool
    def add(a: int, b: int) -> int:
        '''Adds two numbers.'''
        return a + b

    with parent:
        print(parent.client_entry())    # what an MCP client needs to start the bridge
        serve_forever()

A parent listens on a Unix socket of its own and lists its functions in a schema
file; an MCP client starts `callgate bridge SOCKET SCHEMA` and calls them. Each
connection has a thread and carries one call at a time. Contract
`docs/contracts/bridge.md`.

A parent has the same socket and file at each of its starts, and one with a name
at the starts of other processes, too: a program that was killed and comes back
under its name is reached by the bridges that were there before.

Socket and file are removed by `stop`, at the end of the `with`, at the end of
the program and on SIGTERM and SIGHUP, where nothing else handles those and the
main thread starts the parent. What a killed process leaves, or one that ends by
`os._exit`, is swept by the next parent: each holds a lock while it lives, so a
lock that can be taken is a dead one's. The Rust SDK uses the same folder and
rules. POSIX only.
"""

from __future__ import annotations

import atexit
import fcntl
import inspect
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar

from .check import Checker
from .worker import as_json

if TYPE_CHECKING:
    import asyncio

MESSAGE_BYTES_MAX = 10_485_760
CONNECTIONS_MAX = 64
DEPTH_MAX = 128
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_PREFIX = struct.Struct(">I")
_READ_BYTES = 64 * 1024
_FAREWELL_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

F = TypeVar("F", bound=Callable[..., Any])


class IPCError(Exception):
    """What came is no message of this protocol."""


class IPCMessageSizeError(IPCError):
    """A message is larger than the protocol allows."""


class TakenError(RuntimeError):
    """Another parent that lives has the name."""


class ToolNotFoundError(Exception):
    """No function of that name is served."""


class _Gone(Exception):
    """The other side has closed the connection."""


class _Tool(NamedTuple):
    name: str
    description: str
    input_schema: dict[str, Any]
    call: Callable[[dict[str, Any]], Any]
    checker: Checker


class Parent:
    """Functions, served from `start` to `stop`."""

    def __init__(self, folder: Optional[str] = None, *, name: Optional[str] = None) -> None:
        """`folder` is for parents only, made 0700 if it is not there; the user's own unless given.

        With a `name` (1 to 64 letters, digits, `-` and `_`) socket and file are
        at the same paths whenever a parent of this name is started. One living
        process at a time has a name.
        """
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(f"name {name!r}: 1 to 64 letters, digits, `-` and `_` make one")
        self._folder = folder if folder is not None else _usual_folder()
        self._name = name
        # In place of a name: made at the first start of a process, kept for the next.
        self._random: Optional[tuple[int, str]] = None
        self._tools: dict[str, _Tool] = {}
        self._serving: Optional[_Serving] = None
        # Re-entrant, because a signal may stop us while we start or stop.
        self._lock = threading.RLock()

    def tool(self, function: F) -> F:
        """Register a function, as a decorator: annotations and docstring say what it is."""
        self.register(function)
        return function

    def register(
        self,
        function: Callable[..., Any],
        *,
        name: Optional[str] = None,
        description: Optional[str] = None,
        input_schema: Optional[dict[str, Any]] = None,
    ) -> None:
        """Register a function, plain or async.

        With an `input_schema` it takes one dict, the arguments as they came.
        Without, they become its keyword arguments, converted by its
        annotations, which make the schema, too. Arguments that do not fit the
        schema do not reach it. A schema with a keyword that `callgate.check`
        does not know is a `ValueError`.
        """
        if input_schema is not None:
            words = inspect.getdoc(function) or ""
            summary = words.split("\n\n")[0] if description is None else description
            found = _Tool(name or function.__name__, summary, input_schema, function, Checker(input_schema))
        else:
            from .tool import tool

            declared: Any = function if hasattr(function, "spec") else tool(function)
            spec = declared.spec
            summary = spec["description"] if description is None else description
            schema = spec["input_schema"]
            found = _Tool(name or spec["name"], summary, schema, declared.__callgate_call__, Checker(schema))
        with self._lock:
            if self._serving is not None:
                raise RuntimeError("register functions before the parent starts: its schema file is written then")
            self._tools[found.name] = found

    def start(self) -> None:
        """Sweep what dead parents left, make socket and file, and serve them.

        Async functions run in the event loop that is running here, if there is
        one, and in a loop of the parent's own otherwise. A `TakenError` says
        that another parent of this name lives.
        """
        with self._lock:
            if self._serving is not None:
                raise RuntimeError("the parent is started already")
            if self._random is None or self._random[0] != os.getpid():
                # A forked child is another program, and may start its copy beside ours.
                self._random = os.getpid(), os.urandom(8).hex()
            self._serving = _Serving(_Place(self._folder, self._name or self._random[1]), dict(self._tools))
            atexit.register(self.stop)
            _watch_signals(self)

    def stop(self) -> None:
        """Remove socket and file and close the connections. Does nothing the second time."""
        with self._lock:
            serving, self._serving = self._serving, None
        if serving is not None:
            serving.stop()
            atexit.unregister(self.stop)
            _forget(self)

    def __enter__(self) -> Parent:
        if self._serving is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def socket(self) -> str:
        """Where bridges connect."""
        return self._place().socket

    @property
    def schema(self) -> str:
        """The file that lists the functions."""
        return self._place().schema

    def client_entry(self, program: str = "callgate") -> dict[str, Any]:
        """The entry an MCP client needs to start the bridge."""
        return {"type": "stdio", "command": program, "args": ["bridge", self.socket, self.schema]}

    def _place(self) -> _Place:
        if self._name is not None:
            return _Place(self._folder, self._name)
        if self._random is None:
            raise RuntimeError("the parent was not started: it has no place yet")
        return _Place(self._folder, self._random[1])

    def _abandon(self) -> None:
        """In a forked child: the parent is served elsewhere."""
        self._lock = threading.RLock()
        serving, self._serving = self._serving, None
        if serving is not None:
            atexit.unregister(self.stop)
            serving.abandon()


class _Serving:
    """A parent between start and stop."""

    def __init__(self, place: _Place, tools: dict[str, _Tool]) -> None:
        self.tools = tools
        self._loops = _Loops()
        self._lock = threading.Lock()
        self._streams: set[socket.socket] = set()
        self._stopped = False
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.files = _Files(place)
        try:
            self.files.write_schema(list(tools.values()))
            self.listener = self.files.bind()
            try:
                threading.Thread(target=self._accept, name="callgate-parent", daemon=True).start()
            except BaseException:
                self.listener.close()
                raise
        except BaseException:
            self.files.remove()
            raise

    def stop(self) -> None:
        # The files first: whatever else goes wrong, they are gone.
        self.files.remove()
        with self._lock:
            self._stopped = True
            streams = list(self._streams)
        for stream in [self.listener, *streams]:
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._loops.stop()

    def abandon(self) -> None:
        """Close what a forked child has of it; a `shutdown` would be felt by all who have it."""
        for stream in [self.listener, *self._streams]:
            stream.close()
        self.files.close()

    def _accept(self) -> None:
        with self.listener:
            while True:
                # Further connections wait to be accepted.
                self._places.acquire()
                try:
                    stream, _ = self.listener.accept()
                except OSError:
                    if self._stopped:
                        return
                    # Out of descriptors or the like: others may finish meanwhile.
                    self._places.release()
                    select.select([], [], [], 0.05)
                    continue
                with self._lock:
                    if self._stopped or not _is_ours(stream):
                        stream.close()
                        self._places.release()
                        continue
                    self._streams.add(stream)
                threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        try:
            with stream:
                self._converse(stream)
        except (_Gone, OSError):
            pass  # a connection that breaks is its bridge's business
        finally:
            with self._lock:
                self._streams.discard(stream)
            self._places.release()

    def _converse(self, stream: socket.socket) -> None:
        while True:
            try:
                payload = _receive(stream)
            except IPCError as error:
                # What follows a bad frame cannot be read. B-5.
                stream.sendall(_frame(_error(error)))
                return
            stream.sendall(self._answer(payload, stream))

    def _answer(self, payload: bytes, stream: socket.socket) -> bytes:
        try:
            name, arguments = _read_call(payload)
            found = self.tools.get(name)
            if found is None:
                raise ToolNotFoundError(f"Unknown tool: {name}")
            problem = found.checker.problem(arguments)
            if problem is not None:
                # The gate's words for the same.
                raise ValueError(": ".join(["bad input", *filter(None, problem)]))
            given = found.call(arguments)
            if inspect.isawaitable(given):
                given = self._loops.wait(given, stream)
            return _result_frame(given)
        except _Gone:
            raise
        except BaseException as error:  # a function may raise anything, `SystemExit` too
            return _frame(_error(error))


class _Loops:
    """Where async functions run."""

    def __init__(self) -> None:
        self._theirs: Optional[asyncio.AbstractEventLoop] = None
        # Where it was never imported, no loop runs.
        loaded = sys.modules.get("asyncio")
        if loaded is not None:
            try:
                self._theirs = loaded.get_running_loop()
            except RuntimeError:
                pass
        self._own: Optional[asyncio.AbstractEventLoop] = None
        self._thread = threading.current_thread()
        self._lock = threading.Lock()

    def wait(self, given: Any, stream: socket.socket) -> Any:
        """Wait for an awaitable; cancel it when the bridge goes away."""
        import asyncio

        async def run() -> Any:
            return await given

        future = asyncio.run_coroutine_threadsafe(run(), self._loop())
        reader, writer = socket.socketpair()
        with reader, writer:
            future.add_done_callback(lambda _: _wake(writer))
            poll = select.poll()
            poll.register(stream, 0)  # only a hang-up: a frame sent too early waits its turn
            poll.register(reader, select.POLLIN)
            while not future.done():
                if any(fd == stream.fileno() for fd, _ in poll.poll()) and not future.done():
                    future.cancel()
                    raise _Gone
        return future.result()

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._theirs is not None and not self._theirs.is_closed():
            return self._theirs
        import asyncio

        with self._lock:
            if self._own is None:
                self._own = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._own,), name="callgate-loop", daemon=True)
                self._thread.start()
            return self._own

    def stop(self) -> None:
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.call_soon_threadsafe(own.stop)
            # A function that will not be cancelled is not waited for.
            if threading.current_thread() is not self._thread:
                self._thread.join(_FAREWELL_S)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """A loop of our own, until it is stopped; what still runs in it is cancelled."""
    import asyncio

    async def cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        loop.run_forever()
        loop.run_until_complete(cancel_all())
    finally:
        loop.close()


def _wake(writer: socket.socket) -> None:
    try:
        writer.send(b"x")
    except OSError:
        pass  # nobody waits any more


class _Place:
    """Where a parent's things are."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = folder, name
        base = os.path.join(folder, name)
        self.socket, self.schema, self.lock = base + ".sock", base + ".json", base + ".lock"

    def clear(self) -> None:
        _remove(self.socket, self.schema)

    def remove(self) -> None:
        """For whoever holds the lock. That goes last: as long as it is there, the rest can be found."""
        _remove(self.socket, self.schema, self.lock)


class _Files:
    """A parent's lock, schema file and socket."""

    def __init__(self, place: _Place) -> None:
        _make_private(place.folder)
        with _alone(place.folder):
            _sweep(place.folder)
            self._fd = _own(place)
        self._place = place
        place.clear()

    def write_schema(self, tools: list[_Tool]) -> None:
        listed = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools]
        fd = os.open(self._place.schema, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(listed, file, indent=2, allow_nan=False)

    def bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A socket's file takes the mode its descriptor had: 0600 from the start. B-7.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(self._place.socket)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
        return listener

    def remove(self) -> None:
        self._place.remove()
        self.close()

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """No other parent starts in the folder meanwhile.

    So a lock that can not be taken is an owner's, and never that of somebody who
    looks whether it can be.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # Said, because a forked child may have the same descriptor.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _own(place: _Place) -> int:
    """The descriptor of a place's lock, taken."""
    while True:
        fd = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not _take(fd):
                owner = os.read(fd, 20).decode("ascii", "replace").strip()
                raise TakenError(f"`{place.name}` is taken: {'process ' + owner if owner else 'a living process'} serves there")
            # Its owner may have removed it before it let go of it.
            if os.fstat(fd).st_nlink > 0:
                os.ftruncate(fd, 0)
                os.write(fd, b"%d\n" % os.getpid())
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _usual_folder() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return os.path.join(runtime, "callgate-parents")
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"callgate-parents-{os.geteuid()}")


def _make_private(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700)
    except FileExistsError:
        pass
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} must be a folder of yours with mode 0700")


def _sweep(folder: str) -> None:
    """Remove what belongs to parents that are dead, with nobody starting meanwhile."""
    for name in os.listdir(folder):
        base, ending = os.path.splitext(os.path.join(folder, name))
        if ending != ".lock":
            continue
        try:
            fd = os.open(base + ending, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _take(fd):
                _Place(folder, os.path.basename(base)).remove()
        finally:
            os.close(fd)


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove(*paths: str) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except OSError:
            pass


def _is_ours(stream: socket.socket) -> bool:
    """Whether the other side is a process of the same user."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True  # the folder's mode keeps others out
    _, uid, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, option, 12))
    return bool(uid == os.geteuid())


def _receive(stream: socket.socket) -> bytes:
    prefix = _exactly(stream, _PREFIX.size, first=True)
    (length,) = _PREFIX.unpack(prefix)
    if length > MESSAGE_BYTES_MAX:
        raise IPCMessageSizeError(f"message of {length} bytes exceeds {MESSAGE_BYTES_MAX} bytes")
    return _exactly(stream, length)


def _exactly(stream: socket.socket, length: int, first: bool = False) -> bytes:
    """That many bytes. Memory grows with what came, not with what was promised."""
    parts, missing = [], length
    while missing:
        part = stream.recv(min(missing, _READ_BYTES))
        if not part:
            if first and missing == length:
                raise _Gone
            raise IPCError(f"the stream ended inside a frame: {missing} bytes are missing")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _read_call(payload: bytes) -> tuple[str, dict[str, Any]]:
    try:
        message = _parse(payload)
    except (ValueError, RecursionError) as error:
        raise IPCError(f"Invalid JSON: {error}") from None
    if not isinstance(message, dict):
        raise IPCError("Invalid message: expected dict")
    if message.get("method") != "call_tool":
        raise ValueError(f"Unknown method: {message.get('method')}")
    params = message.get("params")
    if not isinstance(params, dict):
        raise ValueError("Invalid params: expected dict")
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str):
        raise ValueError("Invalid tool name: expected string")
    if not isinstance(arguments, dict):
        raise ValueError("Invalid arguments: expected dict")
    return name, arguments


def _parse(payload: bytes) -> Any:
    """Strict JSON, as on every wire (G-1)."""
    text = payload.decode("utf-8")
    value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once)
    if text.count("[") + text.count("{") > DEPTH_MAX and _depth(value) > DEPTH_MAX:
        raise ValueError("nested too deep")
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate raises
    return value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("number beyond a double")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("duplicate key")
    return members


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _result_frame(given: Any) -> bytes:
    """The frame of what a function gave, in the gate's words where there is none."""
    try:
        return _frame({"result": _result(given)})
    except IPCMessageSizeError:
        raise IPCMessageSizeError(f"output exceeds {MESSAGE_BYTES_MAX >> 20} MiB") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise TypeError(f"the result is not JSON: {error}") from None


def _result(given: Any) -> dict[str, Any]:
    """What a function gave, as a result: content blocks pass through, a text is itself."""
    if isinstance(given, dict) and isinstance(given.get("content"), list):
        return given if given["content"] else {**given, "content": [{"type": "text", "text": ""}]}
    text = given if isinstance(given, str) else json.dumps(given, default=as_json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}]}


def _error(error: BaseException) -> dict[str, Any]:
    return {"error": {"message": str(error)[:MESSAGE_BYTES_MAX // 16], "type": type(error).__name__}}


def _frame(message: dict[str, Any]) -> bytes:
    payload = json.dumps(message, default=as_json, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(payload) > MESSAGE_BYTES_MAX:
        raise IPCMessageSizeError(f"message of {len(payload)} bytes exceeds {MESSAGE_BYTES_MAX} bytes")
    return _PREFIX.pack(len(payload)) + payload


_started: set[Parent] = set()


def _watch_signals(parent: Parent) -> None:
    """End in order on signals that nobody else handles. Only the main thread can watch."""
    _started.add(parent)
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _forget(parent: Parent) -> None:
    _started.discard(parent)
    if not _started and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    for parent in list(_started):
        parent.stop()
    # The end the signal would have been without us, for whoever waits for this process.
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _after_fork() -> None:
    for parent in list(_started):
        parent._abandon()
    _started.clear()


# A child would keep the socket open and the name taken after this process is gone, and end the
# serving of both with its own end.
os.register_at_fork(after_in_child=_after_fork)
