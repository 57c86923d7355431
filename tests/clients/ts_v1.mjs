// The TypeScript SDK, v1 line: legacy only.
import { load, observe, print, settings } from "./common.mjs";

const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const client = new Client({ name: "test", version: "1" });
const [command, ...args] = settings.command ?? [];
const transport = settings.url
  ? new StreamableHTTPClientTransport(new URL(settings.url))
  : new StdioClientTransport({ command, args });
let version;
transport.setProtocolVersion = ((set) => (negotiated) => {
  version = negotiated;
  set?.call(transport, negotiated);
})(transport.setProtocolVersion);
await client.connect(transport);
const adapter = {
  names: async () => (await client.listTools()).tools.map((tool) => tool.name),
  callTool: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
};
print(await observe(adapter, version));
await client.close();
