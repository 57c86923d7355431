"""How well search finds, on the sources of packages: R@5 and MRR@10 of files.

    python3 bench/search_quality.py --callgate PATH FOLDER...

Each FOLDER is the source of a Rust or Python package. Two kinds of queries:

* doc: the first sentence of a function's doc comment. All doc comments are taken out of what is
  indexed, so that nobody finds the sentence itself.
* name: the name of a function, as its words ("read config") or as it is (`read_config`), by turns.

The file that defines the function is the answer. Queries are split in two by a hash of their
text: weights of the fusion are compared on one half, and the other half says how good the default
is. Words alone (BM25) and vectors alone are measured on the same half.
"""

import argparse
import ast
import hashlib
import json
import pathlib
import re
import subprocess
import tempfile

WEIGHTS = [0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
FLATNESS = 20
QUERIES_MAX = 400


def rust(text):
    """The text without doc comments, and (name, first sentence or None) of its functions."""
    found, doc, kept = [], [], []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith(("///", "//!")):
            doc.append(bare[3:].strip())
            continue
        kept.append(line)
        named = re.match(r"pub(?:\([a-z]+\))? (?:async |const |unsafe )*fn (\w+)", bare)
        if named:
            found.append((named[1], sentence(" ".join(doc))))
        if not bare.startswith("#["):
            doc = []
    return "\n".join(kept) + "\n", found


def python(text):
    tree = ast.parse(text)
    lines, gone, found = text.splitlines(), set(), []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            continue
        doc = ast.get_docstring(node)
        if doc is not None:
            first = node.body[0]
            gone.update(range(first.lineno - 1, first.end_lineno))
        if not isinstance(node, (ast.Module, ast.ClassDef)) and not node.name.startswith("_"):
            found.append((node.name, sentence(doc or "")))
    return "\n".join(line for at, line in enumerate(lines) if at not in gone) + "\n", found


def sentence(doc):
    first = re.split(r"(?<=[.!?])\s|\n\s*\n|```", doc.strip())[0].replace("\n", " ").strip()
    return first if 4 <= len(first.split()) <= 40 else None


def prepare(folder, target):
    """Copies the sources without their docs; gives the queries of each kind."""
    docs, names = {}, {}
    for path in sorted(folder.rglob("*")):
        take = {".rs": rust, ".py": python}.get(path.suffix)
        place = path.relative_to(folder)
        if take is None or {"tests", "test", "benches", "examples"} & set(place.parts):
            continue
        try:
            text, found = take(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        (target / place).write_text(text)
        for name, doc in found:
            names.setdefault(name, set()).add(str(place))
            if doc:
                docs.setdefault(doc, set()).add(str(place))
    # What many files define says nothing.
    few = {name: files for name, files in names.items() if len(files) <= 2 and "_" in name}
    turns = enumerate(sorted(few.items()))
    named = {(name if at % 2 else name.replace("_", " ")): files for at, (name, files) in turns}
    return {"doc": docs, "name": named}


def half(query):
    return hashlib.sha256(query.encode()).digest()[0] % 2


class Gate:
    """`callgate rpc` over a workspace."""

    def __init__(self, program, workspace, state):
        command = [program, "--workspace", workspace, "--state", state, "rpc"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def files(self, query, **params):
        """Files in the order in which their best pieces come."""
        params = {"query": query, "top_k": 50, **params}
        ask = {"jsonrpc": "2.0", "id": 1, "method": "vector/search", "params": params}
        print(json.dumps(ask), file=self.process.stdin, flush=True)
        reply = json.loads(self.process.stdout.readline())
        if "result" not in reply:
            raise SystemExit(f"{query}: {reply}")
        return [(one["id"], one["metadata"]["path"]) for one in reply["result"]["matches"]]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def fused(lexical, meaning, weight):
    sums = {}
    for ranked, weight in ((lexical, 1.0), (meaning, weight)):
        for place, piece in enumerate(ranked):
            sums[piece] = sums.get(piece, 0.0) + weight / (FLATNESS + place)
    return sorted(sums, key=lambda piece: -sums[piece])


def rank(pieces, wanted):
    """The place of the first wanted file among the files."""
    files = list(dict.fromkeys(path for _, path in pieces))
    return next((at for at, path in enumerate(files) if path in wanted), None)


def score(ranks):
    recall = sum(1 for at in ranks if at is not None and at < 5) / len(ranks)
    mrr = sum(1 / (at + 1) for at in ranks if at is not None and at < 10) / len(ranks)
    return recall, mrr


def shown(name, ranks):
    recall, mrr = score(ranks)
    print(f"    {name:24} R@5 {recall:.3f}  MRR {mrr:.3f}")


def measure(program, folder):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "work").mkdir()
        queries = prepare(folder, scratch / "work")
        for state, extra in (("both", []), ("words", ["--lexical"])):
            place = ["--workspace", scratch / "work", "--state", scratch / state]
            subprocess.run([program, *place, "index", *extra, "--json"], check=True)
        both = Gate(program, scratch / "work", scratch / "both")
        words = Gate(program, scratch / "work", scratch / "words")
        for kind, all_queries in queries.items():
            chosen = sorted(all_queries, key=lambda q: hashlib.sha256(q.encode()).hexdigest())
            tuned, judged = {}, {"words": [], "vectors": [], "default": []}
            for query in chosen[:QUERIES_MAX]:
                wanted = all_queries[query]
                lexical, meaning = words.files(query), both.files(query, rerank=False)
                if half(query):
                    for weight in WEIGHTS:
                        at = rank(fused(lexical, meaning, weight), wanted)
                        tuned.setdefault(weight, []).append(at)
                else:
                    judged["words"].append(rank(lexical, wanted))
                    judged["vectors"].append(rank(meaning, wanted))
                    judged["default"].append(rank(both.files(query), wanted))
            print(f"{folder.name}, {kind}: weights on {len(tuned[0.0])} queries")
            for weight, ranks in tuned.items():
                shown(f"weight {weight}", ranks)
            print(f"{folder.name}, {kind}: on {len(judged['words'])} others")
            for name, ranks in judged.items():
                shown(name, ranks)
        both.close()
        words.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--callgate", required=True)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    asked = parser.parse_args()
    for folder in asked.folders:
        measure(asked.callgate, folder)


if __name__ == "__main__":
    main()
