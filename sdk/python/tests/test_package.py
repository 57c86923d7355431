"""The package as it is imported, and `python -m callgate describe`."""

from __future__ import annotations

import ast
import glob
import json
import os
import subprocess
import sys
import unittest
from typing import Any

from support import SDK, WAIT_S, Workspace


def python(*arguments: str, cwd: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": SDK}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=WAIT_S)


class ImportTest(Workspace):
    def check(self, code: str) -> str:
        done = python("-S", "-c", code, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_the_package_alone_loads_nothing(self) -> None:
        code = "import sys, callgate; print([m for m in sys.modules if m.startswith('callgate') or m in ('typing', 'json', 're')])"
        self.assertEqual(self.check(code), "['callgate']")

    def test_tool_loads_neither_client_nor_dispatch(self) -> None:
        code = "import sys\nfrom callgate import tool\nprint([m for m in ('callgate.client', 'callgate.dispatch', 'inspect', 'subprocess', 'json', 'dataclasses') if m in sys.modules])"
        self.assertEqual(self.check(code), "[]")

    def test_functions_keep_their_names_whatever_is_imported_first(self) -> None:
        for first in ("import callgate.tool, callgate.dispatch", "from callgate.tool import tool", "import callgate", "from callgate import *"):
            code = f"{first}\nfrom callgate import tool, dispatch\nimport callgate\nprint(callable(tool), callable(dispatch), callable(callgate.tool))"
            self.assertEqual(self.check(code), "True True True", first)

    def test_every_public_name_is_there(self) -> None:
        self.assertEqual(self.check("import callgate\n[getattr(callgate, name) for name in callgate.__all__]\nprint(hasattr(callgate, 'absent'))"), "False")

    def test_its_syntax_is_that_of_python_3_9(self) -> None:
        modules = sorted(glob.glob(os.path.join(SDK, "callgate", "**", "*.py"), recursive=True))
        self.assertGreater(len(modules), 20)
        for module in modules:
            with open(module, encoding="utf-8") as file:
                tree = ast.parse(file.read(), module, feature_version=(3, 9))
            # A union of types is one only where annotations are not evaluated.
            if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
                continue
            for node in ast.walk(tree):
                hints = [getattr(node, name, None) for name in ("annotation", "returns")]
                unions = [hint for hint in hints if hint is not None and "BitOr" in ast.dump(hint)]
                self.assertEqual(unions, [], module)

    def test_no_dependency(self) -> None:
        with open(os.path.join(SDK, "pyproject.toml"), encoding="utf-8") as file:
            self.assertIn("dependencies = []", file.read())


class DescribeTest(Workspace):
    MODULE = '''
    from __future__ import annotations
    from typing import TypedDict
    from callgate import tool

    __version__ = "2.0.0"

    class Greeting(TypedDict):
        message: str

    @tool
    def greet(name: str) -> Greeting:
        """Greets a person by name."""
        return {"message": f"Hello {name}"}

    @tool(name="notes/append", tier=1, tags=["tag.notes"], side_effects=["filesystem_write"], timeout_ms=500, slots=True, idempotent=True)
    def append(line: str, slots: dict) -> int:
        return 1

    def plain(payload: dict) -> dict:
        return payload
    '''

    def setUp(self) -> None:
        super().setUp()
        self.write("kit/sample.py", self.MODULE)
        self.write("kit/__init__.py", "from .sample import greet\n")
        self.write("kit/other.py", "from os import path\n")
        self.write("borrower.py", "from kit.sample import greet\n")

    def describe(self, target: str) -> Any:
        done = python("-m", "callgate", "describe", target, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    GREET: dict[str, Any] = {
        "aid": "AID.TOOL.GREET.v1",
        "name": "greet",
        "description": "Greets a person by name.",
        "deterministic": False,
        "tags": ["tag.python"],
        "inputs_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False},
        "outputs_schema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"], "additionalProperties": False},
        "estimate_model": {"mode": "ConservativeBound"},
        "side_effects": ["none"],
        "replay_inputs": [],
        "runner": {"kind": "python", "entry": "kit.sample:greet"},
    }

    def test_a_module_as_a_manifest(self) -> None:
        """T-23: in a toolpack the program of a tool is the field `runner`."""
        manifest = self.describe("kit.sample")
        append = manifest["tools"].pop()
        self.assertEqual(
            manifest,
            {"toolpack_id": "toolpack.kit.sample", "toolpack_version": "2.0.0", "trust_tier": "tier2_untrusted", "tools": [self.GREET]},
        )
        found = {key: append[key] for key in ("aid", "tier", "tags", "side_effects", "timeout_ms", "slots", "idempotent", "runner", "outputs_schema")}
        self.assertEqual(
            found,
            {
                "aid": "AID.NOTES.APPEND.v1",
                "tier": 1,
                "tags": ["tag.notes"],
                "side_effects": ["filesystem_write"],
                "timeout_ms": 500,
                "slots": True,
                "idempotent": True,
                "runner": {"kind": "python", "entry": "kit.sample:append"},
                "outputs_schema": {},
            },
        )

    def test_one_tool_and_a_package(self) -> None:
        self.assertEqual(self.describe("kit.sample:greet")["tools"], [self.GREET])
        self.assertEqual(self.describe("kit")["tools"], [self.GREET])

    def test_what_cannot_be_described(self) -> None:
        for target, words in [
            ("absent", "cannot import `absent`"),
            ("kit.sample:plain", "not declared with @tool"),
            ("kit.sample:absent", "not declared with @tool"),
            ("kit.other", "declares no tool"),
            ("borrower", "declares no tool"),
        ]:
            done = python("-m", "callgate", "describe", target, cwd=self.folder)
            self.assertEqual((done.returncode, done.stdout), (1, ""), target)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
