"""What a process may import from the workspace.

The gate names the code of a tool: the package of its `entry` and what its
configuration lists in `code`. Callers may write everything else in the
workspace, so nothing else there is imported, whatever `sys.path` says:

- a folder of the workspace on `sys.path` offers the named code only, so that a
  `csv.py` somewhere hides no module of the standard library;
- named code is compiled from its source: bytecode in the workspace is not read
  and not written, and modules without source are not loaded;
- an import that finds its module only among the rest of the workspace ends in a
  `ModuleNotFoundError` that says which `code` would allow it.

Folders of the interpreter itself (a virtual environment in the workspace) are
as usual: the gate closes them to callers. What a tool reads and runs by itself
is not looked at.
"""

import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
    spec_from_file_location,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

VARIABLE = "CALLGATE_IMPORTS"
ARGUMENT = "--imports"


class Code:
    """The code of a tool: its workspace and the paths in it that may be imported; `own` are
    folders of ours, wherever they are."""

    def __init__(self, text: "str", own: "list[str]") -> "None":
        root, *paths = text.split("\n")
        self.root = os.path.realpath(root)
        self.paths = [os.path.realpath(os.path.join(self.root, path)) for path in paths if path]
        homes = {os.path.realpath(home) for home in (sys.prefix, sys.exec_prefix, sys.base_prefix, *own)}
        self.homes = [home for home in homes if home != self.root and is_in(home, self.root)]
        self.folders: "dict[str, str]" = {}

    def concerns(self, path: "str") -> "Optional[str]":
        """The real path of what is in the workspace and not the interpreter's; else nothing."""
        folder, name = os.path.split(path)
        if folder not in self.folders:
            self.folders[folder] = os.path.realpath(folder)
        real = os.path.join(self.folders[folder], name)
        if os.path.islink(real) or name in ("", ".", ".."):
            real = os.path.realpath(real)
        if is_in(real, self.root) and not any(is_in(real, home) for home in self.homes):
            return real
        return None

    def has(self, real: "str") -> "bool":
        return any(is_in(real, path) for path in self.paths)

    def leads_to(self, real: "str") -> "bool":
        """Whether a folder has named code further down."""
        return any(is_in(path, real) for path in self.paths)

    def misses(self, name: "str") -> "Optional[str]":
        """Why the module `name` of an entry is not the workspace's, though that has one."""
        top = name.partition(".")[0]
        own = [os.path.join(self.root, top), os.path.join(self.root, top + ".py")]
        module = sys.modules[top]
        places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
        if not any(os.path.realpath(path) in self.paths for path in own):
            return None
        if any(place and self.concerns(place) for place in places):
            return None
        return "`%s` of the workspace is hidden by %s: installed modules come first, so it needs another name" % (
            top,
            places[0] or "a module that is built in",
        )

    def line(self, real: "str") -> "str":
        """The `code` that would allow this file."""
        name = os.path.relpath(real, self.root)
        top = name.split(os.sep)[0]
        return 'code = ["%s"]' % (top if top == name and not os.path.isdir(real) else top + "/**")


def is_in(path: "str", folder: "str") -> "bool":
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


class Readable:
    """The names in a folder that can be read, for whoever may not ask for all of them."""

    def __init__(self, folder: "str") -> "None":
        self.folder = folder

    def __contains__(self, name: "str") -> "bool":
        try:
            os.close(os.open(os.path.join(self.folder, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            return True
        except OSError:
            return False


class WorkspaceFinder(FileFinder):
    """Finds named code in one folder of the workspace."""

    def __init__(self, folder: "str", code: "Code") -> "None":
        super().__init__(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES))
        self.code = code
        try:
            os.scandir(folder).close()
        except PermissionError:
            # A tool that may read its own code only (`no_filesystem_read`) cannot list the
            # workspace, and a finder looks for modules in a list.
            self._path_cache = self._relaxed_path_cache = Readable(folder)
            self._fill_cache = lambda: None
        except OSError:
            pass

    def find_spec(self, fullname: "str", target: "Any" = None) -> "Any":
        spec = super().find_spec(fullname, target)
        if spec is None or spec.loader is not None and self.code.has(os.path.realpath(str(spec.origin))):
            return spec
        # Named code is found whatever others put beside it.
        folder = os.path.join(self.path, fullname.rpartition(".")[2])
        if os.path.isfile(folder + ".py") and self.code.has(os.path.realpath(folder + ".py")):
            return spec_from_file_location(fullname, folder + ".py")
        real = os.path.realpath(folder)
        if not os.path.isdir(real) or not (self.code.has(real) or self.code.leads_to(real)):
            return None
        # A folder on the way to it is a package without a file of its own.
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [folder]
        return spec


class NoFinder:
    """Finds nothing: for an archive of the workspace on `sys.path`."""

    def find_spec(self, fullname: "str", target: "Any" = None) -> "None":
        return None


class Refusal:
    """The last finder: says why what is in the workspace was not found."""

    def __init__(self, code: "Code") -> "None":
        self.code = code

    def find_spec(self, fullname: "str", path: "Any" = None, target: "Any" = None) -> "None":
        tail = fullname.rpartition(".")[2]
        for folder in [self.code.root] if path is None else list(path):
            real = self.code.concerns(folder)
            for name in (tail + ".py", tail) if real else ():
                found = os.path.join(str(real), name)
                if os.path.exists(found) and not self.code.has(os.path.realpath(found)):
                    raise ModuleNotFoundError(refusal(self.code, fullname, found), name=fullname, path=found)


def refusal(code: "Code", name: "str", path: "str") -> "str":
    where = os.path.relpath(path, code.root)
    return "No module named %r: %s of the workspace is not code of this tool; to allow it, its configuration says %s" % (
        name,
        where,
        code.line(path),
    )


def install(text: "str", own: "list[str]") -> "Code":
    """Hold this process to the code named in `text`: the workspace, and a path for each further line."""
    code = Code(text, own)

    def hook(folder: "str") -> "Any":
        real = code.concerns(folder or ".")
        if real is None:
            raise ImportError("not of the workspace", path=folder)
        if os.path.isdir(real):
            return WorkspaceFinder(real, code)
        if code.has(real):
            # A named archive, or the script itself: Python asks here what it is.
            raise ImportError("as usual", path=folder)
        return NoFinder()

    sys.path_hooks.insert(0, hook)
    for folder in list(sys.path_importer_cache):
        if code.concerns(folder or "."):
            del sys.path_importer_cache[folder]
    hold_loaders(code)
    sys.meta_path.append(Refusal(code))
    return code


def hold_loaders(code: "Code") -> "None":
    """For finders that others bring along, such as those of editable installs."""
    source, sourceless, extension = SourceFileLoader.get_code, SourcelessFileLoader.get_code, ExtensionFileLoader.create_module

    def check(path: "str", name: "str") -> "Optional[str]":
        real = code.concerns(path)
        if real is not None and not code.has(real):
            raise ModuleNotFoundError(refusal(code, name, real), name=name, path=path)
        return real

    def source_code(self: "Any", fullname: "str") -> "Any":
        path = self.get_filename(fullname)
        if check(path, fullname) is None:
            return source(self, fullname)
        return self.source_to_code(self.get_data(path), path)

    def sourceless_code(self: "Any", fullname: "str") -> "Any":
        if code.concerns(self.path) is not None:
            raise ModuleNotFoundError("No module named %r: bytecode of the workspace is not loaded" % fullname, name=fullname)
        return sourceless(self, fullname)

    def create_module(self: "Any", spec: "Any") -> "Any":
        check(self.path, spec.name)
        return extension(self, spec)

    SourceFileLoader.get_code = source_code  # type: ignore[method-assign]
    SourcelessFileLoader.get_code = sourceless_code  # type: ignore[method-assign]
    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]
