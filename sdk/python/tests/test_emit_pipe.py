"""`callgate.emit` and its two pipes: answers, backpressure, a runtime that goes away."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
import unittest
from typing import Any

from emitting import REQUEST, Executor, ack
from support import wait_until
from test_emit import Emitting, types

# `fcntl` has it from Python 3.10 on.
F_GETPIPE_SZ = 1032
PLACE = {"dataset": "d", "source": "s", "category": "c", "day": "2026-11-15", "run_id": "r-1"}


class StorageTest(Emitting):
    def test_a_refused_write_is_recoverable(self) -> None:
        """ST-71, ST-72, ST-73, ST-74, ST-75: every later emit works."""
        executor = self.start(
            """
            from callgate.emit import StorageError
            def run(ctx):
                ctx.item("key", {"key": ctx.storage.put("a.txt", b"one", "text/plain")})
                try:
                    ctx.storage.put("a.txt", b"two")
                except StorageError as error:
                    ctx.item("caught", {"words": str(error)})
                for bad in ("", "a/b", "a\\\\b", "a..b"):
                    try:
                        ctx.storage.put(bad, b"")
                    except ValueError:
                        ctx.item("bad", {})
                try:
                    ctx.storage.put("large", bytes(8 * 1024 * 1024 + 1))
                except ValueError:
                    ctx.item("bad", {})
                ctx.storage.put("b.bin", bytes(8 * 1024 * 1024))
            """,
            {**REQUEST, "storage": PLACE},
        )
        first = executor.frame()
        self.assertEqual(first, {"type": "file_write", "write_id": 1, "filename": "a.txt", "content_type": "text/plain", "data": b"one"})
        self.assertEqual(list(first), ["type", "write_id", "filename", "content_type", "data"])
        # An answer to nobody and a frame that is none come first, and are passed over.
        executor.stdin.write(ack(9) + struct.pack(">I", 1) + b"\xc1" + struct.pack(">I", 2**20 + 1) + bytes(2**20 + 1))
        executor.ack(1)
        key = executor.frame()["payload"]["data"]["key"]
        self.assertEqual(key, "datasets/d/partitions/source=s/category=c/day=2026-11-15/run_id=r-1/files/a.txt")
        self.assertEqual(executor.frame()["write_id"], 2)
        executor.ack(2, ok=False, error="a.txt exists already")
        self.assertEqual(executor.frame()["payload"]["data"], {"words": "a.txt exists already"})
        self.assertEqual([executor.frame()["payload"]["item_type"] for _ in range(5)], ["bad"] * 5)
        last = executor.frame()
        self.assertEqual((last["write_id"], len(last["data"])), (3, 8 * 1024 * 1024))
        executor.ack(3)
        self.assertEqual(types(executor.frames()), ["run_complete", "run_result"])
        self.assertEqual(executor.end(), 0)

    PUTS = """
    from callgate.emit import StorageError
    def run(ctx):
        for name in ("a", "b", "c"):
            try:
                ctx.storage.put(name, b"")
                ctx.item("kept", {})
            except StorageError:
                ctx.item("lost", {})
    """

    def test_an_old_runtime_answers_nothing(self) -> None:
        code, frames, _ = self.run_script(self.PUTS)
        kept = [frame["payload"]["item_type"] for frame in frames if frame["type"] == "item"]
        self.assertEqual((code, kept), (0, ["kept"] * 3))

    def test_a_runtime_that_answered_once_and_went_away(self) -> None:
        executor = self.start(self.PUTS)
        executor.ack(1)
        executor.stdin.close()
        kept = [frame["payload"]["item_type"] for frame in executor.frames() if frame["type"] == "item"]
        self.assertEqual(kept, ["kept", "lost", "lost"])

    def test_answers_that_are_none_are_passed_over(self) -> None:
        """Whatever is in them, the reader reads on and nobody waits for ever."""
        executor = self.start("def run(ctx): ctx.storage.put('a', b'')")
        executor.frame()
        head = b"\x83\xa4type\xaefile_write_ack\xa8write_id"
        beyond_the_calendar = b"\xc7\x0c\xff" + struct.pack(">Iq", 0, 2**62)
        for write_id in (beyond_the_calendar, b"\x91\x01", b"\x80", b"\xc3", b"\xcb" + struct.pack(">d", 1.0), b"\xc0"):
            payload = head + write_id + b"\xa2ok\xc2"
            executor.stdin.write(struct.pack(">I", len(payload)) + payload)
        executor.ack(1)
        self.assertEqual(types(executor.frames()), ["run_complete", "run_result"])
        self.assertEqual(executor.end(), 0)

    def test_a_refusal_that_nobody_catches_fails_the_script(self) -> None:
        executor = self.start("def run(ctx): ctx.storage.put('a', b'')")
        executor.ack(1, ok=False)
        frames = executor.frames()
        self.assertEqual((executor.end(), frames[1]["payload"]["error_type"]), (1, "StorageError"))


class ThreadTest(Emitting):
    def test_many_threads_one_stream(self) -> None:
        executor = self.start(
            """
            import threading
            def work(ctx, name):
                for number in range(200):
                    ctx.item(name, {"number": number, "text": "x" * (number * 7)})
                ctx.artifact(name, (bytes(100_000) for _ in range(90)))
                ctx.storage.put(name, name.encode())
            def run(ctx):
                threads = [threading.Thread(target=work, args=(ctx, str(n))) for n in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            """
        )
        frames = []
        for frame in iter(executor.frame, None):
            frames.append(frame)
            if frame["type"] == "file_write":
                executor.ack(frame["write_id"])
        events = [frame for frame in frames if "event_id" in frame]
        self.assertEqual([event["seq"] for event in events], list(range(1, len(events) + 1)))
        for name in "0123":
            numbers = [e["payload"]["data"]["number"] for e in events if e["payload"].get("item_type") == name]
            self.assertEqual(numbers, list(range(200)))
        self.assertEqual(sum(event["payload"].get("size_bytes", 0) for event in events), 4 * 9_000_000)
        self.assertEqual(types(frames).count("file_write"), 4)


class BackpressureTest(Emitting):
    """ST-77, ST-78, ST-79, judged by where the bytes are while nobody reads them."""

    BODY = """
    import mmap, struct
    def run(ctx):
        with open("returned", "r+b") as file:
            returned = mmap.mmap(file.fileno(), 8)
        for number in range(ctx.job["events"]):
            ctx.item("n", {"number": number, "text": "x" * 1000})
            returned[:] = struct.pack("<q", number + 1)
        with open("/proc/self/status") as file:
            ctx.item("status", {"text": file.read()})
    """
    EVENTS = 20_000

    def test_a_reader_that_does_not_read_stalls_the_script(self) -> None:
        self.write("returned", "\0" * 8)
        executor = self.start(self.BODY, {**REQUEST, "job": {"events": self.EVENTS}})
        capacity = fcntl.fcntl(executor.stdout.fileno(), F_GETPIPE_SZ)
        first = executor.frame_bytes()
        assert first is not None
        frame_bytes = 4 + len(first)
        pid = executor.process.pid
        # Frames leave gaps in a pipe's pages: full is less than its capacity.
        wait_until(lambda: waiting(executor) > capacity * 3 // 4 and is_asleep(pid), "the pipe is full and the script waits")
        # The most it ever had: what it has now, the kernel may take some of away meanwhile.
        stalled_kib = memory_kib(pid, "VmHWM")
        returned = struct.unpack("<q", self.read_bytes("returned"))[0]
        # What has returned is in the pipe, but for the frame that was read: nothing is held back.
        self.assertLessEqual(returned, 1 + waiting(executor) // frame_bytes)
        for number in range(1, self.EVENTS):
            event = executor.frame()
            self.assertEqual((event["seq"], event["payload"]["data"]["number"]), (number + 1, number))
        status = executor.frame()["payload"]["data"]["text"]
        self.assertLess(kib_in(status, "VmHWM"), stalled_kib + 8192)
        self.assertEqual(types(executor.frames()), ["run_complete", "run_result"])
        self.assertEqual(executor.end(), 0)

    def test_an_artifact_of_any_size_in_constant_memory(self) -> None:
        executor = self.start(
            """
            def run(ctx):
                piece = bytes(1 << 20)
                ctx.artifact("large", (piece for _ in range(256)))
                with open("/proc/self/status") as file:
                    ctx.item("status", {"text": file.read()})
            """
        )
        chunks = [executor.frame() and None for _ in range(32)]
        self.assertEqual(len(chunks), 32)
        self.assertEqual(executor.frame()["payload"]["size_bytes"], 256 << 20)
        text = executor.frame()["payload"]["data"]["text"]
        self.assertLess(kib_in(text, "VmHWM"), 64 * 1024)

    def test_a_pipe_that_somebody_made_non_blocking(self) -> None:
        script = self.write("script.py", "def run(ctx):\n    for number in range(2000):\n        ctx.item('n', {'text': 'x' * 1000})")
        with Executor([sys.executable, "-m", "callgate.emit", script], self.folder, is_blocking=False) as executor:
            wait_until(lambda: waiting(executor) > 1 << 15 and is_asleep(executor.process.pid), "the script waits")
            self.assertEqual(len(executor.frames()), 2002)
            self.assertEqual(executor.end(), 0)

    def read_bytes(self, name: str) -> bytes:
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()


class GoneTest(Emitting):
    def test_a_runtime_that_closes_the_pipe(self) -> None:
        """The script is told by every emit, its process is not killed by the signal, and exits with 2."""
        executor = self.start(
            """
            import sys
            from callgate.emit import SinkFailedError
            def run(ctx):
                try:
                    while True:
                        ctx.item("a", {})
                except SinkFailedError:
                    print("told")
                try:
                    ctx.storage.put("a", b"")
                except SinkFailedError:
                    print("told again")
            """
        )
        executor.frame()
        executor.stdout.close()
        self.assertEqual(executor.end(), 2)
        self.assertTrue(executor.printed().startswith("told\ntold again\ncallgate.emit: nothing reaches the runtime"), executor.printed())

    def test_nobody_there_from_the_start(self) -> None:
        executor = self.start("def run(ctx): ctx.item('a', {})", None)
        executor.stdout.close()
        executor.stdin.write(b'{"run_id":"r","attempt":1,"job":null}\n')
        self.assertEqual(executor.end(), 2)


def waiting(executor: Executor) -> int:
    """Bytes in the pipe."""
    buffer = bytearray(4)
    fcntl.ioctl(executor.stdout.fileno(), termios.FIONREAD, buffer)
    return int(struct.unpack("i", buffer)[0])


def is_asleep(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def memory_kib(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status") as file:
        return kib_in(file.read(), name)


def kib_in(status: str, name: str) -> int:
    found: Any = next(line for line in status.splitlines() if line.startswith(name + ":"))
    return int(found.split()[1])


if __name__ == "__main__":
    unittest.main()
