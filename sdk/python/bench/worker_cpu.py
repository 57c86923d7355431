"""CPU that the worker spends on one warm call of a tiny tool, and on its start.

    python3 sdk/python/bench/worker_cpu.py [calls]

Runs the worker on a socketpair, as the gate does, one call at a time; reads the
worker's own CPU time from the kernel, so this script's does not count.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "callgate", "worker.py")
TOOLS = """
def greet(payload):
    return {"message": "Hello " + payload["name"]}
"""
DECLARED = """
from callgate import tool

@tool
def greet(name: str) -> dict:
    return {"message": "Hello " + name}
"""


def start(folder: str, flags: list[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, *flags, WORKER],
        cwd=folder,
        env={**os.environ, "CALLGATE_FD": str(theirs.fileno())},
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    return process, ours


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, to the nanosecond where the kernel has it."""
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def measure(entry: str, folder: str, calls: int) -> None:
    process, ours = start(folder, [])
    line = json.dumps({"call": "1", "tool": "greet", "entry": entry, "input": {"name": "Ada"}}).encode() + b"\n"

    def call() -> None:
        ours.sendall(line)
        reply = ours.recv(65536)
        assert b"Hello Ada" in reply, reply

    for _ in range(200):
        call()
    before, began = cpu_s(process.pid), time.perf_counter()
    for _ in range(calls):
        call()
    cpu_us = (cpu_s(process.pid) - before) / calls * 1e6
    took_us = (time.perf_counter() - began) / calls * 1e6
    ours.close()
    process.wait()
    print(f"{entry:20} cpu {cpu_us:6.1f} us/call   round trip {took_us:6.1f} us   ({calls} calls)")


def measure_start(entry: str, folder: str, flags: list[str], runs: int = 10) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(runs):
        process, ours = start(folder, flags)
        ours.sendall(json.dumps({"call": "1", "entry": entry, "input": {"name": "Ada"}}).encode() + b"\n")
        assert b"Hello Ada" in ours.recv(65536)
        ours.close()
        process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{entry:20} start with first call: cpu {cpu / runs * 1000:5.1f} ms   python {' '.join(flags)}")


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("plain.py", TOOLS), ("declared.py", DECLARED)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        for entry in ("plain:greet", "declared:greet"):
            measure(entry, folder, calls)
            for flags in ([], ["-S"], ["-I", "-S"]):
                measure_start(entry, folder, flags)


if __name__ == "__main__":
    main()
