"""`python -m callgate describe MODULE[:NAME]`: a module's tools as a toolpack manifest.

Prints, as JSON, what `@tool` learned from the functions of a module, each with
the runner that leads back to it. The module is imported from the current
folder. Functions without `@tool` have no schema to print and are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from types import ModuleType
from typing import Any, Optional

from .tool import ToolSpec


_OURS = ("title", "timeout_max_ms", "rate_limit", "concurrency_max", "tasks", "gives_content")
_CONFINEMENT = (
    *("writes", "reads", "code", "network", "guarantees", "purity", "sandbox", "ipc"),
    *("allow_unsafe_execution", "isolation"),
)


class NotDescribable(Exception):
    """There is no tool where one was asked for."""


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m callgate", description="Callgate for Python")
    commands = parser.add_subparsers(dest="command", required=True)
    describe_command = commands.add_parser("describe", help="print a module's tools as a toolpack manifest")
    describe_command.add_argument("module", metavar="MODULE[:NAME]")
    options = parser.parse_args(arguments)
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        manifest = describe(options.module)
    except NotDescribable as error:
        print(f"callgate: {error}", file=sys.stderr)
        return 1
    print(json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False))
    return 0


def describe(target: str) -> dict[str, Any]:
    """The manifest of the tools in `module`, or of the one at `module:name`."""
    module_name = target.partition(":")[0]
    specs = specs_of(target)
    version = getattr(sys.modules[module_name], "__version__", None)
    return {
        "toolpack_id": f"toolpack.{module_name.lower()}",
        "toolpack_version": version if isinstance(version, str) else "0.1.0",
        "trust_tier": "tier2_untrusted",
        "tools": [_entry(spec) for spec in specs],
    }


def specs_of(target: str) -> list[ToolSpec]:
    """The definitions of the tools in `module`, or of the one at `module:name`."""
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise NotDescribable(f"cannot import `{module_name}`: {type(error).__name__}: {error}") from error
    specs = [_spec_at(module, name)] if name else _specs_in(module)
    if not specs:
        raise NotDescribable(f"`{module_name}` declares no tool with @tool")
    return specs


def answer(payload: dict[str, Any]) -> dict[str, Any]:
    """What the gate asks for: `{"target": "module"}` for a manifest, with `"specs"` for what
    was declared. The module is imported as a tool's is, by a process that may do nothing."""
    try:
        if payload.get("specs"):
            return {"specs": specs_of(payload["target"])}
        return {"manifest": describe(payload["target"])}
    except NotDescribable as error:
        return {"error": str(error)}


def _spec_at(module: ModuleType, name: str) -> ToolSpec:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not hasattr(found, "__callgate_call__"):
        raise NotDescribable(f"`{module.__name__}:{name}` is not declared with @tool")
    spec: ToolSpec = found.spec
    return spec


def _specs_in(module: ModuleType) -> list[ToolSpec]:
    """The tools of a module and, for a package, those it re-exports from its own modules."""
    specs: dict[str, ToolSpec] = {}
    for value in vars(module).values():
        home = f"{getattr(value, '__module__', '')}."
        if hasattr(value, "__callgate_call__") and home.startswith(f"{module.__name__}."):
            specs.setdefault(value.spec["runner"]["entry"], value.spec)
    return list(specs.values())


def _entry(spec: ToolSpec) -> dict[str, Any]:
    """One tool under the names a toolpack manifest uses."""
    entry: dict[str, Any] = {
        "aid": spec["aid"],
        "name": spec["name"],
        "description": spec["description"],
        "deterministic": spec.get("deterministic", False),
        "tags": spec.get("tags") or ["tag.python"],
        "inputs_schema": spec["input_schema"],
        "outputs_schema": spec.get("output_schema", {}),
        "estimate_model": {"mode": "ConservativeBound"},
        "side_effects": spec.get("side_effects") or ["none"],
        "replay_inputs": [],
    }
    said: dict[str, Any] = {**spec}
    for key in ("tier", "idempotent", "timeout_ms", "slots", "aliases", "replay_inputs"):
        if key in said:
            entry[key] = said[key]
    for place, keys in (("confinement", _CONFINEMENT), ("callgate", _OURS)):
        found = {key: said[key] for key in keys if key in said}
        if found:
            entry[place] = found
    entry["runner"] = spec["runner"]
    return entry


if __name__ == "__main__":
    sys.exit(main())
