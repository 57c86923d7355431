"""Becomes a program on a machine that lacks something: `without.py WHAT PROGRAM ARGS…`. A
filter answers for the kernel, as an older or another kernel would."""

import ctypes
import os
import struct
import sys

ENOSYS, EPERM = 38, 1
NAMESPACES = 0x7E020000  # of users, mounts, pids, networks, IPC, names and cgroups
X86 = os.uname().machine == "x86_64"

# Which calls, what is answered, and where a clone or unshare must not have these flags.
CALLS = {
    "landlock": ([444, 445, 446], ENOSYS, None),
    "seccomp": ([317 if X86 else 277], ENOSYS, None),
    "namespaces": ([272, 56] if X86 else [97, 220], EPERM, NAMESPACES),
}


def program(numbers, errno, flags):
    load_number, load_argument, mask = (0x20, 0, 0, 0), (0x20, 0, 0, 16), (0x54, 0, 0, flags or 0)
    allow, refuse = (6, 0, 0, 0x7FFF0000), (6, 0, 0, 0x50000 | errno)
    code = [load_number]
    # To the end of the numbers if none of them fits.
    for at, number in enumerate(numbers):
        code.append((0x15, len(numbers) - at, 0, number))
    code.append(allow)
    if flags:
        code += [load_argument, mask, (0x15, 0, 1, 0), allow]
    code.append(refuse)
    return code


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    code = program(*CALLS[sys.argv[1]])
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
    count = (len(code) - 1) // 8
    filter = ctypes.create_string_buffer(struct.pack("H6xQ", count, ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, filter, 0, 0) == 0, ctypes.get_errno()
    os.execv(sys.argv[2], sys.argv[2:])


main()
