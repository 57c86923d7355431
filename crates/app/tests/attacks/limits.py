"""Ways to take more than one's share. The tool's limits are those of the workspace's
`limited`."""

import os

from arena import attack, nothing, told

MEMORY = 256 * 1024 * 1024
FILE = 1024 * 1024
DESCRIPTORS = 48
PROCESSES = 24
CPU_SECONDS = 1


@attack(nothing, told, tool="limited")
def memory(facts):
    taken = bytearray(2 * MEMORY)
    taken[:: 4096] = b"x" * len(taken[:: 4096])
    return facts["token"]


@attack(nothing, told, tool="limited")
def mapped_memory(facts):
    import mmap

    taken = mmap.mmap(-1, 2 * MEMORY)
    for at in range(0, len(taken), 4096):
        taken[at] = 1
    return facts["token"]


@attack(nothing, told, tool="limited")
def processor(facts):
    import time

    while time.process_time() < 2 * CPU_SECONDS:
        pass
    return facts["token"]


def large(place, facts, output):
    path = os.path.join(place.out, "large")
    return os.path.exists(path) and os.path.getsize(path) > FILE


@attack(nothing, large, tool="limited")
def file_size(facts):
    with open(os.path.join(facts["out"], "large"), "wb") as file:
        file.write(b"x" * (2 * FILE))


@attack(nothing, large, tool="limited")
def file_size_by_seeking(facts):
    fd = os.open(os.path.join(facts["out"], "large"), os.O_CREAT | os.O_WRONLY)
    os.ftruncate(fd, 2 * FILE)


@attack(nothing, told, tool="limited")
def descriptors(facts):
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(DESCRIPTORS + 8)]
    return facts["token"] if len(taken) > DESCRIPTORS else None


@attack(nothing, told, tool="limited")
def raised_limit(facts):
    """A limit that can be taken back is none."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    return descriptors(facts)


@attack(nothing, told, tool="limited")
def processes(facts):
    children = []
    reader, writer = os.pipe()
    try:
        for _ in range(PROCESSES + 8):
            pid = os.fork()
            if pid == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            children.append(pid)
    finally:
        os.close(writer)
        for pid in children:
            os.waitpid(pid, 0)
    return facts["token"] if len(children) > PROCESSES else None


@attack(nothing, told, tool="limited")
def threads(facts):
    import threading

    # Small ones, so that memory does not run out first.
    threading.stack_size(64 * 1024)
    over = threading.Event()
    taken = []
    try:
        for _ in range(PROCESSES + 8):
            thread = threading.Thread(target=over.wait)
            thread.start()
            taken.append(thread)
    finally:
        over.set()
    return facts["token"] if len(taken) > PROCESSES else None


def much(place, facts, output):
    return output.count("flood") > 200000


@attack(nothing, much, tool="limited")
def output(facts):
    for _ in range(100):
        os.write(1, b"flood" * 10000)
