"""Ways to the environment of whoever started the tool: there is a secret in it."""

import os

from arena import attack, nothing

NAME = "ATTACK_SECRET"


def secret_told(place, facts, output):
    return os.environ[NAME] in output


@attack(nothing, secret_told)
def variables(facts):
    return os.environ.get(NAME)


@attack(nothing, secret_told)
def variables_as_bytes(facts):
    return os.environb.get(NAME.encode())


@attack(nothing, secret_told)
def c_library(facts):
    import ctypes

    from raw import libc

    libc.getenv.restype = ctypes.c_char_p
    return libc.getenv(NAME.encode())


@attack(nothing, secret_told)
def c_library_list(facts):
    import ctypes

    from raw import libc

    words = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
    found, at = [], 0
    while words[at]:
        found.append(words[at].decode("latin-1"))
        at += 1
    return str(found)


@attack(nothing, secret_told)
def own_file(facts):
    return open("/proc/self/environ", "rb").read()


@attack(nothing, secret_told)
def files_of_all(facts):
    found = b""
    for pid in os.listdir("/proc"):
        try:
            found += open("/proc/%s/environ" % pid, "rb").read()
        except OSError:
            pass
    return found


@attack(nothing, secret_told)
def file_of_the_parent(facts):
    return open("/proc/%d/environ" % os.getppid(), "rb").read()


@attack(nothing, secret_told)
def top_of_the_stack(facts):
    """Where the kernel put them at the start."""
    found = b""
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        for line in maps:
            if "[stack]" in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(start)
                found = memory.read(end - start)
    return found[-20000:]
