#!/usr/bin/env node
// `callgate-executor SCRIPT [ARGUMENT…]`: the executor of JavaScript and TypeScript scripts.

import { BAD_REQUEST, runFile } from "./executor.ts";

const [script] = process.argv.slice(2);
if (script === undefined) {
  console.error("usage: callgate-executor SCRIPT [ARGUMENT…]");
  process.exit(BAD_REQUEST);
}
process.argv.splice(1, 1);
await runFile(script);
