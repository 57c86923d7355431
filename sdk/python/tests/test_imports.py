"""What the worker imports from a workspace where the gate names the code: G-9d."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from typing import Any

from support import SDK, WORKER, Workspace, WorkerProcess

EDITABLE = """
import sys
from importlib.util import spec_from_file_location

class Editable:
    def find_spec(self, name, path=None, target=None):
        if name == "mine":
            return spec_from_file_location(name, %r)

sys.meta_path.append(Editable())
"""


class ImportsTest(Workspace):
    def setUp(self) -> None:
        super().setUp()
        self.ws = os.path.join(self.folder, "ws")
        self.write("ws/entry.py", "def f(payload):\n    import importlib\n    module = importlib.import_module(payload)\n    return getattr(module, 'WORD', None)\n")

    def bring(self, module: str, *code: str, **env: str) -> Any:
        """What `entry:f` says of a module, in a worker that is held to its code and to `code`."""
        named = "\n".join([self.ws, "entry.py", *code])
        with WorkerProcess(self.ws, [sys.executable, WORKER, "--imports", named], **env) as worker:
            reply = worker.call("entry:f", module)
        return reply.get("output", reply.get("error"))

    def test_named_code_and_nothing_else(self) -> None:
        self.write("ws/lib/deep/word.py", "WORD = 'deep'\n")
        self.write("ws/lib/other.py", "WORD = 'other'\n")
        self.write("ws/lib/deep.py", "WORD = 'beside'\n")
        self.assertEqual(self.bring("lib.deep.word", "lib/deep"), "deep")
        os.remove(os.path.join(self.ws, "lib/deep.py"))
        self.assertEqual(self.bring("lib.deep.word", "lib"), "deep")
        error = self.bring("lib.other", "lib/deep")
        self.assertEqual(error["type"], "ModuleNotFoundError")
        self.assertIn('lib/other.py of the workspace is not code of this tool', error["message"])
        self.assertIn('code = ["lib/**"]', error["message"])
        self.assertIn('code = ["lib/**"]', self.bring("lib.deep.word")["message"])
        self.assertNotIn("code =", self.bring("nowhere")["message"])

    def test_links_count_by_where_they_lead(self) -> None:
        self.write("ws/open/word.py", "WORD = 'open'\n")
        os.makedirs(os.path.join(self.ws, "lib"))
        os.symlink("../open/word.py", os.path.join(self.ws, "lib/word.py"))
        os.symlink("open", os.path.join(self.ws, "alias"))
        self.assertIn("code =", self.bring("lib.word", "lib")["message"])
        self.assertIn("code =", self.bring("alias.word", "lib")["message"])
        self.assertEqual(self.bring("lib.word", "lib", "open"), "open")

    def test_finders_of_others_are_held(self) -> None:
        planted = self.write("ws/src/mine.py", "WORD = 'editable'\n")
        self.write("site/sitecustomize.py", EDITABLE % planted)
        site = os.path.join(self.folder, "site")
        self.assertIn('code = ["src/**"]', self.bring("mine", PYTHONPATH=site)["message"])
        self.assertEqual(self.bring("mine", "src", PYTHONPATH=site), "editable")

    def test_a_path_into_the_workspace_offers_named_code_only(self) -> None:
        self.write("ws/lib/csv.py", "WORD = 'planted'\n")
        lib = os.path.join(self.ws, "lib")
        self.assertIsNone(self.bring("csv", PYTHONPATH=lib))
        self.assertEqual(self.bring("csv", "lib", PYTHONPATH=lib), "planted")
        self.assertIsNone(self.bring("csv", PYTHONPATH="lib"))

    def test_the_guard_runs_the_site_customization_it_hides(self) -> None:
        self.write("site/sitecustomize.py", "import os\nos.environ['CUSTOM'] = 'ran'\n")
        self.write("ws/entry.py", "import os\nWORD = os.environ.get('CUSTOM')\nprint(WORD)\n")
        guard = os.path.join(SDK, "callgate", "guard")
        for path, wanted in [(f"{guard}:{self.folder}/site", "ran"), (guard, "None")]:
            env = dict(os.environ, PYTHONPATH=path, CALLGATE_IMPORTS=f"{self.ws}\nentry.py")
            ran = subprocess.run([sys.executable, "entry.py"], cwd=self.ws, env=env, capture_output=True, text=True)
            self.assertEqual((ran.stdout.strip(), ran.returncode), (wanted, 0), ran.stderr)


if __name__ == "__main__":
    unittest.main()
