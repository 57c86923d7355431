"""The vectors that every executor SDK is held to: the same steps give the same bytes.

`vectors/stream/executors.json` has them; ids and times are the only difference
that is allowed, and are made equal before bytes are compared.
"""

from __future__ import annotations

import json
import os
import re
import unittest
from dataclasses import asdict
from typing import Any, Optional

from support import SDK, WAIT_S, Workspace  # puts the SDK on the path

from callgate.emit.acks import Acks, StorageError
from callgate.emit.request import parse
from emitting import Executor, decode, python_executor

VECTORS = os.path.join(SDK, "..", "..", "vectors", "stream")


def vectors(name: str) -> Any:
    with open(os.path.join(VECTORS, name), encoding="utf-8") as file:
        return json.load(file)


def octets_of(notation: str) -> bytes:
    """Hex digits and text in quotes."""
    parts = notation.split("'")
    return b"".join(part.encode() if at % 2 else bytes.fromhex(part) for at, part in enumerate(parts))


# Takes the steps of a case, one call each.
SCRIPT = """
import json, os
from callgate.emit import StorageError

def plain(value):
    if isinstance(value, dict) and list(value) == ["$bytes"]:
        return bytes.fromhex(value["$bytes"])
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return [plain(member) for member in value] if isinstance(value, list) else value

def run(ctx):
    with open("steps.json", encoding="utf-8") as file:
        steps = json.load(file)
    for name, *arguments in steps:
        try:
            (ctx.storage.put if name == "put" else getattr(ctx, name))(*plain(arguments))
        except StorageError as error:
            ctx.log("warn", str(error))
"""


def alike(payloads: list[bytes]) -> list[bytes]:
    """Ids numbered as they come, all times one."""
    ids: dict[bytes, bytes] = {}

    def numbered(found: re.Match[bytes]) -> bytes:
        return ids.setdefault(found[0], b"00000000-0000-4000-8000-%012d" % (len(ids) + 1))

    uuid = rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    time = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    return [re.sub(time, b"2000-01-01T00:00:00.000Z", re.sub(uuid, numbered, payload)) for payload in payloads]


def readable(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, dict):
        return {key: readable(member) for key, member in value.items()}
    return [readable(member) for member in value] if isinstance(value, list) else value


class VectorTest(Workspace):
    def test_the_same_steps_give_the_same_bytes(self) -> None:
        self.write("script.py", SCRIPT)
        for case in vectors("executors.json"):
            with self.subTest(case["name"]):
                frames, code = self.play(case)
                self.assertEqual([frame.hex() for frame in frames], [frame["hex"] for frame in case["frames"]])
                self.assertEqual(code, case["exit"])
                self.assertEqual([readable(decode(frame)) for frame in frames], [frame["says"] for frame in case["frames"]])

    def play(self, case: dict[str, Any]) -> tuple[list[bytes], int]:
        self.write("steps.json", json.dumps(case["steps"]))
        frames, acks = [], iter(case.get("acks", []))
        with Executor(python_executor("script.py"), self.folder, case["request"]) as executor:
            for payload in iter(executor.frame_bytes, None):
                frames.append(payload)
                frame = decode(payload)
                if frame["type"] == "file_write":
                    executor.ack(frame["write_id"], **next(acks))
            return alike(frames), executor.end()


class ReadTest(unittest.TestCase):
    def test_answers_at_every_split(self) -> None:
        """ST-75"""
        for case in vectors("acks.json"):
            octets, wanted = octets_of(case["bytes"]), case["ack"]
            for cut in range(len(octets) + 1):
                with self.subTest(case["name"], cut=cut):
                    self.assertEqual(answer(octets[:cut], octets[cut:], wanted["write_id"]), wanted.get("error"))

    def test_requests(self) -> None:
        for case in vectors("requests.json"):
            with self.subTest(case["name"]):
                request = parse(case["line"].encode())
                self.assertEqual(said(asdict(request)), {**case["says"], "job": request.job})
                self.assertEqual(request.job, case["says"]["job"])
                used = None if request.proxy is None else request.proxy.redacted()
                self.assertEqual(used, case.get("proxy_used"))
                self.assertNotIn("p@ss", repr(request))


def answer(first: bytes, rest: bytes, write_id: int) -> Optional[str]:
    """What a write is told by an answer that comes in two parts: nothing, or why it was refused."""
    reader, writer = os.pipe()
    acks = Acks(reader, first)
    acks.expect(write_id)
    os.write(writer, rest)
    os.close(writer)
    try:
        acks.wait(write_id)
        return None
    except StorageError as error:
        return str(error)
    finally:
        assert acks._reader is not None
        acks._reader.join(WAIT_S)
        os.close(reader)


def said(members: dict[str, Any]) -> dict[str, Any]:
    """Without what was not said."""
    given = {name: value for name, value in members.items() if value is not None or name == "job"}
    return {name: said(value) if name in ("proxy", "storage") else value for name, value in given.items()}


if __name__ == "__main__":
    unittest.main()
