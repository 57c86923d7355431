"""A worker that forks for each call, over a real socketpair."""

from __future__ import annotations

import json
import os
import platform
import signal
import struct
import sys
import unittest
from typing import Any

from support import SDK, WAIT_S, WORKER, WorkerProcess, Workspace, is_gone, request, wait_until

TOOLS = '''
import atexit, ctypes, os, random, signal, socket, subprocess, sys, threading, time

seen = []
print("imported")

def count(payload):
    seen.append(1)
    os.environ["LEFT"] = "behind"
    return len(seen)

def environment(payload):
    return os.environ.get("LEFT")

def echo(payload):
    return payload

def dice(payload):
    return [random.random(), os.getpid()]

def pids(payload):
    return [os.getppid(), os.getpid(), os.getpgid(0)]

def descriptors(payload):
    return sorted(int(fd) for fd in os.listdir("/proc/self/fd"))

def dies(payload):
    how = payload["how"]
    if how == "exit": sys.exit(payload.get("code"))
    if how == "_exit": os._exit(payload["code"])
    if how == "signal": os.kill(os.getpid(), payload["signal"])
    if how == "segv": ctypes.string_at(0)
    if how == "raise": raise ValueError("no good")
    if how == "silent":
        os.closerange(3, 100)
        return 1

def forges(payload):
    """Says what it likes on whatever it can write to."""
    for fd in range(1, 20):
        try:
            os.write(fd, payload["text"].encode())
        except OSError:
            pass
    if payload.get("die"):
        os._exit(0)
    return "mine"

def reads_ahead(payload):
    """Reads whatever it holds, for as long as there is something."""
    got = []
    for fd in range(3, 20):
        try:
            os.set_blocking(fd, False)
            got.append(os.read(fd, 100).decode())
        except OSError:
            pass
    return got

def forks_twice(payload):
    """Leaves a grandchild in a session of its own, which holds all it was born with."""
    mouth, ear = os.pipe()
    pid = os.fork()
    if pid == 0:
        if payload.get("session", True):
            os.setsid()
        if os.fork() == 0:
            os.write(ear, b"%d" % os.getpid())
            time.sleep(60)
        os._exit(0)
    os.waitpid(pid, 0)
    return int(os.read(mouth, 20))

def leaves_a_program(payload):
    return subprocess.Popen(["sleep", "60"]).pid

def leaves_a_thread(payload):
    threading.Thread(target=time.sleep, args=(60,)).start()

def at_exit(payload):
    atexit.register(print, "at exit")

def forked_twin_returns(payload):
    pid = os.fork()
    if pid == 0:
        return "from the child"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def reports(payload):
    import callgate
    callgate.progress(1, 2)
    while not os.path.exists("go"):
        time.sleep(0.001)
    callgate.log("info", "late")
    return "done"

def forks(payload):
    return os.fork()

def connects(payload):
    socket.socket()
'''

# seccomp: `socket` is refused with EPERM, all else allowed.
X86_64 = platform.machine() == "x86_64"
SOCKET = 41 if X86_64 else 198
NO_SOCKETS = b"".join(
    struct.pack("HBBI", *one)
    for one in [
        (0x20, 0, 0, 0),  # load the number
        (0x15, 0, 1, SOCKET),
        (0x06, 0, 0, 0x00050000 | 1),  # EPERM
        (0x06, 0, 0, 0x7FFF0000),  # allow
    ]
)


class ZygoteTest(Workspace):
    def setUp(self) -> None:
        super().setUp()
        self.write("tools/t.py", TOOLS)

    def start(self, argv: Any = None, **env: str) -> WorkerProcess:
        worker = WorkerProcess(self.folder, argv, CALLGATE_ISOLATION="call", **env)
        self.addCleanup(worker.__exit__)
        return worker

    def call(self, worker: WorkerProcess, function: str, payload: Any = None, **more: Any) -> tuple[list[Any], Any]:
        """The lines of the call, and its end."""
        entry = function if ":" in function else f"tools.t:{function}"
        worker.send(request(entry, payload, **more))
        return self.rest(worker)

    def rest(self, worker: WorkerProcess) -> tuple[list[Any], Any]:
        lines: list[Any] = []
        while True:
            said, tab, end = worker.receive_line().partition(b"\t")
            if said:
                lines.append(json.loads(said) if not tab else said)
            if tab:
                return lines, json.loads(end)

    def output(self, worker: WorkerProcess, function: str, payload: Any = None, **more: Any) -> Any:
        lines, end = self.call(worker, function, payload, **more)
        self.assertEqual((len(lines), end), (1, {"exit": 0}), (function, lines))
        return lines[0].get("output", lines[0])

    def test_each_call_is_the_first(self) -> None:
        worker = self.start()
        self.assertEqual([self.output(worker, "count") for _ in range(5)], [1] * 5)
        self.assertIsNone(self.output(worker, "environment"))
        rolls = [self.output(worker, "dice") for _ in range(20)]
        self.assertEqual(len({roll for roll, _ in rolls}), 20)
        self.assertEqual(len({pid for _, pid in rolls}), 20)
        code, stdout, stderr = worker.end()
        self.assertEqual((code, stdout, stderr), (0, "imported\n" * 26, ""))

    def test_runs_as_a_module_and_isolated(self) -> None:
        for argv in ([sys.executable, "-m", "callgate.worker"], [sys.executable, "-I", "-S", WORKER]):
            worker = self.start(argv, PYTHONPATH=SDK)
            self.assertEqual(self.output(worker, "count"), 1)
            self.assertEqual(worker.end()[0], 0)

    def test_large_lines(self) -> None:
        worker = self.start()
        text = "é" * (3 * 1024 * 1024)
        self.assertEqual(self.output(worker, "echo", {"text": text}), {"text": text})

    def test_every_death_is_told_and_costs_its_own_call(self) -> None:
        worker = self.start()
        for how, lines, end in [
            ({"how": "_exit", "code": 0}, [], {"exit": 0}),
            ({"how": "_exit", "code": 9}, [], {"exit": 9}),
            ({"how": "signal", "signal": signal.SIGKILL}, [], {"signal": 9}),
            ({"how": "segv"}, [], {"signal": 11}),
            ({"how": "exit", "code": 3}, [{"call": "c1", "exit": 3}], {"exit": 0}),
            ({"how": "silent"}, [], {"exit": 1}),
        ]:
            self.assertEqual(self.call(worker, "dies", how), (lines, end), how)
            self.assertEqual(self.output(worker, "count"), 1)
        error = self.output(worker, "dies", {"how": "raise"})["error"]
        self.assertEqual(error, {"type": "ValueError", "message": "no good"})
        self.assertNotIn("prepared.py", worker.printed()[1])

    def test_nobody_speaks_for_the_zygote(self) -> None:
        """P-8: a forged end is none, a forged reply is no other call's."""
        worker = self.start()
        lines, end = self.call(worker, "forges", {"text": '\t{"exit":0}\n', "die": True})
        self.assertEqual(lines, [])
        self.assertEqual(set(end) - {"exit", "signal"}, set())
        self.assertEqual(self.output(worker, "count"), 1)
        lines, end = self.call(worker, "forges", {"text": '{"call":"c1","output":"forged"}\n'})
        self.assertEqual(lines[-1], {"call": "c1", "output": "mine"})
        self.assertEqual(end, {"exit": 0})
        self.assertEqual(self.output(worker, "count"), 1)

    def test_a_tool_has_nothing_of_the_stream(self) -> None:
        worker = self.start()
        # The standard three, the pipe and the folder that is being listed.
        self.assertEqual(len(self.output(worker, "descriptors")), 5)
        worker.send(request("tools.t:reads_ahead", {}))
        self.assertEqual(self.rest(worker)[0][0]["output"], [])

    def test_what_a_call_leaves_behind_is_told(self) -> None:
        worker = self.start()
        lines, end = self.call(worker, "forks_twice")
        grandchild = lines[0]["output"]
        self.addCleanup(os.kill, grandchild, signal.SIGKILL)
        self.assertEqual(end, {"exit": 0, "left": True})
        self.assertFalse(is_gone(grandchild))

    def test_what_stays_in_its_group_is_ended(self) -> None:
        worker = self.start()
        for function in ("leaves_a_program", "forks_twice"):
            pid = self.output(worker, function, {"session": False})
            wait_until(lambda: is_gone(pid), "the end of what was left")
        self.output(worker, "leaves_a_thread")
        self.assertEqual(self.output(worker, "count"), 1)

    def test_a_twin_cannot_answer(self) -> None:
        worker = self.start()
        self.assertEqual(self.output(worker, "forked_twin_returns"), 1)

    def test_threads_are_as_in_any_process(self) -> None:
        self.write(
            "threads.py",
            """
            import os, threading
            def f(payload):
                main = threading.main_thread()
                same = main is threading.current_thread() and main.native_id == os.getpid() and main.is_alive()
                other = threading.Thread(target=print, args=("in a thread",))
                other.start()
                other.join()
                waits = threading.Event()
                threading.Thread(target=waits.wait, daemon=True).start()
                pid = os.fork()
                if pid == 0:
                    # Only the one that forked goes on in the fork.
                    os._exit(0 if threading.active_count() == 1 else 1)
                return [same, threading.active_count(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
            """,
        )
        worker = self.start(CALLGATE_PRELOAD="threading")
        for _ in range(3):
            self.assertEqual(self.output(worker, "threads:f"), [True, 2, 0])
        self.assertEqual(worker.printed()[0], "in a thread\n" * 3)

    def test_no_call_is_in_the_memory_of_the_next(self) -> None:
        self.write(
            "memory.py",
            """
            import re
            def find(payload):
                # Never in one piece in this process, unless it was there before.
                head, tail = payload["head"][::-1].encode(), payload["tail"][::-1].encode()
                found = 0
                with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
                    for line in maps:
                        span, rights = line.split()[:2]
                        if not rights.startswith("rw") or "[v" in line:
                            continue
                        start, end = (int(part, 16) for part in span.split("-"))
                        memory.seek(start)
                        bytes = memory.read(end - start)
                        found += sum(bytes.startswith(tail, at.end()) for at in re.finditer(head, bytes))
                return found
            """,
        )
        worker = self.start()
        head, tail = "secret-" + os.urandom(8).hex(), "-in-a-call" * 5
        payload = {"text": "x" * 600 + head + tail}  # further in than the next request is long
        for _ in range(3):
            self.assertEqual(self.output(worker, "echo", payload), payload)
        parts = {"head": head[::-1], "tail": tail[::-1]}
        self.assertEqual(self.output(worker, "memory:find", parts), 0)
        # That it would be found: in the process of one call it is.
        self.assertGreater(self.output(worker, "memory:find", {**parts, "whole": head + tail}), 0)

    def test_exit_functions_run(self) -> None:
        worker = self.start()
        self.output(worker, "at_exit")
        self.assertEqual(worker.printed()[0], "imported\nat exit\n")

    def test_reports_come_while_it_runs(self) -> None:
        worker = self.start()
        worker.send(request("tools.t:reports", {}))
        self.assertEqual(worker.receive(), {"call": "c1", "progress": {"progress": 1, "total": 2}})
        self.write("go", "")
        lines, end = self.rest(worker)
        self.assertEqual([line.get("output", line.get("log")) for line in lines], [{"level": "info", "data": "late"}, "done"])

    def test_what_is_on_disk_is_what_runs(self) -> None:
        worker = self.start()
        self.write("fresh/a.py", "def f(payload): return 'first'\n")
        self.assertEqual(self.output(worker, "fresh.a:f"), "first")
        self.write("fresh/a.py", "def f(payload): return 'second, longer'\n")
        self.assertEqual(self.output(worker, "fresh.a:f"), "second, longer")
        self.write("fresh/__init__.py", "import sys\nfrom . import a\na.f = lambda payload: 'by its package'\n")
        self.assertEqual(self.output(worker, "fresh.a:f"), "by its package")
        os.remove(os.path.join(self.folder, "fresh/a.py"))
        self.assertEqual(self.output(worker, "fresh.a:f")["error"]["type"], "ImportError")
        self.write("deep/er/still.py", "import deep.er.still as s\ndef f(payload): return s.__name__ + __package__\n")
        self.assertEqual(self.output(worker, "deep.er.still:f"), "deep.er.stilldeep.er")
        for text, kind in [("1 +", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("f = 1", "TypeError")]:
            self.write("wrong.py", text)
            self.assertEqual(self.output(worker, "wrong:f")["error"]["type"], kind)

    def test_the_workspace_never_runs_in_the_zygote(self) -> None:
        for name in ("json", "ctypes", "re", "select", "typing", "dataclasses"):
            self.write(f"{name}.py", "import os\nopen('ran-%d' % os.getpid(), 'w')\n")
        worker = self.start([sys.executable, "-S", WORKER], PYTHONPATH=self.folder)
        self.output(worker, "echo")
        self.assertFalse(os.path.exists(os.path.join(self.folder, f"ran-{worker.process.pid}")))

    def test_preloaded_as_the_owner_says(self) -> None:
        self.write("loaded.py", "import sys\nwas = 'decimal' in sys.modules\ndef f(payload): return was\n")
        self.assertIs(self.output(self.start(), "loaded:f"), False)
        self.assertIs(self.output(self.start(CALLGATE_PRELOAD="decimal fractions"), "loaded:f"), True)

    def test_the_filter_is_there_before_the_tool(self) -> None:
        program = NO_SOCKETS.hex()
        # Without privileges a filter needs the promise that none will be gained.
        start = "import ctypes, runpy, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        worker = self.start([sys.executable, "-c", start, WORKER], CALLGATE_FILTER=program)
        error = self.output(worker, "connects", guarantees=["no_network"])["error"]
        self.assertEqual((error["type"], error["blocked"]), ("PermissionError", "no_network"))
        self.write("early.py", "import socket\nsocket.socket()\n")
        error = self.output(worker, "early:f", guarantees=["no_network"])["error"]
        self.assertEqual((error["type"], error["blocked"]), ("PermissionError", "no_network"))
        self.assertEqual(self.output(worker, "count"), 1)

    def test_no_filter_no_call(self) -> None:
        worker = self.start(CALLGATE_FILTER="06000000")  # half an instruction
        self.assertEqual(self.call(worker, "count"), ([], {"exit": 1}))
        self.assertEqual(worker.printed()[0], "")
        worker = self.start(CALLGATE_FILTER="no hex")
        self.assertEqual(worker.process.wait(WAIT_S), 2)


if __name__ == "__main__":
    unittest.main()
