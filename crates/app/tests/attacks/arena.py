"""What attacks are made of.

An attack has three parts. `stage` and `judge` are run by the referee, outside of any
confinement: the first lays out what is to be attacked, the second looks whether the attack
had its effect. `act` is run by the tool, alone in its process. Acts use the standard library,
ctypes and raw system calls; what they raise is only told, never judged.
"""

import os

ATTACKS = {}


class Attack:
    """One attack and where it belongs."""

    def __init__(self, act, stage, judge, tools, users, void):
        self.name = act.__module__ + "." + act.__name__
        self.stage, self.judge = stage, judge
        self.tools, self.users, self.void = tools, users, void


def attack(stage, judge, tool="pure", also=(), users="all", void=None):
    """Registers an act. `tool` names the tool of the workspace that carries it out, `also` others
    that must be held as well. `users`:
    some attacks need `root` to work at all; some are for `others` only, because as root they
    would reach every process of the machine. `void` says why it works nowhere."""

    def register(act):
        one = Attack(act, stage, judge, (tool,) + tuple(also), users, void)
        ATTACKS[one.name] = one
        return act

    return register


# What the referee lays out and looks at, for many attacks.


def nothing(place):
    """What is attacked needs no preparation."""
    return {}


def told(place, facts, output):
    """The secret is in the answer."""
    return place.token in output


def changed(place, facts, output):
    """Something in the folder under attack is not as it was."""
    return place.snapshot() != place.before


def proof(place, facts, output):
    """A process that should not be there has left its mark."""
    path = os.path.join(place.out, "proof")
    try:
        with open(path) as file:
            return place.token in file.read()
    except OSError:
        return place.token in output
