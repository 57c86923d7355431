"""The worker over a real socketpair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from typing import Any

from support import SDK, WAIT_S, WORKER, Workspace, WorkerProcess, is_gone, request, wait_until

from callgate import worker as worker_module

TOOLS = '''
import asyncio, dataclasses, decimal, enum, os, subprocess, sys, threading, time

loads = []
loads.append(1)

def greet(payload: dict) -> dict:
    return {"message": f"Hello {payload['name']}"}

def echo(payload):
    return payload

def count_loads(payload):
    return len(loads)

def prints(payload):
    print("on stdout")
    print("on stderr", file=sys.stderr)
    return None

def raises(payload):
    raise ValueError("no such name")

def exits(payload):
    sys.exit(payload["code"])

def interrupts(payload):
    raise KeyboardInterrupt()

def surrogate_error(payload):
    raise OSError("caf\\udce9")

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no")

def mute(payload):
    raise Mute()

def long_error(payload):
    raise ValueError("x" * 1_000_000)

def bad_output(payload):
    kind = payload["kind"]
    if kind == "object": return object()
    if kind == "nan": return float("nan")
    if kind == "infinity": return {"x": [float("inf")]}
    if kind == "set": return {1, 2}
    if kind == "bytes": return b"x"
    if kind == "keys": return {(1, 2): 3}
    if kind == "surrogate": return "\\ud800"
    if kind == "circular":
        loop = []
        loop.append(loop)
        return loop
    if kind == "generator": return (x for x in [1])
    if kind == "decimal": return decimal.Decimal("NaN")
    if kind == "large": return decimal.Decimal("1E+309")

async def later(payload):
    await asyncio.sleep(0)
    return {"later": payload["name"]}

async def later_fails(payload):
    raise LookupError("later")

@dataclasses.dataclass
class Point:
    x: int
    y: int

class Color(enum.Enum):
    RED = "red"

def rich(payload):
    return {"point": Point(1, 2), "color": Color.RED, "pair": (1, 2)}

def decimals(payload):
    return [decimal.Decimal(text) for text in payload]

def surroundings(payload):
    return {
        "cwd": os.getcwd(),
        "path": sys.path,
        "variable": os.environ.get("CALLGATE_FD"),
    }

def child_descriptors(payload):
    """What descriptors above 2 a program started by a tool has."""
    code = "import os; print([fd for fd in range(3, 64) if os.path.exists('/proc/self/fd/%d' % fd)])"
    return subprocess.run([sys.executable, "-IS", "-c", code], close_fds=False, capture_output=True, text=True).stdout.strip()

def forks(payload):
    pid = os.fork()
    if pid == 0:
        return "from the child"  # comes back out of the tool, in the child
    return {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}

def forks_and_stays(payload):
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return {"pid": pid}

def leaves_a_thread(payload):
    threading.Thread(target=time.sleep, args=(60,)).start()

def put(payload, slots):
    seen = sorted(slots)
    for number in payload.get("remove", []):
        del slots[number]
    for number, artifact in payload.get("put", []):
        slots[number] = artifact
    if "touch" in payload:
        slots[payload["touch"]]["provenance"] = "touched"
    if payload.get("fail"):
        raise RuntimeError("after the change")
    return {"seen": seen}

class Group:
    @staticmethod
    def inner(payload):
        return "inner"

not_a_function = 7
'''


class WorkerTest(Workspace):
    def setUp(self) -> None:
        super().setUp()
        self.write("tools/sample.py", TOOLS)
        self.write("tools/broken.py", "import no_such_module_at_all\n")
        self.write("tools/wrong.py", "def f(:\n")
        self.write("tools/quits.py", "raise SystemExit(5)\n")

    def start(self, argv: Any = None, **env: str) -> WorkerProcess:
        worker = WorkerProcess(self.folder, argv, **env)
        self.addCleanup(worker.__exit__)
        return worker

    def assertError(self, reply: Any, kind: str, words: str) -> None:
        self.assertEqual(set(reply), {"call", "error"})
        self.assertEqual(reply["error"]["type"], kind)
        self.assertIn(words, reply["error"]["message"])

    def test_answers_and_ends_with_the_stream(self) -> None:
        worker = self.start()
        self.assertEqual(
            worker.call("tools.sample:greet", {"name": "Ada"}), {"call": "c1", "output": {"message": "Hello Ada"}}
        )
        self.assertEqual(worker.end(), (0, "", ""))

    def test_runs_as_a_module_too(self) -> None:
        worker = self.start([sys.executable, "-m", "callgate.worker"], PYTHONPATH=SDK)
        self.assertEqual(worker.call("tools.sample:echo", {"a": 1})["output"], {"a": 1})
        self.assertEqual(worker.end()[0], 0)

    def test_runs_isolated_and_without_site(self) -> None:
        worker = self.start([sys.executable, "-I", "-S", WORKER])
        self.assertEqual(worker.call("tools.sample:echo", {"a": 1})["output"], {"a": 1})

    def test_without_a_descriptor_it_says_so(self) -> None:
        worker = self.start([sys.executable, "-c", f"import os, runpy; os.environ['CALLGATE_FD'] = '99'; runpy.run_path({WORKER!r}, run_name='__main__')"])
        self.assertEqual(worker.process.wait(WAIT_S), 2)

    def test_any_json_goes_through_unchanged(self) -> None:
        worker = self.start()
        for value in [None, True, 0, -1, 2**53, 1.5, 1e300, "", "é \u2028 \U0001f600 \"\\\n", [], [[]], {}, {"": {"a": [1, {}]}}]:
            self.assertEqual(worker.call("tools.sample:echo", {"v": value}), {"call": "c1", "output": {"v": value}})

    def test_fed_at_every_split_of_two_lines(self) -> None:
        worker = self.start()
        data = request("tools.sample:echo", {"é": "ü\n"}, call="a") + request("tools.sample:echo", [1], call="b")
        expected = [{"call": "a", "output": {"é": "ü\n"}}, {"call": "b", "output": [1]}]
        for cut in range(len(data) + 1):
            worker.send(data[:cut])
            worker.send(data[cut:])
            self.assertEqual([worker.receive(), worker.receive()], expected, f"cut at {cut}")

    def test_byte_by_byte(self) -> None:
        worker = self.start()
        for byte in request("tools.sample:echo", {"a": "b"}):
            worker.send(bytes([byte]))
        self.assertEqual(worker.receive()["output"], {"a": "b"})

    def test_many_lines_in_one_piece_are_answered_in_order(self) -> None:
        worker = self.start()
        worker.send(b"".join(request("tools.sample:echo", [n], call=str(n)) for n in range(500)))
        self.assertEqual([worker.receive()["call"] for _ in range(500)], [str(n) for n in range(500)])

    def test_very_long_line(self) -> None:
        worker = self.start()
        text = "é" * (6 * 1024 * 1024)
        self.assertEqual(worker.call("tools.sample:echo", {"text": text})["output"], {"text": text})

    def test_empty_and_invalid_lines(self) -> None:
        worker = self.start()
        worker.send(b"\n\r\n  \n")
        for line in [b"{", b"nonsense", b"[]", b"7", b"null", b'{"call":1}{"call":2}', b'"\xff"', b'{"x":NaN}', b"[" * 100_000]:
            worker.send(line + b"\n")
            reply = worker.receive()
            self.assertIsNone(reply["call"], line[:20])
            self.assertError(reply, "ProtocolError", "not a call")
        worker.send(b'{"call":"c9"}\n')
        self.assertEqual(worker.receive()["call"], "c9")
        self.assertEqual(worker.call("tools.sample:echo")["output"], {})

    def test_a_line_cut_off_by_the_end_is_not_run(self) -> None:
        worker = self.start()
        worker.send(request("tools.sample:prints").rstrip())
        self.assertEqual(worker.end(), (0, "", ""))

    def test_prints_stay_on_the_standard_streams(self) -> None:
        worker = self.start()
        self.assertEqual(worker.call("tools.sample:prints"), {"call": "c1", "output": None})
        # Flushed before the reply, so that it belongs to this call.
        self.assertEqual(worker.printed(), ("on stdout\n", "on stderr\n"))

    def test_every_exception_is_a_reply_and_a_traceback(self) -> None:
        worker = self.start()
        self.assertError(worker.call("tools.sample:raises"), "ValueError", "no such name")
        self.assertError(worker.call("tools.sample:interrupts"), "KeyboardInterrupt", "")
        self.assertError(worker.call("tools.sample:later_fails"), "LookupError", "later")
        self.assertError(worker.call("tools.sample:greet"), "KeyError", "name")
        self.assertError(worker.call("tools.sample:surrogate_error"), "OSError", "caf\\udce9")
        self.assertError(worker.call("tools.sample:mute"), "Mute", "could not be read")
        self.assertLess(len(worker.call("tools.sample:long_error")["error"]["message"]), 20_000)
        code, stdout, stderr = worker.end()
        self.assertEqual((code, stdout), (0, ""))
        self.assertIn('raise ValueError("no such name")', stderr)
        self.assertNotIn("in answer", stderr)

    def test_a_tool_that_ends_itself(self) -> None:
        """TP-24: a crash of that call, with its code; the worker lives on."""
        worker = self.start()
        for code, told in [(3, 3), (0, 0), (None, 0), (256 + 7, 7), (-1, 255), ("why", 1)]:
            self.assertEqual(worker.call("tools.sample:exits", {"code": code}), {"call": "c1", "exit": told})
        self.assertEqual(worker.call("tools.quits:f"), {"call": "c1", "exit": 5})
        self.assertEqual(worker.end(), (0, "", "why\n"))

    def test_output_that_is_not_json(self) -> None:
        """TP-26."""
        worker = self.start()
        for kind in ["object", "nan", "infinity", "set", "bytes", "keys", "surrogate", "circular", "generator", "decimal", "large"]:
            self.assertError(worker.call("tools.sample:bad_output", {"kind": kind}), "TypeError", "not JSON")
        self.assertEqual(worker.call("tools.sample:echo", [1])["output"], [1])

    def test_async_functions(self) -> None:
        worker = self.start()
        self.assertEqual(worker.call("tools.sample:later", {"name": "Ada"})["output"], {"later": "Ada"})

    def test_dataclasses_and_enums_in_the_output(self) -> None:
        reply = self.start().call("tools.sample:rich")
        self.assertEqual(reply["output"], {"point": {"x": 1, "y": 2}, "color": "red", "pair": [1, 2]})

    def test_decimals_are_numbers(self) -> None:
        """P-9."""
        reply = self.start().call("tools.sample:decimals", ["2", "2.0", "-1E+3", "1.5", "1E-400", "0.1"])
        self.assertEqual(json.dumps(reply["output"]), "[2, 2, -1000, 1.5, 0.0, 0.1]")

    def test_entries_that_lead_nowhere(self) -> None:
        """TP-5."""
        worker = self.start()
        for entry, kind, words in [
            ("tools.absent:f", "ModuleNotFoundError", "No module named"),
            ("tools.broken:f", "ModuleNotFoundError", "no_such_module_at_all"),
            ("tools.wrong:f", "SyntaxError", "invalid syntax"),
            ("tools.sample:absent", "AttributeError", "absent"),
            ("tools.sample:not_a_function", "TypeError", "not callable"),
            ("tools.sample", "ValueError", "module:function"),
            (":f", "ValueError", "module:function"),
        ]:
            reply = worker.call(entry)
            self.assertError(reply, kind, words)
            self.assertIn(f"entry `{entry}`", reply["error"]["message"])
        self.assertEqual(worker.call("tools.sample:Group.inner")["output"], "inner")

    def test_a_module_is_loaded_once(self) -> None:
        worker = self.start()
        self.assertEqual([worker.call("tools.sample:count_loads")["output"] for _ in range(3)], [1, 1, 1])

    def test_path_and_environment(self) -> None:
        seen = self.start().call("tools.sample:surroundings")["output"]
        self.assertEqual(seen["cwd"], self.folder)
        self.assertEqual(seen["path"][-2:], [SDK, self.folder])
        self.assertNotIn(os.path.dirname(WORKER), seen["path"])
        self.assertIsNone(seen["variable"])

    def test_programs_a_tool_starts_do_not_inherit_the_stream(self) -> None:
        self.assertEqual(self.start().call("tools.sample:child_descriptors")["output"], "[]")

    def test_a_forked_child_cannot_answer(self) -> None:
        worker = self.start()
        self.assertEqual(worker.call("tools.sample:forks"), {"call": "c1", "output": {"status": 1}})
        self.assertEqual(worker.call("tools.sample:echo", [2]), {"call": "c1", "output": [2]})

    def test_a_forked_child_does_not_hold_the_stream(self) -> None:
        worker = self.start()
        pid = worker.call("tools.sample:forks_and_stays")["output"]["pid"]
        self.addCleanup(os.kill, pid, 9)
        worker.process.kill()
        self.assertEqual(worker.stream.recv(1), b"")
        self.assertFalse(is_gone(pid))

    def test_a_thread_left_behind_does_not_keep_the_worker(self) -> None:
        worker = self.start()
        worker.call("tools.sample:leaves_a_thread")
        worker.stream.close()
        wait_until(lambda: worker.process.poll() is not None, "end of the worker")
        self.assertEqual(worker.process.returncode, 0)

    def test_reports_come_before_the_answer(self) -> None:
        self.write(
            "tools/reports.py",
            """
            import os, threading
            import callgate

            def works(payload):
                callgate.progress(1, 3, "one")
                callgate.log("info", {"step": "\u2028"}, logger="l")
                callgate.progress(2.5)
                return "done"

            def wrong(payload):
                callgate.log("loud", 1)

            def not_json(payload):
                callgate.log("info", {1, 2})

            def forks(payload):
                pid = os.fork()
                if pid == 0:
                    callgate.progress(1)
                    os._exit(0)
                return os.waitpid(pid, 0)[1]
            """,
        )
        worker = self.start()
        self.assertEqual(
            worker.call("tools.reports:works"),
            {"call": "c1", "progress": {"progress": 1, "total": 3, "message": "one"}},
        )
        log = {"level": "info", "data": {"step": "\u2028"}, "logger": "l"}
        self.assertEqual(worker.receive(), {"call": "c1", "log": log})
        self.assertEqual(worker.receive(), {"call": "c1", "progress": {"progress": 2.5}})
        self.assertEqual(worker.receive(), {"call": "c1", "output": "done"})
        self.assertError(worker.call("tools.reports:wrong"), "ValueError", "level is one of")
        self.assertError(worker.call("tools.reports:not_json"), "TypeError", "set")
        self.assertEqual(worker.call("tools.reports:forks"), {"call": "c1", "output": 0})

    def test_a_thread_that_outlived_its_call_is_not_heard(self) -> None:
        self.write(
            "tools/late.py",
            """
            import os, threading
            import callgate

            def leaves(payload):
                def late():
                    while not os.path.exists("go"):
                        pass
                    callgate.progress(1)
                    open("told", "w").close()
                threading.Thread(target=late, daemon=True).start()
            """,
        )
        worker = self.start()
        self.assertEqual(worker.call("tools.late:leaves"), {"call": "c1", "output": None})
        self.write("go", "")
        wait_until(lambda: os.path.exists(os.path.join(self.folder, "told")), "the late report")
        worker.send(request("tools.sample:echo", [1]))
        self.assertEqual(worker.receive(), {"call": "c1", "output": [1]})

    def test_outside_a_worker_reports_go_nowhere(self) -> None:
        import callgate

        callgate.progress(1, 2, "x")
        callgate.log("debug", None)
        with self.assertRaises(TypeError):
            callgate.progress("1")  # type: ignore[arg-type]

    def test_slots(self) -> None:
        """T-23: the function sees the slots and may change them; the reply tells what changed. T-17: not after a failure."""
        worker = self.start()
        six = {"type": "text", "provenance": "p", "content_json": '"six"', "size_bytes": 5}
        seven = {**six, "content_json": '"seven"'}
        given = {"6": six, "7": seven}

        def put(**payload: Any) -> Any:
            return worker.call("tools.sample:put", payload, slots=given)

        self.assertEqual(put(), {"call": "c1", "output": {"seen": [6, 7]}, "slots": {}, "removed_slots": []})
        self.assertEqual(put(put=[[6, six]])["slots"], {})
        self.assertEqual(put(put=[[0, seven], [255, six]])["slots"], {"0": seven, "255": six})
        self.assertEqual(put(touch=7)["slots"], {"7": {**seven, "provenance": "touched"}})
        self.assertEqual(put(remove=[6])["removed_slots"], [6])
        for wrong in (256, -1, "6", True):
            self.assertError(put(put=[[wrong, six]]), "TypeError", "slot numbers")
        self.assertError(put(put=[[1, "text"]]), "TypeError", "slot 1 is not an object")
        failed = put(put=[[1, six]], fail=True)
        self.assertError(failed, "RuntimeError", "after the change")

    def test_imports_little_at_start(self) -> None:
        self.write("tools/look.py", "import sys\ndef loaded(payload):\n    return [m for m in payload if m in sys.modules]\n")
        heavy = ["json", "re", "typing", "inspect", "dataclasses", "asyncio", "socket", "enum", "callgate"]
        worker = self.start([sys.executable, "-I", "-S", WORKER])
        self.assertEqual(worker.call("tools.look:loaded", heavy)["output"], [])


class DeclaredToolTest(Workspace):
    TOOLS = '''
    from __future__ import annotations
    import enum
    from dataclasses import dataclass
    from typing import Optional, Union
    from callgate import tool

    class Color(enum.Enum):
        RED = "red"

    @dataclass
    class Point:
        x: int
        y: int = 0

    @tool
    def describe(point: Point, color: Color = Color.RED, at: Optional[Point] = None, *, pair: tuple[int, int] = (0, 0)) -> dict:
        return {"kinds": [type(v).__name__ for v in (point, color, at, pair)], "x": point.x, "y": point.y, "pair": pair}

    @tool(slots=True)
    def keep(text: str, slots: dict) -> int:
        slots[len(slots)] = {"type": "text", "content_json": text}
        return len(slots)

    @tool
    async def later(n: int) -> Point:
        return Point(n, n + 1)
    '''

    def setUp(self) -> None:
        super().setUp()
        self.write("typed.py", self.TOOLS)
        self.worker = WorkerProcess(self.folder)
        self.addCleanup(self.worker.__exit__)

    def test_arguments_come_by_name_and_converted(self) -> None:
        reply = self.worker.call("typed:describe", {"point": {"x": 3.0}, "color": "red", "pair": [1, 2]})
        kinds = ["Point", "Color", "NoneType", "tuple"]
        self.assertEqual(reply["output"], {"kinds": kinds, "x": 3, "y": 0, "pair": [1, 2]})
        self.assertEqual(self.worker.call("typed:later", {"n": 1})["output"], {"x": 1, "y": 2})

    def test_what_does_not_fit_is_named(self) -> None:
        for payload, message in [
            ({"point": {"x": 1}, "color": "blue"}, "color: not a Color"),
            ({"point": {"y": 1}}, "point: Point needs `x`"),
            ({"point": {"x": 1, "z": 1}}, "point: Point has no `z`"),
            ({"point": 7}, "point: not an object for Point"),
            ({"point": {"x": 1}, "pair": [1]}, "pair: not an array of 2"),
        ]:
            error = self.worker.call("typed:describe", payload)["error"]
            self.assertEqual((error["type"], error["message"]), ("ValueError", message))
        self.assertEqual(self.worker.call("typed:describe", {})["error"]["type"], "TypeError")
        self.assertEqual(self.worker.call("typed:describe", [1])["error"]["message"], "the input is not an object")

    def test_slots(self) -> None:
        """T-23: a declared tool gets the slots under that name."""
        reply = self.worker.call("typed:keep", {"text": "7"}, slots={"0": {"type": "text"}})
        self.assertEqual(reply["output"], 2)
        self.assertEqual(reply["slots"], {"1": {"type": "text", "content_json": "7"}})


class ExampleTest(Workspace):
    """The tools of `examples/hello`, run as their configuration says."""

    HELLO = os.path.join(os.path.dirname(os.path.dirname(SDK)), "examples", "hello")

    def test_greet(self) -> None:
        with WorkerProcess(self.HELLO, PYTHONDONTWRITEBYTECODE="1") as worker:
            reply = worker.call("tools.sample:greet", {"name": "Ada"})
        self.assertEqual(reply["output"], {"message": "Hello Ada"})

    def test_append_line(self) -> None:
        program = os.path.join(self.HELLO, "tools", "append.py")
        for count, line in enumerate(["first", "zw\u00f6lf"], 1):
            done = subprocess.run([sys.executable, program], cwd=self.folder, input=json.dumps({"line": line}), capture_output=True, text=True)
            self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"lines": count}), done.stderr)
        self.assertEqual(self.read("notes.txt"), "first\nzw\u00f6lf\n")


class CodecTest(unittest.TestCase):
    def test_both_codecs_agree(self) -> None:
        codecs = [worker_module.fast_codec(), worker_module.plain_codec()]
        values = [{"a": [1, -2.5, "é\n\u2028", None, True, {"": []}], "b": 10**30}, "x", 1.0, [], {"1": {}}]
        for value in values:
            written = [encode(value) for _, encode in codecs]
            self.assertEqual(written[0], written[1])
            self.assertEqual([decode(written[0].decode().strip()) for decode, _ in codecs], [value, value])
            self.assertEqual(json.loads(written[0]), value)
        for text in ["", "{", "nul", "[1,]", "1 2", "NaN", "-Infinity", '{"a":1}x', '"\n"', "'a'"]:
            for decode, _ in codecs:
                with self.assertRaises(ValueError, msg=text):
                    decode(text)
        for value in [float("nan"), object(), {(1,): 2}, "\ud800"]:
            for _, encode in codecs:
                with self.assertRaises((ValueError, TypeError)):
                    encode(value)


if __name__ == "__main__":
    unittest.main()
