"""`ToolhostClient` against a small toolhost that keeps slots and misbehaves on request."""

from __future__ import annotations

import json
import os
import threading
import unittest
from typing import Any

from support import Workspace, is_gone, wait_until

from callgate import (
    Call,
    ToolhostClient,
    ToolhostDied,
    ToolhostError,
    ToolhostProtocolError,
    ToolhostTimeout,
    ToolhostUnavailable,
)

HOST = '''
import json, os, sys, time

FOLDER = os.path.dirname(os.path.abspath(sys.argv[0]))
slots, seen = {}, {}

def log(name, text):
    with open(os.path.join(FOLDER, name), "a") as file:
        file.write(text + "\\n")

log("starts", json.dumps({"argv": sys.argv[1:], "pid": os.getpid(), "timeout_ms": os.environ.get("MACHINA_TOOLHOST_TIMEOUT_MS"), "extra": os.environ.get("EXTRA")}))

def reply(status="OK", output=None, error="", changed=None, removed=(), **more):
    state = {"delta": True, "slots": changed or {}, "removed_slots": list(removed)}
    print(json.dumps({"ok": True, "status": status, "output_json": json.dumps(output), "error": error, **more, "ds_state": state}), flush=True)

for line in sys.stdin:
    if line == "\\n":
        break
    log("lines", line.strip())
    request = json.loads(line)
    inputs = json.loads(request["input_json"])
    aid, key, delta = request["aid"], request.get("idempotency_key"), request.get("ds_state")
    if aid == "echo":
        if key is not None and key in seen:
            reply(output=seen[key], idempotent_hit=True)
            continue
        for number, artifact in (delta or {}).get("slots", {}).items():
            slots[number] = artifact
        for number in (delta or {}).get("removed_slots", []):
            slots.pop(str(number), None)
        seen[key] = inputs
        reply(output=inputs)
    elif aid == "slots":
        for number, artifact in (delta or {}).get("slots", {}).items():
            slots[number] = artifact
        for number in (delta or {}).get("removed_slots", []):
            slots.pop(str(number), None)
        reply(output=slots)
    elif aid == "put":
        slots.update(inputs["put"])
        for number in inputs["remove"]:
            slots.pop(str(number), None)
        reply(changed=inputs["put"], removed=inputs["remove"])
    elif aid == "fail":
        reply("TOOL_ERROR", error="it broke")
    elif aid == "refuse":
        print(json.dumps({"ok": False, "error": "lease_required", "tier": 2, "aid": aid}), flush=True)
    elif aid == "sleep":
        if os.fork() == 0:
            log("pids", str(os.getpid()))
        else:
            log("pids", str(os.getpid()))
        time.sleep(60)
    elif aid == "die":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    elif aid == "die_once":
        if not os.path.exists(os.path.join(FOLDER, "died")):
            log("died", "x")
            os._exit(3)
        reply(output="second")
    elif aid == "raw":
        sys.stdout.write(inputs["text"])
        sys.stdout.flush()
    elif aid == "big":
        reply(output="x" * inputs["n"])
    elif aid == "chatter":
        sys.stderr.write("x" * 300_000)
        sys.stderr.flush()
        reply(output=1)
'''

TEXT = {"type": "text", "provenance": "t", "content_json": '"a"', "size_bytes": 3}
OTHER = {**TEXT, "content_json": '"b"'}


class ClientTest(Workspace):
    def setUp(self) -> None:
        super().setUp()
        self.host = self.program("toolhost", HOST)
        self.client = self.open()

    def open(self, **options: Any) -> ToolhostClient:
        client = ToolhostClient(options.pop("plugin", "here"), options.pop("program", self.host), **options)
        self.addCleanup(client.close)
        return client

    def starts(self) -> list[Any]:
        return [json.loads(line) for line in self.read("starts").splitlines()]

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.read("lines").splitlines()]

    def test_one_process_for_many_calls(self) -> None:
        for n in range(5):
            reply = self.client.call("echo", {"n": n})
            self.assertEqual((reply.ok, reply.status, reply.output, reply.error), (True, "OK", {"n": n}, ""))
            self.assertTrue(reply.succeeded)
            self.assertFalse(reply.idempotent_hit)
        self.assertEqual(len(self.starts()), 1)
        self.assertEqual(self.lines()[0], {"aid": "echo", "input_json": '{"n":0}'})

    def test_how_it_is_started(self) -> None:
        """T-2: the process is told how long we wait."""
        self.client.call("echo")
        other = self.program("callgate", HOST)
        with self.open(program=other, plugin="pack", env={"EXTRA": "e"}, timeout_s=62.5) as client:
            client.call("echo")
        first, second = self.starts()
        self.assertEqual((first["argv"], first["timeout_ms"], first["extra"]), (["--serve", "here"], "30000", None))
        self.assertEqual((second["argv"], second["timeout_ms"], second["extra"]), (["toolhost", "--serve", "pack"], "62500", "e"))

    def test_close_ends_the_process_and_a_call_starts_another(self) -> None:
        """T-10: end of input is the end."""
        self.client.call("echo")
        self.client.close()
        self.assertTrue(is_gone(self.starts()[0]["pid"]))
        self.client.close()
        self.assertTrue(self.client.call("echo").succeeded)
        self.assertEqual(len(self.starts()), 2)

    def test_failures_the_host_reports_are_replies(self) -> None:
        """T-6: `ok` tells that the call was taken, `status` how it went."""
        reply = self.client.call("fail")
        self.assertEqual((reply.ok, reply.status, reply.error, reply.succeeded), (True, "TOOL_ERROR", "it broke", False))
        reply = self.client.call("refuse")
        self.assertEqual((reply.ok, reply.status, reply.error, reply.succeeded), (False, "", "lease_required", False))
        self.assertEqual((reply.output, reply.raw["tier"]), (None, 2))

    def test_key_and_token_go_along(self) -> None:
        self.assertFalse(self.client.call("echo", {"n": 1}, idempotency_key="k", lease_token="lease_x").idempotent_hit)
        self.assertTrue(self.client.call("echo", {"n": 1}, idempotency_key="k").idempotent_hit)
        sent = self.lines()
        self.assertEqual(sent[0], {"aid": "echo", "input_json": '{"n":1}', "idempotency_key": "k", "_lease_token": "lease_x"})
        self.assertNotIn("_lease_token", sent[1])

    def test_slots_follow_the_replies(self) -> None:
        reply = self.client.call("put", {"put": {"6": TEXT, "7": OTHER}, "remove": []})
        self.assertEqual((reply.slots, reply.removed_slots), ({6: TEXT, 7: OTHER}, ()))
        self.assertEqual(self.client.slots, {6: TEXT, 7: OTHER})
        self.client.call("put", {"put": {}, "remove": [6]})
        self.assertEqual(self.client.slots, {7: OTHER})
        self.client.call("echo")
        self.assertNotIn("ds_state", self.lines()[-1])

    def test_only_local_changes_are_sent(self) -> None:
        self.client.call("put", {"put": {"1": dict(TEXT), "2": dict(TEXT)}, "remove": []})
        self.client.slots[3] = dict(OTHER)
        self.client.slots[1]["provenance"] = "changed in place"
        del self.client.slots[2]
        changed = {**TEXT, "provenance": "changed in place"}
        self.assertEqual(self.client.call("slots").output, {"1": changed, "3": OTHER})
        sent = {"delta": True, "slots": {"1": changed, "3": OTHER}, "removed_slots": [2]}
        self.assertEqual(self.lines()[-1]["ds_state"], sent)
        self.client.call("slots")
        self.assertNotIn("ds_state", self.lines()[-1])

    def test_changes_a_call_did_not_take_are_sent_again(self) -> None:
        """T-9, T-17: a hit, a refusal and a failure leave the host's slots as they were."""
        self.client.call("echo", idempotency_key="k")
        self.client.slots[1] = TEXT
        for aid, key in (("fail", None), ("refuse", None), ("echo", "k")):
            self.client.call(aid, idempotency_key=key)
            self.assertEqual(self.lines()[-1]["ds_state"]["slots"], {"1": TEXT})
            self.assertEqual(self.client.slots, {1: TEXT})
        self.assertEqual(self.client.call("slots").output, {"1": TEXT})
        self.client.slots[1] = OTHER
        self.client.call("fail")
        self.client.slots[1] = TEXT  # as the host last confirmed it, yet it may hold the other
        self.client.call("slots")
        self.assertEqual(self.lines()[-1]["ds_state"]["slots"], {"1": TEXT})
        del self.client.slots[1]
        self.client.call("fail")
        self.assertEqual(self.client.call("slots").output, {})

    def test_a_new_process_is_given_the_slots(self) -> None:
        self.client.call("put", {"put": {"6": TEXT}, "remove": []})
        with self.assertRaises(ToolhostDied):
            self.client.call("die")
        self.assertEqual(self.client.call("slots").output, {"6": TEXT})

    def test_slots_that_make_no_sense(self) -> None:
        for number, artifact, kind in [(256, TEXT, ValueError), (-1, TEXT, ValueError), ("6", TEXT, ValueError), (1, "x", TypeError)]:
            self.client.slots = {number: artifact}  # type: ignore[dict-item]
            with self.assertRaises(kind):
                self.client.call("echo")
        self.client.slots = {}
        self.assertTrue(self.client.call("echo").succeeded)
        self.assertEqual(len(self.starts()), 1)

    def test_timeout_kills_the_group_and_the_next_call_reconnects(self) -> None:
        self.client.call("echo")
        with self.assertRaisesRegex(ToolhostTimeout, "within 1.5 s; the call may have taken effect"):
            self.client.call("sleep", timeout_s=1.5)
        for pid in self.read("pids").split():
            wait_until(lambda: is_gone(int(pid)), "end of the group")
        self.assertEqual(self.client.call("echo", {"n": 1}).output, {"n": 1})
        self.assertEqual([line["aid"] for line in self.lines()], ["echo", "sleep", "echo"])

    def test_a_dead_process(self) -> None:
        with self.assertRaisesRegex(ToolhostDied, "last words"):
            self.client.call("die")
        self.assertTrue(self.client.call("echo").succeeded)
        os.kill(self.starts()[-1]["pid"], 9)
        wait_until(lambda: is_gone(self.starts()[-1]["pid"]), "end of the host")
        self.assertTrue(self.client.call("echo").succeeded, "it died between calls, so nothing was lost")
        self.assertEqual([line["aid"] for line in self.lines()], ["die", "echo", "echo"])

    def test_no_retry_unless_asked_and_keyed(self) -> None:
        with self.assertRaises(ValueError):
            self.client.call("die_once", retry=True)
        with self.assertRaises(ToolhostDied):
            self.client.call("die_once", idempotency_key="k")
        os.remove(os.path.join(self.folder, "died"))
        self.assertEqual(self.client.call("die_once", idempotency_key="k", retry=True).output, "second")
        with self.assertRaises(ToolhostDied):
            self.client.call("die", idempotency_key="k2", retry=True)
        self.assertEqual([line["aid"] for line in self.lines()], ["die_once", "die_once", "die_once", "die", "die"])

    def test_what_is_not_a_reply(self) -> None:
        for text in ["nonsense\n", "[]\n", "7\n", '{"status":"OK"}\n', '{"ok":true,"output_json":"{"}\n', '{"ok":true,"ds_state":{"slots":{"x":{}}}}\n', "\n"]:
            with self.assertRaises(ToolhostProtocolError, msg=text):
                self.client.call("raw", {"text": text})
            self.assertTrue(self.client.call("echo").succeeded)

    def test_unasked_lines_do_not_pass_for_replies(self) -> None:
        self.client.call("raw", {"text": '{"ok":true,"status":"OK"}\n{"ok":true,"status":"OK","output_json":"666"}\n'})
        self.assertEqual(self.client.call("echo", {"n": 1}).output, {"n": 1})
        self.assertEqual(len(self.starts()), 2)

    def test_reply_at_and_past_one_mebibyte(self) -> None:
        """T-19: a reply line has at most 1 048 576 bytes."""
        frame = len(json.dumps({"ok": True, "status": "OK", "output_json": json.dumps(""), "error": "", "ds_state": {"delta": True, "slots": {}, "removed_slots": []}}))
        most = 1_048_576 - frame
        self.assertEqual(len(self.client.call("big", {"n": most}).output), most)
        with self.assertRaisesRegex(ToolhostProtocolError, "1 MiB"):
            self.client.call("big", {"n": most + 1})
        with self.assertRaisesRegex(ToolhostProtocolError, "1 MiB"):
            self.client.call("big", {"n": 4_000_000})

    def test_a_talkative_host(self) -> None:
        self.assertEqual([self.client.call("chatter").output for _ in range(3)], [1, 1, 1])

    def test_many_at_once(self) -> None:
        """T-18: one pipe is sequential; replies come in the order of the calls."""
        self.client.slots[1] = TEXT
        calls: list[Any] = [Call("slots"), *(("echo", {"n": n, "pad": "x" * 1000}) for n in range(2000))]
        replies = self.client.call_many(calls)
        self.assertEqual(replies[0].output, {"1": TEXT})
        self.assertEqual([reply.output["n"] for reply in replies[1:]], list(range(2000)))
        self.assertEqual(sum("ds_state" in line for line in self.lines()), 1)
        self.assertEqual(self.client.call_many([]), [])

    def test_many_cut_short(self) -> None:
        with self.assertRaises(ToolhostDied) as caught:
            self.client.call_many([("echo", {"n": 1}), ("echo", {"n": 2}), ("die", {}), ("echo", {"n": 3})])
        self.assertEqual([reply.output["n"] for reply in caught.exception.replies], [1, 2])
        self.assertTrue(self.client.call("echo").succeeded)

    def test_shared_between_threads(self) -> None:
        wrong: list[Any] = []

        def work(thread: int) -> None:
            for n in range(50):
                if self.client.call("echo", {"t": thread, "n": n}).output != {"t": thread, "n": n}:
                    wrong.append((thread, n))

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(self.starts()), 1)

    def test_input_that_is_not_json_sends_nothing(self) -> None:
        self.client.call("echo")
        for inputs in ({"x": object()}, {"x": float("nan")}):
            with self.assertRaises((TypeError, ValueError)):
                self.client.call("echo", inputs)
        self.assertTrue(self.client.call("echo").succeeded)
        self.assertEqual(len(self.lines()), 2)

    def test_a_program_that_cannot_be_started(self) -> None:
        path = self.write("text", "not a program")
        for program in (self.folder + "/absent", "no-such-program-anywhere", path):
            with self.assertRaises(ToolhostUnavailable):
                self.open(program=program).call("echo")
        self.assertTrue(issubclass(ToolhostUnavailable, ToolhostError))

    def test_timeouts_that_make_no_sense(self) -> None:
        for timeout_s in (0, -1, float("nan"), float("inf")):
            with self.assertRaises(ValueError):
                ToolhostClient(timeout_s=timeout_s)
            with self.assertRaises(ValueError):
                self.client.call("echo", timeout_s=timeout_s)


if __name__ == "__main__":
    unittest.main()
