"""Modules of tools, found and compiled ahead of their calls, and never run here.

A forked child would else search the path and compile its tool anew with every
call, which costs more than the fork. Compiling runs nothing of a tool. What has
changed on disk since is found and compiled again, and whatever is not plain
source in plain folders is left to the child's own import.
"""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import module_from_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Optional

    Module = tuple[str, ModuleType, Optional[CodeType]]
    Stamp = list[tuple[int, ...]]

# Entries kept; the oldest leaves.
ENTRIES_MAX = 64
SOURCE_BYTES_MAX = 1024 * 1024


class Prepared:
    def __init__(self) -> "None":
        self.known: "dict[str, tuple[list[str], Stamp, list[Module]]]" = {}

    def prepare(self, name: "str") -> "None":
        """See to it that `name`, and the packages it is in, are as they are on disk."""
        known = self.known.get(name)
        if known is not None and stamp(known[0]) == known[1]:
            return
        self.known.pop(name, None)
        if name.partition(".")[0] in sys.modules:
            return
        try:
            modules, places = find(name)
            if len(self.known) >= ENTRIES_MAX:
                del self.known[next(iter(self.known))]
            self.known[name] = places, stamp(places), modules
        except Exception:
            pass  # the child's own import will say what is wrong with it

    def bring(self, name: "str") -> "None":
        """Import `name`, in the process of its call."""
        known = self.known.get(name)
        for full, module, code in known[2] if known is not None else ():
            # A package may have imported the rest by itself.
            if full not in sys.modules:
                run(full, module, code)
        __import__(name)


def run(full: "str", module: "ModuleType", code: "Optional[CodeType]") -> "None":
    sys.modules[full] = module
    if code is not None:
        exec(code, module.__dict__)
    parent, _, tail = full.rpartition(".")
    if parent:
        setattr(sys.modules[parent], tail, sys.modules[full])


def find(name: "str") -> "tuple[list[Module], list[str]]":
    """The module and the packages it is in, outermost first, and the places that were looked at."""
    modules: "list[Module]" = []
    places = list(sys.path)
    path: "Any" = None
    full = ""
    for part in name.split("."):
        full = full + "." + part if full else part
        spec = PathFinder.find_spec(full, path)
        if spec is None:
            raise ImportError(full)
        path = spec.submodule_search_locations
        code = None
        if path is not None:
            places += path
        if spec.origin is not None:
            if type(spec.loader) is not SourceFileLoader:
                raise ImportError(full)
            places.append(spec.origin)
            code = compiled(spec.origin)
        modules.append((full, module_from_spec(spec), code))
    return modules, places


def compiled(path: "str") -> "CodeType":
    with open(path, "rb") as file:
        source = file.read(SOURCE_BYTES_MAX + 1)
    if len(source) > SOURCE_BYTES_MAX:
        raise ImportError(path)
    code: "CodeType" = compile(source, path, "exec", dont_inherit=True)
    return code


def stamp(places: "list[str]") -> "Stamp":
    """What changes when a file does, or a folder gets or loses one."""
    return [stamp_of(place) for place in places]


def stamp_of(place: "str") -> "tuple[int, ...]":
    try:
        found = os.stat(place)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
