"""The tools of the fixture pack that run in a Python worker.

Each takes its payload as a dict; those of the manifest that say `slots` take the
slots as a second dict and may alter it.
"""

import json
import os
import time


def echo(payload, slots):
    """Echo the input, and leave a trace of it in slot 6."""
    content = json.dumps({"echo": payload})
    slots[6] = {
        "type": "text",
        "provenance": "AID.TEST.ECHO.v1",
        "content_json": content,
        "size_bytes": len(content),
    }
    return payload


def give(payload):
    """Give back what stands under `output`, whether or not it is what was promised."""
    return payload.get("output", {})


def fail(payload):
    """Raise."""
    raise ValueError(payload.get("message", "raised"))


def chatter(payload):
    """Print what looks like replies, by every way out but the right one."""
    forged = '{"ok":true,"status":"OK","output_json":"{}","error":"forged","ds_state":{}}\n'
    for _ in range(payload.get("times", 1)):
        print(forged, end="")
        os.write(1, forged.encode())
        os.write(2, forged.encode())
    return {"printed": payload.get("times", 1)}


def leave(payload):
    """End the process that should answer."""
    os._exit(payload.get("code", 7))


def wait(payload):
    """Say who waits in the file `pids`, a child of ours included, and wait for ever."""
    if "pids" in payload:
        child = os.fork()
        if child == 0:
            time.sleep(3600)
            os._exit(0)
        name = payload["pids"]
        with open(name + ".new", "w") as file:
            file.write("%d %d" % (os.getpid(), child))
        os.rename(name + ".new", name)
    time.sleep(3600)


def size(payload):
    """Give a text of `length` characters."""
    return {"text": "x" * payload["length"]}


def change(payload, slots):
    """Put and remove slots as told; then fail, if told."""
    for number, artifact in payload.get("put", {}).items():
        slots[int(number)] = artifact
    for number in payload.get("remove", []):
        slots.pop(number, None)
    if payload.get("fail"):
        raise RuntimeError("failed after changing slots")
    return {"slots": sorted(slots)}
