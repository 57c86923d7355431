"""A program that takes slots: `{"input":…,"slots":…}` on stdin, and on stdout the
output and what changed. Moves the artifact in slot 1 to slot 2."""

import json
import sys

request = json.load(sys.stdin)
moved = request["slots"].get("1")
changed = {"2": moved} if moved else {}
removed = [1] if moved else []
print(json.dumps({"output": {"saw": sorted(request["slots"])}, "slots": changed, "removed_slots": removed}))
