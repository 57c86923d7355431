// `callgate/emit` and its two pipes: strays, answers, backpressure, a runtime that goes away.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { ack, decode, EMIT, Executor, framed, REQUEST, run, types, until } from "./support.ts";

const script = (body: string) => `import * as emit from "${EMIT}";\nexport default async (ctx) => {\n${body}\n};`;
const STRAY = `
  import { spawnSync } from "node:child_process";
  import { writeSync } from "node:fs";
  export default (ctx) => {
    console.log("console");
    process.stdout.write("stdout\\n");
    if (ctx.job.descriptor) {
      writeSync(1, "descriptor\\n");
      spawnSync("echo", ["child"], { stdio: "inherit" });
    }
    ctx.item("a", {});
  };`;

// ST-9
test("a stray print is harmless, a child's and a descriptor's too", async () => {
  const { code, frames, printed } = await run(STRAY, { ...REQUEST, job: { descriptor: true } });
  assert.deepEqual([code, types(frames)], [0, ["item", "run_complete", "run_result"]]);
  assert.equal(printed, "console\nstdout\ndescriptor\nchild\n");
});

test("where descriptors can not be moved, what JavaScript prints is harmless", async () => {
  // Node's own pipes are sockets, which can not be opened by name.
  const script = `data:text/javascript,${encodeURIComponent(STRAY)}`;
  const program = `import { main } from "${EMIT}"; main((await import(${JSON.stringify(script)})).default);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.end(JSON.stringify(REQUEST) + "\n");
  const [out, err]: [Buffer[], Buffer[]] = [[], []];
  child.stdout.on("data", (bytes) => out.push(bytes));
  child.stderr.on("data", (bytes) => err.push(bytes));
  const [code] = await once(child, "close");
  const frames = [];
  for (let rest = Buffer.concat(out); rest.length > 0; ) {
    const end = 4 + rest.readUInt32BE();
    frames.push(decode(rest.subarray(4, end)));
    rest = rest.subarray(end);
  }
  assert.deepEqual([code, types(frames)], [0, ["item", "run_complete", "run_result"]]);
  assert.equal(Buffer.concat(err).toString(), "console\nstdout\n");
});

test("answers are not the script's to read", async () => {
  const executor = await Executor.start(script(`
    for await (const bytes of process.stdin) console.log(bytes);
    (await import("node:child_process")).spawnSync("cat", { stdio: "inherit" });
    await ctx.storage.put("a", Buffer.alloc(0));
  `));
  assert.equal((await executor.frame()).type, "file_write");
  await executor.ack(1);
  assert.deepEqual(types(await executor.frames()), ["run_complete", "run_result"]);
  assert.deepEqual(await executor.end(), { code: 0, printed: "" });
});

// ST-71, ST-72, ST-73, ST-74, ST-75
test("a refused write is recoverable: every later emit works", async () => {
  const place = { dataset: "d", source: "s", category: "c", day: "2026-11-15", run_id: "r-1" };
  const executor = await Executor.start(script(`
    ctx.item("key", { key: await ctx.storage.put("a.txt", Buffer.from("one"), { contentType: "text/plain" }) });
    try { await ctx.storage.put("a.txt", Buffer.from("two")); } catch (error) {
      if (!(error instanceof emit.StorageError)) throw error;
      ctx.item("caught", { words: error.message });
    }
    for (const bad of ["", "a/b", "a\\\\b", "a..b"]) {
      try { await ctx.storage.put(bad, Buffer.alloc(0)); } catch { ctx.item("bad", {}); }
    }
    try { await ctx.storage.put("large", Buffer.alloc(8 * 1024 * 1024 + 1)); } catch { ctx.item("bad", {}); }
    await Promise.all([ctx.storage.put("b.bin", Buffer.alloc(8 * 1024 * 1024)), ctx.storage.put("c", Buffer.alloc(0))]);
  `), { ...REQUEST, storage: place });
  const first = await executor.frame();
  assert.deepEqual(first, { type: "file_write", write_id: 1, filename: "a.txt", content_type: "text/plain", data: Buffer.from("one") });
  assert.deepEqual(Object.keys(first), ["type", "write_id", "filename", "content_type", "data"]);
  // An answer to nobody and frames that are none come first, and are passed over.
  await executor.send(Buffer.concat([ack(9), framed(Buffer.from([0xc1])), framed(Buffer.alloc(2 ** 20 + 1))]));
  const answer = ack(1);
  await executor.send(answer.subarray(0, 3));
  await executor.send(answer.subarray(3));
  assert.equal((await executor.frame()).payload.data.key, "datasets/d/partitions/source=s/category=c/day=2026-11-15/run_id=r-1/files/a.txt");
  assert.equal((await executor.frame()).write_id, 2);
  await executor.ack(2, false, "a.txt exists already");
  assert.deepEqual((await executor.frame()).payload.data, { words: "a.txt exists already" });
  for (let n = 0; n < 5; n += 1) assert.equal((await executor.frame()).payload.item_type, "bad");
  const large = await executor.frame();
  assert.deepEqual([large.write_id, large.data.length], [3, 8 * 1024 * 1024]);
  assert.equal((await executor.frame()).write_id, 4);
  await executor.ack(4);
  await executor.ack(3);
  assert.deepEqual(types(await executor.frames()), ["run_complete", "run_result"]);
  assert.equal((await executor.end()).code, 0);
});

const PUTS = script(`
  for (const name of ["a", "b", "c"]) {
    try { await ctx.storage.put(name, Buffer.alloc(0)); ctx.item("kept", {}); } catch (error) {
      if (!(error instanceof emit.StorageError)) throw error;
      ctx.item("lost", {});
    }
  }`);
const kept = (frames: any[]) => frames.filter(({ type }) => type === "item").map(({ payload }) => payload.item_type);

test("an old runtime answers nothing", async () => {
  assert.deepEqual(kept((await run(PUTS)).frames), ["kept", "kept", "kept"]);
});

test("a runtime that answered once and went away", async () => {
  const executor = await Executor.start(PUTS);
  assert.equal((await executor.frame()).write_id, 1);
  await executor.ack(1);
  const first = await executor.frame();
  await executor.closeIn();
  assert.deepEqual(kept([first, ...(await executor.frames())]), ["kept", "lost", "lost"]);
  await executor.end();
});

test("what waits for answers, and what streams, is bounded", async () => {
  const executor = await Executor.start(script(`
    const puts = Array.from({ length: emit.WAITING_MAX + 1 }, (_, n) => ctx.storage.put("f" + n, Buffer.alloc(0)).catch((error) => error.name));
    ctx.item("last", { put: await puts.at(-1) });
    async function* never() { await new Promise(() => {}); }
    const streams = Array.from({ length: emit.STREAMS_MAX + 1 }, () => ctx.artifact("a", never()).catch((error) => error.name));
    ctx.runComplete({ stream: await streams.at(-1) });
  `));
  const frames = await executor.frames();
  assert.deepEqual(frames.at(-3).payload.data, { put: "RangeError" });
  assert.deepEqual(frames.at(-2).payload.summary, { stream: "RangeError" });
  await executor.end();
});

// ST-77, ST-78, ST-79
test("a reader that does not read stalls the script, which awaits nothing", async () => {
  const events = 20_000;
  const executor = await Executor.start(script(`
    const { openSync, writeSync } = await import("node:fs");
    const fd = openSync("returned", "w");
    ctx.item("pid", { pid: process.pid });
    for (let number = 0; number < ctx.job.events; number += 1) {
      ctx.item("n", { number, text: "x".repeat(1000) });
      writeSync(fd, String(number + 1).padStart(8), 0);
    }
    ctx.item("status", { text: (await import("node:fs")).readFileSync("/proc/self/status", "utf8") });
  `), { ...REQUEST, job: { events } });
  const { pid } = (await executor.frame()).payload.data;
  const frameBytes = 4 + (await executor.frameBytes())!.length;
  const pipeBytes = 64 * 1024;
  const returned = () => Number(readFileSync(join(executor.folder, "returned"), "utf8"));
  const status = () => readFileSync(`/proc/${pid}/status`, "utf8");
  // The reader reads ahead; what it has not asked for stays in the pipe.
  const stalled = () => returned() * frameBytes > pipeBytes * 0.75 && /^State:\s+S/m.test(status());
  await until(stalled, "the pipe is full and the script waits");
  // The most it ever had: what it has now, the kernel may take some of away meanwhile.
  const stalledKib = kib(status(), "VmHWM");
  assert.ok(returned() <= 1 + (2 * pipeBytes) / frameBytes, `${returned()} emits have returned`);
  let frame;
  for (let number = 1; number < events; number += 1) {
    frame = await executor.frame();
    assert.deepEqual([frame.seq, frame.payload.data.number], [number + 2, number]);
  }
  const { text } = (await executor.frame()).payload.data;
  // Garbage that is not collected yet is all that may be added.
  assert.ok(kib(text, "VmHWM") < stalledKib + 48 * 1024, `${stalledKib} KiB, then ${kib(text, "VmHWM")} KiB`);
  assert.deepEqual(types(await executor.frames()), ["run_complete", "run_result"]);
  assert.equal((await executor.end()).code, 0);
});

test("an artifact of any size in constant memory", async () => {
  const executor = await Executor.start(script(`
    const piece = Buffer.alloc(1 << 20);
    async function* pieces() { for (let n = 0; n < 256; n += 1) yield piece; }
    await ctx.artifact("large", pieces());
    ctx.item("status", { text: (await import("node:fs")).readFileSync("/proc/self/status", "utf8") });
  `));
  for (let n = 0; n < 32; n += 1) assert.equal((await executor.frame()).seq, n + 1);
  assert.equal((await executor.frame()).payload.size_bytes, 256 << 20);
  const peak = kib((await executor.frame()).payload.data.text, "VmHWM");
  assert.ok(peak < 256 * 1024, `${peak} KiB`);
  await executor.frames();
  await executor.end();
});

test("a runtime that closes the pipe", async () => {
  const executor = await Executor.start(script(`
    try { for (;;) ctx.item("a", {}); } catch (error) { console.log(error.name); }
    try { await ctx.storage.put("a", Buffer.alloc(0)); } catch (error) { console.log(error.name); }
  `));
  await executor.frame();
  await executor.closeOut();
  const { code, printed } = await executor.end();
  assert.equal(code, 2);
  assert.match(printed, /^SinkFailedError\nSinkFailedError\ncallgate-executor: /);
});

function kib(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)![1]);
}
