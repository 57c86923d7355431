"""System calls by number, as no library makes them."""

import ctypes
import mmap
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = os.uname().machine == "x86_64"

# x86-64, aarch64.
NUMBERS = {
    "socket": (41, 198),
    "clone": (56, 220),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "truncate": (76, 45),
    "chmod": (90, None),
    "ptrace": (101, 117),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "mount": (165, 40),
    "syslog": (103, 116),
    "iopl": (172, None),
    "tkill": (200, 130),
    "io_setup": (206, 0),
    "mq_open": (240, 180),
    "mq_timedsend": (242, 182),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "ioprio_set": (251, 30),
    "ioprio_get": (252, 31),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "unshare": (272, 97),
    "rt_tgsigqueueinfo": (297, 240),
    "rt_sigqueueinfo": (129, 138),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "renameat2": (316, 276),
    "seccomp": (317, 277),
    "memfd_create": (319, 279),
    "bpf": (321, 280),
    "execveat": (322, 281),
    "userfaultfd": (323, 282),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "fsopen": (430, 430),
    "pidfd_open": (434, 434),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
    "fchmodat2": (452, 452),
    "setxattrat": (463, 463),
    "getxattrat": (464, 464),
    "file_getattr": (468, 468),
    "file_setattr": (469, 469),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "semget": (64, 190),
    "semctl": (66, 191),
    "getxattr": (191, 8),
    "splice": (275, 76),
}


def syscall(name, *arguments):
    """Makes a call; raises OSError where it fails."""
    number = name if isinstance(name, int) else NUMBERS[name][0 if X86 else 1]
    if number is None:
        raise OSError(38, "not on this machine")
    words = []
    for one in arguments:
        if isinstance(one, bytes):
            words.append(ctypes.c_char_p(one))
        elif isinstance(one, int):
            words.append(ctypes.c_long(one))
        else:
            words.append(one)
    result = libc.syscall(ctypes.c_long(number), *words)
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), str(name))
    return result


def check(result):
    """For functions of the C library."""
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    return result


def opened(what, mode, function=libc.fopen):
    """A stream of the C library's."""
    function.restype = ctypes.c_void_p
    stream = function(what, mode)
    if not stream:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    return ctypes.c_void_p(stream)


def address(buffer):
    return ctypes.addressof(buffer)


MAP_32BIT = 0x40


class Low:
    """Memory below 4 GiB, where 32-bit calls look for their arguments."""

    def __init__(self, size=4096):
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [
            ctypes.c_long
        ]
        prot = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT
        self.at = libc.mmap(None, size, prot, flags, -1, 0)
        self.used = 0

    def put(self, data):
        at = self.at + self.used
        ctypes.memmove(at, data, len(data))
        self.used += (len(data) + 15) & ~15
        return at


def int80(number, *arguments):
    """A 32-bit call: other numbers, and a door that filters forget."""
    if not X86:
        raise OSError(38, "not on this machine")
    code = bytes(
        [0x53]  # push rbx
        + [0x89, 0xF8, 0x89, 0xF3]  # mov eax, edi; mov ebx, esi
        + [0x41, 0x89, 0xC9, 0x89, 0xD1, 0x44, 0x89, 0xCA]  # ecx, edx = edx, ecx
        + [0x44, 0x89, 0xC6]  # mov esi, r8d
        + [0xCD, 0x80, 0x5B, 0xC3]  # int 0x80; pop rbx; ret
    )
    entry = Low().put(code)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint] * 5)(entry)
    result = function(number, *(list(arguments) + [0] * (4 - len(arguments))))
    if -4096 < result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class Ring:
    """An io_uring with room for one request at a time: calls that no filter sees."""

    OPENAT, READ, WRITE, SEND, CONNECT, SOCKET = 18, 22, 23, 26, 16, 45

    def __init__(self):
        params = ctypes.create_string_buffer(120)
        self.fd = syscall("io_uring_setup", 4, params)
        fields = struct.unpack("10I", params.raw[40:80])
        self.sq_head, self.sq_tail, self.sq_mask, _, _, _, self.sq_array = fields[:7]
        cq = struct.unpack("10I", params.raw[80:120])
        self.cq_head, self.cq_tail, self.cq_mask, _, _, self.cqes = cq[:6]
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        self.sq = mmap.mmap(self.fd, 4096, mmap.MAP_SHARED, prot, offset=0)
        self.cq = mmap.mmap(self.fd, 4096, mmap.MAP_SHARED, prot, offset=0x8000000)
        self.entries = mmap.mmap(self.fd, 4096, mmap.MAP_SHARED, prot, offset=0x10000000)

    def word(self, ring, at, value=None):
        if value is not None:
            ring[at : at + 4] = struct.pack("I", value)
        return struct.unpack("I", ring[at : at + 4])[0]

    def ask(self, opcode, fd, at=0, length=0, offset=0, flags=0):
        """One request and its result."""
        entry = struct.pack("<BBHiQQIIQHHIQQ", opcode, 0, 0, fd, offset, at, length, flags, 0, 0, 0, 0, 0, 0)
        self.entries[0:64] = entry
        tail = self.word(self.sq, self.sq_tail)
        slot = tail & self.word(self.sq, self.sq_mask)
        self.word(self.sq, self.sq_array + 4 * slot, 0)
        self.word(self.sq, self.sq_tail, tail + 1)
        syscall("io_uring_enter", self.fd, 1, 1, 1, 0, 0)
        head = self.word(self.cq, self.cq_head)
        slot = head & self.word(self.cq, self.cq_mask)
        at = self.cqes + 16 * slot
        (result,) = struct.unpack("<i", self.cq[at + 8 : at + 12])
        self.word(self.cq, self.cq_head, head + 1)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

