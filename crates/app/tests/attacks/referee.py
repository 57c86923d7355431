"""The referee: lays out what is to be attacked, and looks what came of it.

`referee.py BASE [GROUP…]` speaks lines of JSON: `{"list": true}`, `{"prove": NAME}` (the act as
a child of the referee, with all its rights), `{"prepare": NAME}` (answered with the input for
the tool), `{"judge": OUTPUT}` (of what was prepared last). BASE has the workspace `ws` and the
folder `outside`, which no tool is given.
"""

import json
import os
import secrets
import select
import shutil
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import arena
import look
import tool

# No act takes this long but one that has been stopped, and one that still does something on a
# machine that does a lot else.
PATIENCE_S = 20
PATIENCE_S_MAX = 200
# So many looks, two seconds apart, at one that does nothing show that it is stopped.
STILL_MAX = 5

GROUPS = ["network", "writing", "reading", "children", "others", "kernel", "limits", "environ"]
GROUPS += ["controls"]


class Place:
    """Where one attack happens. `ws/victim` may be read by tools and `outside` may not;
    `ws/out` may be written by those that declare it."""

    def __init__(self, base, name):
        self.base, self.ws = base, os.path.join(base, "ws")
        self.token = "token" + secrets.token_hex(8)
        self.victim = os.path.join(self.ws, "victim", name)
        self.outside = os.path.join(base, "outside", name)
        self.out = os.path.join(self.ws, "out", name)
        for path in (self.victim, self.outside, self.out):
            os.makedirs(path)
        self.before = None
        self.kept = []
        self.ending = []

    def keep(self, thing):
        """Until the judgement."""
        self.kept.append(thing)
        return thing

    def at_end(self, act):
        self.ending.append(act)

    def snapshot(self):
        return {root: look.tree(root) for root in (self.victim, self.outside)}

    def close(self):
        for act in reversed(self.ending):
            act()
        for thing in self.kept:
            thing.close()
        for path in (self.victim, self.outside, self.out):
            look.loosen(path)
            shutil.rmtree(path, ignore_errors=True)


class Referee:
    def __init__(self, base):
        self.base, self.number = base, 0
        self.attack = self.place = self.facts = None

    def prepare(self, name):
        self.number += 1
        self.attack = arena.ATTACKS[name]
        self.place = Place(self.base, "%d-%d" % (os.getpid(), self.number))
        self.facts = {
            "attack": name,
            "token": self.place.token,
            "victim": self.place.victim,
            "outside": self.place.outside,
            "out": self.place.out,
        }
        self.facts.update(self.attack.stage(self.place) or {})
        self.place.before = self.place.snapshot()
        return self.facts

    def judge(self, output):
        try:
            return bool(self.attack.judge(self.place, self.facts, output))
        finally:
            self.place.close()
            self.place = None

    def prove(self, name):
        """As a careless host would run it: our environment, our descriptors, no limits. A fork
        and not a program of its own, because starting Python is most of what an attack takes."""
        facts = self.prepare(name)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            unconfined(facts, self.place, writer)
        os.close(writer)
        output = read_of(reader, pid)
        # A session of its own: whatever it has started and left is in there.
        for kill, whom in ((os.killpg, pid), (os.kill, pid)):
            try:
                kill(whom, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(pid, 0)
        os.close(reader)
        return {"happened": self.judge(output), "output": output[:2000]}


def unconfined(facts, place, writer):
    """The tool's process; never returns."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        os.chdir(place.ws)
        os.environ["TMPDIR"] = place.out
        tool.carry_out(facts)
    finally:
        os._exit(0)


def read_of(reader, pid):
    """What comes until the end, or until it has taken too long."""
    data = b""
    start = time.monotonic()
    wait, spent, still = PATIENCE_S, None, 0
    while True:
        if select.select([reader], [], [], wait)[0]:
            more = os.read(reader, 65536)
            if not more:
                break
            data += more
        took = time.monotonic() - start
        if took >= PATIENCE_S:
            before, spent = spent, cpu_of(pid)
            # Beside an attack that takes all there is, one look may find no change.
            still = still + 1 if spent == before else 0
            if still == STILL_MAX or took >= PATIENCE_S_MAX:
                break
        wait = max(2, PATIENCE_S - took)
    return data.decode("latin-1")


def cpu_of(pid):
    """Ticks it has had so far."""
    with open("/proc/%d/stat" % pid) as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))


def listing():
    return [
        {"name": one.name, "tools": one.tools, "users": one.users, "void": one.void}
        for one in arena.ATTACKS.values()
    ]


def main():
    base = sys.argv[1]
    # What an attack sends to everybody of this user is not meant for the referee.
    signal.signal(signal.SIGURG, signal.SIG_IGN)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    referee = Referee(base)
    for group in sys.argv[2:] or GROUPS:
        __import__(group)
    for line in sys.stdin:
        request = json.loads(line)
        if "list" in request:
            answer = listing()
        elif "prove" in request:
            answer = referee.prove(request["prove"])
        elif "prepare" in request:
            answer = referee.prepare(request["prepare"])
        else:
            answer = {"happened": referee.judge(request["judge"])}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
