"""A program that is one call: input on stdin, output on stdout.

Appends `line` to the file `file`, which so tells how often it ran. `print` and
`code` make it print and exit otherwise than it should.
"""

import json
import sys

payload = json.load(sys.stdin)
if "file" in payload:
    with open(payload["file"], "a") as file:
        file.write(payload.get("line", "ran") + "\n")
print(payload.get("print", json.dumps({"done": True})))
sys.stdout.flush()
if "code" in payload:
    print("leaving on purpose", file=sys.stderr)
    sys.exit(payload["code"])
