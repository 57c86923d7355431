"""A tool as a program: input JSON on stdin, output JSON on stdout, exit 0."""

import json
import os
import sys

line = json.load(sys.stdin)["line"]

# One write on an append-only descriptor: calls at the same time cannot mix their lines.
notes = os.open("notes.txt", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
os.write(notes, f"{line}\n".encode())

with open(notes, "rb") as written:
    written.seek(0)
    print(json.dumps({"lines": sum(1 for _ in written)}))
