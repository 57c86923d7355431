"""The SDK against the real binary, whose path the environment variable `CALLGATE_BIN` holds."""

from __future__ import annotations

import json
import os
import unittest
import uuid
from typing import Any
from unittest import mock

from support import SDK, Workspace

from callgate import Call, DispatchFailure, ToolhostClient, dispatch, run_machina_toolhost

ECHO = "AID.BUILTIN.ECHO.v1"
APPEND = "AID.MEMORY.APPEND.v1"
QUERY = "AID.MEMORY.QUERY.v1"
NO_CHANGE = {"delta": True, "slots": {}, "removed_slots": []}


class CallgateCase(Workspace):
    """A test with the binary, an empty workspace and a state folder of its own."""

    def setUp(self) -> None:
        super().setUp()
        self.program_path = os.environ.get("CALLGATE_BIN", "")
        if not self.program_path:
            self.fail("CALLGATE_BIN is not set: give it the path of the callgate binary, for example target/debug/callgate")
        if not os.access(self.program_path, os.X_OK):
            self.fail(f"CALLGATE_BIN is not a program: {self.program_path}")
        self.program_path = os.path.abspath(self.program_path)
        self.workspace = os.path.join(self.folder, "workspace")
        self.state = os.path.join(self.folder, "state")
        os.mkdir(self.workspace)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MACHINA_")}
        # Workers find the SDK as a user's would: installed, here by PYTHONPATH.
        patch = mock.patch.dict(os.environ, {**clean, "CALLGATE_STATE": self.state, "PYTHONPATH": SDK}, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def client(self, plugin: str = "builtin", **options: Any) -> ToolhostClient:
        client = ToolhostClient(plugin, self.program_path, cwd=self.workspace, **options)
        self.addCleanup(client.close)
        return client


class DispatchTest(CallgateCase):
    def dispatch(self, aid: str, inputs: dict[str, Any]) -> Any:
        return dispatch(aid, inputs, program=self.program_path, root=self.workspace)

    def test_echo(self) -> None:
        """T-1: `tool_exec` takes `aid` and `inputs`."""
        for inputs in ({}, {"text": "é \u2028 \U0001f600", "n": [1, 2.5, None, {"deep": True}]}):
            self.assertEqual(self.dispatch(ECHO, inputs), inputs)
        text = run_machina_toolhost(ECHO, {"a": 1}, program=self.program_path, root=self.workspace)
        self.assertIsInstance(text, str)
        self.assertEqual(json.loads(str(text)), {"a": 1})

    def test_memory_outlives_the_process(self) -> None:
        self.assertNotIsInstance(self.dispatch(APPEND, {"text": "the heron stands in the reeds"}), DispatchFailure)
        found = self.dispatch(QUERY, {"query": "heron", "k": 3})
        self.assertNotIsInstance(found, DispatchFailure)
        self.assertIn("the heron stands in the reeds", json.dumps(found))

    def test_unknown_tool(self) -> None:
        """T-20, T-3: an unknown AID comes back as a `tool_error`."""
        found = self.dispatch("AID.NO.SUCH.v1", {})
        self.assertEqual(found, {"error": True, "aid": "AID.NO.SUCH.v1", "type": "tool_error", "detail": "MISSING_TOOL: AID.NO.SUCH.v1"})

    def test_input_past_the_limit(self) -> None:
        """T-8: over 10 MiB the tool does not run and the exit code is 5."""
        found = self.dispatch(ECHO, {"text": "x" * (10 * 1024 * 1024)})
        self.assertEqual((found["type"], "stdin exceeds 10MB limit" in found["detail"]), ("crash", True), str(found)[:300])

    def test_output_past_the_limit(self) -> None:
        """T-19: an output too large for a reply line is a failure, told in a short reply."""
        found = self.dispatch(ECHO, {"text": "x" * (2 * 1024 * 1024)})
        self.assertEqual((found["type"], "output exceeds 1 MiB" in found["detail"]), ("tool_error", True), str(found)[:300])

    def test_lease_required(self) -> None:
        """T-16: enforcement applies to `tool_exec`."""
        with mock.patch.dict(os.environ, {"MACHINA_LEASE_ENFORCE": "1"}):
            found = self.dispatch(APPEND, {"text": "x"})
        self.assertEqual((found["type"], "lease_required" in found["detail"]), ("tool_error", True), found)


class ClientTest(CallgateCase):
    def test_echo_and_memory(self) -> None:
        """T-11: the word `builtin` names the built-in tools."""
        with self.client() as client:
            reply = client.call(ECHO, {"a": [1, "é"]})
            self.assertEqual((reply.ok, reply.status, reply.output, reply.error), (True, "OK", {"a": [1, "é"]}, ""))
            self.assertTrue(client.call(APPEND, {"text": "owls hunt at night"}).succeeded)
            found = client.call(QUERY, {"query": "owls", "k": 1})
            self.assertTrue(found.succeeded, found)
            self.assertIn("owls hunt at night", json.dumps(found.output))

    def test_a_key_runs_once(self) -> None:
        """T-9: the hit says so, and carries an empty delta. T-7: the recorded outcome is replayed."""
        client = self.client()
        key = str(uuid.uuid4())
        first = client.call(APPEND, {"text": "only once"}, idempotency_key=key)
        again = client.call(APPEND, {"text": "only once"}, idempotency_key=key)
        self.assertEqual((first.succeeded, first.idempotent_hit), (True, False))
        self.assertEqual((again.succeeded, again.idempotent_hit, again.output), (True, True, first.output))
        self.assertEqual(again.raw["ds_state"], NO_CHANGE)
        found = client.call(QUERY, {"query": "only once", "k": 10}).output["matches"]
        self.assertEqual(json.dumps(found).count("only once"), 1)

    def test_a_key_outlives_the_process(self) -> None:
        """G-3: keys are durable, so a retry that meets a new process runs nothing twice."""
        key = str(uuid.uuid4())
        with self.client() as client:
            first = client.call(APPEND, {"text": "durable"}, idempotency_key=key)
        with self.client() as client:
            again = client.call(APPEND, {"text": "durable"}, idempotency_key=key, retry=True)
        self.assertEqual((again.idempotent_hit, again.output), (True, first.output))

    def test_a_key_with_another_input(self) -> None:
        """G-3: a key is bound to its tool and input."""
        client = self.client()
        client.call(ECHO, {"n": 1}, idempotency_key="k")
        reply = client.call(ECHO, {"n": 2}, idempotency_key="k")
        self.assertEqual((reply.ok, reply.status), (True, "TOOL_ERROR"), reply)
        self.assertIn("idempotency_conflict", reply.error)

    def test_unknown_tool(self) -> None:
        """T-20: in `--serve` an unknown AID is refused, and serving goes on."""
        client = self.client()
        reply = client.call("AID.NO.SUCH.v1")
        self.assertEqual((reply.ok, reply.error), (False, "tool not found: AID.NO.SUCH.v1"))
        self.assertTrue(client.call(ECHO).succeeded)

    def test_many(self) -> None:
        """T-18: replies come in the order of the calls."""
        calls = [Call(ECHO, {"n": n}) for n in range(500)]
        self.assertEqual([reply.output["n"] for reply in self.client().call_many(calls)], list(range(500)))

    def test_lease_required(self) -> None:
        """T-16: enforcement applies to `--serve`, from tier 1 up; tier 0 needs no lease."""
        client = self.client(env={"MACHINA_LEASE_ENFORCE": "1"})
        reply = client.call(APPEND, {"text": "x"})
        self.assertEqual((reply.ok, reply.error, reply.raw.get("aid")), (False, "lease_required", APPEND))
        reply = client.call(APPEND, {"text": "x"}, lease_token="lease_" + "0" * 32)
        self.assertEqual((reply.ok, reply.error, reply.raw.get("reason")), (False, "lease_rejected", "not found"))
        self.assertTrue(client.call(ECHO).succeeded)


class PythonToolTest(CallgateCase):
    TOOLS = '''
    import os
    from callgate import tool

    def greet(payload):
        print("noise on stdout")
        return {"message": f"Hello {payload['name']}"}

    def keep(payload, slots):
        slots[payload["slot"]] = {"type": "text", "provenance": "keep", "content_json": '"kept"', "size_bytes": 6}
        if payload.get("fail"):
            raise RuntimeError("after the change")
        return sorted(slots)

    def crash(payload):
        os._exit(3)
    '''
    CONFIGURATION = """
    [[tool]]
    name = "greet"
    aid = "AID.DEMO.GREET.v1"
    description = "Greets"
    runner = { kind = "python", entry = "kit:greet" }
    input_schema = { type = "object", properties = { name = { type = "string" } }, required = ["name"], additionalProperties = false }

    [[tool]]
    name = "keep"
    aid = "AID.DEMO.KEEP.v1"
    description = "Keeps a text"
    slots = true
    runner = { kind = "python", entry = "kit:keep" }

    [[tool]]
    name = "crash"
    aid = "AID.DEMO.CRASH.v1"
    description = "Ends its process"
    runner = { kind = "python", entry = "kit:crash" }
    """

    def setUp(self) -> None:
        super().setUp()
        self.write("workspace/kit.py", self.TOOLS)
        self.write("workspace/callgate.toml", self.CONFIGURATION)
        self.calls = self.client(self.workspace)

    def test_a_python_function(self) -> None:
        """T-13: what a tool prints, and how it ends, costs its own call only. T-11: a folder named is trusted."""
        reply = self.calls.call("AID.DEMO.GREET.v1", {"name": "Ada"})
        self.assertEqual((reply.status, reply.output), ("OK", {"message": "Hello Ada"}), reply)
        self.assertEqual(self.calls.call("AID.DEMO.GREET.v1", {"name": 7}).status, "INVALID_PICK")
        self.assertEqual(self.calls.call("AID.DEMO.CRASH.v1").status, "TOOL_ERROR")
        self.assertTrue(self.calls.call("AID.DEMO.GREET.v1", {"name": "Ada"}).succeeded)

    def test_slots(self) -> None:
        """T-23: a Python function sees the slots as a second argument. T-17: a call that fails changes none."""
        kept = {"type": "text", "provenance": "keep", "content_json": '"kept"', "size_bytes": 6}
        self.calls.slots[1] = {"type": "text", "provenance": "test", "content_json": "1", "size_bytes": 1}
        self.assertEqual(self.calls.call("AID.DEMO.KEEP.v1", {"slot": 6}).output, [1, 6])
        self.assertEqual(self.calls.slots[6], kept)
        reply = self.calls.call("AID.DEMO.KEEP.v1", {"slot": 7, "fail": True})
        self.assertEqual((reply.status, reply.slots), ("TOOL_ERROR", {}))
        self.assertEqual(self.calls.call("AID.DEMO.KEEP.v1", {"slot": 6}).output, [1, 6])


if __name__ == "__main__":
    unittest.main()
