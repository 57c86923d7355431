"""Write a root folder with this Python in it, and nothing fetched, as a tar for `podman import`.

    python3 image.py OUT.tar

The interpreter, its standard library and the shared libraries both need keep their paths;
a static busybox brings a shell. `oneshot` is a program that speaks the tool protocol's local
form: a request on stdin, a reply on stdout.
"""

import io
import os
import subprocess
import sys
import sysconfig
import tarfile

LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "ensurepip", "lib2to3", "tkinter", "site-packages", "dist-packages", "turtledemo"}
APPLETS = ("sh", "cat", "sleep")

ONESHOT = b"""#!/bin/sh
exec python3 -c '
import json, os, sys
request = json.load(sys.stdin)
payload = request["payload"]
print("words of the tool", file=sys.stderr)
do = payload.get("do")
if do == "fail":
    print(json.dumps({"ok": False, "error": {"type": "ValueError", "message": "no"}}))
    sys.exit(payload.get("exit", 0))
if do == "die":
    sys.exit(3)
if do == "hang":
    import time
    time.sleep(1000)
print(json.dumps({"ok": True, "protocol_version": 1, "result": {"request": request, "pid": os.getpid()}}))
'
"""


def main(out):
    root = Root(out)
    for folder in ("dev", "etc", "proc", "run", "sys", "tmp", "usr/bin", "var", "workspace"):
        root.folder("/" + folder)
    executable = os.path.realpath(sys.executable)
    root.file(executable)
    root.link("/usr/bin/python3", executable)
    # Where it looks for itself by its name.
    root.link("/usr/bin/" + os.path.basename(executable), executable)
    for name in ("stdlib", "platstdlib"):
        root.tree(sysconfig.get_path(name))
    for library in libraries([executable] + root.shared):
        root.file(library)
    busybox = "/bin/busybox"
    root.file(busybox, "/bin/busybox")
    for applet in APPLETS:
        root.link("/bin/" + applet, busybox)
    root.data("/usr/bin/oneshot", ONESHOT, 0o755)
    root.data("/etc/passwd", b"root:x:0:0::/:/bin/sh\n", 0o644)
    root.close()


class Root:
    def __init__(self, out):
        self.tar = tarfile.open(out, "w")
        self.seen = set()
        self.shared = []

    def close(self):
        self.tar.close()

    def folder(self, path):
        path = os.path.normpath(path)
        if path == "/" or path in self.seen:
            return
        self.folder(os.path.dirname(path))
        self.add(path, tarfile.DIRTYPE, 0o1777 if path == "/tmp" else 0o755)

    def file(self, source, path=None):
        path = path or source
        with open(source, "rb") as file:
            self.data(path, file.read(), 0o755 if os.access(source, os.X_OK) else 0o644)
        if ".so" in os.path.basename(source):
            self.shared.append(source)

    def data(self, path, data, mode):
        if path in self.seen:
            return
        self.folder(os.path.dirname(path))
        self.add(path, tarfile.REGTYPE, mode, data=data)

    def link(self, path, target):
        if path in self.seen or path == target:
            return
        self.folder(os.path.dirname(path))
        self.add(path, tarfile.SYMTYPE, 0o777, linkname=target)

    def tree(self, top):
        for folder, folders, files in os.walk(top):
            folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("config-"))
            for name in sorted(files):
                source = os.path.join(folder, name)
                if name.endswith((".a", ".pyc")) or not os.path.isfile(source):
                    continue
                self.file(source)

    def add(self, path, kind, mode, data=b"", linkname=""):
        self.seen.add(path)
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.mode, info.size, info.linkname = kind, mode, len(data), linkname
        self.tar.addfile(info, io.BytesIO(data))


def libraries(programs):
    """What the loader would load for them."""
    found = set()
    for program in programs:
        listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for word in listed.stdout.decode().split():
            if word.startswith("/") and os.path.isfile(word):
                found.add(word)
    return sorted(found)


if __name__ == "__main__":
    main(sys.argv[1])
