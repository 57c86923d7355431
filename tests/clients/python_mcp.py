"""The `mcp` package as a client."""

from __future__ import annotations

from typing import Any

from common import main, observe, told
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

MODES = {"modern": "2026-07-28", "legacy": "legacy"}


class Adapter:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        try:
            result = await self.client.call_tool(name, arguments, progress_callback=progress)
        except MCPError as error:
            return {"code": error.error.code}
        return told(result.content[0].text, bool(result.is_error))


async def run(settings: dict[str, Any]) -> dict[str, Any]:
    if "url" in settings:
        server: Any = settings["url"]
    else:
        command, *args = settings["command"]
        server = stdio_client(StdioServerParameters(command=command, args=args))
    async with Client(server, mode=MODES[settings["era"]]) as client:
        return await observe(Adapter(client), client.protocol_version, settings["mark"])


main(run)
