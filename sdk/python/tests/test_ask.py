"""`ask`, in a real worker over a socketpair."""

from __future__ import annotations

import unittest
from typing import Any

from support import Workspace, WorkerProcess

from callgate import ask

TOOLS = '''
import asyncio, dataclasses, enum
from typing import Literal

from callgate import Declined, ask, tool

def one(payload):
    return ask("Which branch?")

def two(payload):
    first = ask("Same?")
    return [first, ask("Same?")]

def careful(payload):
    try:
        return ask("Which branch?")
    except Exception:
        return "swallowed"

def gives_up(payload):
    try:
        return ask("Which branch?")
    except Declined as declined:
        return declined.action

async def later(payload):
    await asyncio.sleep(0)
    return await asyncio.to_thread(ask, "Which branch?")

class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"

@dataclasses.dataclass
class Order:
    size: Size
    count: int = 1

@tool
def typed() -> str:
    return repr([ask("Size?", Size), ask("Count?", int), ask("Order?", Order)])

def fields(payload):
    return ask("Order?", {"type": "object", "properties": {"n": {"type": "integer"}}})

def keyed(payload):
    return ask("At %d?" % payload["at"], key="when")

def not_json(payload):
    return ask("?", {"type": "string", "default": object})

def with_slots(payload, slots):
    slots[1] = {}
    return ask("Which branch?")
'''


def accept(**content: Any) -> Any:
    return {"action": "accept", "content": content}


class AskTest(Workspace):
    def setUp(self) -> None:
        super().setUp()
        self.write("kit.py", TOOLS)
        worker = WorkerProcess(self.folder)
        self.worker = worker.__enter__()
        self.addCleanup(worker.__exit__)

    def ask(self, entry: str, answers: Any = None, payload: Any = None, **more: Any) -> tuple[str, Any]:
        """The name and the question a call ends with."""
        if answers:
            more["answers"] = answers
        reply = self.worker.call(f"kit:{entry}", payload, **more)
        self.assertEqual(sorted(reply), ["ask", "call"], reply)
        ((name, question),) = reply["ask"].items()
        return name, question

    def test_a_question_and_its_answer(self) -> None:
        name, question = self.ask("one")
        form = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        self.assertEqual(question, {"message": "Which branch?", "schema": form})
        reply = self.worker.call("kit:one", answers={name: accept(answer="main")})
        self.assertEqual(reply["output"], "main")
        # Nothing is left of it for the next call.
        self.assertEqual(self.ask("one"), (name, question))

    def test_the_same_words_twice_are_two_questions(self) -> None:
        first, _ = self.ask("two")
        answers = {first: accept(answer="a")}
        second, _ = self.ask("two", answers)
        self.assertNotEqual(first, second)
        answers[second] = accept(answer="b")
        self.assertEqual(self.worker.call("kit:two", answers=answers)["output"], ["a", "b"])

    def test_an_except_of_the_tool_does_not_swallow_it(self) -> None:
        self.ask("careful")
        self.ask("later")
        self.ask("with_slots", slots={})

    def test_a_user_who_does_not_answer(self) -> None:
        name, _ = self.ask("gives_up")
        for answer, action in [
            ({"action": "decline"}, "decline"),
            ({"action": "cancel"}, "cancel"),
            ("nonsense", "cancel"),
        ]:
            self.assertEqual(self.worker.call("kit:gives_up", answers={name: answer})["output"], action)
        error = self.worker.call("kit:one", answers={name: {"action": "decline"}})["error"]
        self.assertEqual(error, {"type": "Declined", "message": "not answered (decline): Which branch?"})

    def test_types(self) -> None:
        answers: dict[str, Any] = {}
        name, question = self.ask("typed", answers)
        self.assertEqual(question["schema"]["properties"]["answer"], {"type": "string", "enum": ["s", "l"]})
        answers[name] = accept(answer="l")
        name, _ = self.ask("typed", answers)
        answers[name] = accept(answer=2.0)
        name, question = self.ask("typed", answers)
        self.assertEqual(question["schema"]["required"], ["size"])
        self.assertNotIn("additionalProperties", question["schema"])
        answers[name] = accept(size="s")
        reply = self.worker.call("kit:typed", answers=answers)
        wanted = "[<Size.LARGE: 'l'>, 2, Order(size=<Size.SMALL: 's'>, count=1)]"
        self.assertEqual(reply["output"], wanted)

    def test_a_form_is_answered_by_a_dict(self) -> None:
        name, _ = self.ask("fields")
        self.assertEqual(self.worker.call("kit:fields", answers={name: accept(n=3)})["output"], {"n": 3})

    def test_a_key_holds_where_the_words_change(self) -> None:
        name, _ = self.ask("keyed", payload={"at": 1})
        self.assertEqual(name, "when")
        reply = self.worker.call("kit:keyed", {"at": 2}, answers={"when": accept(answer="now")})
        self.assertEqual(reply["output"], "now")

    def test_what_can_not_be_asked(self) -> None:
        self.assertEqual(self.worker.call("kit:not_json")["error"]["type"], "TypeError")
        name, _ = self.ask("one")
        for content, words in [
            ({}, "answer: is required"),
            ({"answer": 1}, "answer: is not of type string"),
            (None, "is not of type object"),
        ]:
            answer = {"action": "accept", "content": content}
            error = self.worker.call("kit:one", answers={name: answer})["error"]
            self.assertEqual(error, {"type": "ValueError", "message": f"the answer to `Which branch?`: {words}"})
        name, _ = self.ask("fields")
        error = self.worker.call("kit:fields", answers={name: accept(n="x")})["error"]
        self.assertEqual(error["message"], "the answer to `Order?`: n: is not of type integer")

    def test_outside_of_a_call_nobody_is_asked(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "nobody can be asked"):
            ask("Which branch?")


if __name__ == "__main__":
    unittest.main()
