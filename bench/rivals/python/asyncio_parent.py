"""A bridge's parent with one echo tool, as one writes it with asyncio: `asyncio_parent.py SOCKET`."""

import asyncio
import json
import struct
import sys

PREFIX = struct.Struct(">I")


def answer(payload: bytes) -> bytes:
    request = json.loads(payload)
    if request.get("method") != "call_tool":
        return json.dumps({"error": {"message": "Unknown method", "type": "ValueError"}}).encode()
    text = json.dumps(request["params"]["arguments"])
    return json.dumps({"result": {"content": [{"type": "text", "text": text}]}}).encode()


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            (length,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
            said = answer(await reader.readexactly(length))
            writer.write(PREFIX.pack(len(said)) + said)
            await writer.drain()
    except asyncio.IncompleteReadError:
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_unix_server(converse, sys.argv[1])
    async with server:
        await server.serve_forever()


asyncio.run(main())
