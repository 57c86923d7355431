// The TypeScript SDK, v2 line.
import { load, observe, print, settings } from "./common.mjs";

const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");

const mode = settings.era === "modern" ? { pin: "2026-07-28" } : "legacy";
const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
const [command, ...args] = settings.command ?? [];
const transport = settings.url
  ? new StreamableHTTPClientTransport(new URL(settings.url))
  : new StdioClientTransport({ command, args });
await client.connect(transport);
const adapter = {
  names: async () => (await client.listTools()).tools.map((tool) => tool.name),
  callTool: (name, args, options) => client.callTool({ name, arguments: args }, options),
};
print(await observe(adapter, client.getNegotiatedProtocolVersion?.()));
await client.close();
