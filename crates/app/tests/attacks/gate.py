"""Attacks on the gate itself: its state, its sockets, its configuration, its processes and the
code of its other tools. `ATTACK_GATE` tells the referee where all that is. Whatever an attack
changed is put back by the judge, because the gate goes on."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import time

from arena import attack, nothing, told

PROGRAMS = ["parent", "wide"]


def gate():
    return json.loads(os.environ["ATTACK_GATE"])


def where(place):
    return dict(gate(), ws=place.ws)


def callgate(facts, *words):
    """The program as its owner runs it."""
    ran = subprocess.run(
        [facts["program"], *words, "--workspace", facts["ws"], "--state", facts["state"]],
        capture_output=True,
        timeout=40,
    )
    return (ran.stdout + ran.stderr).decode()


def contents(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def kept(name):
    """A file whose contents must stay: how to lay out and judge attacks on it."""

    def path_of(place):
        return name.format(ws=place.ws, state=gate()["state"])

    def stage(place):
        place.path, place.content = path_of(place), contents(path_of(place))
        return dict(where(place), path=place.path)

    def judge(place, facts, output):
        now = contents(place.path)
        if now == place.content:
            return False
        if place.content is None:
            os.remove(place.path)
        else:
            with open(place.path, "wb") as file:
                file.write(place.content)
        return True

    return stage, judge


def overwrite(facts):
    with open(facts["path"], "ab") as file:
        file.write(b"\n# changed\n")


def replace(facts):
    beside = os.path.join(os.path.dirname(facts["path"]), "beside")
    with open(beside, "wb") as file:
        file.write(b"# replaced\n")
    os.replace(beside, facts["path"])


# Permissions


def leases(place):
    facts = where(place)
    place.leases = callgate(facts, "lease", "list", "--json")
    return facts


def granted(place, facts, output):
    listed = json.loads(callgate(facts, "lease", "list", "--json"))["leases"]
    for lease in listed:
        if lease["state"] == "active":
            callgate(facts, "lease", "revoke", lease["id"])
            return True
    return False


@attack(leases, granted, tool="parent", also=["wide"])
def grant_a_lease(facts):
    return callgate(facts, "lease", "grant", "other")


def effects(place):
    facts = where(place)
    place.effects = contents(os.path.join(place.ws, "out", "effects"))
    return facts


def other_ran(place, facts, output):
    return contents(os.path.join(place.ws, "out", "effects")) != place.effects


def post(connection, tool):
    body = json.dumps({"tool": tool, "input": {}})
    head = "POST /v1/call HTTP/1.1\r\nhost: gate\r\nconnection: close\r\ncontent-type: application/json\r\n"
    connection.sendall(("%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)).encode())
    answer = b""
    while more := connection.recv(65536):
        answer += more
    return answer


@attack(effects, other_ran, also=["parent", "wide", "online"])
def call_by_the_socket(facts):
    """As the owner, whose uid the socket goes by."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(facts["socket"])
    return post(connection, "other")


@attack(effects, other_ran, tool="parent", also=["wide"])
def call_by_the_program(facts):
    return callgate(facts, "call", "other", "--standalone")


# The state


chain = kept("{state}/journal/00000000000000000001.seg")


def chain_judge(place, facts, output):
    """The gate appends to it: only what was there must stay."""
    now = contents(place.path) or b""
    if now.startswith(place.content):
        return False
    with open(place.path, "r+b") as file:
        file.write(place.content)
    return True


@attack(chain[0], chain_judge, also=["parent", "wide"])
def edit_the_chain(facts):
    with open(facts["path"], "r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 1]))


head = kept("{state}/head.json")


@attack(*head, also=["wide"])
def forge_the_head(facts):
    overwrite(facts)


key = kept("{state}/signing.key")


def key_told(place, facts, output):
    return place.content.decode().strip() in output


@attack(key[0], key_told, also=["parent", "wide", "online"])
def read_the_signing_key(facts):
    return contents(facts["path"]) or os.strerror(13)


token = kept("{state}/token")


@attack(token[0], key_told, also=["parent", "wide", "online"])
def read_the_owners_token(facts):
    return contents(facts["path"]) or os.strerror(13)


mine = kept("{state}/owners/mine")


@attack(*mine, also=["wide"])
def put_something_into_the_state(facts):
    with open(facts["path"], "w") as file:
        file.write("mine")


# The workspace's own things


config = kept("{ws}/callgate.toml")


@attack(*config, also=["writer", "wide"])
def change_the_configuration(facts):
    overwrite(facts)


@attack(*config, also=["writer", "wide"])
def replace_the_configuration(facts):
    replace(facts)


def tools_judge(place, facts, output):
    called = callgate(facts, "call", "smuggled", "--standalone", "--json")
    config[1](place, facts, output)
    callgate(facts, "trust")
    return '"ok":true' in called


@attack(config[0], tools_judge, tool="parent", also=["wide"])
def add_a_tool(facts):
    """And trust it."""
    with open(facts["path"], "a") as file:
        file.write('\n[[tool]]\nname = "smuggled"\nrunner = { kind = "process", command = ["/bin/echo", "{}"] }\n')
    return callgate(facts, "trust")


def config_told(place, facts, output):
    return "known to the owner" in output


@attack(config[0], config_told, also=["parent", "writer", "wide", "online"])
def read_the_configuration(facts):
    return contents(facts["path"]) or os.strerror(13)


other = kept("{ws}/other.sh")


@attack(*other, also=["writer", "wide"])
def change_another_tools_code(facts):
    overwrite(facts)


@attack(*other, also=["writer", "wide"])
def replace_another_tools_code(facts):
    replace(facts)


@attack(*other, tool="wide")
def rename_another_tools_code(facts):
    os.rename(facts["path"], facts["path"] + ".moved")


@attack(*kept("{ws}/attacks/tool.py"), also=["writer", "wide"])
def change_ones_own_code(facts):
    """What the next call will run."""
    overwrite(facts)


code = kept("{ws}/attacks/tool.py")


def folder_judge(place, facts, output):
    folder = os.path.dirname(place.path)
    if os.path.exists(folder + ".moved"):
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(folder + ".moved", folder)
        return True
    return False


@attack(code[0], folder_judge, tool="wide")
def move_the_folder_of_the_code(facts):
    """What is fixed to its place is a file; the folder it is in may go."""
    folder = os.path.dirname(facts["path"])
    os.rename(folder, folder + ".moved")
    os.mkdir(folder)
    shutil.copy(os.path.join(folder + ".moved", "tool.py"), facts["path"])


def redirected(place, facts, output):
    """The next call of another tool writes where this one could not."""
    callgate(facts, "call", "storer", "--standalone")
    happened = os.path.exists(os.path.join(place.outside, "stored"))
    spare = os.path.join(place.ws, "spare")
    if os.path.islink(spare):
        os.remove(spare)
        os.rename(spare + ".moved", spare)
    return happened


@attack(
    where,
    redirected,
    tool="wide",
    void="no root follows a link out of the workspace, whoever planted it",
)
def redirect_another_tools_root(facts):
    """A link in the place of a folder that another tool may write."""
    spare = os.path.join(facts["ws"], "spare")
    os.rename(spare, spare + ".moved")
    os.symlink(facts["outside"], spare)


interpreter = kept("{ws}/.venv/bin/python")


@attack(*interpreter, tool="wide")
def bring_an_interpreter(facts):
    """Python tools prefer the one of the workspace."""
    os.makedirs(os.path.dirname(facts["path"]), exist_ok=True)
    with open(facts["path"], "w") as file:
        file.write("#!/bin/sh\n")


# Its processes


def state_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def stopped(name):
    def judge(place, facts, output):
        # Stopping is not done when the call is, only when the process is next looked at.
        for _ in range(1500):
            if state_of(facts[name]) == "T":
                os.kill(facts[name], signal.SIGCONT)
                return True
            time.sleep(0.002)
        return False

    return judge


# The gate itself can not be stopped and answer the call that stopped it: it is woken by a
# child of the tool's, or by the judge where that is not allowed.


@attack(where, lambda place, facts, output: "stopped" in output, also=["parent", "wide"])
def stop_the_gate(facts):
    os.kill(facts["gate"], signal.SIGSTOP)
    os.kill(facts["gate"], signal.SIGCONT)
    return "stopped"


@attack(where, stopped("spawner"), also=["parent"])
def stop_the_spawner(facts):
    os.kill(facts["spawner"], signal.SIGSTOP)


@attack(where, told, also=["parent"])
def trace_the_gate(facts):
    from raw import check, libc

    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    # Seizing does not stop it.
    check(libc.ptrace(0x4206, facts["gate"], None, None))
    return facts["token"]


@attack(where, told, also=["parent"])
def trace_the_spawner(facts):
    from raw import check, libc

    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    check(libc.ptrace(0x4206, facts["spawner"], None, None))
    return facts["token"]


def limits_of(place):
    facts = where(place)
    place.limits = contents("/proc/%d/limits" % facts["gate"])
    return facts


def limits_changed(place, facts, output):
    import resource

    if contents("/proc/%d/limits" % facts["gate"]) == place.limits:
        return False
    hard = resource.prlimit(facts["gate"], resource.RLIMIT_STACK)[1]
    resource.prlimit(facts["gate"], resource.RLIMIT_STACK, (hard, hard))
    return True


@attack(limits_of, limits_changed, also=["parent"])
def limit_the_gate(facts):
    import resource

    hard = resource.prlimit(facts["gate"], resource.RLIMIT_STACK)[1]
    resource.prlimit(facts["gate"], resource.RLIMIT_STACK, (1 << 20, hard))


def secret_told(place, facts, output):
    return os.environ["ATTACK_SECRET"] in output


@attack(where, secret_told, also=["parent", "online"])
def read_the_gates_environment(facts):
    return contents("/proc/%d/environ" % facts["gate"]) or os.strerror(13)


@attack(where, told, also=["parent"])
def read_the_gates_memory(facts):
    with open("/proc/%d/maps" % facts["gate"]) as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open("/proc/%d/mem" % facts["gate"], "rb") as memory:
        memory.seek(start)
        if memory.read(4) == b"\x7fELF":
            return facts["token"]


@attack(where, told, also=["parent"])
def steal_the_gates_descriptor(facts):
    from raw import syscall

    syscall("pidfd_getfd", os.pidfd_open(facts["gate"]), 0, 0)
    return facts["token"]


# Outliving the call


def alive(place, facts, output):
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and place.token.encode() in (contents("/proc/%s/cmdline" % pid) or b""):
            if state_of(int(pid)) != "Z":
                found.append(int(pid))
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return bool(found)


def linger(facts):
    """A process that nobody waits for, in a session and a group of its own."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(0, 3):
                os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            os.execv("/bin/sleep", [facts["token"], "600"])
        os._exit(0)
    os.close(writer)
    # Exec closes the last other end.
    os.read(reader, 1)


@attack(nothing, alive, tool="parent")
def outlive_the_call(facts):
    linger(facts)


def parent_of(pid):
    """Of the watchers only: a referee that proves this has parents it needs."""
    found = contents("/proc/%d/stat" % pid)
    parent = int(found.decode().rsplit(")", 1)[1].split()[1])
    if b"__spawner" not in contents("/proc/%d/cmdline" % parent):
        raise OSError("not a watcher")
    return parent


@attack(
    nothing,
    alive,
    tool="parent",
    void="as root every tool has a pid namespace, confined or not, whose first process is the nanny",
)
def kill_the_watchers_and_outlive_the_call(facts):
    """The nearer one is stopped first, so that it can not act on the other's end."""
    from raw import libc

    libc.prctl(1, 0, 0, 0, 0)
    nanny = parent_of(os.getpid())
    spawner = parent_of(nanny)
    linger(facts)
    os.kill(nanny, signal.SIGSTOP)
    os.kill(spawner, signal.SIGKILL)
    os.kill(nanny, signal.SIGKILL)
