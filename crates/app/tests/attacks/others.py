"""Ways to other processes of the same user. The victim blocks the signal it is sent, which is
one that nobody else minds: it stays pending, for the referee to see."""

import ctypes
import fcntl
import os
import resource
import signal
import struct

from arena import attack, told

URGENT = signal.SIGURG


class Victim:
    """A fork of the referee with a secret in its memory and one in a pipe."""

    def __init__(self, place):
        self.memory = ctypes.create_string_buffer(place.token.encode(), 64)
        self.address = ctypes.addressof(self.memory)
        self.reader, writer = os.pipe()
        os.write(writer, place.token.encode())
        waiting, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.pthread_sigmask(signal.SIG_BLOCK, [URGENT, signal.SIGIO])
            os.setsid()
            os.write(go, b"x")
            while True:
                signal.pause()
        os.read(waiting, 1)
        for fd in (writer, waiting, go):
            os.close(fd)

    def status(self, name):
        with open("/proc/%d/status" % self.pid) as file:
            return next(line.split()[1] for line in file if line.startswith(name + ":"))

    def pending(self):
        tasks = int(self.status("ShdPnd"), 16) | int(self.status("SigPnd"), 16)
        wanted = (1 << (URGENT - 1)) | (1 << (signal.SIGIO - 1))
        return bool(tasks & wanted)

    def read_memory(self):
        with open("/proc/%d/mem" % self.pid, "rb") as file:
            file.seek(self.address)
            return file.read(64)

    def facts(self):
        with open("/proc/%d/limits" % self.pid) as file:
            limits = file.read()
        with open("/proc/%d/oom_score_adj" % self.pid) as file:
            score = file.read()
        from raw import syscall

        return {
            "limits": limits,
            "priority": os.getpriority(os.PRIO_PROCESS, self.pid),
            "affinity": os.sched_getaffinity(self.pid),
            "scheduler": os.sched_getscheduler(self.pid),
            "io": syscall("ioprio_get", 1, self.pid),
            "score": score,
            "tracer": self.status("TracerPid"),
        }

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.reader)


def victim(place):
    one = place.keep(Victim(place))
    place.one = one
    place.facts = one.facts()
    return {"pid": one.pid, "address": one.address, "fd": one.reader, "token": None, "word": place.token}


def signalled(place, facts, output):
    return place.one.pending()


def overwritten(place, facts, output):
    return place.token.encode() not in place.one.read_memory()


def set_differently(place, facts, output):
    return place.one.facts() != place.facts


# Signals


@attack(victim, signalled, also=["parent"])
def kill(facts):
    os.kill(facts["pid"], URGENT)


@attack(victim, signalled, also=["parent"])
def kill_thread(facts):
    from raw import syscall

    syscall("tkill", facts["pid"], int(URGENT))


@attack(victim, signalled, also=["parent"])
def kill_group(facts):
    os.killpg(facts["pid"], URGENT)


@attack(victim, signalled, users="others")
def kill_everybody(facts):
    os.kill(-1, URGENT)


@attack(victim, signalled, also=["parent"])
def queue_signal(facts):
    from raw import syscall

    info = struct.pack("iii", int(URGENT), 0, -1).ljust(128, b"\0")
    syscall("rt_sigqueueinfo", facts["pid"], int(URGENT), info)


@attack(victim, signalled, also=["parent"])
def signal_by_descriptor(facts):
    signal.pidfd_send_signal(os.pidfd_open(facts["pid"]), URGENT)


@attack(victim, signalled, also=["parent"])
def signal_by_owner_of_a_pipe(facts):
    """The kernel signals the owner when something comes."""
    import socket

    one, other = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETOWN, facts["pid"])
    flags = fcntl.fcntl(one, fcntl.F_GETFL)
    fcntl.fcntl(one, fcntl.F_SETFL, flags | os.O_ASYNC)
    other.send(b"x")


# Memory and descriptors


@attack(victim, told, also=["parent"])
def trace(facts):
    """Seizes it, stops it and reads its memory."""
    from raw import check, libc

    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    check(libc.ptrace(16, facts["pid"], None, None))
    os.waitpid(facts["pid"], 0)
    words = [libc.ptrace(2, facts["pid"], facts["address"] + 8 * i, None) for i in range(4)]
    check(libc.ptrace(17, facts["pid"], None, None))
    return b"".join(struct.pack("q", word) for word in words)


def vectors(facts, data):
    local = struct.pack("QQ", ctypes.addressof(data), len(data))
    remote = struct.pack("QQ", facts["address"], len(data))
    return local, remote


@attack(victim, told)
def read_memory(facts):
    from raw import syscall

    data = ctypes.create_string_buffer(64)
    local, remote = vectors(facts, data)
    syscall("process_vm_readv", facts["pid"], local, 1, remote, 1, 0)
    return data.raw


@attack(victim, overwritten)
def write_memory(facts):
    from raw import syscall

    data = ctypes.create_string_buffer(64)
    local, remote = vectors(facts, data)
    syscall("process_vm_writev", facts["pid"], local, 1, remote, 1, 0)


@attack(victim, told)
def read_memory_file(facts):
    with open("/proc/%d/mem" % facts["pid"], "rb") as file:
        file.seek(facts["address"])
        return file.read(64)


@attack(victim, overwritten)
def write_memory_file(facts):
    with open("/proc/%d/mem" % facts["pid"], "wb") as file:
        file.seek(facts["address"])
        file.write(b"\0" * 64)


@attack(victim, told)
def steal_descriptor(facts):
    from raw import syscall

    fd = syscall("pidfd_getfd", os.pidfd_open(facts["pid"]), facts["fd"], 0)
    return os.read(fd, 100)


@attack(victim, told)
def steal_descriptor_by_file(facts):
    fd = os.open("/proc/%d/fd/%d" % (facts["pid"], facts["fd"]), os.O_RDONLY)
    return os.read(fd, 100)


def sleeper(place, name, *args, **settings):
    """A program that has the token among what `/proc` shows of it under this name. Its start is
    told before the kernel has put that there."""
    import subprocess
    import time

    program = subprocess.Popen(*args, **settings)
    place.at_end(lambda: (program.kill(), program.wait()))
    while place.token.encode() not in open("/proc/%d/%s" % (program.pid, name), "rb").read():
        assert program.poll() is None, "it ended by itself"
        time.sleep(0.001)
    return {"pid": program.pid, "token": None}


def with_environment(place):
    return sleeper(place, "environ", ["/bin/sleep", "600"], env={"SECRET": place.token})


@attack(with_environment, told)
def read_environment(facts):
    return open("/proc/%d/environ" % facts["pid"], "rb").read()


def with_words(place):
    # No shell: a child of its would be left, and hold our end of the referee's pipe open.
    return sleeper(place, "cmdline", [place.token, "600"], executable="/bin/sleep")


@attack(with_words, told)
def read_command_line(facts):
    return open("/proc/%d/cmdline" % facts["pid"], "rb").read()


# Settings


@attack(victim, set_differently)
def limits(facts):
    """A gate whose descriptors are limited to none serves nobody."""
    resource.prlimit(facts["pid"], resource.RLIMIT_NOFILE, (17, 17))


@attack(victim, set_differently)
def priority(facts):
    os.setpriority(os.PRIO_PROCESS, facts["pid"], 11)


@attack(victim, set_differently, users="others")
def priority_of_the_user(facts):
    """Everybody of this user at once."""
    os.setpriority(os.PRIO_USER, os.getuid(), os.getpriority(os.PRIO_PROCESS, 0) + 1)


@attack(victim, set_differently)
def affinity(facts):
    os.sched_setaffinity(facts["pid"], {max(os.sched_getaffinity(0))})


@attack(victim, set_differently)
def scheduler(facts):
    os.sched_setscheduler(facts["pid"], os.SCHED_BATCH, os.sched_param(0))


@attack(victim, set_differently)
def io_priority(facts):
    from raw import syscall

    syscall("ioprio_set", 1, facts["pid"], (3 << 13))


@attack(victim, set_differently)
def out_of_memory_score(facts):
    with open("/proc/%d/oom_score_adj" % facts["pid"], "w") as file:
        file.write("900")


@attack(victim, told)
def compare(facts):
    """Whether two processes share something, and where it lies in the kernel's memory."""
    from raw import syscall

    syscall("kcmp", facts["pid"], os.getpid(), 1, 0, 0)
    return facts["word"]
