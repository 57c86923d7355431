"""`callgate.emit` against a runtime made of pipes: every event, every end of a run."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import unittest
from typing import Any

from support import Workspace  # puts the SDK on the path

from callgate.emit.request import BadRequest, parse
from emitting import REQUEST, Executor, python_executor

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
MIB = 1024 * 1024
CHUNK = 8 * MIB


class Emitting(Workspace):
    def start(self, body: str, request: Any = REQUEST) -> Executor:
        executor = Executor(python_executor(self.write("script.py", body)), self.folder, request)
        self.addCleanup(executor.__exit__)
        return executor

    def run_script(self, body: str, request: Any = REQUEST) -> tuple[int, list[Any], str]:
        """Exit code, frames and standard error of a script that is answered nothing."""
        executor = self.start(body, request)
        executor.stdin.close()
        frames = executor.frames()
        return executor.end(), frames, executor.printed()


def types(frames: list[Any]) -> list[str]:
    return [frame["type"] for frame in frames]


class EventTest(Emitting):
    def test_every_event(self) -> None:
        """ST-36, ST-38, ST-39, ST-40, ST-41: payloads without the options that were left out."""
        code, frames, _ = self.run_script(
            """
            def run(ctx):
                ctx.item("product", {"name": "lamp", "price": 7.5})
                ctx.checkpoint("page-1")
                ctx.checkpoint("page-2", note="half")
                ctx.enqueue("next.py", {"page": 3})
                ctx.enqueue("next.py", {"page": 4}, source="shop", category="lamps")
                ctx.rotate_proxy()
                ctx.rotate_proxy("blocked")
                ctx.log("warn", "slow")
                ctx.log("info", "done", {"pages": 2})
                ctx.run_complete({"items": 1})
            """
        )
        self.assertEqual(
            [(frame["type"], frame["payload"]) for frame in frames[:-1]],
            [
                ("item", {"item_type": "product", "data": {"name": "lamp", "price": 7.5}}),
                ("checkpoint", {"checkpoint_id": "page-1"}),
                ("checkpoint", {"checkpoint_id": "page-2", "note": "half"}),
                ("enqueue", {"target": "next.py", "params": {"page": 3}}),
                ("enqueue", {"target": "next.py", "params": {"page": 4}, "source": "shop", "category": "lamps"}),
                ("rotate_proxy", {}),
                ("rotate_proxy", {"reason": "blocked"}),
                ("log", {"level": "warn", "message": "slow"}),
                ("log", {"level": "info", "message": "done", "fields": {"pages": 2}}),
                ("run_complete", {"summary": {"items": 1}}),
            ],
        )
        self.assertEqual(code, 0)
        self.assertEqual(frames[-1], {"type": "run_result", "outcome": {"status": "completed", "message": None, "error_type": None, "stack": None}})

    def test_the_envelope(self) -> None:
        """ST-26, ST-27, ST-28, ST-29, ST-31, ST-33, ST-34, ST-35; ST-10: the request is one line of JSON."""
        request = {"run_id": "r-7", "attempt": 2, "parent_run_id": "r-6", "job_id": "j1", "job": {"q": "é"}}
        body = 'def run(ctx):\n    ctx.item("seen", {"job": ctx.job, "of": [ctx.run_id, ctx.attempt, ctx.job_id, ctx.parent_run_id]})'
        _, frames, _ = self.run_script(body, request)
        names = ["contract_version", "event_id", "run_id", "type", "ts", "payload", "attempt", "job_id", "parent_run_id", "seq"]
        for number, event in enumerate(frames[:-1], 1):
            self.assertEqual(list(event), names)
            self.assertRegex(event["event_id"], UUID4)
            self.assertRegex(event["ts"], TS)
            self.assertEqual((event["run_id"], event["attempt"], event["seq"]), ("r-7", 2, number))
            self.assertEqual(event["contract_version"], "0.13.4")
        self.assertEqual(frames[0]["payload"]["data"], {"job": {"q": "é"}, "of": ["r-7", 2, "j1", "r-6"]})
        self.assertNotEqual(frames[0]["event_id"], frames[1]["event_id"])
        first = self.run_script("def run(ctx): pass")[1]
        self.assertEqual(list(first[0]), [*names[:7], "seq"])

    def test_async_scripts_and_marked_functions(self) -> None:
        for body in (
            "import asyncio\nasync def run(ctx):\n    await asyncio.sleep(0)\n    ctx.item('a', {})",
            "from callgate.emit import run\n@run\ndef anything(ctx):\n    ctx.item('a', {})",
        ):
            code, frames, _ = self.run_script(body)
            self.assertEqual((code, types(frames)), (0, ["item", "run_complete", "run_result"]))

    def test_a_program_can_be_its_own_executor(self) -> None:
        for ending in ("main(work)", "run(work)"):
            path = self.write("own.py", f"from callgate.emit import main, run\ndef work(ctx):\n    ctx.item('a', {{}})\n{ending}\n")
            with Executor([sys.executable, path], self.folder) as executor:
                self.assertEqual(types(executor.frames()), ["item", "run_complete", "run_result"])
                self.assertEqual(executor.end(), 0)

    def test_a_value_that_can_not_be_sent_leaves_the_run_as_it_was(self) -> None:
        code, frames, _ = self.run_script(
            """
            import datetime
            def run(ctx):
                loop = []
                loop.append(loop)
                for bad in (float("nan"), object(), {1: 2}, 2**64, loop, "\\ud800", datetime.datetime(2026, 1, 1), b"x" * 2**24):
                    try:
                        ctx.item("bad", {"value": bad})
                    except (TypeError, ValueError):
                        ctx.checkpoint("refused")
                most = "é" * 512
                ctx.artifact(most, b"", most)
                for call in (
                    lambda: ctx.log("loud", "x"),
                    lambda: ctx.item("a", [1]),
                    lambda: ctx.item(1, {}),
                    lambda: ctx.artifact(most + "x", b""),
                    lambda: ctx.artifact("a", b"", most + "x"),
                ):
                    try:
                        call()
                    except (TypeError, ValueError):
                        ctx.checkpoint("refused")
            """
        )
        self.assertEqual(code, 0)
        artifact = ["artifact_chunk", "artifact"]
        self.assertEqual(types(frames), ["checkpoint"] * 8 + artifact + ["checkpoint"] * 5 + ["run_complete", "run_result"])
        events = [frame for frame in frames if "event_id" in frame]
        self.assertEqual([event["seq"] for event in events], list(range(1, 16)))

    def test_the_largest_event(self) -> None:
        """ST-3, S-1: 16 MiB with its prefix; one byte more is refused and the run goes on."""
        body = """
        def run(ctx):
            for size in ctx.job:
                try:
                    ctx.item("large", {"data": bytes(size)})
                except ValueError:
                    ctx.checkpoint("refused")
        """
        executor = self.start(body, {**REQUEST, "job": [1 << 17]})
        overhead = len(executor.frame_bytes() or b"") - (1 << 17)
        largest = 16 * MIB - 4 - overhead
        code, frames, _ = self.run_script(body, {**REQUEST, "job": [largest, largest + 1]})
        self.assertEqual((code, types(frames)), (0, ["item", "checkpoint", "run_complete", "run_result"]))

    def test_values_of_python(self) -> None:
        _, frames, _ = self.run_script(
            """
            import collections, dataclasses, datetime, decimal, enum
            class Colour(enum.Enum):
                RED = "red"
            class Level(enum.IntEnum):
                HIGH = 3
            @dataclasses.dataclass
            class Lamp:
                colour: Colour
                size: tuple
            utc = datetime.timezone.utc
            def run(ctx):
                ctx.item("lamp", Lamp(Colour.RED, (1, 2)))
                ctx.item("others", {"d": decimal.Decimal("1.5"), "o": collections.OrderedDict(a=1), "e": Level.HIGH, "b": bytearray(b"x"),
                    "t": datetime.datetime(2026, 1, 1, tzinfo=utc), "u": datetime.datetime(2026, 1, 1, microsecond=5, tzinfo=utc)})
            """
        )
        self.assertEqual(frames[0]["payload"]["data"], {"colour": "red", "size": [1, 2]})
        seconds = 1767225600
        others = {"d": 1.5, "o": {"a": 1}, "e": 3, "b": b"x", "t": (255, seconds.to_bytes(4, "big")), "u": (255, (5000 << 34 | seconds).to_bytes(8, "big"))}
        self.assertEqual(frames[1]["payload"]["data"], others)


class ArtifactTest(Emitting):
    SOURCES = """
    import io, pathlib
    def data(size):
        return bytes(range(251)) * (size // 251 + 1)
    def pieces(all):
        for start in range(0, len(all), 100_003):
            yield all[start : start + 100_003]
    async def later(all):
        for piece in pieces(all):
            yield piece
    async def run(ctx):
        all = data(ctx.job)[: ctx.job]
        pathlib.Path("big").write_bytes(all)
        ctx.artifact("a", all, "text/plain")
        ctx.artifact("b", pathlib.Path("big"))
        ctx.artifact("c", io.BytesIO(all))
        ctx.artifact("d", pieces(all))
        await ctx.artifact_from("e", later(all))
        ctx.artifact("f", memoryview(all))
    """

    def test_every_source_at_the_edges_of_a_chunk(self) -> None:
        """ST-58, ST-61, ST-62, ST-64: cut at 8 MiB; the commit record comes after the bytes."""
        for size in (0, 1, CHUNK - 1, CHUNK, CHUNK + 1):
            wanted = (bytes(range(251)) * (size // 251 + 1))[:size]
            cuts = [CHUNK] * (size // CHUNK) + ([size % CHUNK] if size % CHUNK or size == 0 else [])
            executor = self.start(self.SOURCES, {**REQUEST, "job": size})
            for name in "abcdef":
                digest, ids = hashlib.sha256(), set()
                for number, length in enumerate(cuts, 1):
                    chunk = executor.frame()
                    self.assertEqual(list(chunk), ["type", "artifact_id", "seq", "is_last", "data"])
                    self.assertEqual((chunk["seq"], chunk["is_last"], len(chunk["data"])), (number, number == len(cuts), length), (name, size))
                    digest.update(chunk["data"])
                    ids.add(chunk["artifact_id"])
                commit = executor.frame()["payload"]
                content_type = "text/plain" if name == "a" else "application/octet-stream"
                self.assertEqual(commit, {"artifact_id": ids.pop(), "name": name, "content_type": content_type, "size_bytes": size})
                self.assertEqual(list(commit), ["artifact_id", "name", "content_type", "size_bytes"])
                self.assertEqual((len(ids), digest.digest()), (0, hashlib.sha256(wanted).digest()))
            self.assertEqual(types(executor.frames()), ["run_complete", "run_result"])
            self.assertEqual(executor.end(), 0)

    def test_a_source_that_fails_midway_is_never_committed(self) -> None:
        code, frames, _ = self.run_script(
            """
            def pieces():
                yield b"x" * (8 * 1024 * 1024 + 1)
                raise OSError("gone")
            def run(ctx):
                for source in (pieces(), "text", ["text"], 7):
                    try:
                        ctx.artifact("a", source)
                    except (OSError, TypeError):
                        ctx.checkpoint("caught")
            """
        )
        self.assertEqual(code, 0)
        self.assertEqual(types(frames), ["artifact_chunk"] + ["checkpoint"] * 4 + ["run_complete", "run_result"])


class EndTest(Emitting):
    def outcome(self, body: str) -> tuple[int, list[str], Any]:
        code, frames, _ = self.run_script(body)
        self.assertEqual(types(frames).count("run_result"), 1)
        return code, types(frames)[:-1], frames[-1]["outcome"]

    def test_a_script_that_raises(self) -> None:
        """ST-42, ST-44, ST-46, ST-47, ST-48, ST-49: run_error, then one run_result, exit 1."""
        code, frames, _ = self.run_script("class Closed(Exception):\n    pass\ndef run(ctx):\n    raise Closed('no page')")
        error = frames[0]["payload"]
        self.assertEqual((code, types(frames)), (1, ["run_error", "run_result"]))
        self.assertEqual(list(error), ["error_type", "message", "stack"])
        self.assertEqual((error["error_type"], error["message"]), ("Closed", "no page"))
        self.assertIn("script.py", error["stack"])
        self.assertEqual(frames[1]["outcome"], {"status": "error", **error})
        self.assertEqual(list(frames[1]["outcome"]), ["status", "message", "error_type", "stack"])

    def test_every_other_way_to_end(self) -> None:
        """ST-43: and after a terminal event every call raises."""
        emits = ["ctx.item('a', {})", "ctx.artifact('a', b'')", "ctx.checkpoint('a')", "ctx.log('info', 'a')", "ctx.storage.put('a', b'')", "ctx.run_complete()", "ctx.run_error('a', 'b')"]
        tries = "".join(f"    try:\n        {emit}\n    except TerminalEventError:\n        refused += 1\n" for emit in emits)
        after = f"from callgate.emit import TerminalEventError\ndef run(ctx):\n    refused = 0\n    ctx.run_complete()\n{tries}    assert refused == {len(emits)}, refused\n    print('all refused')"
        code, frames, printed = self.run_script(after)
        self.assertEqual((code, types(frames), printed), (0, ["run_complete", "run_result"], "all refused\n"))
        for body, expected in {
            "def run(ctx): pass": (0, ["run_complete"], "completed", None),
            "import sys\ndef run(ctx): sys.exit()": (0, ["run_complete"], "completed", None),
            "import sys\ndef run(ctx): sys.exit(4)": (1, ["run_error"], "error", "SystemExit"),
            "def run(ctx): ctx.run_error('Blocked', 'by a wall')": (1, ["run_error"], "error", "Blocked"),
            "def run(ctx):\n    ctx.run_complete()\n    raise ValueError('late')": (0, ["run_complete"], "completed", None),
            "def run(ctx):\n    ctx.run_error('A', 'b')\n    ctx.item('late', {})": (1, ["run_error"], "error", "A"),
            "def run(ctx): raise ValueError('\\ud800' + 'x' * 2**25)": (1, ["run_error"], "error", "ValueError"),
            "def run(ctx): raise KeyboardInterrupt": (1, ["run_error"], "error", "KeyboardInterrupt"),
        }.items():
            code, events, outcome = self.outcome(body)
            self.assertEqual((code, events, outcome["status"], outcome["error_type"]), expected, body)

    def test_a_script_that_can_not_be_loaded(self) -> None:
        for body in ("def run(ctx)", "import no_such_module", "walk = 1", "raise SystemExit(0)", "from callgate.emit import run"):
            code, frames, printed = self.run_script(body)
            self.assertEqual((code, types(frames)), (2, ["run_result"]), body)
            self.assertEqual(frames[0]["outcome"]["status"], "crash")
            self.assertTrue(printed)
        with Executor(python_executor("absent.py"), self.folder) as executor:
            self.assertEqual(types(executor.frames()), ["run_result"])
            self.assertEqual(executor.end(), 2)

    def test_bad_requests(self) -> None:
        """ST-19: exit 3 and not one byte, for each field that ST-11, ST-12, ST-14, ST-15, ST-16 and ST-18 describe."""
        proxy = {"protocol": "http", "host": "p", "port": 1}
        storage = {"dataset": "d", "source": "s", "category": "c", "day": "2026-11-15", "run_id": "r"}
        good = [{"job": None}, {"proxy": proxy}, {"proxy": {**proxy, "username": "u", "password": "p"}}, {"storage": storage}, {"attempt": 2, "parent_run_id": "r-0"}, {"later": 1}]
        bad: list[Any] = [{"run_id": ""}, {"run_id": 1}, {"run_id": "\ud800"}, {"attempt": 0}, {"attempt": 1.5}, {"attempt": True}, {"attempt": "1"}]
        bad += [{"attempt": 2}, {"parent_run_id": "r-0"}, {"job_id": 1}, {"browser_ws_endpoint": 1}, {"proxy": "http://p:1"}]
        bad += [{"proxy": {**proxy, **change}} for change in ({"protocol": "ftp"}, {"host": ""}, {"port": 0}, {"port": 65536}, {"username": "u"}, {"password": "p"})]
        bad += [{"storage": 1}, {"storage": {**storage, "day": ""}}, {"storage": {"dataset": "d"}}]
        requests = [json.dumps({**REQUEST, **change}).encode() for change in bad]
        requests += [b"", b"[]", b"nothing", b'{"run_id":"r","attempt":1}', b'{"run_id":"r","attempt":1,"job":NaN}', b"\xff"]
        for request in requests:
            with self.assertRaises(BadRequest, msg=request):
                parse(request)
        for change in good:
            parse(json.dumps({**REQUEST, **change}).encode())
        script = self.write("script.py", "def run(ctx): pass")
        for request in (b"", b'{"run_id":"r","attempt":1}', b"\xff", b" " * (16 * MIB + 1)):
            with Executor(python_executor(script), self.folder, None) as executor:
                try:
                    executor.stdin.write(request + b"\n")
                except BrokenPipeError:
                    pass  # the one that is too long is not read to its end
                self.assertEqual((executor.frames(), executor.end()), ([], 3), request[:40])
                self.assertIn("callgate.emit: ", executor.printed())
        with Executor([sys.executable, "-m", "callgate.emit"], self.folder) as executor:
            self.assertEqual((executor.frames(), executor.end()), ([], 3))

    def test_a_request_without_a_line_end(self) -> None:
        script = self.write("script.py", "def run(ctx): pass")
        with Executor(python_executor(script), self.folder, None) as executor:
            executor.stdin.write(json.dumps(REQUEST).encode())
            executor.stdin.close()
            self.assertEqual((types(executor.frames()), executor.end()), (["run_complete", "run_result"], 0))

    def test_the_proxy_is_told_without_its_password(self) -> None:
        """ST-24, ST-25"""
        proxy = {"protocol": "socks5", "host": "p", "port": 1080, "username": "u", "password": "s3cret/"}
        body = "def run(ctx):\n    print(ctx.proxy)\n    assert ctx.proxy.url == 'socks5://u:s3cret%2F@p:1080'"
        code, frames, printed = self.run_script(body, {**REQUEST, "proxy": proxy})
        self.assertEqual(frames[-1]["proxy_used"], {"protocol": "socks5", "host": "p", "port": 1080, "username": "u"})
        self.assertEqual(code, 0)
        self.assertNotIn("s3cret", printed)
        del proxy["username"], proxy["password"]
        self.assertEqual(self.run_script("def run(ctx): ctx.proxy", {**REQUEST, "proxy": proxy})[1][-1]["proxy_used"], proxy)
        self.assertNotIn("proxy_used", self.run_script("def run(ctx): pass", {**REQUEST, "proxy": proxy})[1][-1])


class GuardTest(Emitting):
    def test_a_stray_print_is_harmless(self) -> None:
        """ST-9: by Python, by a descriptor, by a child and at import."""
        code, frames, printed = self.run_script(
            """
            import os, subprocess, sys
            print("at import")
            def run(ctx):
                print("print")
                sys.__stdout__.buffer.write(b"buffer\\n")
                sys.stdout.flush()
                os.write(1, b"descriptor\\n")
                subprocess.run(["echo", "child"], check=True)
                ctx.item("a", {})
                print("no line end", end="")
            """
        )
        self.assertEqual((code, types(frames)), (0, ["item", "run_complete", "run_result"]))
        self.assertEqual(printed, "at import\nprint\nbuffer\ndescriptor\nchild\nno line end")

    def test_answers_are_not_the_scripts_to_read(self) -> None:
        executor = self.start("import subprocess, sys\ndef run(ctx):\n    assert sys.stdin.read() == ''\n    subprocess.run(['cat'], check=True)\n    ctx.storage.put('a', b'')")
        self.assertEqual(executor.frame()["type"], "file_write")
        executor.ack(1)
        self.assertEqual(types(executor.frames()), ["run_complete", "run_result"])

    def test_a_child_left_behind_does_not_hold_the_stream(self) -> None:
        executor = self.start("import subprocess\ndef run(ctx):\n    ctx.item('a', {'pid': subprocess.Popen(['sleep', '600']).pid})")
        frames = executor.frames()
        self.assertEqual((len(frames), executor.end()), (3, 0))
        import os

        os.kill(frames[0]["payload"]["data"]["pid"], 9)


if __name__ == "__main__":
    unittest.main()
