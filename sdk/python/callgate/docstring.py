"""What a docstring says about a function and its parameters.

Reads the first paragraph, Google's `Args:` section and Sphinx's `:param x:`
fields. Anything else in a docstring is for people and is left alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_FIELD = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


class Docstring(NamedTuple):
    summary: str
    params: dict[str, str]


def parse(text: str | None) -> Docstring:
    lines = _dedent(text or "")
    params = _google_params(lines)
    params.update(_sphinx_params(lines))
    return Docstring(_first_paragraph(lines), params)


def _dedent(text: str) -> list[str]:
    """Lines without the indentation they share; the first has none of its own."""
    lines = text.expandtabs().splitlines()
    margin = min((_indent(line) for line in lines[1:] if line.strip()), default=0)
    return [line.strip() if index == 0 else line[margin:].rstrip() for index, line in enumerate(lines)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _first_paragraph(lines: list[str]) -> str:
    paragraph: list[str] = []
    for line in lines:
        line = line.strip()
        if _SECTION.match(line) or line.startswith(":"):
            break
        if line:
            paragraph.append(line)
        elif paragraph:
            break
    return " ".join(paragraph)


def _google_params(lines: list[str]) -> dict[str, str]:
    starts = [index for index, line in enumerate(lines) if _SECTION.match(line)]
    if not starts:
        return {}
    params: dict[str, str] = {}
    name = ""
    depth = 0  # indentation of the entries; what lies deeper continues one
    for line in lines[starts[0] + 1 :]:
        if not line.strip():
            continue
        indent = _indent(line)
        if indent == 0:
            break
        depth = depth or indent
        entry = _ENTRY.match(line.strip()) if indent <= depth else None
        if entry:
            name = entry[1]
            params[name] = entry[2]
        elif name:
            params[name] = f"{params[name]} {line.strip()}".strip()
    return params


def _sphinx_params(lines: list[str]) -> dict[str, str]:
    params: dict[str, str] = {}
    name = ""
    for line in lines:
        field = _FIELD.match(line)
        if field:
            name = field[1]
            params[name] = field[2]
        elif name and line.strip() and _indent(line):
            params[name] = f"{params[name]} {line.strip()}".strip()
        else:
            name = ""
    return params
