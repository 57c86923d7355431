"""One echo tool behind FastMCP's own servers: on pipes, or with `http PORT` on a port."""

import sys

from fastmcp import FastMCP

server = FastMCP("echo")


@server.tool(name="builtin_echo")
def echo(message: str) -> str:
    """Gives back the message."""
    return message


if sys.argv[1:2] == ["http"]:
    server.run(
        transport="http",
        host="127.0.0.1",
        port=int(sys.argv[2]),
        show_banner=False,
        log_level="ERROR",
    )
else:
    server.run(show_banner=False, log_level="ERROR")
