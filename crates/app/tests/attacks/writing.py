"""Ways to change what the tool may at most read.

The folder under attack is `victim`: inside the workspace, so that it can be read, and owned by
the user the tool runs as, so that nothing but confinement is in the way.
"""

import ctypes
import fcntl
import mmap
import os
import socket
import struct

from arena import attack, changed, told

AT_FDCWD = -100


def folder(place):
    for root in (place.victim, place.outside):
        with open(os.path.join(root, "file"), "w") as file:
            file.write("as it was\n")
        os.chmod(os.path.join(root, "file"), 0o644)
        os.setxattr(os.path.join(root, "file"), "user.known", b"as it was")
        os.makedirs(os.path.join(root, "folder", "inner"))
        os.symlink("file", os.path.join(root, "link"))
    return {"file": os.path.join(place.victim, "file")}


def own(facts, name):
    """A path of the tool's own: where it may write if it may write anywhere."""
    return os.path.join(os.environ.get("TMPDIR", facts["out"]), name)


# Contents


@attack(folder, changed)
def plain_open(facts):
    with open(facts["file"], "w") as file:
        file.write("changed")


@attack(folder, changed)
def outside_the_workspace(facts):
    with open(os.path.join(facts["outside"], "file"), "a") as file:
        file.write("changed")


@attack(folder, changed)
def io_open(facts):
    import io

    with io.open(facts["file"], "a") as file:
        file.write("changed")


@attack(folder, changed)
def inner_file_io(facts):
    import _io

    _io.FileIO(facts["file"], "r+").write(b"changed")


@attack(folder, changed)
def os_open(facts):
    os.pwrite(os.open(facts["file"], os.O_WRONLY), b"changed", 0)


@attack(folder, changed)
def saved_original(facts):
    """What a sandbox made of patches would have put aside."""
    original = getattr(open, "__wrapped__", open)
    original(facts["file"], "w").write("changed")


@attack(folder, changed)
def c_library(facts):
    from raw import libc, opened

    file = opened(facts["file"].encode(), b"a")
    libc.fputs(b"changed", file)
    libc.fclose(file)


@attack(folder, changed)
def truncate(facts):
    os.truncate(facts["file"], 2)


@attack(folder, changed)
def truncate_while_opening_to_read(facts):
    os.open(facts["file"], os.O_RDONLY | os.O_TRUNC)


@attack(folder, changed)
def mapped(facts):
    fd = os.open(facts["file"], os.O_RDWR)
    mmap.mmap(fd, 4)[0:4] = b"XXXX"


@attack(folder, changed)
def reopened_by_descriptor(facts):
    fd = os.open(facts["file"], os.O_RDONLY)
    os.write(os.open("/proc/self/fd/%d" % fd, os.O_WRONLY), b"changed")


@attack(folder, changed)
def by_the_roots_link(facts):
    os.write(os.open("/proc/self/root" + facts["file"], os.O_WRONLY), b"changed")


@attack(folder, changed)
def by_dots(facts):
    path = os.path.join(facts["out"], "..", "..", "victim", os.path.basename(facts["victim"]))
    os.write(os.open(os.path.join(path, "file"), os.O_WRONLY), b"changed")


@attack(folder, changed)
def by_a_link_of_ones_own(facts):
    link = own(facts, "alias")
    os.symlink(facts["file"], link)
    os.write(os.open(link, os.O_WRONLY), b"changed")


@attack(folder, changed)
def openat2(facts):
    from raw import syscall

    how = struct.pack("QQQ", os.O_WRONLY, 0, 0)
    fd = syscall("openat2", AT_FDCWD, facts["file"].encode(), how, 24)
    os.write(fd, b"changed")


@attack(folder, changed)
def ring(facts):
    """io_uring opens and writes by itself."""
    from raw import Ring, address

    ring = Ring()
    path = ctypes.create_string_buffer(facts["file"].encode())
    fd = ring.ask(Ring.OPENAT, AT_FDCWD, address(path), flags=os.O_WRONLY)
    data = ctypes.create_string_buffer(b"changed")
    ring.ask(Ring.WRITE, fd, address(data), 7)


@attack(folder, changed)
def calls_of_32_bits(facts):
    from raw import Low, int80

    low = Low()
    fd = int80(5, low.put(facts["file"].encode() + b"\0"), os.O_WRONLY, 0)
    int80(4, fd, low.put(b"changed"), 7)


@attack(folder, changed)
def copied_by_the_kernel(facts):
    source = os.open(os.path.join(facts["victim"], "link"), os.O_RDONLY)
    target = os.open(os.path.join(facts["victim"], "copy"), os.O_WRONLY | os.O_CREAT)
    os.copy_file_range(source, target, 100)


@attack(folder, changed, users="root")
def by_handle(facts):
    """A file by its number, without a path."""
    from raw import syscall

    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    syscall("name_to_handle_at", AT_FDCWD, facts["file"].encode(), handle, ctypes.byref(mount), 0)
    fd = syscall("open_by_handle_at", os.open("/", os.O_RDONLY), handle, os.O_WRONLY)
    os.write(fd, b"changed")


# Names


@attack(folder, changed)
def create(facts):
    os.open(os.path.join(facts["victim"], "new"), os.O_CREAT | os.O_EXCL, 0o600)


@attack(folder, changed)
def remove(facts):
    os.remove(facts["file"])


@attack(folder, changed)
def make_folder(facts):
    os.mkdir(os.path.join(facts["victim"], "new"))


@attack(folder, changed)
def make_folders_and_rename(facts):
    os.makedirs(os.path.join(facts["victim"], "a", "b"))
    os.rename(facts["file"], os.path.join(facts["victim"], "a", "b", "file"))


@attack(folder, changed)
def remove_folder(facts):
    os.rmdir(os.path.join(facts["victim"], "folder", "inner"))


@attack(folder, changed)
def remove_tree(facts):
    import shutil

    shutil.rmtree(facts["victim"])


@attack(folder, changed)
def rename(facts):
    os.rename(facts["file"], os.path.join(facts["victim"], "folder", "file"))


@attack(folder, changed)
def move_away(facts):
    os.rename(facts["file"], own(facts, "stolen"))


@attack(folder, changed)
def replace(facts):
    with open(own(facts, "mine"), "w") as file:
        file.write("changed")
    os.replace(own(facts, "mine"), facts["file"])


@attack(folder, changed)
def exchange(facts):
    from raw import syscall

    with open(own(facts, "mine"), "w") as file:
        file.write("changed")
    mine = own(facts, "mine").encode()
    syscall("renameat2", AT_FDCWD, mine, AT_FDCWD, facts["file"].encode(), 2)


@attack(folder, changed)
def hard_link_and_write(facts):
    """A second name where writing is allowed."""
    os.link(facts["file"], own(facts, "second"))
    with open(own(facts, "second"), "w") as file:
        file.write("changed")


def link_descriptor(fd, path):
    from raw import check, libc

    by = b"/proc/self/fd/%d" % fd
    check(libc.linkat(AT_FDCWD, by, AT_FDCWD, path.encode(), 0x400))


@attack(folder, changed)
def hard_link_by_descriptor(facts):
    fd = os.open(facts["file"], os.O_RDONLY)
    link_descriptor(fd, own(facts, "second"))
    os.truncate(own(facts, "second"), 0)


@attack(folder, changed)
def unnamed_then_named(facts):
    fd = os.open(facts["victim"], os.O_TMPFILE | os.O_WRONLY, 0o600)
    link_descriptor(fd, os.path.join(facts["victim"], "new"))


@attack(folder, changed)
def symbolic_link(facts):
    os.symlink("file", os.path.join(facts["victim"], "another"))


@attack(folder, changed)
def fifo(facts):
    os.mkfifo(os.path.join(facts["victim"], "fifo"))


@attack(folder, changed)
def socket_in_a_folder(facts):
    socket.socket(socket.AF_UNIX).bind(os.path.join(facts["victim"], "socket"))


@attack(folder, changed)
def pair_bound_to_a_path(facts):
    one, _ = socket.socketpair()
    one.bind(os.path.join(facts["victim"], "socket"))


@attack(folder, changed, users="root")
def device(facts):
    os.mknod(os.path.join(facts["victim"], "null"), 0o020666, os.makedev(1, 3))


@attack(folder, changed)
def database(facts):
    import sqlite3

    sqlite3.connect(os.path.join(facts["victim"], "new.db")).execute("create table t (x)")


# What is known about a file


@attack(folder, changed)
def chmod(facts):
    os.chmod(facts["file"], 0o777)


@attack(folder, changed)
def chmod_by_descriptor(facts):
    os.fchmod(os.open(facts["file"], os.O_RDONLY), 0o777)


@attack(folder, changed)
def chmod_by_the_newest_call(facts):
    from raw import syscall

    syscall("fchmodat2", AT_FDCWD, facts["file"].encode(), 0o777, 0)


@attack(folder, changed)
def chmod_by_32_bits(facts):
    from raw import Low, int80

    int80(15, Low().put(facts["file"].encode() + b"\0"), 0o777)


@attack(folder, changed)
def chmod_outside(facts):
    os.chmod(os.path.join(facts["outside"], "file"), 0o777)


def with_set_user_id(place):
    facts = folder(place)
    os.chmod(facts["file"], 0o4755)
    return facts


@attack(with_set_user_id, changed)
def chown(facts):
    """To the same owner: it takes the set-user-id bit all the same."""
    os.chown(facts["file"], os.geteuid(), os.getegid())


@attack(with_set_user_id, changed)
def chown_by_descriptor(facts):
    os.fchown(os.open(facts["file"], os.O_RDONLY), os.geteuid(), -1)


@attack(folder, changed)
def utime(facts):
    os.utime(facts["file"], (1, 1))


@attack(folder, changed)
def utime_by_descriptor(facts):
    os.utime(os.open(facts["file"], os.O_RDONLY), (1, 1))


@attack(folder, changed)
def utime_of_a_link(facts):
    os.utime(os.path.join(facts["victim"], "link"), (1, 1), follow_symlinks=False)


@attack(folder, changed)
def attribute(facts):
    os.setxattr(facts["file"], "user.mark", b"changed")


@attack(folder, changed)
def attribute_by_descriptor(facts):
    os.setxattr(os.open(facts["file"], os.O_RDONLY), "user.mark", b"changed")


@attack(folder, changed)
def attribute_by_the_newest_call(facts):
    from raw import syscall

    value = ctypes.create_string_buffer(b"changed")
    how = struct.pack("QII", ctypes.addressof(value), 7, 0)
    syscall("setxattrat", AT_FDCWD, facts["file"].encode(), 0, b"user.mark", how, 16)


@attack(folder, changed)
def attribute_removed(facts):
    os.removexattr(facts["file"], "user.known")


@attack(folder, told, tool="reader")
def lease(facts):
    """Makes every process wait that opens the file to write."""
    fd = os.open(facts["file"], os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return facts["token"] if fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK else ""


@attack(folder, told, tool="reader")
def notification(facts):
    fd = os.open(os.path.dirname(facts["file"]), os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_NOTIFY, fcntl.DN_MODIFY)
    return facts["token"]


@attack(folder, changed)
def flags_by_ioctl(facts):
    """By a descriptor that is open for reading."""
    fd = os.open(facts["file"], os.O_RDONLY)
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0x40))


@attack(folder, changed)
def flags_by_the_other_ioctl(facts):
    fd = os.open(facts["file"], os.O_RDONLY)
    fcntl.ioctl(fd, 0x401C5820, struct.pack("IIIII8x", 0x80, 0, 0, 0, 0))


@attack(folder, changed)
def flags_by_the_newest_call(facts):
    from raw import syscall

    attributes = struct.pack("QIIII", 0x80, 0, 0, 0, 0)
    syscall("file_setattr", AT_FDCWD, facts["file"].encode(), attributes, 24, 0)


# What outlives its maker without being a file of the workspace


def shared_memory(place):
    from raw import libc, syscall

    key = int(place.token[5:12], 16)
    handle = syscall("shmget", key, 4096, 0o1600)
    place.at_end(lambda: libc.shmctl(handle, 0, None))
    return {"key": key, "handle": handle}


def shared_memory_changed(place, facts, output):
    from raw import libc

    libc.shmat.restype = ctypes.c_void_p
    at = libc.shmat(facts["handle"], None, 0o10000)
    return ctypes.string_at(at, 7) == b"changed"


@attack(shared_memory, shared_memory_changed)
def system_v_memory(facts):
    from raw import syscall

    at = syscall("shmat", syscall("shmget", facts["key"], 4096, 0o600), 0, 0)
    ctypes.memmove(at, b"changed", 7)


def message_queue(place):
    from raw import libc, syscall

    key = int(place.token[5:12], 16)
    handle = syscall("msgget", key, 0o1600)
    place.at_end(lambda: libc.msgctl(handle, 0, None))
    return {"key": key, "handle": handle}


def message_came(place, facts, output):
    from raw import libc

    return libc.msgrcv(facts["handle"], ctypes.create_string_buffer(64), 8, 0, 0o4000) > 0


@attack(message_queue, message_came)
def system_v_message(facts):
    from raw import syscall

    message = ctypes.create_string_buffer(struct.pack("l", 1) + b"changed")
    syscall("msgsnd", syscall("msgget", facts["key"], 0o600), message, 7, 0)


def semaphores(place):
    from raw import libc, syscall

    key = int(place.token[5:12], 16)
    handle = syscall("semget", key, 1, 0o1600)
    place.at_end(lambda: libc.semctl(handle, 0, 0))
    return {"key": key, "handle": handle}


def semaphore_set(place, facts, output):
    from raw import libc

    return libc.semctl(facts["handle"], 0, 12) == 7


@attack(semaphores, semaphore_set)
def system_v_semaphore(facts):
    from raw import syscall

    syscall("semctl", syscall("semget", facts["key"], 1, 0o600), 0, 16, 7)


def posix_queue(place):
    from raw import libc, syscall

    name = place.token.encode()
    flags = os.O_CREAT | os.O_RDONLY | os.O_NONBLOCK
    fd = syscall("mq_open", name, flags, 0o600, 0)
    place.at_end(lambda: (os.close(fd), libc.mq_unlink(b"/" + name)))
    return {"queue": fd}


def posix_message_came(place, facts, output):
    from raw import libc

    return libc.mq_receive(facts["queue"], ctypes.create_string_buffer(8192), 8192, None) > 0


@attack(posix_queue, posix_message_came)
def posix_message(facts):
    from raw import syscall

    fd = syscall("mq_open", facts["token"].encode(), os.O_WRONLY, 0, 0)
    syscall("mq_timedsend", fd, b"changed", 7, 0, 0)


def shared_folder(place):
    path = "/dev/shm/" + place.token
    place.at_end(lambda: os.path.exists(path) and os.remove(path))
    return {"path": path}


def shared_file_there(place, facts, output):
    return os.path.exists(facts["path"])


@attack(shared_folder, shared_file_there)
def memory_file(facts):
    open(facts["path"], "w").write("changed")


@attack(shared_folder, shared_file_there)
def shared_memory_module(facts):
    import _posixshmem

    _posixshmem.shm_open("/" + facts["token"], os.O_CREAT | os.O_RDWR, 0o600)


def temporary(place):
    path = "/tmp/" + place.token
    place.at_end(lambda: os.path.exists(path) and os.remove(path))
    return {"path": path}


@attack(temporary, shared_file_there)
def common_temporary_folder(facts):
    open(facts["path"], "w").write("changed")


def inherited_folder(place):
    facts = folder(place)
    fd = os.open(place.victim, os.O_RDONLY)
    os.set_inheritable(fd, True)
    place.at_end(lambda: os.close(fd))
    return facts


@attack(inherited_folder, changed)
def inherited_descriptor(facts):
    """Whatever folder is open."""
    for fd in range(3, 256):
        try:
            os.open("new", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd)
        except OSError:
            pass


# With a writable root


def linked(place):
    facts = folder(place)
    os.link(facts["file"], os.path.join(place.out, "second"))
    return facts


@attack(linked, changed, tool="writer")
def hard_link_already_there(facts):
    """Path-based control can not see that it is the same file."""
    with open(os.path.join(facts["out"], "second"), "w") as file:
        file.write("changed")


@attack(folder, changed, tool="writer")
def move_into_a_root(facts):
    os.rename(facts["file"], os.path.join(facts["out"], "file"))


@attack(folder, changed, tool="writer")
def link_into_a_root(facts):
    os.link(facts["file"], os.path.join(facts["out"], "second"))
    os.truncate(os.path.join(facts["out"], "second"), 0)


@attack(folder, changed, tool="writer")
def replace_from_a_root(facts):
    with open(os.path.join(facts["out"], "mine"), "w") as file:
        file.write("changed")
    os.replace(os.path.join(facts["out"], "mine"), facts["file"])


@attack(folder, changed, tool="writer")
def symbolic_link_in_a_root(facts):
    os.symlink(facts["file"], os.path.join(facts["out"], "alias"))
    os.truncate(os.path.join(facts["out"], "alias"), 0)


@attack(folder, changed, tool="writer")
def chmod_beside_a_root(facts):
    os.chmod(facts["file"], 0o777)


@attack(folder, changed, tool="writer")
def utime_beside_a_root(facts):
    os.utime(facts["file"], (1, 1))


@attack(folder, changed, tool="writer")
def attribute_beside_a_root(facts):
    os.setxattr(facts["file"], "user.mark", b"changed")


def spare(place):
    path = os.path.join(place.ws, "spare")
    os.makedirs(path, exist_ok=True)
    place.at_end(lambda: os.path.exists(path + "d") and os.rename(path + "d", path))
    return {"root": path}


def root_is_gone(place, facts, output):
    return not os.path.exists(facts["root"])


@attack(spare, root_is_gone, tool="writer")
def root_moved_away(facts):
    """The root's own name is not in the root."""
    os.rename(facts["root"], facts["root"] + "d")
