// `callgate/emit` against a runtime made of pipes: every event, every end of a run.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { BadRequest, parse } from "../src/request.ts";
import { EMIT, Executor, REQUEST, run, types } from "./support.ts";

const UUID4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const TS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const CHUNK = 8 * 1024 * 1024;
const script = (body: string) => `import * as emit from "${EMIT}";\nexport default async (ctx) => {\n${body}\n};`;

// ST-36, ST-38, ST-39, ST-40, ST-41
test("every event, without the options that were left out", async () => {
  const { code, frames } = await run(script(`
    ctx.item("product", { name: "lamp", price: 7.5 });
    ctx.checkpoint("page-1");
    ctx.checkpoint("page-2", { note: "half" });
    ctx.enqueue("next.mjs", { page: 3 });
    ctx.enqueue("next.mjs", { page: 4 }, { source: "shop", category: "lamps" });
    ctx.rotateProxy();
    ctx.rotateProxy("blocked");
    ctx.log("warn", "slow");
    ctx.log("info", "done", { pages: 2 });
    ctx.runComplete({ items: 1 });
  `));
  assert.deepEqual(frames.slice(0, -1).map(({ type, payload }) => [type, payload]), [
    ["item", { item_type: "product", data: { name: "lamp", price: 7.5 } }],
    ["checkpoint", { checkpoint_id: "page-1" }],
    ["checkpoint", { checkpoint_id: "page-2", note: "half" }],
    ["enqueue", { target: "next.mjs", params: { page: 3 } }],
    ["enqueue", { target: "next.mjs", params: { page: 4 }, source: "shop", category: "lamps" }],
    ["rotate_proxy", {}],
    ["rotate_proxy", { reason: "blocked" }],
    ["log", { level: "warn", message: "slow" }],
    ["log", { level: "info", message: "done", fields: { pages: 2 } }],
    ["run_complete", { summary: { items: 1 } }],
  ]);
  assert.equal(code, 0);
  assert.deepEqual(frames.at(-1), { type: "run_result", outcome: { status: "completed", message: null, error_type: null, stack: null } });
});

// ST-26, ST-27, ST-28, ST-29, ST-31, ST-33, ST-34, ST-35, ST-10
test("the envelope", async () => {
  const request = { run_id: "r-7", attempt: 2, parent_run_id: "r-6", job_id: "j1", job: { q: "é" } };
  const { frames } = await run(script(`ctx.item("seen", { job: ctx.job, of: [ctx.runId, ctx.attempt, ctx.jobId, ctx.parentRunId] });`), request);
  const names = ["contract_version", "event_id", "run_id", "type", "ts", "payload", "attempt", "job_id", "parent_run_id", "seq"];
  frames.slice(0, -1).forEach((event, index) => {
    assert.deepEqual(Object.keys(event), names);
    assert.match(event.event_id, UUID4);
    assert.match(event.ts, TS);
    assert.deepEqual([event.contract_version, event.run_id, event.attempt, event.seq], ["0.13.4", "r-7", 2, index + 1]);
  });
  assert.deepEqual(frames[0].payload.data, { job: { q: "é" }, of: ["r-7", 2, "j1", "r-6"] });
  assert.notEqual(frames[0].event_id, frames[1].event_id);
});

test("a value that can not be sent leaves the run as it was", async () => {
  const { code, frames } = await run(script(`
    const loop = [];
    loop.push(loop);
    for (const bad of [NaN, Infinity, 1n, () => 1, Symbol("s"), loop, new Map(), new Date(NaN), Buffer.alloc(2 ** 24)]) {
      try { ctx.item("bad", { value: bad }); } catch (error) {
        if (!(error instanceof TypeError || error instanceof RangeError)) throw error;
        ctx.checkpoint("refused");
      }
    }
    for (const call of [() => ctx.log("loud", "x"), () => ctx.item("a", [1]), () => ctx.item(1, {}), () => ctx.rotateProxy(1)]) {
      try { call(); } catch { ctx.checkpoint("refused"); }
    }
    const most = "é".repeat(512);
    for (const [name, contentType] of [[most, most], [most + "x", most], [most, most + "x"]]) {
      try { await ctx.artifact(name, Buffer.alloc(0), { contentType }); } catch { ctx.checkpoint("refused"); }
    }
  `));
  assert.equal(code, 0);
  const [refused, artifact] = ["checkpoint", ["artifact_chunk", "artifact"]];
  assert.deepEqual(types(frames), [...Array(13).fill(refused), ...artifact, refused, refused, "run_complete", "run_result"]);
  const events = frames.filter((frame) => "event_id" in frame);
  assert.deepEqual(events.map((event) => event.seq), Array.from({ length: 17 }, (_, n) => n + 1));
});

test("values of JavaScript", async () => {
  const { frames } = await run(script(`
    class Lamp { size = [1, 2]; colour = undefined; #hidden = 1; }
    ctx.item("lamp", new Lamp());
    ctx.item("others", { url: new URL("http://a/b"), date: new Date(1767225600000), late: new Date(1767225600005), half: "a\\ud800",
      bytes: new Uint8Array([1, 2]), buffer: new ArrayBuffer(1), large: 2 ** 40, zero: -0 });
  `));
  assert.deepEqual(frames[0].payload.data, { size: [1, 2], colour: null });
  assert.deepEqual(frames[1].payload.data, {
    url: "http://a/b",
    date: { ext: -1, hex: "6955b900" },
    late: { ext: -1, hex: ((5_000_000n << 34n) | 1767225600n).toString(16).padStart(16, "0") },
    half: "a\ufffd",
    bytes: Buffer.from([1, 2]),
    buffer: Buffer.alloc(1),
    large: 2 ** 40,
    zero: 0,
  });
});

// ST-3, S-1
test("the largest event, and one byte more", async () => {
  const body = script(`
    for (const size of ctx.job) {
      try { ctx.item("large", { data: new Uint8Array(size) }); } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        ctx.checkpoint("refused");
      }
    }
  `);
  const measured = await Executor.start(body, { ...REQUEST, job: [1 << 17] });
  const overhead = (await measured.frameBytes())!.length - (1 << 17);
  await measured.frames();
  await measured.end();
  const largest = 16 * 1024 * 1024 - 4 - overhead;
  const { code, frames } = await run(body, { ...REQUEST, job: [largest, largest + 1] });
  assert.deepEqual([code, types(frames)], [0, ["item", "checkpoint", "run_complete", "run_result"]]);
});

// ST-58, ST-61, ST-62, ST-64
test("every source of an artifact at the edges of a chunk", async () => {
  const body = `
    import { createReadStream, writeFileSync } from "node:fs";
    import { pathToFileURL } from "node:url";
    function* pieces(all) { for (let at = 0; at < all.length; at += 100_003) yield all.subarray(at, at + 100_003); }
    export default async (ctx) => {
      const all = Buffer.alloc(ctx.job, Buffer.from(Array.from({ length: 251 }, (_, n) => n)));
      writeFileSync("big", all);
      await ctx.artifact("a", all, { contentType: "text/plain" });
      await ctx.artifact("b", { path: "big" });
      await ctx.artifact("c", pathToFileURL("big"));
      await ctx.artifact("d", createReadStream("big"));
      await ctx.artifact("e", pieces(all));
      await ctx.artifact("f", new Blob([all]).stream());
    };`;
  for (const size of [0, 1, CHUNK - 1, CHUNK, CHUNK + 1]) {
    const wanted = Buffer.alloc(size, Buffer.from(Array.from({ length: 251 }, (_, n) => n)));
    const cuts = [...Array(Math.floor(size / CHUNK)).fill(CHUNK), ...(size % CHUNK || size === 0 ? [size % CHUNK] : [])];
    const executor = await Executor.start(body, { ...REQUEST, job: size });
    for (const name of "abcdef") {
      const [digest, ids] = [createHash("sha256"), new Set<string>()];
      for (const [index, length] of cuts.entries()) {
        const chunk = await executor.frame();
        assert.deepEqual(Object.keys(chunk), ["type", "artifact_id", "seq", "is_last", "data"]);
        assert.deepEqual([chunk.seq, chunk.is_last, chunk.data.length], [index + 1, index + 1 === cuts.length, length], `${name} of ${size}`);
        digest.update(chunk.data);
        ids.add(chunk.artifact_id);
      }
      const { payload } = await executor.frame();
      const content_type = name === "a" ? "text/plain" : "application/octet-stream";
      assert.deepEqual(payload, { artifact_id: [...ids][0], name, content_type, size_bytes: size });
      assert.equal(ids.size, 1);
      assert.equal(digest.digest("hex"), createHash("sha256").update(wanted).digest("hex"));
    }
    assert.deepEqual(types(await executor.frames()), ["run_complete", "run_result"]);
    assert.equal((await executor.end()).code, 0);
  }
});

test("a source that fails midway is never committed", async () => {
  const { code, frames } = await run(script(`
    async function* pieces() { yield Buffer.alloc(8 * 1024 * 1024 + 1); throw new Error("gone"); }
    for (const source of [pieces(), "text", ["text"], 7]) {
      try { await ctx.artifact("a", source); } catch { ctx.checkpoint("caught"); }
    }
  `));
  assert.equal(code, 0);
  assert.deepEqual(types(frames), ["artifact_chunk", ...Array(4).fill("checkpoint"), "run_complete", "run_result"]);
});

test("what a script does not await is waited for", async () => {
  const { frames } = await run(script(`
    async function* slow() { yield Buffer.from("a"); await new Promise((done) => setTimeout(done, 10)); yield Buffer.from("b"); }
    ctx.artifact("a", slow());
  `));
  assert.deepEqual(types(frames), ["artifact_chunk", "artifact", "run_complete", "run_result"]);
});

test("what fails and nobody hears of fails the run", async () => {
  const lost = "ctx.artifact('a', { path: '/no/such/file' });";
  const late = "async function* late() { await new Promise((done) => setTimeout(done, 10)); throw new TypeError('late'); } ctx.artifact('a', late());";
  for (const [body, errorType] of [
    [lost, "Error"],
    [`${lost} await new Promise((done) => setTimeout(done, 10));`, "Error"],
    [`${lost} ctx.storage.put('a/b', Buffer.alloc(0));`, "Error"],
    ["ctx.storage.put('a/b', Buffer.alloc(0));", "RangeError"],
    [late, "TypeError"],
    [`${lost} await new Promise((done) => setTimeout(done, 10)); process.exit();`, "Error"],
  ]) {
    const { code, frames } = await run(script(body!));
    assert.deepEqual([code, types(frames), frames[0].payload.error_type], [1, ["run_error", "run_result"], errorType], body);
  }
});

test("what fails and is heard of, however late, leaves the run as it was", async () => {
  for (const body of [
    "await ctx.artifact('a', { path: '/no/such/file' }).catch(() => {});",
    "await Promise.allSettled([1, 2].map(() => ctx.storage.put('a/b', Buffer.alloc(0))));",
    `const puts = ["a/b", "c/d"].map((name) => ctx.storage.put(name, Buffer.alloc(0)));
     await new Promise((done) => setTimeout(done, 10));
     for (const put of puts) try { await put; } catch {}`,
  ]) {
    const { code, frames } = await run(script(body));
    assert.deepEqual([code, types(frames)], [0, ["run_complete", "run_result"]], body);
  }
});

// ST-42, ST-44, ST-46, ST-47, ST-48, ST-49
test("a script that throws", async () => {
  const { code, frames } = await run(script(`class Closed extends Error {}\nthrow new Closed("no page");`));
  const error = frames[0].payload;
  assert.deepEqual([code, types(frames)], [1, ["run_error", "run_result"]]);
  assert.deepEqual(Object.keys(error), ["error_type", "message", "stack"]);
  assert.deepEqual([error.error_type, error.message], ["Closed", "no page"]);
  assert.match(error.stack, /script\.mjs/);
  assert.deepEqual(frames[1].outcome, { status: "error", ...error });
  assert.deepEqual(Object.keys(frames[1].outcome), ["status", "message", "error_type", "stack"]);
});

// ST-43
test("after a terminal event every call throws", async () => {
  const { code, frames, printed } = await run(script(`
    ctx.runComplete();
    const calls = [() => ctx.item("a", {}), () => ctx.artifact("a", Buffer.alloc(0)), () => ctx.checkpoint("a"), () => ctx.log("info", "a"),
      () => ctx.storage.put("a", Buffer.alloc(0)), () => ctx.runComplete(), () => ctx.runError("a", "b")];
    for (const call of calls) {
      try { await call(); console.log("let through"); } catch (error) { if (!(error instanceof emit.TerminalEventError)) throw error; }
    }
  `));
  assert.deepEqual([code, types(frames), printed], [0, ["run_complete", "run_result"], ""]);
});

test("every other way to end", async () => {
  const ways: [string, number, string, string, string | null][] = [
    ["", 0, "run_complete", "completed", null],
    ["process.exit();", 0, "run_complete", "completed", null],
    ["process.exit(4);", 1, "run_error", "error", "ProcessExit"],
    ["ctx.runError('Blocked', 'by a wall');", 1, "run_error", "error", "Blocked"],
    ["ctx.runComplete(); throw new Error('late');", 0, "run_complete", "completed", null],
    ["ctx.runError('A', 'b'); ctx.item('late', {});", 1, "run_error", "error", "A"],
    ["throw new TypeError('\\ud800' + 'x'.repeat(2 ** 25));", 1, "run_error", "error", "TypeError"],
    ["throw 'a text';", 1, "run_error", "error", "Error"],
    ["setTimeout(() => { throw new RangeError('behind its back'); }, 1); await new Promise(() => {});", 1, "run_error", "error", "RangeError"],
    ["Promise.reject(new RangeError('nobody waits')); await new Promise((done) => setTimeout(done, 1000));", 1, "run_error", "error", "RangeError"],
    ["await new Promise(() => {});", 1, "run_error", "error", "Error"],
    ["setInterval(() => {}, 1000);", 0, "run_complete", "completed", null],
  ];
  for (const [body, code, terminal, status, errorType] of ways) {
    const ended = await run(script(body));
    const { outcome } = ended.frames.at(-1);
    assert.deepEqual([ended.code, types(ended.frames), outcome.status, outcome.error_type], [code, [terminal, "run_result"], status, errorType], body);
  }
});

test("a script that can not be loaded", async () => {
  for (const body of ["export default (", "import 'no-such-module';", "export const walk = 1;", "export default 7;", "throw new Error('at load');"]) {
    const { code, frames, printed } = await run(body);
    assert.deepEqual([code, types(frames), frames[0].outcome.status], [2, ["run_result"], "crash"], body);
    assert.notEqual(printed, "");
  }
});

// ST-19
test("bad requests", async () => {
  const proxy = { protocol: "http", host: "p", port: 1 };
  const storage = { dataset: "d", source: "s", category: "c", day: "2026-11-15", run_id: "r" };
  const bad: object[] = [{ run_id: "" }, { run_id: 1 }, { run_id: "\ud800" }, { attempt: 0 }, { attempt: 1.5 }, { attempt: true }, { attempt: "1" }, { attempt: 2 }];
  bad.push({ parent_run_id: "r-0" }, { job_id: 1 }, { browser_ws_endpoint: 1 }, { proxy: "http://p:1" });
  for (const change of [{ protocol: "ftp" }, { host: "" }, { port: 0 }, { port: 65536 }, { username: "u" }, { password: "p" }]) bad.push({ proxy: { ...proxy, ...change } });
  bad.push({ storage: 1 }, { storage: { ...storage, day: "" } }, { storage: { dataset: "d" } });
  const lines = bad.map((change) => JSON.stringify({ ...REQUEST, ...change }));
  lines.push("", "[]", "nothing", '{"run_id":"r","attempt":1}', '{"run_id":"r","attempt":1,"job":NaN}');
  for (const line of lines) assert.throws(() => parse(Buffer.from(line)), BadRequest, line);
  for (const change of [{ job: null }, { proxy }, { proxy: { ...proxy, username: "u", password: "p" } }, { storage }, { attempt: 2, parent_run_id: "r-0" }]) {
    assert.deepEqual(parse(Buffer.from(JSON.stringify({ ...REQUEST, ...change, later: 1 }))), { ...REQUEST, ...change });
  }
  for (const line of ["\n", '{"run_id":"r","attempt":1}\n', Buffer.from([0xff, 0x0a]), Buffer.alloc(16 * 1024 * 1024 + 1, " ")]) {
    const { code, frames, printed } = await run("export default () => {};", Buffer.from(line));
    assert.deepEqual([code, frames], [3, []]);
    assert.match(printed, /^callgate-executor: /);
  }
});

test("a request without a line end", async () => {
  const { code, frames } = await run("export default () => {};", Buffer.from(JSON.stringify(REQUEST)));
  assert.deepEqual([code, frames.length], [0, 2]);
});

// ST-24, ST-25
test("the proxy is told without its password", async () => {
  const proxy = { protocol: "socks5", host: "p", port: 1080, username: "u" };
  const { frames } = await run(script("if (ctx.proxy.password !== 's3cret') throw new Error();"), { ...REQUEST, proxy: { ...proxy, password: "s3cret" } });
  assert.deepEqual(frames.at(-1).proxy_used, proxy);
  const unread = await run(script(""), { ...REQUEST, proxy: { ...proxy, password: "s3cret" } });
  assert.ok(!("proxy_used" in unread.frames.at(-1)));
});
