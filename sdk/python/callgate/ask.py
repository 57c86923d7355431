"""`ask`: what a running tool wants to know from its caller's user.

    name = ask("Which branch?")
    count = ask("How many?", int)
    choice = ask("Really?", Literal["yes", "no"])

A question that has no answer yet ends the run. The gate puts it to the user,
and calls the function again, from its start and with the same input; `ask`
then returns the answer. So ask before anything is done that must not be done
twice. Outside a worker nobody can be asked: a test of the function replaces `ask`.
"""

from __future__ import annotations

import json
import sys
import zlib
from typing import Any, Optional

from . import schema as schemas
from .check import Checker
from .convert import converter

_FIELD = "answer"


class Declined(Exception):
    """The user did not answer; `action` is `decline` or `cancel`."""

    def __init__(self, message: str, action: str) -> None:
        super().__init__(f"not answered ({action}): {message}")
        self.action = action


def ask(message: str, schema: Any = str, *, key: Optional[str] = None) -> Any:
    """The user's answer to `message`.

    `schema` is a type, or a JSON Schema as a dict. That of an object with
    `properties` is a form of several fields, whose answer is a dict (or the
    dataclass that was given); any other is a single field, whose answer is
    its value. Fields are texts, numbers, booleans and choices of such.

    Questions are told apart by their place in the run and by what they say; a
    question whose words change from run to run needs a `key`.
    """
    # The worker is no module of ours: it runs as a program, and imports none of us.
    worker: Any = sys.modules.get("callgate._running")
    if worker is None or worker.call is None:
        raise RuntimeError(f"nobody can be asked outside of a call: {message}")
    asked = schema if isinstance(schema, dict) else schemas.of_type(schema)
    form, is_single = _form(asked)
    checker = Checker(form if is_single else asked)
    question = {"message": str(message), "schema": form}
    worker.asked += 1
    name = key or f"{worker.asked}.{zlib.crc32(json.dumps(question).encode()):08x}"
    answer = worker.answers.get(name)
    if answer is None:
        raise worker.NeedsInput(name, question)
    action = answer.get("action") if isinstance(answer, dict) else None
    if action != "accept":
        raise Declined(str(message), action if action == "decline" else "cancel")
    value = answer.get("content")
    problem = checker.problem(value)
    if problem is not None:
        raise ValueError(": ".join([f"the answer to `{message}`", *filter(None, problem)]))
    if is_single:
        value = value[_FIELD]
    convert = None if isinstance(schema, dict) else converter(schema)
    return value if convert is None else convert(value)


def _form(asked: schemas.Schema) -> tuple[schemas.Schema, bool]:
    """The form's schema, and whether we put the single field in it."""
    if "properties" in asked:
        # Not a word that forms know.
        return {name: part for name, part in asked.items() if name != "additionalProperties"}, False
    return {"type": "object", "properties": {_FIELD: asked}, "required": [_FIELD]}, True

