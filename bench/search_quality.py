"""How well search finds, on the sources of two packages: R@5 and MRR@10 of files.

    python3 bench/search_quality.py --callgate PATH

The packages come from crates.io and PyPI, pinned by SHA-256, and stay in a cache. Three kinds of
queries:

* doc: the first sentence of a function's doc comment. All doc comments are taken out of what is
  indexed, so that nobody finds the sentence itself.
* name: the name of a function, as its words ("read config") or as it is (`read_config`), by turns.
* change: an entry of the package's changelog, which is not indexed, that names a function or type.

The file that defines the function is the answer. Queries are split in two by a hash of their
text. On the tuning half, weights of the fusion are compared; the measured half says how good the
default is, and had no part in choosing it. Words alone (BM25) and vectors alone are measured on
the same half. Exits 1 if the default is below words alone in R@5 or MRR for a package and kind.
"""

import argparse
import ast
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request

WEIGHTS = [0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
FLATNESS = 20
QUERIES_MAX = 400
# What many files define says nothing.
FILES_MAX = 2


class Package:
    """Sources of a registry, as they were when they were pinned."""

    def __init__(self, project, version, sha256, kind):
        self.project, self.sha256, self.kind = project, sha256, kind
        self.name = f"{project} {version}"
        self.folder = f"{project}-{version}"
        self.file = f"{self.folder}.{kind}"

    def url(self):
        if self.kind == "crate":
            return f"https://static.crates.io/crates/{self.project}/{self.file}"
        index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
        page = f"{index}/{self.project}/"
        with urllib.request.urlopen(page, timeout=60) as reply:
            links = re.findall(r'href="([^"]+)"', reply.read().decode())
        named = [link for link in links if link.split("#")[0].endswith("/" + self.file)]
        return urllib.parse.urljoin(page, named[0].split("#")[0])

    def check(self, packed, where):
        if hashlib.sha256(packed).hexdigest() != self.sha256:
            raise SystemExit(f"{where}: not the bytes that were pinned")

    def sources(self, cache, scratch):
        """The folder with the sources, fetched unless the cache has them."""
        kept = cache / self.file
        if kept.exists():
            self.check(kept.read_bytes(), kept)
        else:
            url = self.url()
            with urllib.request.urlopen(url, timeout=60) as reply:
                packed = reply.read()
            self.check(packed, url)
            cache.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(".part")
            part.write_bytes(packed)
            part.rename(kept)
        with tarfile.open(kept) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall(scratch)
        return scratch / self.folder


PACKAGES = [
    Package(
        "axum",
        "0.8.9",
        "31b698c5f9a010f6573133b09e0de5408834d0c82f8d7475a89fc1867a71cd90",
        "crate",
    ),
    Package(
        "werkzeug",
        "3.1.9",
        "55ca7c70a75689be937aa27f8ff4b018f06ff4838fc73045560bf0f5a1291060",
        "tar.gz",
    ),
]


def rust(text):
    """The text without doc comments, (name, first sentence or None) of its functions, its types."""
    found, doc, kept = [], [], []
    types = re.findall(r"^\s*pub (?:struct|enum|trait|type) (\w+)", text, re.M)
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
    return "\n".join(kept) + "\n", found, types


def python(text):
    tree = ast.parse(text)
    lines, gone, found, types = text.splitlines(), set(), [], []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            continue
        doc = ast.get_docstring(node)
        if doc is not None:
            first = node.body[0]
            gone.update(range(first.lineno - 1, first.end_lineno))
        if isinstance(node, ast.ClassDef):
            types.append(node.name)
        elif not isinstance(node, ast.Module) and not node.name.startswith("_"):
            found.append((node.name, sentence(doc or "")))
    kept = [line for at, line in enumerate(lines) if at not in gone]
    return "\n".join(kept) + "\n", found, types


def sentence(doc):
    first = re.split(r"(?<=[.!?])\s|\n\s*\n|```", doc.strip())[0].replace("\n", " ").strip()
    return first if 4 <= len(first.split()) <= 40 else None


def changes(text):
    """Entries of a changelog in plain words, each with what it names."""
    for entry in re.split(r"^\s*- ", text, flags=re.M)[1:]:
        # Its first paragraph, without what kind of change it is and where that was discussed.
        entry = " ".join(re.split(r"\n\s*\n", entry)[0].split())
        entry = re.sub(r"^\*\*\w+:\*\*|:(?:issue|pr|ghsa|cve):`[^`]*`|\(?\[#\d+\]\)?", "", entry)
        named = [re.findall(r"\w+", name)[-1:] for name in re.findall(r"`([^`]+)`", entry)]
        plain = sentence(re.sub(r":\w+:(?=`)|[`~]", "", entry).strip())
        if plain:
            yield plain, [name for names in named for name in names]


def prepare(folder, target):
    """Copies the sources without their docs; gives the queries of each kind."""
    docs, names, defined = {}, {}, {}
    for path in sorted(folder.rglob("*")):
        take = {".rs": rust, ".py": python}.get(path.suffix)
        place = path.relative_to(folder)
        if take is None or {"tests", "test", "benches", "examples"} & set(place.parts):
            continue
        try:
            text, found, types = take(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        (target / place).write_text(text)
        for name, doc in found:
            names.setdefault(name, set()).add(str(place))
            if doc:
                docs.setdefault(doc, set()).add(str(place))
        for name in [*types, *(name for name, _ in found)]:
            defined.setdefault(name, set()).add(str(place))
    few = {name: files for name, files in names.items() if len(files) <= FILES_MAX and "_" in name}
    turns = enumerate(sorted(few.items()))
    named = {(name if at % 2 else name.replace("_", " ")): files for at, (name, files) in turns}
    changed = {}
    for log in ("CHANGELOG.md", "CHANGES.rst"):
        text = (folder / log).read_text() if (folder / log).exists() else ""
        for entry, mentioned in changes(text):
            places = [defined[name] for name in mentioned if name in defined]
            places = [files for files in places if len(files) <= FILES_MAX]
            if places:
                changed.setdefault(entry, set()).update(*places)
    return {"doc": docs, "name": named, "change": changed}


def is_for_tuning(query):
    """One half tunes, the other is measured; a query is always in the same."""
    return hashlib.sha256(query.encode()).digest()[0] % 2 == 1


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


def measure(program, package, cache):
    """Prints all figures of a package; gives what the default loses at."""
    losses = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "work").mkdir()
        queries = prepare(package.sources(cache, scratch), scratch / "work")
        for state, extra in (("both", []), ("words", ["--lexical"])):
            place = ["--workspace", scratch / "work", "--state", scratch / state]
            subprocess.run([program, *place, "index", *extra, "--json"], check=True)
        both = Gate(program, scratch / "work", scratch / "both")
        words = Gate(program, scratch / "work", scratch / "words")
        for kind, all_queries in queries.items():
            chosen = sorted(all_queries, key=lambda q: hashlib.sha256(q.encode()).hexdigest())
            tuned, measured = {}, {"words": [], "vectors": [], "default": []}
            for query in chosen[:QUERIES_MAX]:
                wanted = all_queries[query]
                lexical, meaning = words.files(query), both.files(query, rerank=False)
                if is_for_tuning(query):
                    for weight in WEIGHTS:
                        at = rank(fused(lexical, meaning, weight), wanted)
                        tuned.setdefault(weight, []).append(at)
                else:
                    measured["words"].append(rank(lexical, wanted))
                    measured["vectors"].append(rank(meaning, wanted))
                    measured["default"].append(rank(both.files(query), wanted))
            about = f"{package.name}, {kind}"
            print(f"{about}: tuning half, {len(tuned.get(0.0, []))} queries")
            for weight, ranks in tuned.items():
                shown(f"weight {weight}", ranks)
            print(f"{about}: measured half, {len(measured['words'])} queries")
            for name, ranks in measured.items():
                shown(name, ranks)
            pairs = zip(("R@5", "MRR"), score(measured["default"]), score(measured["words"]))
            losses += [f"{about}: {what}" for what, ours, bm25 in pairs if ours < bm25]
        both.close()
        words.close()
    return losses


def cache_folder():
    named = os.environ.get("CALLGATE_CACHE")
    usual = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(named or pathlib.Path(usual) / "callgate-ci") / "search-quality"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--callgate", required=True, help="the program")
    asked = parser.parse_args()
    losses = [loss for one in PACKAGES for loss in measure(asked.callgate, one, cache_folder())]
    for loss in losses:
        print(f"the default is below words alone: {loss}", file=sys.stderr)
    sys.exit(1 if losses else 0)


if __name__ == "__main__":
    main()
