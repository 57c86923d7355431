#!/usr/bin/env python3
"""Records what the client commands of release 0.1.0 and its `serve` send over `gate.sock`.

The recordings are replayed by `crates/app/tests/earlier_socket.rs`: the earlier client's bytes to
the present gate, and the earlier gate's bytes to the present client. Run this with the program of
that release; a later program would not show whether the two still understand each other.

    tests/gate-socket-0.1.0/record.py PATH-TO-CALLGATE-0.1.0
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent

LEGACY = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "recorder", "version": "1"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
     "params": {"name": "one", "arguments": {"n": 1}}},
]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "recorder", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MODERN = [
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
     "params": {"name": "one", "arguments": {"n": 2}, "_meta": META}},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
     "params": {"name": "none", "arguments": {}, "_meta": META}},
]
RPC = [
    {"jsonrpc": "2.0", "id": 1, "method": "one", "params": {"n": 3}},
    {"jsonrpc": "2.0", "id": 2, "method": "files/read", "params": {"path": "one.sh"}},
]

# Name, arguments, and the messages that go in one after the other, each after the answer to the
# one before it.
CONVERSATIONS = [
    ("tools", ["tools", "--json"], None),
    ("call", ["call", "one", "n=4", "--json"], None),
    ("call_refused", ["call", "one", "n=x", "--json"], None),
    ("mcp_legacy", ["mcp"], LEGACY),
    ("mcp_modern", ["mcp"], MODERN),
    ("rpc", ["rpc"], RPC),
]


class Recorder:
    """A socket in front of the gate's, which keeps what passes in either direction."""

    def __init__(self, path, gate):
        self.gate = gate
        self.steps = []
        self.lock = threading.Lock()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        os.chmod(path, 0o600)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            gate = socket.socket(socket.AF_UNIX)
            gate.connect(str(self.gate))
            self.keep("opens", b"")
            for name, source, target in (("client", client, gate), ("gate", gate, client)):
                threading.Thread(target=self.pump, args=(name, source, target), daemon=True).start()

    def pump(self, name, source, target):
        while data := source.recv(65536):
            self.keep(name, data)
            target.sendall(data)
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def keep(self, name, data):
        with self.lock:
            if self.steps and self.steps[-1][0] == name:
                self.steps[-1][1] += data
            else:
                self.steps.append([name, bytearray(data)])


def converse(command, environment, folder, messages):
    """One run of a client, to its end; returns what it printed."""
    process = subprocess.Popen(command, env=environment, cwd=folder, text=True, bufsize=1,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    printed = ""
    for message in messages or []:
        process.stdin.write(json.dumps(message, sort_keys=True) + "\n")
        process.stdin.flush()
        if "id" in message:
            printed += process.stdout.readline()
    process.stdin.close()
    printed += process.stdout.read()
    process.wait()
    return printed, process.returncode


def main():
    callgate = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in ("callgate.toml", "one.sh"):
            shutil.copy(HERE / file, folder)
        environment = {"PATH": os.environ["PATH"], "HOME": name, "CALLGATE_STATE": f"{name}/state"}
        run = lambda *words: subprocess.run([callgate, *words], env=environment, cwd=folder,
                                            check=True, capture_output=True, text=True)
        run("trust")
        gate, front = folder / "gate.sock", folder / "front.sock"
        serve = subprocess.Popen([callgate, "serve", "--socket", gate], env=environment, cwd=folder,
                                 stderr=subprocess.PIPE, text=True)
        while "listening" not in serve.stderr.readline():
            pass
        recorder = Recorder(front, gate)
        for name, words, messages in CONVERSATIONS:
            recorder.steps = []
            command = [callgate, "--socket", front, *words]
            printed, code = converse(command, environment, folder, messages)
            text = {"arguments": words, "input": messages, "printed": printed, "exit": code,
                    "steps": [[who, data.decode()] for who, data in recorder.steps]}
            path = HERE / f"{name}.json"
            path.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n")
        serve.terminate()
        serve.wait()


main()
