"""The tool under attack's command: reads one request, carries out its act, tells what came."""

import importlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True


def carry_out(facts):
    """The act's answer as a tool would give it."""
    module, name = facts["attack"].split(".")
    act = getattr(importlib.import_module(module), name)
    try:
        said = act(facts)
    except BaseException as error:
        said = "%s: %s" % (type(error).__name__, error)
    if isinstance(said, bytes):
        said = said.decode("latin-1")
    sys.stdout.write(json.dumps({"said": str(said)[:100000]}))
    sys.stdout.flush()


if __name__ == "__main__":
    carry_out(json.loads(sys.stdin.read()))
