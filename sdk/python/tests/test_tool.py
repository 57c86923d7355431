"""`@tool`: schemas, descriptions, arguments."""

from __future__ import annotations

import enum
import json
import sys
import typing
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Literal, NewType, Optional, Tuple, TypedDict, Union

import support  # noqa: F401  (puts the SDK on the path)

from callgate import tool
from callgate.convert import converter
from callgate.docstring import parse
from callgate.schema import of_type
from callgate.tool import aid_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    WORD = "word"


@dataclass
class Point:
    x: int
    y: int = 0
    label: Optional[str] = None
    tags: List[str] = field(default_factory=list)
    length: float = field(init=False, default=0.0)


class Movie(TypedDict):
    title: str
    year: int


class Rated(Movie, total=False):
    stars: float


@dataclass
class Node:
    name: str
    children: List[Node] = field(default_factory=list)


class Tree(TypedDict, total=False):
    left: Tree
    right: Tree


UserId = NewType("UserId", int)

POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "y": {"type": "integer", "default": 0},
        "label": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
    "additionalProperties": False,
}
MOVIE = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["title", "year"],
    "additionalProperties": False,
}

SCHEMAS: list[tuple[Any, Any]] = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (type(None), {"type": "null"}),
    (Any, {}),
    (object, {}),
    (list, {"type": "array"}),
    (List[str], {"type": "array", "items": {"type": "string"}}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (list[list[bool]], {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (dict, {"type": "object"}),
    (Dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (dict[str, Any], {"type": "object"}),
    (Mapping[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
    (tuple, {"type": "array"}),
    (Tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2}),
    (tuple[float, ...], {"type": "array", "items": {"type": "number"}}),
    (tuple[()], {"type": "array", "maxItems": 0}),
    (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    (Union[int, List[int]], {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal[1, "a", None], {"enum": [1, "a", None]}),
    (Color, {"type": "string", "enum": ["red", "blue"]}),
    (Level, {"type": "integer", "enum": [1, 2]}),
    (Mixed, {"enum": [1, "word"]}),
    (UserId, {"type": "integer"}),
    (Point, POINT),
    (List[Point], {"type": "array", "items": POINT}),
    (Movie, MOVIE),
    (Rated, {**MOVIE, "properties": {**MOVIE["properties"], "stars": {"type": "number"}}}),  # type: ignore[dict-item]
    (
        Node,
        {
            "$ref": "#/$defs/Node",
            "$defs": {
                "Node": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                }
            },
        },
    ),
    (typing.Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (typing.Annotated[int, ["unhashable"]], {"type": "integer"}),
]

CONVERSIONS: list[tuple[Any, Any, Any]] = [
    (int, 3, 3),
    (int, 3.0, 3),
    (Color, "red", Color.RED),
    (Level, 2, Level.HIGH),
    (Point, {"x": 1}, Point(1)),
    (Point, {"x": 1, "y": 2, "label": "a", "tags": ["t"]}, Point(1, 2, "a", ["t"])),
    (List[Color], ["red", "blue"], [Color.RED, Color.BLUE]),
    (Dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
    (Tuple[int, Color], [1, "red"], (1, Color.RED)),
    (tuple[Color, ...], ["red"], (Color.RED,)),
    (tuple, [1, "a"], (1, "a")),
    (Optional[Point], None, None),
    (Optional[Point], {"x": 1}, Point(1)),
    (Union[str, Color], "red", "red"),
    (Union[Color, str], "red", Color.RED),
    (Union[Color, str], "green", "green"),
    (Union[Point, Movie], {"title": "t", "year": 1}, {"title": "t", "year": 1}),
    (Union[bool, int, float], True, True),
    (Union[List[Point], Point], {"x": 1}, Point(1)),
    (Union[Literal["x"], Color], "x", "x"),
    (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
    (Tree, {"left": {"right": {}}}, {"left": {"right": {}}}),
    (UserId, 4.0, 4),
    (typing.Annotated[Color, "c"], "blue", Color.BLUE),
]

MISFITS: list[tuple[Any, Any, str]] = [
    (Color, "green", ": not a Color"),
    (Level, True, ": not a Level"),
    (Color, ["red"], ": not a Color"),
    (Point, {}, ": Point needs `x`"),
    (Point, {"x": 1, "z": 2}, ": Point has no `z`"),
    (Point, [], ": not an object for Point"),
    (List[Point], [{"x": 1}, {"y": 1}], "[1]: Point needs `x`"),
    (Dict[str, List[Color]], {"a": ["red", "no"]}, ".a[1]: not a Color"),
    (Tuple[int, int], [1], ": not an array of 2"),
    (Tuple[int, int], 1, ": not an array"),
    (Node, {"name": "a", "children": [{"nam": "b"}]}, ".children[0]: Node needs `name`"),
    (Optional[Color], 7, ": not a Color"),
    (Union[Tuple[int, int], Point], "x", ": fits none of the types it may have"),
]


class SchemaTest(unittest.TestCase):
    def test_schemas(self) -> None:
        for annotation, expected in SCHEMAS:
            with self.subTest(annotation=annotation):
                found = of_type(annotation)
                self.assertEqual(found, expected)
                json.dumps(found, allow_nan=False)

    @unittest.skipIf(sys.version_info < (3, 10), "X | Y is a value from Python 3.10 on")
    def test_union_operator(self) -> None:
        self.assertEqual(of_type(eval("int | None")), of_type(Optional[int]))
        self.assertEqual(converter(eval("Point | None"))({"x": 1}), Point(1))  # type: ignore[misc]

    @unittest.skipIf(sys.version_info < (3, 11), "NotRequired comes with Python 3.11")
    def test_not_required(self) -> None:
        keys = TypedDict("keys", {"a": int, "b": typing.NotRequired[str]})  # type: ignore[misc]
        self.assertEqual(of_type(keys)["required"], ["a"])
        self.assertEqual(of_type(keys)["properties"]["b"], {"type": "string"})

    def test_annotations_without_a_schema(self) -> None:
        for annotation in [Dict[int, str], Callable[[], None], bytes, complex, Literal[b"x"], set]:
            with self.subTest(annotation=annotation), self.assertRaises(TypeError):
                of_type(annotation)

    def test_conversions(self) -> None:
        for annotation, value, expected in CONVERSIONS:
            with self.subTest(annotation=annotation, value=value):
                convert = converter(annotation)
                found = value if convert is None else convert(value)
                self.assertEqual((type(found), found), (type(expected), expected))

    def test_plain_annotations_cost_nothing(self) -> None:
        for annotation in [str, bool, float, None, Any, List[str], Dict[str, Any], Optional[str], Literal["a"], list, dict]:
            self.assertIsNone(converter(annotation), annotation)

    def test_misfits_say_where(self) -> None:
        for annotation, value, expected in MISFITS:
            with self.subTest(annotation=annotation, value=value):

                def function(it: Any) -> None: ...

                function.__annotations__ = {"it": annotation}
                with self.assertRaises(ValueError) as caught:
                    tool(function).__callgate_call__({"it": value})  # type: ignore[attr-defined]
                self.assertEqual(str(caught.exception), f"it{expected}")


class ToolTest(unittest.TestCase):
    def test_bare(self) -> None:
        """G-12: the action id of a tool that was given none."""

        @tool
        def greet(name: str, times: int = 1, *, loud: bool = False) -> dict:
            """Greets a person
            by name.

            More words, for people.

            Args:
                name: whom to greet,
                    by the full name
                times (int): how often
                loud: whether to shout: or not

            Returns:
                the greeting
            """
            return {"message": f"Hello {name}" * times}

        self.assertEqual(greet("Ada"), {"message": "Hello Ada"})
        self.assertEqual(greet.__name__, "greet")
        self.assertEqual(
            greet.spec,
            {
                "name": "greet",
                "aid": "AID.TOOL.GREET.v1",
                "description": "Greets a person by name.",
                "input_schema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "whom to greet, by the full name"},
                        "times": {"type": "integer", "description": "how often", "default": 1},
                        "loud": {"type": "boolean", "description": "whether to shout: or not", "default": False},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
                "runner": {"kind": "python", "entry": f"{__name__}:ToolTest.test_bare.<locals>.greet"},
            },
        )

    def test_with_options(self) -> None:
        @tool(
            name="notes/append",
            aid="AID.DEMO.APPEND.v2",
            description="other words",
            tier=1,
            tags=["tag.notes"],
            idempotent=True,
            deterministic=True,
            side_effects=["filesystem_write"],
            timeout_ms=500,
            slots=True,
        )
        def append(line: str, slots: dict) -> Movie:
            """Appends a line."""
            raise NotImplementedError

        spec = dict(append.spec)
        self.assertEqual(spec.pop("input_schema"), {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"], "additionalProperties": False})
        self.assertEqual(spec.pop("output_schema"), MOVIE)
        del spec["runner"]
        self.assertEqual(
            spec,
            {
                "name": "notes/append",
                "aid": "AID.DEMO.APPEND.v2",
                "description": "other words",
                "tier": 1,
                "tags": ["tag.notes"],
                "idempotent": True,
                "deterministic": True,
                "side_effects": ["filesystem_write"],
                "timeout_ms": 500,
                "slots": True,
            },
        )

    def test_output_schema_of_a_dataclass_only_where_there_is_one(self) -> None:
        @tool
        def one() -> Point:
            return Point(1)

        @tool
        def two() -> int:
            return 1

        self.assertEqual(one.spec["output_schema"], POINT)
        self.assertNotIn("output_schema", two.spec)

    def test_defaults_are_shown_as_json_or_not_at_all(self) -> None:
        @tool
        def many(a: Color = Color.RED, b: tuple = (1, 2), c: Any = object(), d: float = float("inf"), e: Optional[int] = None, f={"k": [1]}) -> None: ...  # type: ignore[no-untyped-def]

        properties = many.spec["input_schema"]["properties"]
        shown = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
        self.assertEqual(shown, {"a": "red", "b": [1, 2], "e": None, "f": {"k": [1]}})
        self.assertNotIn("required", many.spec["input_schema"])

    def test_what_cannot_be_a_tool(self) -> None:
        def star(*items: int) -> None: ...
        def stars(**items: int) -> None: ...
        def positional(a: int, /) -> None: ...
        def bad(a: bytes) -> None: ...

        for function in (star, stars, positional, bad):
            with self.subTest(function=function), self.assertRaises(TypeError):
                tool(function)
        with self.assertRaises(TypeError):
            tool(slots=True)(lambda: None)
        for options in ({"tier": 4}, {"tier": -1}, {"tier": True}, {"timeout_ms": 0}, {"name": "a b"}, {"name": ""}, {"name": "a/"}):
            with self.subTest(options=options), self.assertRaises(ValueError):
                tool(**options)(lambda: None)  # type: ignore[call-overload]

    def test_aids(self) -> None:
        """G-12: `AID.`, the name's segments in upper case, `.v1`; one segment gets `TOOL` before it."""
        self.assertEqual(aid_of("files/read"), "AID.FILES.READ.v1")
        self.assertEqual(aid_of("greet"), "AID.TOOL.GREET.v1")
        self.assertEqual(aid_of("a/b/c_d"), "AID.A.B.C_D.v1")

    def test_called_with_a_payload(self) -> None:
        @tool
        def add(a: int, b: int = 2) -> int:
            return a + b

        call = add.__callgate_call__  # type: ignore[attr-defined]
        self.assertEqual(call({"a": 1}), 3)
        self.assertIsInstance(call({"a": 1.0}), int)
        for payload, kind in [({"c": 1}, TypeError), ({}, TypeError), ([], ValueError)]:
            with self.assertRaises(kind):
                call(payload)


class DocstringTest(unittest.TestCase):
    CASES: list[tuple[Optional[str], str, dict[str, str]]] = [
        (None, "", {}),
        ("", "", {}),
        ("One line.", "One line.", {}),
        ("\n    Starts below\n    in two lines.\n\n    More.\n    ", "Starts below in two lines.", {}),
        ("\nArgs:\n    a: first\n", "", {"a": "first"}),
        ("S.\n\n    Arguments:\n      a: first\n\n      *b: second\n\n    Raises:\n      c: not a parameter\n", "S.", {"a": "first", "b": "second"}),
        ("S.\n\n    :param a: first\n        goes on\n    :param int b: second\n    :returns: r\n", "S.", {"a": "first goes on", "b": "second"}),
        ("S.\n:param a: right below\n", "S.", {"a": "right below"}),
        ("S.\n\n    Args:\n        a (Optional[int]): first: with a colon\n", "S.", {"a": "first: with a colon"}),
    ]

    def test_docstrings(self) -> None:
        for text, summary, params in self.CASES:
            with self.subTest(text=text):
                self.assertEqual(tuple(parse(text)), (summary, params))



class GrantsTest(unittest.TestCase):
    """What `@tool` asks for, under the names of `callgate.toml`."""

    def test_what_is_asked_for(self) -> None:
        @tool(writes=["out"], reads=[], network=["h:1"], env={"A": "${A}"}, code=["lib/**"], sandbox=False, preload=("json",))
        def f(a: int) -> int:
            return a

        said = {key: f.spec[key] for key in ("writes", "reads", "network", "code", "sandbox")}  # type: ignore[literal-required]
        wanted = {"writes": ["out"], "reads": [], "network": {"allow": ["h:1"]}, "code": ["lib/**"], "sandbox": False}
        self.assertEqual(said, wanted)
        self.assertEqual((f.spec["runner"]["env"], f.spec["runner"]["preload"]), ({"A": "${A}"}, ["json"]))
        self.assertNotIn("guarantees", f.spec)

    def test_what_makes_no_sense_is_refused(self) -> None:
        for options, kind in [
            ({"writes": "out"}, TypeError),
            ({"env": {"A": 1}}, TypeError),
            ({"network": 5}, TypeError),
            ({"sandbox": "loose"}, ValueError),
            ({"ipc": 1}, TypeError),
            ({"timeout_max_ms": 0}, ValueError),
            ({"levitates": True}, TypeError),
        ]:
            with self.assertRaises(kind, msg=str(options)):
                tool(**options)(lambda: None)  # type: ignore[call-overload]


if __name__ == "__main__":
    unittest.main()
