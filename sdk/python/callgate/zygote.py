"""A worker that forks for each call (`isolation = "call"`).

It has the interpreter and what every tool needs loaded, and no tool's code, now
or ever: each line is read, loaded and run by a child made for it, whose end is
the end of all it did. What the child says goes through a pipe and on to the
gate as it comes; the last word on a call is ours:

    {"call":"7","output":{"message":"Hello Ada"}}
    \t{"exit":0}

A tab begins it, which no JSON of a child can hold and no child gets past us.
`signal` stands for `exit` where the child was killed, and `left` is true where
something of it may still be alive: then the gate ends us, and all of it.

Of one call nothing is kept for the next: a request is read by its child, and
what passes through here, the head of a request and all of a reply, does so in
one buffer that is wiped.
"""

import _socket
import atexit  # for `finish`, which every child comes to
import ctypes
import gc
import os
import re
import select
import signal
import sys
import time

from .prepared import Prepared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

FILTER_VARIABLE = "CALLGATE_FILTER"
PRELOAD_VARIABLE = "CALLGATE_PRELOAD"
# What a `@tool` needs. Each further page costs every call its share of a fork.
PRELOAD = ("json", "callgate.blocked", "callgate.report", "callgate.tool")

# The module in the head of a line as the gate writes it, where it can be told without reading on.
ENTRY = re.compile(rb'\{"call":"[^"\\]*","tool":"[^"\\]*","entry":"([A-Za-z0-9_.]+):')
HEAD_BYTES = 1024

CHUNK_BYTES = 64 * 1024
# What a pipe can hold at most where nobody has been given more: all a dead child can have left in it.
PIPE_BYTES_MAX = 1024 * 1024
# How long killed children may take to be gone before we say that they are not.
GRACE_S = 0.1

PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 22, 36
SECCOMP_MODE_FILTER = 2


def main(worker: "Any", fd: "int", path: "list[str]") -> "int":
    """Serve calls; `path` is for the tools, and for what the owner wants loaded ahead of them."""
    for name in PRELOAD:
        __import__(name)
    sys.path[:] = path
    worker.arrange_path()
    for name in os.environ.pop(PRELOAD_VARIABLE, "").split():
        __import__(name)
    try:
        kernel = Kernel(os.environ.pop(FILTER_VARIABLE, ""))
    except (OSError, ValueError) as error:
        print("callgate zygote: %r" % error, file=sys.stderr)
        return 2
    # A child that collects garbage would else copy every page it looks at.
    gc.collect()
    gc.freeze()
    return Zygote(worker, fd, kernel).serve()


class Zygote:
    def __init__(self, worker: "Any", fd: "int", kernel: "Kernel") -> "None":
        self.worker = worker
        self.fd = fd
        self.kernel = kernel
        self.room = bytearray(CHUNK_BYTES)
        self.prepared = Prepared()
        self.wake_threading = calm_threading()
        # For a look at a line that is left for the child to read.
        self.stream = _socket.socket(fileno=fd)

    def serve(self) -> "int":
        """Fork for each line until the other end closes the stream."""
        try:
            while self.look():
                self.call()
        except ConnectionError:
            pass
        return 0

    def look(self) -> "bool":
        """Wait for a line and prepare what its head names; false at the end of the stream."""
        count = self.stream.recv_into(self.room, HEAD_BYTES, _socket.MSG_PEEK)
        entry = ENTRY.search(self.room, 0, count)
        name = entry[1].decode() if entry else ""
        self.room[:count] = bytes(count)
        if name:
            self.prepared.prepare(name)
            gc.freeze()
        return count > 0

    def call(self) -> "None":
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        # Made before: each page that we write to while the child lives has to be copied.
        both = select.poll()
        both.register(reader, select.POLLIN)
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self.be_child(writer)
        try:
            os.close(writer)
            self.attend(both, reader, pid)
        finally:
            os.close(reader)
        self.tell(*self.bury(pid))

    def be_child(self, writer: "int") -> "None":
        """Become the process of one call, up to its end."""
        code = 1
        try:
            self.wake_threading()
            os.setpgid(0, 0)
            line = self.take()
            self.kernel.confine()
            if line is not None:
                code = self.run(writer, line)
        except BaseException as error:
            self.worker.report(error)
        finally:
            self.worker.finish(code)

    def take(self) -> "Optional[bytes]":
        """The line, and then no more of the stream."""
        pieces = []
        while True:
            data = os.read(self.fd, CHUNK_BYTES)
            pieces.append(data)
            if data.endswith(b"\n") or not data:
                os.close(self.fd)
                return b"".join(pieces) if data else None

    def run(self, writer: "int", line: "bytes") -> "int":
        wire = [writer]
        worker = self.worker.Worker(wire, self.prepared.bring)
        sys.modules["callgate._running"] = worker
        # What the tool forks must not answer for it.
        os.register_at_fork(after_in_child=lambda: self.worker.leave(wire))
        self.worker.send(wire, worker.answer(line))
        return 0

    def attend(self, both: "select.poll", reader: "int", pid: "int") -> "None":
        """Pass on what the child says until it has ended; one that holds the pipe open cannot hold us."""
        child = os.pidfd_open(pid)
        try:
            both.register(child, select.POLLIN)
            while child not in (ready := [fd for fd, _ in both.poll()]):
                if reader in ready and not self.pass_on(reader, pid):
                    both.unregister(reader)
        finally:
            os.close(child)
        passed = 0
        while passed < PIPE_BYTES_MAX and (more := self.pass_on(reader, pid)):
            passed += more

    def pass_on(self, reader: "int", pid: "int") -> "int":
        """Passes some bytes on; how many there were, 0 at the end."""
        try:
            count = os.readv(reader, [self.room])
        except BlockingIOError:
            return 0
        if self.room.find(b"\t", 0, count) >= 0:
            # It would speak for us.
            os.kill(pid, signal.SIGKILL)
        else:
            self.write(memoryview(self.room)[:count])
        self.room[:count] = bytes(count)
        return count

    def bury(self, pid: "int") -> "tuple[int, bool]":
        """How the child ended, and whether something of it may be left."""
        # Not reaped before its group is dead: until then nobody else has its number.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        status = os.waitpid(pid, 0)[1]
        return os.waitstatus_to_exitcode(status), not (self.kernel.adopts and is_childless())

    def tell(self, code: "int", left: "bool") -> "None":
        end = '"exit":%d' % code if code >= 0 else '"signal":%d' % -code
        self.write(memoryview(b'\t{%s%s}\n' % (end.encode(), b',"left":true' if left else b"")))

    def write(self, data: "memoryview") -> "None":
        while data:
            data = data[os.write(self.fd, data) :]


def calm_threading() -> "Callable[[], None]":
    """Spare our forks what `threading`, once loaded, does in each for the sake of threads that
    we do not have: it is a third of what a fork costs. What a child calls to have it back for
    its own forks."""
    threading: "Any" = sys.modules.get("threading")
    hook = getattr(threading, "_after_fork", None)
    if hook is None:
        return nothing
    usual, hook.__code__ = hook.__code__, nothing.__code__

    def wake() -> "None":
        hook.__code__ = usual
        threading.main_thread()._set_native_id()

    return wake


def nothing() -> "None":
    pass


def is_childless() -> "bool":
    """Reap what the child left behind, as far as it dies within the grace."""
    until: "Optional[float]" = None
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return True
        now = time.monotonic()
        until = until or now + GRACE_S
        if now > until:
            return False
        time.sleep(0.001)


class Kernel:
    """The calls Python has no words for."""

    def __init__(self, program: "str") -> "None":
        self.prctl: "Any" = ctypes.CDLL(None, use_errno=True).prctl
        self.errno = ctypes.get_errno
        # Orphans of a call come to us, so that we know of them.
        self.adopts = self.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        self.filter: "Any" = None
        if program:
            text = bytes.fromhex(program)

            class Program(ctypes.Structure):
                _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

            self.filter = ctypes.byref(Program(len(text) // 8, text))

    def confine(self) -> "None":
        """In the child, before any of the tool's code: what is forbidden to it beyond what is to us."""
        if self.filter is not None and self.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self.filter, 0, 0) != 0:
            raise OSError(self.errno(), "the filter of the call was refused")
