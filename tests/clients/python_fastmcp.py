"""The `fastmcp` package as a client."""

from __future__ import annotations

from typing import Any

from common import main, observe, told
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp import MCPError

MODES = {"modern": "2026-07-28", "legacy": "legacy"}


class Adapter:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        try:
            result = await self.client.call_tool(
                name, arguments, progress_handler=progress, raise_on_error=False
            )
        except MCPError as error:
            return {"code": error.error.code}
        return told(result.content[0].text, bool(result.is_error))


async def run(settings: dict[str, Any]) -> dict[str, Any]:
    if "url" in settings:
        server: Any = settings["url"]
    else:
        command, *args = settings["command"]
        server = StdioTransport(command=command, args=args)
    async with Client(server, mode=MODES[settings["era"]]) as client:
        return await observe(Adapter(client), client.protocol_version, settings["mark"])


main(run)
