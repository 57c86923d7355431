"""A tool that does what it is told, and mostly what it should not."""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time

calls = 0


def act(payload):
    global calls
    calls += 1
    what = payload["do"]
    return ACTS[what](payload)


def who(payload):
    return {"calls": calls, "dice": random.random()}


def leave_in_environment(payload):
    before = os.environ.get("LEFT")
    os.environ["LEFT"] = "behind"
    return before


def die(payload):
    how = payload["how"]
    if how == "exit":
        sys.exit(payload["code"])
    if how == "_exit":
        os._exit(payload["code"])
    if how == "segv":
        ctypes.string_at(0)
    if how == "raise":
        raise ValueError("no good")
    if how == "parent":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if how == "after":
        # Answers in its own name, and then fails all the same.
        for fd in range(3, 20):
            try:
                os.write(fd, payload["text"].encode())
            except OSError:
                pass
        os._exit(9)


def hang(payload):
    time.sleep(600)


def spin(payload):
    while True:
        pass


def flood(payload):
    """Writes to everything it can, without an end."""
    text = payload["text"].encode() * 1000
    while True:
        for fd in range(payload["from"], payload.get("to", 20)):
            try:
                os.write(fd, text)
            except OSError:
                pass


def drown(payload):
    """Speaks where a worker answers, without an end."""
    worker = sys.modules["callgate._running"]
    if payload["with"] == "reports":
        data = '{"call":"%s","log":{"level":"info","data":"%s"}}\n' % (worker.call, "x" * 60000)
    else:
        data = "\n" * 65536
    while True:
        os.write(worker.wire[0], data.encode())


def say(payload):
    for fd in payload["fds"]:
        try:
            os.write(fd, payload["text"].encode())
        except OSError:
            pass
    if payload.get("pause"):
        time.sleep(600)
    return "mine"


def close_all(payload):
    os.closerange(0, 100)
    return "mine"


def read_all(payload):
    got = []
    for fd in range(3, 20):
        try:
            os.set_blocking(fd, False)
            got.append(os.read(fd, 1000).decode())
        except OSError:
            pass
    return got


def daemon(payload):
    """Leaves a grandchild, in a session of its own, which holds all it was born with."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        if payload.get("session", True):
            os.setsid()
        if os.fork() == 0:
            os.write(writer, b"born")
            time.sleep(600)
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(reader, 20).decode()


def program(payload):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", payload["tag"]])


def huge(payload):
    return "x" * payload["bytes"]


def report(payload):
    import callgate

    callgate.progress(1, 2)
    callgate.log("info", "half")
    return "done"


def ask(payload):
    import callgate

    return callgate.ask("Which?", {"type": "object", "properties": {"n": {"type": "integer"}}})


ACTS = {
    one.__name__: one
    for one in (
        who,
        leave_in_environment,
        die,
        hang,
        spin,
        flood,
        drown,
        say,
        close_all,
        read_all,
        daemon,
        program,
        huge,
        report,
        ask,
    )
}
