"""Ways to more rights, and into the kernel's wilder corners. Most have no effect that could be
seen from outside but what the kernel gave to the process: the act then tells the word."""

import ctypes
import fcntl
import mmap
import os
import struct

from arena import attack, nothing, told

NEWNS, NEWUTS, NEWUSER, NEWNET = 0x20000, 0x4000000, 0x10000000, 0x40000000


# Rights


@attack(nothing, told, users="root")
def be_root(facts):
    os.setresuid(0, 0, 0)
    return facts["token"]


def of_somebody_else(place):
    """Closed to everybody but its owner, and to who may overrule that."""
    path = os.path.join(place.victim, "secret")
    with open(path, "w") as file:
        file.write(place.token)
    os.chmod(path, 0o600)
    os.chown(path, 64999, 64999)
    return {"path": path, "token": None}


@attack(of_somebody_else, told, users="root", tool="reader")
def overrule_modes(facts):
    return open(facts["path"]).read()


@attack(of_somebody_else, told, users="root", tool="reader")
def become_somebody_else(facts):
    os.setgroups([])
    os.setresuid(64999, 64999, 64999)
    return open(facts["path"]).read()


def user_namespace(facts):
    from raw import libc, check

    check(libc.mount(b"none", facts["out"].encode(), b"tmpfs", 0, None))
    return facts["token"]


@attack(nothing, told, also=["parent"])
def namespace_of_users(facts):
    """Root in a world of its own, where it may mount."""
    from raw import syscall

    syscall("unshare", NEWUSER | NEWNS)
    return user_namespace(facts)


@attack(nothing, told, also=["parent"])
def namespace_of_users_by_clone(facts):
    from raw import syscall

    reader, writer = os.pipe()
    pid = syscall("clone", NEWUSER | NEWNS | 17, 0, 0, 0, 0)
    if pid == 0:
        try:
            os.write(writer, user_namespace(facts).encode())
        finally:
            os._exit(0)
    os.close(writer)
    return os.read(reader, 100)


@attack(nothing, told, also=["parent"])
def namespace_of_users_by_clone3(facts):
    from raw import syscall

    reader, writer = os.pipe()
    arguments = struct.pack("11Q", NEWUSER | NEWNS, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    if syscall("clone3", arguments, len(arguments)) == 0:
        try:
            os.write(writer, user_namespace(facts).encode())
        finally:
            os._exit(0)
    os.close(writer)
    return os.read(reader, 100)


@attack(nothing, told, also=["parent"])
def namespace_of_users_by_32_bits(facts):
    from raw import int80

    int80(310, NEWUSER)
    return facts["token"]


def mounted(place, facts, output):
    is_mounted = os.path.ismount(place.victim)
    if is_mounted:
        from raw import libc

        libc.umount2(place.victim.encode(), 2)
    return is_mounted


@attack(nothing, mounted, users="root")
def mount(facts):
    from raw import check, libc

    check(libc.mount(b"none", facts["victim"].encode(), b"tmpfs", 0, None))


@attack(nothing, told, users="root")
def new_mount_calls(facts):
    from raw import syscall

    syscall("fsopen", b"tmpfs", 0)
    return facts["token"]


@attack(nothing, told, users="root")
def change_root(facts):
    os.chroot(facts["out"])
    return facts["token"]


@attack(nothing, told, users="root")
def join_namespace(facts):
    from raw import syscall

    syscall("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), NEWUTS)
    return facts["token"]


@attack(nothing, told, users="root")
def namespace_of_networks(facts):
    from raw import syscall

    syscall("unshare", NEWNET)
    return facts["token"]


# The kernel


@attack(nothing, told)
def ring(facts):
    from raw import Ring

    Ring()
    return facts["token"]


@attack(nothing, told)
def fault_handler(facts):
    """Stops the kernel in the middle of a copy."""
    from raw import syscall

    fd = syscall("userfaultfd", os.O_CLOEXEC | 1)
    fcntl.ioctl(fd, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))
    return facts["token"]


@attack(nothing, told)
def performance_counter(facts):
    from raw import syscall

    # Software clock of this task, user space only.
    attributes = struct.pack("IIQQQQ", 1, 112, 1, 0, 0, 0).ljust(40, b"\0")
    attributes += struct.pack("Q", (1 << 5) | (1 << 6)) + b"\0" * 64
    fd = syscall("perf_event_open", attributes, 0, -1, -1, 0)
    os.read(fd, 8)
    return facts["token"]


@attack(nothing, told, users="root")
def kernel_program(facts):
    from raw import syscall

    # An array of one number.
    syscall("bpf", 0, struct.pack("IIII", 2, 4, 4, 1).ljust(72, b"\0"), 72)
    return facts["token"]


USER_KEYRING = -4


def key_is_there(place, facts, output):
    from raw import syscall

    try:
        key = syscall("keyctl", 10, USER_KEYRING, b"user", place.token.encode(), 0)
    except OSError:
        return False
    syscall("keyctl", 9, key, USER_KEYRING)
    return True


@attack(nothing, key_is_there)
def add_key(facts):
    """In a ring that all processes of the user share."""
    from raw import syscall

    syscall("add_key", b"user", facts["token"].encode(), b"x", 1, USER_KEYRING)


def key(place):
    from raw import syscall

    name = place.token.encode()
    one = syscall("add_key", b"user", b"named-" + name, name, len(name), USER_KEYRING)
    place.at_end(lambda: syscall("keyctl", 9, one, USER_KEYRING))
    return {"name": "named-" + place.token, "token": None}


def told_as_value(place, facts, output):
    return "value " + place.token in output


@attack(key, told_as_value)
def read_key(facts):
    from raw import syscall

    one = syscall("keyctl", 10, USER_KEYRING, b"user", facts["name"].encode(), 0)
    value = ctypes.create_string_buffer(100)
    syscall("keyctl", 11, one, value, 100)
    return "value " + value.value.decode()


@attack(nothing, told)
def fixed_addresses(facts):
    from raw import syscall

    syscall("personality", 0x40000)
    if syscall("personality", 0xFFFFFFFF) & 0x40000:
        return facts["token"]


@attack(nothing, told)
def segment_descriptors(facts):
    from raw import syscall

    syscall("modify_ldt", 1, struct.pack("IIII", 0, 0, 0xFFFFF, 0x51), 16)
    return facts["token"]


@attack(nothing, told)
def calls_of_32_bits(facts):
    from raw import int80

    int80(20)
    return facts["token"]


@attack(nothing, told, void="x32 calls are not built into this machine's kernel")
def x32_calls(facts):
    from raw import syscall

    syscall((1 << 30) + 39)
    return facts["token"]


@attack(nothing, told, void="nobody has invented this call yet")
def call_of_the_future(facts):
    from raw import syscall

    syscall(511)
    return facts["token"]


@attack(nothing, told, users="root")
def kernel_log(facts):
    from raw import syscall

    if syscall("syslog", 3, ctypes.create_string_buffer(4096), 4096) > 0:
        return facts["token"]


@attack(nothing, told, users="root")
def kernel_log_device(facts):
    os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 8192)
    return facts["token"]


@attack(nothing, told, users="root")
def kernel_setting(facts):
    """Root owns these files, with rights or without. The value stays as it is."""
    path = "/proc/sys/vm/swappiness"
    value = open(path).read()
    with open(path, "w") as file:
        file.write(value)
    return facts["token"]


def terminal(place):
    """Somebody's terminal: what is typed there is run by their shell."""
    import tty

    master, slave = os.openpty()
    tty.setraw(slave)
    path = os.ttyname(slave)
    place.terminal = slave
    place.at_end(lambda: (os.close(master), os.close(slave)))
    return {"path": path}


def typed(place, facts, output):
    import select

    if not select.select([place.terminal], [], [], 0)[0]:
        return False
    return place.token.encode() in os.read(place.terminal, 1000)


@attack(terminal, typed)
def type_into_a_terminal(facts):
    try:
        os.setsid()
    except OSError:
        pass
    fd = os.open(facts["path"], os.O_RDWR)
    for letter in facts["token"]:
        fcntl.ioctl(fd, 0x5412, letter.encode())


@attack(nothing, told)
def own_memory_by_file(facts):
    """Past the protection of pages: code that nobody may write."""
    page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    with open("/proc/self/maps") as file:
        lines = [line.split() for line in file if " r--p " in line and "00:00" in line]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for line in lines:
            memory.seek(int(line[0].split("-")[0], 16))
            try:
                memory.write(b"changed")
            except OSError:
                pass
    if page[:7] == b"changed":
        return facts["token"]

