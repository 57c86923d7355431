"""Ways to have a child, or to become another program. Its mark is a file in a writable root, or
what it prints in the tool's place."""

import ctypes
import os
import struct
import sys

from arena import attack, nothing, proof

# The command is any program but the tool's own.
SHELL = "/bin/sh"


def mark(facts):
    """What a shell is told to do."""
    return 'echo "%s $$" > "%s/proof"' % (facts["token"], facts["out"])


def mark_myself(facts):
    """The same, by a child that is no new program."""
    with open(os.path.join(facts["out"], "proof"), "w") as file:
        file.write(facts["token"])


def printed(facts):
    return """printf '{"said":"%s"}'""" % facts["token"]


@attack(nothing, proof, tool="childless")
def subprocess_run(facts):
    import subprocess

    subprocess.run([SHELL, "-c", mark(facts)], check=True)


@attack(nothing, proof, tool="childless")
def os_system(facts):
    os.system(mark(facts))


@attack(nothing, proof, tool="childless")
def os_popen(facts):
    os.popen(mark(facts)).read()


@attack(nothing, proof, tool="childless")
def c_library_system(facts):
    from raw import libc

    libc.system(mark(facts).encode())


@attack(nothing, proof, tool="childless")
def c_library_popen(facts):
    from raw import libc, opened

    libc.pclose(opened(mark(facts).encode(), b"r", libc.popen))


@attack(nothing, proof, tool="childless")
def posix_spawn(facts):
    pid = os.posix_spawn(SHELL, [SHELL, "-c", mark(facts)], os.environ)
    os.waitpid(pid, 0)


@attack(nothing, proof, tool="childless")
def fork_and_exec(facts):
    pid = os.fork()
    if pid == 0:
        os.execv(SHELL, [SHELL, "-c", mark(facts)])
    os.waitpid(pid, 0)


@attack(nothing, proof, tool="childless")
def fork_alone(facts):
    pid = os.fork()
    if pid == 0:
        mark_myself(facts)
        os._exit(0)
    os.waitpid(pid, 0)


def raw_child(facts, pid):
    if pid == 0:
        mark_myself(facts)
        os._exit(0)
    os.waitpid(pid, 0)


@attack(nothing, proof, tool="childless")
def raw_fork(facts):
    from raw import syscall

    raw_child(facts, syscall("fork") if os.uname().machine == "x86_64" else os.fork())


@attack(nothing, proof, tool="childless")
def raw_clone(facts):
    from raw import syscall

    raw_child(facts, syscall("clone", 17, 0, 0, 0, 0))


@attack(nothing, proof, tool="childless", also=["parent"])
def raw_clone_of_our_parent(facts):
    """A sibling: nobody the tool is answerable for."""
    from raw import syscall

    pid = syscall("clone", 0x8000 | 17, 0, 0, 0, 0)
    if pid == 0:
        mark_myself(facts)
        os._exit(0)
    # Not ours to wait for.
    for _ in range(1000):
        if os.path.exists(os.path.join(facts["out"], "proof")):
            return
        __import__("time").sleep(0.01)


@attack(nothing, proof, tool="childless")
def raw_clone3(facts):
    from raw import syscall

    arguments = struct.pack("11Q", 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    raw_child(facts, syscall("clone3", arguments, len(arguments)))


@attack(nothing, proof, tool="childless")
def fork_by_32_bits(facts):
    from raw import int80

    raw_child(facts, int80(2))


@attack(nothing, proof, tool="childless")
def terminal_fork(facts):
    pid, _ = os.forkpty()
    raw_child(facts, pid)


@attack(nothing, proof, tool="childless")
def multiprocessing_process(facts):
    import multiprocessing

    child = multiprocessing.get_context("fork").Process(target=mark_myself, args=(facts,))
    child.start()
    child.join()


@attack(nothing, proof, tool="childless")
def asyncio_subprocess(facts):
    import asyncio

    async def run():
        child = await asyncio.create_subprocess_exec(SHELL, "-c", mark(facts))
        await child.wait()

    asyncio.run(run())


@attack(nothing, proof, tool="childless")
def daemon(facts):
    """Twice forked and in a session of its own, so that it outlives its call."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            mark_myself(facts)
        os._exit(0)
    os.wait()
    for _ in range(1000):
        if os.path.exists(os.path.join(facts["out"], "proof")):
            return
        __import__("time").sleep(0.01)


# Another program in the tool's place


@attack(nothing, proof, tool="childless")
def exec_in_place(facts):
    os.execv(SHELL, [SHELL, "-c", printed(facts)])


@attack(nothing, proof, tool="childless")
def exec_by_descriptor(facts):
    os.execve(os.open(SHELL, os.O_RDONLY), [SHELL, "-c", printed(facts)], os.environ)


@attack(nothing, proof, tool="childless")
def exec_of_memory(facts):
    """A program that was never in a file system."""
    fd = os.memfd_create("program")
    with open(os.path.realpath(SHELL), "rb") as program:
        os.write(fd, program.read())
    os.execve(fd, [SHELL, "-c", printed(facts)], os.environ)


@attack(nothing, proof, tool="childless")
def exec_by_raw_call(facts):
    from raw import syscall

    words = [SHELL.encode(), b"-c", printed(facts).encode(), None]
    argv = (ctypes.c_char_p * 4)(*words)
    syscall("execveat", -100, SHELL.encode(), argv, 0, 0)


@attack(nothing, proof, tool="childless")
def exec_by_the_loader(facts):
    """The dynamic loader runs any program it is given."""
    import glob

    loader = (glob.glob("/lib64/ld-linux*") + glob.glob("/lib/ld-*"))[0]
    os.execv(loader, [loader, os.path.realpath(SHELL), "-c", printed(facts)])


@attack(nothing, proof, tool="childless")
def exec_of_the_same_program(facts):
    code = "print('{\"said\":\"%s\"}')" % facts["token"]
    os.execv(sys.executable, [sys.executable, "-c", code])


@attack(nothing, proof, tool="childless")
def exec_from_a_thread(facts):
    import threading

    thread = threading.Thread(target=os.execv, args=(SHELL, [SHELL, "-c", printed(facts)]))
    thread.start()
    thread.join(5)


@attack(nothing, proof, tool="childless")
def exec_by_32_bits(facts):
    from raw import Low, int80

    low = Low()
    words = [low.put(word.encode() + b"\0") for word in (SHELL, "-c", printed(facts))]
    argv = low.put(struct.pack("4I", *words, 0))
    int80(11, words[0], argv, 0)


@attack(nothing, proof, tool="childless")
def exec_allowed_by_oneself(facts):
    """A filter of one's own that asks a listener about exec, and a listener that says yes: it
    would be asked instead of the host's filter, whose listener has gone."""
    import fcntl
    import threading

    from raw import libc, syscall

    libc.prctl(38, 1, 0, 0, 0)
    number = 59 if os.uname().machine == "x86_64" else 221
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x7FC00000), (6, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
    program = struct.pack("H6xQ", 4, ctypes.addressof(code))
    listener = syscall("seccomp", 1, 8, program)

    def say_yes():
        asked = bytearray(80)
        fcntl.ioctl(listener, 0xC0502100, asked)
        answer = asked[:8] + struct.pack("qiI", 0, 0, 1)
        fcntl.ioctl(listener, 0xC0182101, bytes(answer))

    threading.Thread(target=say_yes, daemon=True).start()
    # By the C library, because Python's own would keep the other thread waiting.
    words = [SHELL.encode(), b"-c", printed(facts).encode(), None]
    libc.execv(SHELL.encode(), (ctypes.c_char_p * 4)(*words))
