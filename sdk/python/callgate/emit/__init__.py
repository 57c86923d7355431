"""Write an executor of streamed runs: `callgate.emit`.

    def run(ctx):
        ctx.item("product", {"name": ctx.job["name"], "price": 7.5})

    python -m callgate.emit script.py     run such a script
    main(function), @run                  be the executor yourself

An emit blocks while the runtime does not take what is said, drops nothing and
buffers nothing. What is printed goes to standard error. A script that returns
has completed, one that raises has failed.
"""

from __future__ import annotations

from .acks import StorageError
from .context import LEVELS, Context, Storage
from .executor import main, run
from .request import ProxyEndpoint, StoragePlace
from .stream import CHUNK_BYTES_MAX, CONTRACT_VERSION, PAYLOAD_BYTES_MAX, SinkFailedError, TerminalEventError

__all__ = [
    "CHUNK_BYTES_MAX",
    "CONTRACT_VERSION",
    "Context",
    "LEVELS",
    "PAYLOAD_BYTES_MAX",
    "ProxyEndpoint",
    "SinkFailedError",
    "Storage",
    "StorageError",
    "StoragePlace",
    "TerminalEventError",
    "main",
    "run",
]
