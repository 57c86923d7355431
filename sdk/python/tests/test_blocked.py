"""What is told of an attempt that a guarantee stopped.

The tools try what cannot work and then fail as if the kernel had refused it; that
the kernel does is tested where there is one to ask, with the whole binary.
"""

from __future__ import annotations

import os
import sys
import unittest
from typing import Any, Optional

from support import WorkerProcess, Workspace

READ, WRITE, NETWORK, SUBPROCESS = ALL = ["no_filesystem_read", "no_filesystem_write", "no_network", "no_subprocess"]

TOOLS = '''
import contextlib, errno, os, socket, subprocess

@contextlib.contextmanager
def refused(number=errno.EACCES):
    """What fails in it fails with this number."""
    try:
        yield
    except OSError as error:
        raise OSError(number, "no", error.filename) from None

def tries(payload):
    path, what = "absent/x", payload["what"]
    with refused(payload.get("errno", errno.EACCES)):
        if what == "read": open(path)
        if what == "os.open": os.open(path.encode(), os.O_RDONLY)
        if what == "list": os.listdir("absent")
        if what == "write": open(path, "w")
        if what == "append": os.open(path, os.O_APPEND | os.O_WRONLY)
        if what == "remove": os.remove(path)
        if what == "rename": os.rename(path, "y")
        if what == "mkdir": os.makedirs("t.py/x")
        if what == "connect": socket.socket().connect(("127.0.0.1", 1))
        if what == "send": socket.socket(type=socket.SOCK_DGRAM).sendto(b"", 0, ("127.0.0.1", 0))
        if what == "resolve": socket.getaddrinfo("127.0.0.1", "no such")
        if what == "run": subprocess.run(["absent/x"])
        if what == "spawn": os.posix_spawn("absent/x", ["x"], {})
        if what == "exec": os.execv("absent/x", ["x"])
    return "nothing failed"

def name_is_not_found(payload):
    socket.getaddrinfo("127.0.0.1", "no such")

class Frozen(Exception):
    def __setattr__(self, name, value):
        raise RuntimeError("frozen")

def wrapped(payload):
    kind = payload["kind"]
    try:
        tries({"what": "read"})
    except OSError as error:
        if kind == "from": raise Frozen("no file") from error
        if kind == "none": raise ValueError("no file") from None
        if kind == "context": raise ValueError("no file")
        if kind == "group": raise ExceptionGroup("all", [ValueError("x"), error])

def cleans_up(payload):
    try:
        tries({"what": "read"})
    finally:
        for _ in range(8):
            open(os.devnull, "w").close()

def goes_on(payload):
    try:
        tries({"what": "read"})
    except OSError:
        return "went on"

def swallows(payload):
    try:
        tries(payload)
    except OSError:
        return "went on"

def own(payload):
    open(os.devnull).close()
    raise PermissionError("not today")

def later(payload):
    goes_on(payload)
    raise FileNotFoundError(errno.ENOENT, "gone", "absent/x")

def loop(payload):
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a
    raise a
'''


class BlockedTest(Workspace):
    """P-3: which guarantee stood in the way, as far as can be told."""

    def setUp(self) -> None:
        super().setUp()
        self.write("t.py", TOOLS)
        self.write("early.py", "import t\nt.tries({'what': 'connect'})\n")
        self.worker = WorkerProcess(self.folder)
        self.addCleanup(self.worker.__exit__)

    def blocked(self, function: str, payload: Any, asked: Optional[list[str]] = None) -> Any:
        more = {} if asked is None else {"guarantees": asked}
        reply = self.worker.call(function, payload, **more)
        return reply["error"].get("blocked")

    def test_each_attempt_has_its_guarantee(self) -> None:
        for guarantee, attempts in [
            (READ, ["read", "os.open", "list"]),
            (WRITE, ["write", "append", "remove", "rename", "mkdir"]),
            (NETWORK, ["connect", "send", "resolve"]),
            (SUBPROCESS, ["run", "spawn", "exec"]),
        ]:
            for what in attempts:
                for number in (1, 13, 30, 38):
                    self.assertEqual(self.blocked("t:tries", {"what": what, "errno": number}, ALL), guarantee, what)
                # Refused by something else, or for another reason.
                others = [one for one in ALL if one != guarantee]
                self.assertIsNone(self.blocked("t:tries", {"what": what}, others), what)
                if what != "resolve":  # which fails as a refusal in itself
                    self.assertIsNone(self.blocked("t:tries", {"what": what, "errno": 28}, ALL), what)
        self.assertEqual(self.blocked("t:name_is_not_found", {}, [NETWORK]), NETWORK)

    def test_an_error_is_known_however_it_is_wrapped(self) -> None:
        kinds = ["from", "none", "context"] + (["group"] if sys.version_info >= (3, 11) else [])
        for kind in kinds:
            self.assertEqual(self.blocked("t:wrapped", {"kind": kind}, [READ]), READ, kind)
        self.assertEqual(self.blocked("t:cleans_up", {}, [READ, WRITE]), READ)
        self.assertEqual(self.blocked("early:f", {}, [NETWORK]), NETWORK)

    def test_an_error_of_the_tool_stays_its_own(self) -> None:
        for function in ["own", "later", "loop"]:
            self.assertIsNone(self.blocked(f"t:{function}", {}, ALL), function)
        reply = self.worker.call("t:goes_on", {}, guarantees=ALL)
        self.assertEqual(reply["output"], "went on")

    def test_attempts_are_told_though_the_tool_goes_on(self) -> None:
        def attempts(function: str, payload: Any, asked: list[str]) -> Any:
            return self.worker.call(function, payload, guarantees=asked).get("attempts")

        path = os.path.realpath(os.path.join(self.folder, "absent/x"))
        self.assertEqual(attempts("t:tries", {"what": "write"}, ALL), [[WRITE, path]])
        self.assertEqual(attempts("t:swallows", {"what": "connect"}, ALL), [[NETWORK, ""]])
        self.assertEqual(attempts("t:swallows", {"what": "run"}, [SUBPROCESS]), [[SUBPROCESS, ""]])
        # What is not there was not refused, and what was not asked for is not looked at.
        self.assertIsNone(attempts("t:swallows", {"what": "read"}, ALL))
        self.assertIsNone(attempts("t:swallows", {"what": "write"}, [READ]))
        # Those of one call are not those of the next.
        self.assertIsNone(attempts("t:own", {}, ALL))

    def test_nothing_is_told_where_nothing_was_asked_for(self) -> None:
        for asked in (None, []):
            self.assertIsNone(self.blocked("t:tries", {"what": "read"}, asked))


if __name__ == "__main__":
    unittest.main()
