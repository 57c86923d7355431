"""A folder as it is: every name, with all that can be changed about it."""

import array
import fcntl
import hashlib
import os
import stat

FS_IOC_GETFLAGS = 0x80086601
FS_IOC_SETFLAGS = 0x40086602
NODUMP, NOATIME = 0x40, 0x80


def tree(root):
    if not os.path.lexists(root):
        return None
    found = {".": entry(root)}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = entry(path)
    return found


def entry(path):
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    facts = {
        "mode": status.st_mode,
        "owner": (status.st_uid, status.st_gid),
        # What a file is changed by others is its own business: a folder's time says that a
        # name in it was touched, even if all is as before.
        "modified": status.st_mtime_ns,
        "links": status.st_nlink,
    }
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            facts["content"] = hashlib.sha256(file.read()).hexdigest()
            facts["flags"] = flags(file)
        facts["attributes"] = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    elif kind == stat.S_IFLNK:
        facts["target"] = os.readlink(path)
    elif kind == stat.S_IFDIR:
        facts["attributes"] = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return facts


def flags(file):
    words = array.array("l", [0])
    try:
        fcntl.ioctl(file.fileno(), FS_IOC_GETFLAGS, words)
    except OSError:
        return None
    return words[0]


def loosen(root):
    """So that it can be removed."""
    for folder, folders, _ in os.walk(root):
        for name in folders:
            os.chmod(os.path.join(folder, name), 0o700)
