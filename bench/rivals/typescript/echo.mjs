// One echo tool behind the TypeScript SDK's own servers: `node echo.mjs` on pipes, with `http` on a
// port of its choice, which it prints.

import { createServer } from 'node:http';

import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

function echo() {
    const server = new McpServer({ name: 'echo', version: '0.0.0' });
    const inputSchema = z.object({ message: z.string() });
    server.registerTool(
        'builtin_echo',
        { description: 'Gives back the message', inputSchema },
        async ({ message }) => ({ content: [{ type: 'text', text: message }] })
    );
    return server;
}

if (process.argv[2] === 'http') {
    const server = createServer(toNodeHandler(createMcpHandler(echo)));
    server.listen(0, '127.0.0.1', () => console.log(server.address().port));
} else {
    serveStdio(echo);
}
