"""Ways to read what is outside the roots. The secret is in a file's contents, or in a name."""

import ctypes
import os
import struct

from arena import attack, told

AT_FDCWD = -100


def secret(place):
    path = os.path.join(place.outside, "secret")
    with open(path, "w") as file:
        file.write("the word is %s\n" % place.token)
    return {"path": path}


def hide_token(stage):
    """The word must come from what is read: the tool is not told it."""

    def staged(place):
        facts = stage(place)
        facts["token"] = None
        return facts

    return staged


secret = hide_token(secret)


@hide_token
def secret_name(place):
    open(os.path.join(place.outside, place.token), "w").close()
    return {}


@attack(secret, told)
def plain_open(facts):
    return open(facts["path"]).read()


@attack(secret, told)
def io_open(facts):
    import io

    return io.open(facts["path"]).read()


@attack(secret, told)
def inner_file_io(facts):
    import _io

    return _io.FileIO(facts["path"]).read()


@attack(secret, told)
def os_open(facts):
    return os.read(os.open(facts["path"], os.O_RDONLY), 1000)


@attack(secret, told)
def line_cache(facts):
    import linecache

    return linecache.getline(facts["path"], 1)


@attack(secret, told)
def path_library(facts):
    import pathlib

    return pathlib.Path(facts["path"]).read_text()


@attack(secret, told)
def mapped(facts):
    import mmap

    fd = os.open(facts["path"], os.O_RDONLY)
    return mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:]


@attack(secret, told)
def c_library(facts):
    from raw import libc, opened

    buffer = ctypes.create_string_buffer(200)
    libc.fgets(buffer, 200, opened(facts["path"].encode(), b"r"))
    return buffer.value


@attack(secret, told)
def sent_by_the_kernel(facts):
    reader, writer = os.pipe()
    os.sendfile(writer, os.open(facts["path"], os.O_RDONLY), 0, 1000)
    return os.read(reader, 1000)


@attack(secret, told)
def location_then_reopened(facts):
    """A descriptor that only names the file, made one that reads it."""
    fd = os.open(facts["path"], os.O_PATH)
    return open("/proc/self/fd/%d" % fd).read()


@attack(secret, told)
def by_the_roots_link(facts):
    return open("/proc/self/root" + facts["path"]).read()


@attack(secret, told)
def by_the_folders_link(facts):
    os.chdir("/")
    return open("/proc/self/cwd" + facts["path"]).read()


@attack(secret, told)
def by_dots(facts):
    path = os.path.relpath(facts["path"], os.getcwd())
    return open(path).read()


@attack(secret, told)
def by_changing_folder(facts):
    os.chdir(os.path.dirname(facts["path"]))
    return open("secret").read()


@attack(secret, told)
def by_folder_descriptor(facts):
    folder = os.open(os.path.dirname(facts["path"]), os.O_PATH | os.O_DIRECTORY)
    return os.read(os.open("secret", os.O_RDONLY, dir_fd=folder), 1000)


@attack(secret, told)
def by_a_link_of_ones_own(facts):
    link = os.path.join(os.environ.get("TMPDIR", facts["out"]), "alias")
    os.symlink(facts["path"], link)
    return open(link).read()


def linked(place):
    facts = secret(place)
    facts["link"] = os.path.join(place.victim, "link")
    os.symlink(facts["path"], facts["link"])
    return facts


@attack(linked, told)
def by_a_link_that_is_there(facts):
    return open(facts["link"]).read()


@attack(secret, told)
def openat2(facts):
    from raw import syscall

    fd = syscall("openat2", AT_FDCWD, facts["path"].encode(), struct.pack("QQQ", 0, 0, 0), 24)
    return os.read(fd, 1000)


@attack(secret, told)
def ring(facts):
    from raw import Ring, address

    ring = Ring()
    path = ctypes.create_string_buffer(facts["path"].encode())
    fd = ring.ask(Ring.OPENAT, AT_FDCWD, address(path))
    buffer = ctypes.create_string_buffer(200)
    ring.ask(Ring.READ, fd, address(buffer), 200)
    return buffer.value


@attack(secret, told)
def calls_of_32_bits(facts):
    from raw import Low, int80

    low = Low()
    fd = int80(5, low.put(facts["path"].encode() + b"\0"), 0, 0)
    buffer = low.put(b"\0" * 200)
    int80(3, fd, buffer, 200)
    return ctypes.string_at(buffer)


@attack(secret, told, users="root")
def by_handle(facts):
    from raw import syscall

    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    syscall("name_to_handle_at", AT_FDCWD, facts["path"].encode(), handle, ctypes.byref(mount), 0)
    fd = syscall("open_by_handle_at", os.open("/", os.O_RDONLY), handle, os.O_RDONLY)
    return os.read(fd, 1000)


@attack(secret, told)
def hard_link_then_read(facts):
    second = os.path.join(os.environ.get("TMPDIR", facts["out"]), "second")
    os.link(facts["path"], second)
    return open(second).read()


@attack(secret, told)
def moved_then_read(facts):
    mine = os.path.join(os.environ.get("TMPDIR", facts["out"]), "mine")
    os.rename(facts["path"], mine)
    return open(mine).read()


@hide_token
def module(place):
    with open(os.path.join(place.outside, "module.py"), "w") as file:
        file.write("word = %r\n" % place.token)
    return {"path": os.path.join(place.outside, "module.py")}


@attack(module, told)
def imported(facts):
    import sys

    sys.path.insert(0, os.path.dirname(facts["path"]))
    return __import__("module").word


@attack(secret, told)
def generator_context_manager(facts):
    """The error must come out as what it is, whatever it passes on its way."""
    import contextlib

    @contextlib.contextmanager
    def opened(path):
        with open(path) as file:
            yield file

    with opened(facts["path"]) as file:
        return file.read()


@hide_token
def stored(place):
    import sqlite3

    path = os.path.join(place.outside, "data.db")
    database = sqlite3.connect(path)
    database.execute("create table t (word)")
    database.execute("insert into t values (?)", (place.token,))
    database.commit()
    database.close()
    return {"path": path}


@attack(stored, told)
def database(facts):
    import sqlite3

    return str(sqlite3.connect(facts["path"]).execute("select word from t").fetchall())


@attack(secret_name, told)
def list_folder(facts):
    return str(os.listdir(facts["outside"]))


@attack(secret_name, told)
def scan_folder(facts):
    return str([entry.name for entry in os.scandir(facts["outside"])])


@attack(secret_name, told)
def walk(facts):
    return str(list(os.walk(os.path.dirname(facts["outside"]))))


@attack(secret_name, told)
def list_by_descriptor(facts):
    return str(os.listdir(os.open(facts["outside"], os.O_RDONLY)))


@hide_token
def attributed(place):
    path = os.path.join(place.outside, "file")
    open(path, "w").close()
    os.setxattr(path, "user.secret", place.token.encode())
    return {"path": path}


@attack(attributed, told)
def attribute(facts):
    return os.getxattr(facts["path"], "user.secret")


@attack(attributed, told)
def attribute_of_the_link(facts):
    return os.getxattr(facts["path"], "user.secret", follow_symlinks=False)


@attack(attributed, told)
def attribute_by_the_newest_call(facts):
    from raw import syscall

    value = ctypes.create_string_buffer(200)
    how = struct.pack("QII", ctypes.addressof(value), 200, 0)
    syscall("getxattrat", AT_FDCWD, facts["path"].encode(), 0, b"user.secret", how, 16)
    return value.value


@attack(attributed, told)
def attribute_by_location(facts):
    fd = os.open(facts["path"], os.O_PATH)
    return os.getxattr("/proc/self/fd/%d" % fd, "user.secret")


@attack(attributed, told, tool="parent")
def attribute_with_writes(facts):
    return os.getxattr(facts["path"], "user.secret")


def outside_file(place):
    path = os.path.join(place.outside, "file")
    open(path, "w").close()
    return {"path": path}


@attack(outside_file, told, also=("parent",))
def file_attributes_by_the_newest_call(facts):
    from raw import syscall

    flags = ctypes.create_string_buffer(24)
    syscall("file_getattr", AT_FDCWD, facts["path"].encode(), flags, 24, 0)
    return facts["token"]


@hide_token
def named_attribute(place):
    path = os.path.join(place.outside, "file")
    open(path, "w").close()
    os.setxattr(path, "user." + place.token, b"x")
    return {"path": path}


@attack(named_attribute, told)
def attribute_names(facts):
    return str(os.listxattr(facts["path"]))


class Toucher:
    """Makes a file with a secret name again and again, for whoever watches."""

    def __init__(self, place):
        import threading

        self.over = threading.Event()
        path = os.path.join(place.outside, place.token)

        def touch():
            while not self.over.wait(0.01):
                open(path, "w").close()
                os.remove(path)

        self.thread = threading.Thread(target=touch)
        self.thread.start()

    def close(self):
        self.over.set()
        self.thread.join()


@hide_token
def touched(place):
    place.keep(Toucher(place))
    return {}


@attack(touched, told)
def watched(facts):
    """Names told by the kernel to whoever asked to be told."""
    import select

    from raw import syscall

    fd = syscall("inotify_init1", 0)
    syscall("inotify_add_watch", fd, facts["outside"].encode(), 0x100)
    select.select([fd], [], [], 5)
    return os.read(fd, 4096)


@attack(touched, told, users="root")
def watched_by_mount(facts):
    import select

    from raw import syscall

    # FAN_REPORT_DFID_NAME, on the folder: names come with the events.
    fd = syscall("fanotify_init", 0xC00, 0)
    syscall("fanotify_mark", fd, 1, 0x100, AT_FDCWD, facts["outside"].encode())
    select.select([fd], [], [], 5)
    return os.read(fd, 4096)


# What stays open: whether a file is there, and what is known about it


@hide_token
def sized(place):
    """The secret is how long the file is."""
    import secrets

    length = 1000000 + secrets.randbelow(1000000)
    with open(os.path.join(place.outside, "file"), "w") as file:
        file.truncate(length)
    place.token = "length %d" % length
    return {}


@attack(sized, told)
def status(facts):
    return "length %d" % os.stat(os.path.join(facts["outside"], "file")).st_size


@attack(sized, told)
def status_by_location(facts):
    fd = os.open(os.path.join(facts["outside"], "file"), os.O_PATH)
    return "length %d" % os.fstat(fd).st_size


@hide_token
def pointed(place):
    os.symlink(place.token, os.path.join(place.outside, "link"))
    return {}


@attack(pointed, told)
def link_target(facts):
    return os.readlink(os.path.join(facts["outside"], "link"))
