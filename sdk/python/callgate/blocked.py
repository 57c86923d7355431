"""Tells a failure that a guarantee caused from one of the tool's own.

The kernel holds a tool to its guarantees and says no more than EPERM or
EACCES. This remembers what the tool last tried, so that its caller can be told
which guarantee stood in the way. A friendly word and nothing else: a tool can
fool it, and no claim rests on it.
"""

import os
import sys
from errno import EACCES, ENOSYS, EPERM

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

tries: "list[tuple[str, Any]]" = []


def watch() -> "None":
    """Remember what is tried from now on; there is no way back."""
    sys.addaudithook(note)


def note(event: "str", args: "tuple[Any, ...]") -> "None":
    # Whatever this raised would be the tool's failure.
    if event == "open":
        kind = WRITE if isinstance(args[2], int) and args[2] & WRITING else READ
    else:
        found = KINDS.get(event)
        if found is None:
            return
        kind = found
    tries.append((kind, args[0] if args else None))
    if len(tries) > 2 * TRIES_MAX:
        del tries[:-TRIES_MAX]


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
    return error.errno in (EPERM, EACCES, ENOSYS) or (isinstance(error.errno, int) and error.errno < 0)


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
