"""`Parent` as a bridge sees it, behind the real bridge, and on every way out."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import unittest
from typing import Any, Optional

from support import SDK, WAIT_S, Workspace, end, wait_until
from test_with_callgate import CallgateCase

from callgate import Parent
from callgate.bridge import TakenError

LIMIT = 10_485_760


class Bridge:
    """One connection, spoken by hand."""

    def __init__(self, path: str) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(WAIT_S)
        self.stream.connect(path)

    def send(self, payload: bytes) -> None:
        self.stream.sendall(struct.pack(">I", len(payload)) + payload)

    def receive(self) -> Optional[Any]:
        prefix = self._exactly(4)
        return json.loads(self._exactly(struct.unpack(">I", prefix)[0])) if prefix else None

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self.stream.recv(length - len(data))
            if not part:
                return b""
            data += part
        return data

    def call(self, name: str, arguments: Optional[dict[str, Any]] = None) -> Any:
        self.send(json.dumps({"method": "call_tool", "params": {"name": name, "arguments": arguments or {}}}).encode())
        return self.receive()


def text(words: str) -> Any:
    return {"result": {"content": [{"type": "text", "text": words}]}}


def error(kind: str, message: str) -> Any:
    return {"error": {"message": message, "type": kind}}


class ParentCase(Workspace):
    def setUp(self) -> None:
        super().setUp()
        self.parents = os.path.join(self.folder, "parents")

    def parent(self, name: Optional[str] = None, said: str = "plain") -> Parent:
        """One with a function `say`."""
        parent = Parent(self.parents, name=name)
        parent.register(lambda _: said, name="say", description="Says.", input_schema={})
        self.addCleanup(parent.stop)
        return parent

    def left(self) -> list[str]:
        return sorted(os.listdir(self.parents))

    def connect(self, parent: Parent) -> Bridge:
        bridge = Bridge(parent.socket)
        self.addCleanup(bridge.stream.close)
        return bridge


class AnswersTest(ParentCase):
    def setUp(self) -> None:
        super().setUp()
        self.served = self.parent()
        tool = self.served.tool

        @tool
        def add(a: int, b: int = 1) -> int:
            """Adds two numbers."""
            return a + b

        @tool
        def fail(key: str) -> None:
            raise KeyError(key)

        @tool
        def leave() -> None:
            sys.exit(3)

        @tool
        def large() -> str:
            return "x" * LIMIT

        @tool
        def odd() -> Any:
            return {1, 2}

        @tool
        def odd_blocks() -> Any:
            return {"content": [{"type": "text", "text": {1, 2}}]}

        @tool
        def blocks() -> Any:
            return {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "isError": True}

        @tool
        def nothing() -> Any:
            return {"content": []}

        @tool
        async def later(x: str) -> str:
            await asyncio.sleep(0)
            return x

        self.served.register(lambda arguments: arguments, name="raw", description="As it came.", input_schema={"type": "object"})
        self.served.start()
        self.bridge = self.connect(self.served)

    def test_results(self) -> None:
        """BR-12, BR-13, BR-14, B-4."""
        call = self.bridge.call
        self.assertEqual(call("add", {"a": 1, "b": 2}), text("3"))
        self.assertEqual(call("raw", {"é": [1]}), text('{"é":[1]}'))
        self.assertEqual(call("later", {"x": "y"}), text("y"))
        self.assertEqual(call("nothing"), text(""))
        found = call("blocks")["result"]
        self.assertEqual((found["isError"], found["content"][0]["type"]), (True, "image"))

    def test_errors(self) -> None:
        """BR-15 to BR-18, B-6: an exception is told by its class, and the connection goes on."""
        call = self.bridge.call
        self.assertEqual(call("fail", {"key": "k"}), error("KeyError", "'k'"))
        self.assertEqual(call("leave"), error("SystemExit", "3"))
        self.assertEqual(call("absent"), error("ToolNotFoundError", "Unknown tool: absent"))
        self.assertEqual(call("odd"), error("TypeError", "the result is not JSON: a value of type set"))
        self.assertEqual(call("odd_blocks"), error("TypeError", "the result is not JSON: a value of type set"))
        self.assertEqual(call("large"), error("IPCMessageSizeError", "output exceeds 10 MiB"))
        self.assertEqual(call("add", {"a": 1}), text("2"))

    def test_arguments_that_do_not_fit(self) -> None:
        """B-9, BR-10: they are refused in the gate's words, and the function is not called."""
        for arguments, words in [
            ({"a": 1, "c": 2}, "bad input: c: unexpected: c"),
            ({"a": "1"}, "bad input: a: is not of type integer"),
            ({}, "bad input: a: is required"),
        ]:
            self.assertEqual(self.bridge.call("add", arguments), error("ValueError", words))
        parent = Parent(os.path.join(self.folder, "another"))
        called = []
        schema = {"type": "object", "properties": {"n": {"minimum": 1}}}
        parent.register(called.append, name="take", description="", input_schema=schema)
        with parent:
            bridge = self.connect(parent)
            self.assertEqual(bridge.call("take", {"n": 0}), error("ValueError", "bad input: n: is less than 1"))
            self.assertEqual(called, [])
            bridge.call("take", {"n": 1})
        self.assertEqual(called, [{"n": 1}])
        with self.assertRaisesRegex(ValueError, "`not` can not be checked here"):
            parent.register(called.append, name="odd", input_schema={"not": {}})

    def test_bad_messages(self) -> None:
        """BR-7 to BR-11, BR-21, B-5, G-1: a bad message in an intact frame is answered."""
        for payload, kind, words in [
            (b"{", "IPCError", "Invalid JSON"),
            (b"", "IPCError", "Invalid JSON"),
            (b'"\xff"', "IPCError", "Invalid JSON"),
            (b'{"a":1,"a":2}', "IPCError", "duplicate key"),
            (b'{"a":NaN}', "IPCError", "NaN is not JSON"),
            (b'{"a":1e999}', "IPCError", "beyond a double"),
            (b'"\\ud800"', "IPCError", "Invalid JSON"),
            (b"[" * 129 + b"]" * 129, "IPCError", "nested too deep"),
            (b"[" * 100_000, "IPCError", "Invalid JSON"),
            (b"[]", "IPCError", "Invalid message: expected dict"),
            (b'{"method":"x"}', "ValueError", "Unknown method: x"),
            (b"{}", "ValueError", "Unknown method: None"),
            (b'{"method":"call_tool","params":[]}', "ValueError", "Invalid params: expected dict"),
            (b'{"method":"call_tool","params":{"name":1}}', "ValueError", "Invalid tool name: expected string"),
            (b'{"method":"call_tool","params":{"name":"raw","arguments":null}}', "ValueError", "Invalid arguments: expected dict"),
        ]:
            self.bridge.send(payload)
            found: Any = self.bridge.receive()
            self.assertEqual(found["error"]["type"], kind, payload[:40])
            self.assertIn(words, found["error"]["message"])
        self.bridge.send(b'{"id":7,"method":"call_tool","params":{"name":"raw"}}')
        self.assertEqual(self.bridge.receive(), text("{}"))

    def test_bad_frames(self) -> None:
        """BR-6, B-5, B-6: at the limit, past it, and cut."""
        message = b'{"method":"x"}'
        self.bridge.send(message + b" " * (LIMIT - len(message)))
        self.assertEqual(self.bridge.receive(), error("ValueError", "Unknown method: x"))
        self.bridge.stream.sendall(struct.pack(">I", LIMIT + 1))
        found: Any = self.bridge.receive()
        self.assertEqual(found["error"]["type"], "IPCMessageSizeError")
        self.assertIsNone(self.bridge.receive(), "closed")
        cut = self.connect(self.served)
        cut.stream.sendall(b"\0\0\0\x10{")
        cut.stream.shutdown(socket.SHUT_WR)
        found = cut.receive()
        self.assertEqual(found["error"]["type"], "IPCError")
        self.assertIsNone(cut.receive(), "closed")
        self.assertEqual(self.connect(self.served).call("add", {"a": 1}), text("2"))

    def test_early_frames_are_answered_in_order(self) -> None:
        """BR-4, B-2."""
        for x in "abc":
            self.bridge.send(json.dumps({"method": "call_tool", "params": {"name": "later", "arguments": {"x": x}}}).encode())
        self.assertEqual([self.bridge.receive() for _ in "abc"], [text(x) for x in "abc"])

    def test_the_schema_file(self) -> None:
        """BR-29 to BR-34, B-7."""
        with open(self.served.schema, encoding="utf-8") as file:
            listed = {tool["name"]: tool for tool in json.load(file)}
        self.assertEqual(set(listed["add"]), {"name", "description", "input_schema"})
        self.assertEqual(listed["add"]["description"], "Adds two numbers.")
        self.assertEqual(listed["add"]["input_schema"]["required"], ["a"])
        for path in (self.served.schema, self.served.socket):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600, path)
        with self.assertRaises(RuntimeError):
            self.served.register(len, input_schema={})


class AsyncTest(ParentCase):
    def test_a_closed_connection_cancels(self) -> None:
        """BR-36."""
        parent, begun, ended = self.parent(), threading.Event(), threading.Event()

        @parent.tool
        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with parent:
            bridge = self.connect(parent)
            bridge.send(b'{"method":"call_tool","params":{"name":"wait"}}')
            self.assertTrue(begun.wait(WAIT_S))
            bridge.stream.close()
            self.assertTrue(ended.wait(WAIT_S))

    def test_functions_run_in_the_loop_that_started_them(self) -> None:
        parent = self.parent()

        @parent.tool
        async def same() -> bool:
            return asyncio.get_running_loop() is main_loop

        async def main() -> Any:
            global main_loop
            main_loop = asyncio.get_running_loop()
            with parent:
                return await main_loop.run_in_executor(None, lambda: self.connect(parent).call("same"))

        self.assertEqual(asyncio.run(main()), text("true"))
        self.assertEqual(self.left(), [])


class EndsTest(ParentCase):
    """BR-35, B-7: nothing is left, whatever ends the parent."""

    PROGRAM = """
    import os, sys, threading
    sys.path.insert(0, {sdk!r})
    from callgate import Parent
    parent = Parent({folder!r}, name="first")
    begun = threading.Event()

    @parent.tool
    def wait() -> None:
        begun.set()
        threading.Event().wait()

    def serve():
        print(parent.socket, flush=True)
        begun.wait()
        print("called", flush=True)
    """

    def process(self, rest: str) -> tuple[subprocess.Popen[str], str]:
        import textwrap

        # Whoever runs us in the background may have them ignored, which children inherit.
        heard = "import signal\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_DFL)\nsignal.signal(2, signal.default_int_handler)\n"
        code = heard + textwrap.dedent(self.PROGRAM).format(sdk=SDK, folder=self.parents) + textwrap.dedent(rest)
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(end, process)
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        assert path, process.communicate()
        # A bridge is connected and a call under way, which must not hold up the end.
        bridge = Bridge(path)
        self.addCleanup(bridge.stream.close)
        bridge.send(b'{"method":"call_tool","params":{"name":"wait"}}')
        self.assertEqual(process.stdout.readline().strip(), "called")
        return process, path

    def test_stop_and_start_again(self) -> None:
        """B-11 too: the paths stay the same."""
        for parent in (self.parent(), self.parent("notes")):
            entries = []
            for _ in range(2):
                parent.start()
                bridge = self.connect(parent)
                self.assertEqual(bridge.call("say"), text("plain"))
                entries.append(parent.client_entry())
                self.assertEqual(len(self.left()), 3)
                parent.stop()
                self.assertEqual(self.left(), [])
                self.assertIsNone(bridge.receive())
                parent.stop()
            self.assertEqual(entries[0], entries[1])
            self.assertEqual(entries[0], parent.client_entry(), "known while it is stopped")

    def test_names(self) -> None:
        """B-11: one living process has a name; the next one gets the place of a dead one."""
        for name in ("", "a/b", "..", "a.b", "é", "a\n", "x" * 65):
            with self.assertRaisesRegex(ValueError, "1 to 64 letters"):
                Parent(self.parents, name=name)
        for name in ("a-B_9", "x" * 64):
            with self.parent(name):
                pass
        first, second = self.parent("notes"), self.parent("notes", "second")
        first.start()
        for refused in (second, self.parent("notes")):
            with self.assertRaisesRegex(TakenError, f"`notes` is taken: process {os.getpid()} serves there"):
                refused.start()
        self.assertEqual(self.connect(first).call("say"), text("plain"), "the refused harmed nothing")
        first.stop()
        with second:
            self.assertEqual(self.connect(first).call("say"), text("second"), "the same socket")
        # What lost its lock belongs to nobody.
        self.write("parents/notes.json", "[")
        self.write("parents/notes.sock", "")
        with first:
            self.assertEqual(self.connect(first).call("say"), text("plain"))
        process, path = self.process("parent.start(); serve(); threading.Event().wait()")
        next_one = self.parent("first")
        with self.assertRaisesRegex(TakenError, f"`first` is taken: process {process.pid} serves there"):
            next_one.start()
        process.kill()
        process.wait(WAIT_S)
        with next_one:
            self.assertEqual(next_one.socket, path)
            self.assertEqual(self.connect(next_one).call("say"), text("plain"))
        self.assertEqual(self.left(), [])

    def test_a_name_has_one_owner(self) -> None:
        """B-11: of many that start at once under one name, one gets the place, again and again."""
        owners, wrong = threading.Semaphore(1), []

        def starts() -> None:
            for _ in range(50):
                parent = self.parent("one")
                try:
                    parent.start()
                except TakenError:
                    continue
                if not owners.acquire(blocking=False):
                    wrong.append("two owners")
                    return
                found = self.connect(parent).call("say")
                if found != text("plain"):
                    wrong.append(found)
                owners.release()
                parent.stop()

        threads = [threading.Thread(target=starts) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.left(), [])

    def test_a_sweepers_look_is_no_owner(self) -> None:
        """B-11: whoever starts waits for one that sweeps, whose look at a lock is no owner's."""
        parent, wrong = self.parent("one"), []
        with parent:
            pass
        held = [os.open(path, os.O_RDONLY) for path in (self.parents, self.write("parents/one.lock", ""))]
        for fd in held:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        inode = f":{os.fstat(held[0]).st_ino} "

        def start() -> None:
            try:
                parent.start()
            except TakenError as error:
                wrong.append(error)

        def waits() -> bool:
            with open("/proc/locks") as file:
                return not thread.is_alive() or any("-> " in line and inode in line for line in file)

        thread = threading.Thread(target=start)
        thread.start()
        wait_until(waits, "a parent that waits")
        for fd in reversed(held):
            os.close(fd)
        thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(self.left()), 3)

    def test_an_exception_in_the_with(self) -> None:
        with self.assertRaises(KeyError):
            with self.parent():
                raise KeyError("k")
        self.assertEqual(self.left(), [])

    def test_a_start_that_fails(self) -> None:
        parent = self.parent()
        parent.register(lambda arguments: None, name="bad", input_schema={"default": object()})
        with self.assertRaises(TypeError):
            parent.start()
        self.assertEqual(self.left(), [])
        os.chmod(self.parents, 0o755)
        with self.assertRaises(PermissionError):
            Parent(self.parents).start()

    def test_ends_of_a_program(self) -> None:
        for name, rest, code in [
            ("exit", "parent.start(); serve()", 0),
            ("sys.exit", "parent.start(); serve(); sys.exit(5)", 5),
            ("exception", "with parent:\n    serve()\n    raise SystemError('on purpose')", 1),
            ("exception without with", "parent.start(); serve(); raise SystemError('on purpose')", 1),
        ]:
            process, _ = self.process(rest)
            self.assertEqual(process.wait(WAIT_S), code, name)
            self.assertEqual(self.left(), [], name)

    def test_signals(self) -> None:
        for rest in ("parent.start(); serve(); threading.Event().wait()", "with parent:\n    serve()\n    threading.Event().wait()"):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                process, _ = self.process(rest)
                process.send_signal(number)
                self.assertEqual(process.wait(WAIT_S), -number, rest)
                self.assertEqual(self.left(), [], number)

    def test_a_handler_of_the_program_stays(self) -> None:
        process, _ = self.process("import signal; signal.signal(15, lambda *_: sys.exit(7)); parent.start(); serve(); threading.Event().wait()")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(WAIT_S), 7)
        self.assertEqual(self.left(), [])

    def test_a_forked_child_leaves_its_parents_files(self) -> None:
        """Nor does its end, or its `stop`, end the serving; and it can serve its own copy."""
        parent = self.parent()
        parent.start()
        bridge = self.connect(parent)
        self.assertEqual(bridge.call("say"), text("plain"))
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(int(WAIT_S))
                parent.stop()
                parent.start()
                entries = len(self.left())
                parent.stop()
                os._exit(entries)
            finally:
                os._exit(99)
        self.assertEqual(os.waitpid(pid, 0)[1] >> 8, 6)
        self.assertEqual(len(self.left()), 3)
        self.assertEqual(bridge.call("say"), text("plain"))
        self.assertEqual(self.connect(parent).call("say"), text("plain"))
        # Ends as a program does, with what it has registered for that.
        process, _ = self.process("parent.start()\nif os.fork() == 0: sys.exit()\nos.wait()\nserve(); threading.Event().wait()")
        process.kill()

    def test_a_forked_child_does_not_keep_the_name(self) -> None:
        process, path = self.process(
            """
            parent.start()
            ready, tell = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(tell, b"x")
                signal.pause()
            os.read(ready, 1)
            serve()
            print(child, flush=True)
            threading.Event().wait()
            """
        )
        assert process.stdout is not None
        child = int(process.stdout.readline())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        process.kill()
        process.wait(WAIT_S)
        with socket.socket(socket.AF_UNIX) as stream, self.assertRaises(ConnectionRefusedError):
            stream.connect(path)
        with self.parent("first") as parent:
            self.assertEqual(self.connect(parent).call("say"), text("plain"))

    def test_left_behind_and_swept_at_the_next_start(self) -> None:
        living = self.parent()
        living.start()
        for rest, code in [
            ("parent.start(); serve(); threading.Event().wait()", -signal.SIGKILL),
            ("parent.start(); serve(); os._exit(5)", 5),
        ]:
            process, path = self.process(rest)
            if code < 0:
                process.kill()
            self.assertEqual(process.wait(WAIT_S), code)
            self.assertTrue(os.path.exists(path))
            self.assertEqual(len(self.left()), 6)
            with self.parent():
                self.assertFalse(os.path.exists(path))
                self.assertEqual(len(self.left()), 6, "the living one's and the new one's")
        living.stop()
        self.assertEqual(self.left(), [])


class RealBridge:
    """The real bridge of a client's entry, and the MCP client at its other end."""

    def __init__(self, case: unittest.TestCase, entry: dict[str, Any]) -> None:
        self.process = subprocess.Popen([entry["command"], *entry["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        case.addCleanup(end, self.process)

    def ask(self, method: str, params: Any = None) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def greet(self, name: str) -> tuple[str, bool]:
        result = self.ask("tools/call", {"name": "greet", "arguments": {"name": name}})
        return result["content"][0]["text"], result["isError"]

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(WAIT_S)


class RealBridgeTest(CallgateCase):
    def test_through_the_bridge(self) -> None:
        """B-1, B-3, B-11, BR-23 to BR-26: an MCP client's view, across two lives of the parent."""
        folder = os.path.join(self.folder, "parents")
        parent = Parent(folder)

        @parent.tool
        def greet(name: str) -> str:
            """Greets."""
            if not name:
                raise ValueError("name whom to greet")
            return f"Hello {name}"

        with parent:
            bridge = RealBridge(self, parent.client_entry(self.program_path))
            self.assertEqual([tool["name"] for tool in bridge.ask("tools/list")["tools"]], ["greet"])
            self.assertEqual(bridge.greet("Ada"), ("Hello Ada", False))
            self.assertEqual(bridge.greet(""), ("name whom to greet (type: ValueError)", True))
        words, is_error = bridge.greet("Ada")
        self.assertTrue(is_error and "Cannot connect" in words, words)
        self.assertEqual(bridge.ask("ping"), {})
        with parent:
            self.assertEqual(bridge.greet("Bob"), ("Hello Bob", False), "started again")
            parent.stop()
            parent.start()
            self.assertEqual(bridge.greet("Cy"), ("Hello Cy", False), "away between two calls only")
        self.assertEqual(bridge.end(), 0)
        self.assertEqual(os.listdir(folder), [])

    def test_a_parent_that_was_killed_comes_back(self) -> None:
        """B-3, B-11: under its name, the bridge that was there before goes on with it."""
        folder = os.path.join(self.folder, "parents")
        program = self.write(
            "greeter.py",
            """
            import json, sys
            from callgate import Parent
            parent = Parent(sys.argv[1], name="greeter")

            @parent.tool
            def greet(name: str) -> str:
                return f"{sys.argv[2]} {name}"

            with parent:
                print(json.dumps(parent.client_entry(sys.argv[3])), flush=True)
                sys.stdin.read()
            """,
        )

        def start(word: str) -> tuple[subprocess.Popen[str], Any]:
            command = [sys.executable, program, folder, word, self.program_path]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.addCleanup(end, process)
            assert process.stdout is not None
            return process, json.loads(process.stdout.readline())

        first, entry = start("Hello")
        bridge = RealBridge(self, entry)
        self.assertEqual(bridge.greet("Ada"), ("Hello Ada", False))
        first.kill()
        first.wait(WAIT_S)
        second, again = start("Welcome")
        self.assertEqual(again, entry)
        self.assertEqual(bridge.greet("Ada"), ("Welcome Ada", False))
        second.kill()
        second.wait(WAIT_S)
        words, is_error = bridge.greet("Ada")
        self.assertTrue(is_error and "Cannot connect" in words, words)
        third, _ = start("Once more")
        self.assertEqual(bridge.greet("Ada"), ("Once more Ada", False))
        assert third.stdin is not None
        third.stdin.close()
        self.assertEqual(third.wait(WAIT_S), 0)
        self.assertEqual(os.listdir(folder), [])
        self.assertEqual(bridge.end(), 0)


if __name__ == "__main__":
    unittest.main()
