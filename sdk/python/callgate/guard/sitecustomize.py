"""Holds an interpreter that a tool starts to the tool's code.

The folder of this file stands in the `PYTHONPATH` of tools that are Python
programs, and of what Python tools start: such interpreters put the folder of
their script, or the current one, before the standard library. The
`sitecustomize` that this one hides is run as well.
"""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]

if "CALLGATE_IMPORTS" in os.environ:
    place = os.path.join(os.path.dirname(here), "imports.py")
    imports = type(sys)("callgate_imports")
    with open(place, encoding="utf-8") as file:
        exec(compile(file.read(), place, "exec"), imports.__dict__)
    imports.install(os.environ["CALLGATE_IMPORTS"], [os.path.dirname(os.path.dirname(here))])

own = sys.modules.pop("sitecustomize")
try:
    __import__("sitecustomize")
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", own)
