"""What a confined tool must go on being able to do. Each returns the word only if it worked."""

import os

from arena import attack, nothing, told


@attack(nothing, told)
def threads(facts):
    import queue
    import threading

    answers = queue.Queue()
    team = [threading.Thread(target=lambda: answers.put(1)) for _ in range(8)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    return facts["token"] if answers.qsize() == 8 else None


@attack(nothing, told)
def pool_of_threads(facts):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(lambda n: n * n, range(100)))
    return facts["token"] if total == 328350 else None


@attack(nothing, told)
def asyncio_loop(facts):
    import asyncio

    async def main():
        await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(10)))
        return await asyncio.to_thread(lambda: facts["token"])

    return asyncio.run(main())


@attack(nothing, told)
def stream_pair(facts):
    import socket

    one, other = socket.socketpair()
    one.sendall(facts["token"].encode())
    return other.recv(100)


@attack(nothing, told)
def pipes(facts):
    reader, writer = os.pipe()
    os.write(writer, facts["token"].encode())
    return os.read(reader, 100)


@attack(nothing, told)
def temporary_file(facts):
    import tempfile

    with tempfile.NamedTemporaryFile("w+") as file, tempfile.TemporaryDirectory() as folder:
        file.write(facts["token"])
        file.seek(0)
        with open(os.path.join(folder, "copy"), "w") as copy:
            copy.write(file.read())
        return open(os.path.join(folder, "copy")).read()


@attack(nothing, told)
def signals_to_oneself(facts):
    import signal

    got = []
    signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
    os.kill(os.getpid(), signal.SIGUSR1)
    return facts["token"] if got else None


@attack(nothing, told)
def memory_and_randomness(facts):
    import mmap
    import secrets

    page = mmap.mmap(-1, 1 << 20)
    page[:4] = b"page"
    fd = os.memfd_create("mine")
    os.write(fd, page[:4])
    return facts["token"] if os.fstat(fd).st_size == 4 and secrets.token_bytes(8) else None


@attack(nothing, told)
def own_settings(facts):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))
    os.nice(0)
    return facts["token"]


def readable(place):
    with open(os.path.join(place.victim, "file"), "w") as file:
        file.write(place.token)
    return {"token": None}


@attack(readable, told)
def file_in_a_readable_root(facts):
    os.listdir(facts["victim"])
    return open(os.path.join(facts["victim"], "file")).read()


def written(place, facts, output):
    try:
        return open(os.path.join(place.out, "kept", "second")).read() == place.token
    except OSError:
        return False


@attack(nothing, written, tool="writer")
def files_in_a_writable_root(facts):
    folder = os.path.join(facts["out"], "kept")
    os.makedirs(folder)
    with open(os.path.join(folder, "first"), "w") as file:
        file.write(facts["token"])
    os.rename(os.path.join(folder, "first"), os.path.join(folder, "second"))
    os.symlink("second", os.path.join(folder, "alias"))
    open(os.path.join(folder, "gone"), "w").close()
    os.remove(os.path.join(folder, "gone"))


@attack(nothing, written, tool="writer")
def database_in_a_writable_root(facts):
    import sqlite3

    folder = os.path.join(facts["out"], "kept")
    os.makedirs(folder)
    database = sqlite3.connect(os.path.join(folder, "data"))
    database.execute("create table t (word)")
    database.execute("insert into t values (?)", (facts["token"],))
    database.commit()
    with open(os.path.join(folder, "second"), "w") as file:
        file.write(database.execute("select word from t").fetchone()[0])


@attack(nothing, told, tool="parent")
def children_where_allowed(facts):
    import subprocess

    words = ["/bin/sh", "-c", "echo %s | cat" % facts["token"]]
    return subprocess.run(words, check=True, capture_output=True, timeout=40).stdout


@attack(nothing, told, tool="parent")
def processes_where_allowed(facts):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, facts["token"].encode())
        os._exit(0)
    os.wait()
    return os.read(reader, 100)


def online(place):
    import network

    return network.tcp4(place)


def heard(place, facts, output):
    import network

    return network.heard(place, facts, output)


@attack(online, heard, tool="online")
def network_where_allowed(facts):
    import socket

    socket.create_connection(("127.0.0.1", facts["port"]), 5).sendall(facts["token"].encode())


@attack(nothing, told, tool="online")
def names_where_allowed(facts):
    import socket

    return facts["token"] if socket.getaddrinfo("localhost", 80) else None


def modules(place):
    return {"modules": os.environ.get("ATTACK_MODULES", "")}


@attack(modules, told, tool="numbers")
def numpy(facts):
    import sys

    sys.path.insert(0, facts["modules"])
    import numpy

    a = numpy.random.default_rng(7).random((200, 200))
    # By threads of the library for linear algebra.
    product = a @ numpy.linalg.inv(a)
    return facts["token"] if numpy.allclose(product, numpy.eye(200)) else None
