"""Tells a failure that a guarantee caused from one of the tool's own.

The kernel holds a tool to its guarantees and says no more than EPERM, EACCES
or EROFS. This remembers what the tool last tried, so that its caller can be told
which guarantee stood in the way, and all that it tried, so that an attempt is
told whose failure the tool caught. A friendly word and nothing else: a tool can
fool it, and no claim rests on it. The gate holds each path against what it
refuses.
"""

import os
import sys
from errno import EACCES, ENOSYS, EPERM, EROFS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional

READ, WRITE, NETWORK, SUBPROCESS = "no_filesystem_read", "no_filesystem_write", "no_network", "no_subprocess"

KINDS = {
    **dict.fromkeys(("os.listdir", "os.scandir", "os.getxattr", "os.listxattr"), READ),
    **dict.fromkeys(("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink"), WRITE),
    **dict.fromkeys(("os.truncate", "os.chmod", "os.lchmod", "os.chown", "os.utime"), WRITE),
    **dict.fromkeys(("os.setxattr", "os.removexattr"), WRITE),
    **dict.fromkeys(("socket.__new__", "socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg"), NETWORK),
    **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"), NETWORK),
    **dict.fromkeys(("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn"), SUBPROCESS),
    **dict.fromkeys(("os.spawn", "os.system"), SUBPROCESS),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# What a refused attempt may be told apart by: between it and us a tool's own clean-up may have run.
TRIES_MAX = 16
CAUSES_MAX = 64
# Attempts of one call that are remembered, each kind and path once.
ATTEMPTS_MAX = 256
INTERNET = (2, 10)  # AF_INET, AF_INET6

tries: "list[tuple[str, Any]]" = []
attempts: "dict[tuple[str, str], None]" = {}
# What attempts are remembered of.
watched: "frozenset[str]" = frozenset()
# Where everybody reads: the standard library and installed packages.
libraries: "tuple[str, ...]" = ()
# Where everybody writes.
own: "tuple[str, ...]" = ()
# The workspace, which the interpreter lists to find modules.
workspace = ""


def watch() -> "None":
    """Remember what is tried from now on; there is no way back."""
    global libraries, own, workspace
    workspace = os.getcwd()
    folders = [os.path.dirname(os.__file__), *sys.path]
    libraries = tuple(folder + "/" for folder in folders if os.path.isabs(folder) and folder != workspace)
    own = tuple(folder + "/" for folder in ("/dev", os.environ.get("TMPDIR")) if folder)
    sys.addaudithook(note)


def begin(asked: "list[str]") -> "None":
    """A call begins, which is held to these guarantees."""
    global watched
    watched = frozenset(asked)
    attempts.clear()


def stopped() -> "list[list[str]]":
    """What was tried of the call and can not have worked: guarantee and path; ends the watch."""
    global watched
    watched = frozenset()
    return [[kind, path] for kind, path in attempts if kind != READ or is_closed(path)]


def is_closed(path: "str") -> "bool":
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return error.errno in (EPERM, EACCES)
    except ValueError:
        pass
    return False


def note(event: "str", args: "tuple[Any, ...]") -> "None":
    # Whatever this raised would be the tool's failure.
    if event == "open":
        kind = WRITE if isinstance(args[2], int) and args[2] & WRITING else READ
    else:
        found = KINDS.get(event)
        if found is None:
            return
        kind = found
    if kind in watched and len(attempts) < ATTEMPTS_MAX:
        remember(kind, event, args)
    tries.append((kind, args[0] if args else None))
    if len(tries) > 2 * TRIES_MAX:
        del tries[:-TRIES_MAX]


def remember(kind: "str", event: "str", args: "tuple[Any, ...]") -> "None":
    path = ""
    if kind in (READ, WRITE):
        try:
            path = os.path.abspath(os.fsdecode(args[0]))
        except (TypeError, ValueError, OSError, IndexError):
            return
        # The interpreter keeps bytecode where it may, and does without where it may not.
        if path.startswith(libraries if kind == READ else own) or "/__pycache__" in path:
            return
        if path == workspace:
            return
    elif event == "socket.__new__" and args[1] not in INTERNET:
        # Pairs of sockets are made so, too.
        return
    attempts[kind, path] = None


def guarantee(error: "BaseException", asked: "list[str]") -> "Optional[str]":
    """Which of the guarantees asked for lies behind this error, if one does."""
    for cause in causes(error):
        if isinstance(cause, OSError) and is_refusal(cause):
            kind = tried(cause)
            if kind in asked:
                return kind
    return None


def causes(error: "BaseException") -> "Iterator[BaseException]":
    """The error and all it came from; hidden ones (`from None`) too."""
    waiting = [error]
    seen: "set[int]" = set()
    while waiting and len(seen) < CAUSES_MAX:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            group = getattr(one, "exceptions", ())
            more = [one.__context__, one.__cause__, *(group if isinstance(group, tuple) else ())]
            waiting += [other for other in more if isinstance(other, BaseException)]


def is_refusal(error: "OSError") -> "bool":
    # A name that cannot be looked up has a negative number: the resolver could not ask.
    return error.errno in (EPERM, EACCES, ENOSYS, EROFS) or (isinstance(error.errno, int) and error.errno < 0)


def tried(error: "OSError") -> "Optional[str]":
    """What it was that failed: a refused file is named, and nothing else is."""
    for kind, subject in tries[::-1]:
        if kind in (NETWORK, SUBPROCESS) if error.filename is None else same(error.filename, subject):
            return kind
    return None


def same(one: "Any", other: "Any") -> "bool":
    try:
        return os.fsdecode(one) == os.fsdecode(other)
    except TypeError:
        return bool(one == other)
