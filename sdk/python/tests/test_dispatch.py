"""`dispatch` against real programs, each with one way to answer or to fail."""

from __future__ import annotations

import json
import os
import time
import unittest
from typing import Any
from unittest import mock

from support import Workspace, is_gone, wait_until

from callgate import DispatchFailure, dispatch, run_machina_toolhost

AID = "AID.TEST.TOOL.v1"


class DispatchTest(Workspace):
    def setUp(self) -> None:
        super().setUp()
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MACHINA_")}
        patch = mock.patch.dict(os.environ, clean, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def run_program(self, body: str, inputs: Any = None, **options: Any) -> Any:
        program = self.program("fake_cli", body)
        return dispatch(AID, {} if inputs is None else inputs, program=program, **options)

    def answer(self, reply: Any, **options: Any) -> Any:
        text = reply if isinstance(reply, str) else json.dumps(reply)
        return self.run_program(f"print({text!r})", **options)

    def assertFailure(self, found: Any, kind: str, words: str) -> None:
        """TH-112, TH-113, TH-114, TH-115: the four fields of the error object, and no others."""
        self.assertIsInstance(found, DispatchFailure)
        self.assertEqual(set(found), {"error", "aid", "type", "detail"})
        self.assertEqual((found["error"], found["aid"], found["type"]), (True, AID, kind), found)
        self.assertIn(words, found["detail"])
        self.assertEqual((found.type, found.detail), (found["type"], found["detail"]))
        json.dumps(found)

    # Success

    def test_the_request_and_how_it_is_run(self) -> None:
        """T-1, TH-110: dispatch sends `aid` and `inputs`, to `tool_exec AID` in the workspace root."""
        body = """
        import json, os, sys
        seen = {"argv": sys.argv[1:], "cwd": os.getcwd(), "stdin": sys.stdin.read(), "root": os.environ.get("MACHINA_ROOT"), "leader": os.getpid() == os.getsid(0)}
        print(json.dumps({"ok": True, "status": "OK", "output_json": json.dumps(seen), "error": "", "ds_state": {}}))
        """
        seen = self.run_program(body, {"key": "v\u00e9"}, root=self.folder)
        self.assertEqual(seen["argv"], ["tool_exec", AID])
        self.assertEqual((seen["cwd"], seen["root"], seen["leader"]), (self.folder, self.folder, True))
        self.assertTrue(seen["stdin"].endswith("}\n"))
        self.assertEqual(json.loads(seen["stdin"]), {"aid": AID, "inputs": {"key": "v\u00e9"}})

    def test_outputs(self) -> None:
        for output in [{}, {"a": [1, None]}, [], 7, "text", None, "\u2028 line"]:
            self.assertEqual(self.answer({"ok": True, "status": "OK", "output_json": json.dumps(output)}), output)
        self.assertEqual(self.answer({"ok": True, "status": "OK", "output_json": {"already": "decoded"}}), {"already": "decoded"})
        self.assertEqual(self.answer({"status": "OK", "output_json": "1"}), 1)
        self.assertIsNone(self.answer({"ok": True, "status": "OK"}))

    def test_the_original_returns_the_string(self) -> None:
        """TH-111: `output_json` as text, and nothing else of the reply."""
        program = self.program("cli", """print('{"ok":true,"status":"OK","output_json":"{\\\\"a\\\\": 1}"}')""")
        self.assertEqual(run_machina_toolhost(AID, {}, program=program), '{"a": 1}')
        program = self.program("cli", """print('{"ok":true,"status":"OK","output_json":{"a":1}}')""")
        self.assertEqual(run_machina_toolhost(AID, {}, program=program), '{"a": 1}')

    def test_only_the_first_line_counts(self) -> None:
        self.assertEqual(self.answer('\n{"ok":true,"status":"OK","output_json":"1"}\nnot JSON\n'), 1)

    def test_raw_line_separators_do_not_end_the_line(self) -> None:
        reply = json.dumps({"ok": True, "status": "OK", "output_json": '"a\u2028b"'}, ensure_ascii=False)
        self.assertEqual(self.run_program(f"import sys; sys.stdout.buffer.write({reply.encode()!r})"), "a\u2028b")

    def test_large_input_to_a_program_that_talks_first(self) -> None:
        body = """
        import sys
        sys.stderr.write("x" * 500_000)
        sys.stderr.flush()
        n = len(sys.stdin.read())
        print('{"ok":true,"status":"OK","output_json":"%d"}' % n)
        """
        self.assertGreater(self.run_program(body, {"text": "y" * 3_000_000}), 3_000_000)

    def test_a_program_that_does_not_read(self) -> None:
        body = """print('{"ok":true,"status":"OK","output_json":"1"}')"""
        self.assertEqual(self.run_program(body, {"text": "y" * 3_000_000}), 1)

    def test_a_left_behind_child_neither_delays_nor_stays(self) -> None:
        body = f"""
        import os, time
        if os.fork() == 0:
            with open({self.folder!r} + "/new", "w") as file: file.write(str(os.getpid()))
            os.rename({self.folder!r} + "/new", {self.folder!r} + "/pid")
            time.sleep(600)
            os._exit(0)
        while not os.path.exists({self.folder!r} + "/pid"): time.sleep(0.01)
        print('{{"ok":true,"status":"OK","output_json":"1"}}')
        """
        began = time.monotonic()
        self.assertEqual(self.run_program(body, timeout_s=300), 1)
        self.assertLess(time.monotonic() - began, 150)
        wait_until(lambda: is_gone(int(self.read("pid"))), "end of the child left behind")

    # Which program, for how long

    def test_default_programs(self) -> None:
        """T-22, TH-116: `MACHINA_ROOT` names the workspace; its own program is preferred."""
        speak = """print('{"ok":true,"status":"OK","output_json":"\\\\"%s\\\\""}')"""
        self.program("bin/callgate", speak % "from PATH")
        os.environ["PATH"] = os.path.join(self.folder, "bin") + os.pathsep + os.environ["PATH"]
        self.assertEqual(dispatch(AID, {}), "from PATH")
        os.environ["MACHINA_ROOT"] = self.folder
        self.assertEqual(dispatch(AID, {}), "from PATH")
        self.program("build/machina_cli", speak % "from the root")
        self.assertEqual(dispatch(AID, {}), "from the root")
        del os.environ["MACHINA_ROOT"]
        self.assertEqual(dispatch(AID, {}, root=self.folder), "from the root")

    def test_a_relative_program_is_relative_to_the_caller(self) -> None:
        self.program("bin/cli", """print('{"ok":true,"status":"OK","output_json":"1"}')""")
        os.mkdir(os.path.join(self.folder, "elsewhere"))
        relative = os.path.relpath(os.path.join(self.folder, "bin/cli"))
        self.assertEqual(dispatch(AID, {}, program=relative, root=os.path.join(self.folder, "elsewhere")), 1)

    def test_timeout_kills_the_whole_group(self) -> None:
        """T-2: `MACHINA_TOOLHOST_TIMEOUT` in seconds, whole or not. T-3, TH-117: `timeout`."""
        body = f"""
        import os, time
        child = os.fork()
        if child: open({self.folder!r} + "/pids", "w").write("%d %d" % (os.getpid(), child))
        time.sleep(60)
        """
        for setting in ({"timeout_s": 3.5}, {}):
            os.environ["MACHINA_TOOLHOST_TIMEOUT"] = "60" if setting else "3.5"
            self.assertFailure(self.run_program(body, **setting), "timeout", "3.5 s")
            for pid in self.read("pids").split():
                wait_until(lambda: is_gone(int(pid)), "end of the group")

    def test_the_program_is_told_how_long_it_has(self) -> None:
        body = """
        import json, os
        print(json.dumps({"ok": True, "status": "OK", "output_json": json.dumps(os.environ.get("MACHINA_TOOLHOST_TIMEOUT"))}))
        """
        for timeout_s, told in ((None, None), (120, "120"), (67.25, "67.25"), (1_000_000, "1000000")):
            self.assertEqual(self.run_program(body, timeout_s=timeout_s), told)

    def test_timeout_variable_that_makes_no_sense(self) -> None:
        from callgate.dispatch import _timeout_s

        for text, seconds in [("5", 5.0), ("0.5", 0.5), ("", 30.0), ("x", 30.0), ("0", 30.0), ("-1", 30.0), ("nan", 30.0), ("inf", 30.0)]:
            self.assertEqual(_timeout_s(None, {"MACHINA_TOOLHOST_TIMEOUT": text}), seconds)
        self.assertEqual(_timeout_s(None, {}), 30.0)

    # The other failures

    def test_not_found(self) -> None:
        """T-3, TH-116: `not_found`."""
        self.assertFailure(dispatch(AID, {}, program=self.folder + "/absent"), "not_found", "absent")
        self.assertFailure(dispatch(AID, {}, program="no-such-program-anywhere"), "not_found", "on PATH")

    def test_crash(self) -> None:
        """T-3, TH-118: `crash`, whatever was printed."""
        self.assertFailure(self.run_program("import sys; sys.exit(7)"), "crash", "rc=7")
        self.assertFailure(self.run_program("import os; os.kill(os.getpid(), 9)"), "crash", "rc=-9")
        found = self.run_program("""import sys; print('{"ok":true,"status":"OK","output_json":"1"}'); print("why", file=sys.stderr); sys.exit(1)""")
        self.assertFailure(found, "crash", '"1"}\n\nwhy')
        found = self.run_program("import sys; sys.stdout.buffer.write(b'\\xff' * 100_000); sys.exit(1)")
        self.assertFailure(found, "crash", "\ufffd")
        self.assertLessEqual(len(found["detail"]), 4096)

    def test_empty_output(self) -> None:
        """T-3, TH-119: `empty_output`."""
        self.assertFailure(self.run_program(""), "empty_output", "nothing")
        self.assertFailure(self.run_program("print('  '); print()"), "empty_output", "nothing")

    def test_parse_error(self) -> None:
        """T-3, TH-120: `parse_error`."""
        for text in ["nonsense", "{", '{"ok":true} x', '{"ok":NaN}', "[" * 200_000]:
            self.assertFailure(self.answer(text), "parse_error", text[:7])
        self.assertEqual(self.answer("x" * 1000)["detail"].count("x"), 200)
        self.assertFailure(self.answer({"ok": True, "status": "OK", "output_json": "nonsense"}), "parse_error", "output_json")

    def test_output_at_and_past_one_megabyte(self) -> None:
        """T-3, T-19, TH-120: 1 048 576 bytes are read, one more is a `parse_error`."""
        body = """
        import sys
        size = %d
        frame = '{"ok":true,"status":"OK","output_json":"\\\\"%%s\\\\""}\\n'
        sys.stdout.write(frame %% ("x" * (size - len(frame %% ""))))
        """
        self.assertEqual(len(self.run_program(body % 1_048_575)), 1_048_575 - 47)
        self.assertEqual(len(self.run_program(body % 1_048_576)), 1_048_576 - 47)
        self.assertFailure(self.run_program(body % 1_048_577), "parse_error", "exceeds 1 MB")

    def test_a_flood_is_cut_off(self) -> None:
        body = f"""
        import os, sys
        open({self.folder!r} + "/pid", "w").write(str(os.getpid()))
        while True: os.write(1, b"x" * 65536)
        """
        self.assertFailure(self.run_program(body), "parse_error", "exceeds 1 MB")
        self.assertTrue(is_gone(int(self.read("pid"))))

    def test_tool_error(self) -> None:
        """T-3, TH-121, TH-123: `tool_error`; a reply with `ok: false` is never a success, whatever else it says. T-6: nor is a failing status beside `ok`."""
        for reply, detail in [
            ({"ok": False, "error": "tool not found: X"}, "tool not found: X"),
            ({"ok": False, "status": "OK", "output_json": "1"}, "does not say ok"),
            ({"ok": False}, "does not say ok"),
            ({"ok": "yes", "status": "OK", "output_json": "1"}, "does not say ok"),
            ({"output_json": "1"}, "does not say ok"),
            ({}, "does not say ok"),
            ({"ok": True, "status": "TOOL_ERROR", "output_json": "{}", "error": "broke"}, "broke"),
            ({"ok": True, "status": "BREAKER_TRIP", "error": ""}, "tool_exec status=BREAKER_TRIP"),
            ({"ok": False, "error": {"code": 7}}, '{"code": 7}'),
            ({"ok": False, "error": "lease_rejected", "reason": "expired"}, "lease_rejected"),
        ]:
            self.assertFailure(self.answer(reply), "tool_error", detail)

    def test_exception(self) -> None:
        """T-3, TH-122: `exception`."""
        self.assertFailure(self.answer("7"), "exception", "not an object")
        self.assertFailure(self.answer("[]"), "exception", "not an object")
        self.assertFailure(self.run_program("import sys; sys.stdout.buffer.write(b'\\xff\\n')"), "exception", "UnicodeDecodeError")
        for inputs in [{"x": object()}, {"x": float("nan")}, 7, {"x": {1, 2}}]:
            self.assertFailure(self.answer({"ok": True}, inputs=inputs), "exception", "Error")
        path = self.write("not_executable", "text")
        self.assertFailure(dispatch(AID, {}, program=path), "exception", "PermissionError")
        path = self.program("no_interpreter", "")
        with open(path, "w") as file:
            file.write("#!/no/such/interpreter\n")
        self.assertFailure(dispatch(AID, {}, program=path), "exception", "FileNotFoundError")
        self.assertFailure(self.answer({"ok": True}, root=self.folder + "/absent"), "exception", "not a folder")
        self.assertFailure(self.answer({"ok": True}, timeout_s=0), "exception", "positive")
        loop: dict[str, Any] = {}
        loop["loop"] = loop
        self.assertFailure(self.answer({"ok": True}, inputs=loop), "exception", "Error")

    def test_no_descriptor_is_left_open(self) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for body in ("", "import sys; sys.exit(1)", "print('x' * 2_000_000)"):
            self.run_program(body)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
