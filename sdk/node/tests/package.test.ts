// The package as it is published: compiled, typed, and run without the compiler.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { REQUEST, run, types } from "./support.ts";

const SOURCE = fileURLToPath(new URL("..", import.meta.url));
const TSC = join(SOURCE, "node_modules/typescript/bin/tsc");

test("what tsc makes of it is what package.json names, and runs", async () => {
  const folder = mkdtempSync(join(tmpdir(), "callgate-package-"));
  try {
    execFileSync(process.execPath, [TSC, "--project", "tsconfig.build.json", "--outDir", join(folder, "dist")], { cwd: SOURCE });
    cpSync(join(SOURCE, "package.json"), join(folder, "package.json"));
    symlinkSync(realpathSync(join(SOURCE, "node_modules")), join(folder, "node_modules"));
    const { bin, exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    for (const file of [bin["callgate-executor"], exports["./emit"].types, exports["./emit"].default]) {
      assert.ok(existsSync(join(folder, file)), file);
    }
    const emit = pathToFileURL(join(folder, exports["./emit"].default)).href;
    const script = `import { CONTRACT_VERSION } from "${emit}";\nexport default (ctx) => ctx.item("a", { CONTRACT_VERSION });`;
    const { code, frames } = await run(script, REQUEST, [process.execPath, join(folder, bin["callgate-executor"]), "script.mjs"]);
    assert.deepEqual([code, types(frames)], [0, ["item", "run_complete", "run_result"]]);
    const own = `import { main } from "${emit}";\nawait main((ctx) => ctx.item("own", {}));`;
    const alone = await run(own, REQUEST, [process.execPath, "script.mjs"]);
    assert.deepEqual([alone.code, types(alone.frames)], [0, ["item", "run_complete", "run_result"]]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("tests are typed as well", () => {
  execFileSync(process.execPath, [TSC, "--noEmit"], { cwd: SOURCE });
});
