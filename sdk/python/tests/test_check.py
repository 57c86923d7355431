"""The schema checks, keyword by keyword."""

from __future__ import annotations

import dataclasses
import unittest
from typing import Any, Literal, Optional

import support  # noqa: F401  (puts the SDK on the path)

from callgate import schema as schemas
from callgate.check import Checker


class CheckTest(unittest.TestCase):
    def test_every_rule(self) -> None:
        """B-9. What fits, what does not, and the words for it."""
        cases: list[tuple[Any, list[Any], list[tuple[Any, str, str]]]] = [
            (True, [1, None], []),
            (False, [], [(1, "", "is not allowed")]),
            ({}, [1, None, {}], []),
            ({"type": "integer"}, [1, 1.0, -3], [(1.5, "", "is not of type integer"), (True, "", "is not of type integer")]),
            ({"type": "number"}, [1, 1.5], [("1", "", "is not of type number"), (False, "", "is not of type number")]),
            ({"type": ["string", "null"]}, ["x", None], [(1, "", "is not of type string or null")]),
            ({"type": "boolean"}, [True], [(1, "", "is not of type boolean")]),
            ({"enum": [1, "a", None, [1]]}, [1, 1.0, None, [1.0]], [(True, "", "is none of the values it may have")]),
            ({"const": {"a": 0}}, [{"a": 0.0}], [({"a": False}, "", "is not the value it must be")]),
            (
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False},
                [{"a": ""}],
                [({}, "a", "is required"), ({"a": 1}, "a", "is not of type string"), ({"a": "", "b": 1}, "b", "unexpected: b")],
            ),
            ({"additionalProperties": {"type": "integer"}}, [{"a": 1}, 7], [({"a": "x"}, "a", "is not of type integer")]),
            ({"minProperties": 1, "maxProperties": 2}, [{"a": 1}], [({}, "", "has fewer members than 1")]),
            (
                {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
                [["x", 1, 2], []],
                [([1], "0", "is not of type string"), (["x", 1, "y"], "2", "is not of type integer")],
            ),
            ({"prefixItems": [True], "items": False}, [[1]], [([1, 2], "1", "is not allowed")]),
            ({"minItems": 1, "maxItems": 1, "uniqueItems": True}, [[1], "text"], [([], "", "has fewer items than 1")]),
            ({"uniqueItems": True}, [[1, True], [[1], [2]]], [([1, 2, 1.0], "2", "is there twice")]),
            ({"minimum": 1, "maximum": 2}, [1, 2.0, "x"], [(0.5, "", "is less than 1"), (3, "", "is more than 2")]),
            ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2], [(1, "", "is not more than 1"), (3, "", "is not less than 3")]),
            ({"minLength": 1, "maxLength": 2}, ["é", "ab"], [("", "", "is shorter than 1"), ("abc", "", "is longer than 2")]),
            ({"pattern": "^[0-9]+$"}, ["12", 7], [("1x", "", "does not match ^[0-9]+$")]),
            ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, [None, 1], [("x", "", "is nothing of what it may be")]),
            ({"oneOf": [{"minimum": 1}, {"minimum": 5}]}, [3], [(7, "", "is 2 of the things of which it must be one")]),
            ({"allOf": [{"minimum": 1}, {"maximum": 5}]}, [3], [(7, "", "is more than 5")]),
            (
                {"$ref": "#/$defs/Node", "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}, "type": "object"}}},
                [{"next": {"next": {}}}],
                [({"next": {"next": 1}}, "next/next", "is not of type object")],
            ),
            ({"title": "t", "description": "d", "default": 1, "format": "email", "x-mcp-header": "h"}, [1], []),
        ]
        for schema, good, bad in cases:
            checker = Checker(schema)
            for value in good:
                self.assertIsNone(checker.problem(value), (schema, value))
            for value, where, words in bad:
                self.assertEqual(checker.problem(value), (where, words), (schema, value))

    def test_what_can_not_be_checked_is_refused(self) -> None:
        for schema, words in [
            ({"patternProperties": {}}, "the schema: `patternProperties` can not be checked here"),
            ({"if": {}, "then": {}}, "`if` can not be checked"),
            ({"properties": {"a": {"not": {}}}}, "the schema/properties/a: `not`"),
            ({"items": {"multipleOf": 2}}, "the schema/items: `multipleOf`"),
            ({"anyOf": [{"contains": {}}]}, "the schema/anyOf/0: `contains`"),
            ({"type": "strin"}, "`type` is malformed"),
            ({"type": []}, "`type` is malformed"),
            ({"required": "a"}, "`required` is malformed"),
            ({"minLength": -1}, "`minLength` is malformed"),
            ({"minimum": "1"}, "`minimum` is malformed"),
            ({"pattern": "("}, "`pattern` is malformed"),
            ({"enum": []}, "`enum` is malformed"),
            ({"properties": []}, "`properties` is malformed"),
            ({"$ref": "https://example.com/schema"}, "leads to nothing"),
            ({"$ref": "#/$defs/Absent"}, "leads to nothing"),
            ({"items": 7}, "neither an object nor a boolean"),
            ("object", "neither an object nor a boolean"),
        ]:
            with self.assertRaises(ValueError, msg=schema) as raised:
                Checker(schema)
            self.assertIn(words, str(raised.exception))

    def test_a_schema_that_never_ends_ends(self) -> None:
        loop = Checker({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})
        self.assertEqual(loop.problem(1), ("", "is nested too deeply to be checked"))

    def test_whatever_annotations_make_can_be_checked(self) -> None:
        @dataclasses.dataclass
        class Node:
            name: str
            kind: Literal["a", "b"]
            pair: tuple[int, float]
            next: Optional[Node]
            tags: dict[str, list[bool]] = dataclasses.field(default_factory=dict)

        Node.__annotations__["next"] = Optional[Node]
        checker = Checker(schemas.of_type(Node))
        node = {"name": "n", "kind": "a", "pair": [1, 2.5], "next": None}
        self.assertIsNone(checker.problem({**node, "next": node, "tags": {"t": [True]}}))
        for change in [{"kind": "c"}, {"pair": [1]}, {"pair": [1, 2, 3]}, {"next": {}}, {"tags": {"t": [1]}}, {"more": 1}]:
            self.assertIsNotNone(checker.problem({**node, **change}), change)


if __name__ == "__main__":
    unittest.main()
