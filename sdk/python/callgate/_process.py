"""Children in process groups of their own, started and ended.

Shared by the two ways to call a toolhost. Ending a child means its whole
group, and happens before the child is reaped, while its id cannot yet belong
to anybody else. POSIX only.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Optional


class ProgramMissing(Exception):
    """There is no program of that name."""


def find(program: str) -> str:
    """The absolute path of a program named by path or found on `PATH`."""
    if os.sep in program:
        if not os.path.exists(program):
            raise ProgramMissing(f"program not found: {program}")
        return os.path.abspath(program)
    found = shutil.which(program)
    if found is None:
        raise ProgramMissing(f"program not found on PATH: {program}")
    return os.path.abspath(found)


def start(
    argv: Sequence[str], *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None
) -> subprocess.Popen[bytes]:
    """Start a child as the leader of a new session, its three pipes non-blocking."""
    process = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=env,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
    return process


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the child is gone, without reaping it where the system lets us look only."""
    if process.returncode is None and hasattr(os, "waitid"):
        try:
            return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True
    return process.poll() is not None


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill what is left of the child's group, reap the child, return its code."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    returncode = process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return returncode
