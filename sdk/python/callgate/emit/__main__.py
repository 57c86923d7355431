"""`python -m callgate.emit SCRIPT.py [ARGUMENT…]`: the executor of Python scripts."""

from __future__ import annotations

import sys

from .executor import BAD_REQUEST, run_file

if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("usage: python -m callgate.emit SCRIPT.py [ARGUMENT…]", file=sys.stderr)
        sys.exit(BAD_REQUEST)
    sys.exit(run_file(sys.argv[1], sys.argv[2:]))
