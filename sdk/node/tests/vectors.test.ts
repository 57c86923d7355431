// The vectors that every executor SDK is held to: the same steps give the same bytes. Ids and
// times are the only difference that is allowed, and are made equal before bytes are compared.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Acks } from "../src/acks.ts";
import { parse, redacted } from "../src/request.ts";
import { decode, EMIT, Executor } from "./support.ts";

const vectors = (name: string) => JSON.parse(readFileSync(new URL(`../../../vectors/stream/${name}`, import.meta.url), "utf8"));

/** Takes the steps of a case, one call each. */
const script = (steps: unknown[]) => `
  import { StorageError } from "${EMIT}";
  const steps = ${JSON.stringify(steps)};
  const NAMES = { rotate_proxy: "rotateProxy", run_error: "runError", run_complete: "runComplete" };
  const plain = (value) =>
    Array.isArray(value) ? value.map(plain)
    : typeof value !== "object" || value === null ? value
    : "$bytes" in value ? Buffer.from(value.$bytes, "hex")
    : Object.fromEntries(Object.entries(value).map(([key, member]) => [key, plain(member)]));
  export default async (ctx) => {
    for (const [name, ...args] of steps) {
      try {
        await (name === "put" ? ctx.storage.put(...plain(args)) : ctx[NAMES[name] ?? name](...plain(args)));
      } catch (error) {
        if (!(error instanceof StorageError)) throw error;
        ctx.log("warn", error.message);
      }
    }
  };`;

for (const vector of vectors("executors.json")) {
  test(vector.name, async () => {
    const executor = await Executor.start(script(vector.steps), vector.request);
    const payloads: Buffer[] = [];
    const acks = [...(vector.acks ?? [])];
    for (let payload = await executor.frameBytes(); payload !== undefined; payload = await executor.frameBytes()) {
      payloads.push(payload);
      const frame = decode(payload);
      if (frame.type === "file_write") {
        const { ok, error } = acks.shift();
        await executor.ack(frame.write_id, ok, error);
      }
    }
    assert.deepEqual(alike(payloads), vector.frames.map((frame: any) => frame.hex));
    assert.equal((await executor.end()).code, vector.exit);
  });
}

// ST-75
test("answers at every split", async () => {
  for (const { name, bytes, ack } of vectors("acks.json")) {
    const all = octets(bytes);
    for (let cut = 0; cut <= all.length; cut += 1) {
      const acks = new Acks({ ref() {}, unref() {} });
      const told = acks.expect(ack.write_id).then(() => undefined, (error) => error.message);
      acks.feed(all.subarray(0, cut));
      acks.feed(all.subarray(cut));
      acks.end();
      assert.equal(await told, ack.error, `${name}, cut at ${cut}`);
    }
  }
});

test("requests", () => {
  for (const { name, line, says, proxy_used } of vectors("requests.json")) {
    const request = parse(Buffer.from(line));
    assert.deepEqual(request, says, name);
    assert.deepEqual(request.proxy && redacted(request.proxy), proxy_used, name);
  }
});

/** Hex digits and text in quotes. */
function octets(notation: string): Buffer {
  const parts = notation.split("'");
  return Buffer.concat(parts.map((part, at) => (at % 2 ? Buffer.from(part) : Buffer.from(part.replaceAll(" ", ""), "hex"))));
}

/** In hex, ids numbered as they come, all times one. */
function alike(payloads: Buffer[]): string[] {
  const ids = new Map<string, string>();
  const numbered = (id: string) => {
    if (!ids.has(id)) ids.set(id, `00000000-0000-4000-8000-${String(ids.size + 1).padStart(12, "0")}`);
    return ids.get(id)!;
  };
  return payloads.map((payload) => {
    const text = payload
      .toString("latin1")
      .replace(/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/g, numbered)
      .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, "2000-01-01T00:00:00.000Z");
    return Buffer.from(text, "latin1").toString("hex");
  });
}
