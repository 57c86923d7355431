// An executor of streamed runs as its runtime sees it: pipes, frames, an exit code.
//
// Node gives its children sockets, so a shell makes real pipes of two named ones. The decoder is written from
// the msgpack specification and shares nothing with the one under test.

import assert from "node:assert/strict";
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export const EMIT = new URL("../src/emit.ts", import.meta.url).href;
export const BIN = fileURLToPath(new URL("../src/bin.ts", import.meta.url));
export const REQUEST = { run_id: "r-1", attempt: 1, job: { q: 1 } };
const WAIT_MS = 60_000;

export class Executor {
  readonly folder: string;
  #child!: ChildProcess;
  #exit!: Promise<unknown[]>;
  #in!: FileHandle | undefined;
  #out!: FileHandle | undefined;
  #received = Buffer.alloc(0);

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Starts the executor on a script's text, its request sent. */
  static async start(script: string, request: unknown = REQUEST, argv?: string[]): Promise<Executor> {
    const executor = new Executor(mkdtempSync(join(tmpdir(), "callgate-emit-")));
    const { folder } = executor;
    writeFileSync(join(folder, "script.mjs"), script);
    execFileSync("mkfifo", ["in", "out"], { cwd: folder });
    executor.#child = spawn("sh", ["-c", 'cat <in | "$0" "$@" >out 2>err', ...(argv ?? [process.execPath, BIN, "script.mjs"])], {
      cwd: folder,
      stdio: "ignore",
    });
    executor.#exit = once(executor.#child, "exit");
    executor.#in = await open(join(folder, "in"), "w");
    executor.#out = await open(join(folder, "out"), "r");
    if (request !== undefined) {
      await executor.send(request instanceof Uint8Array ? request : Buffer.from(JSON.stringify(request) + "\n"));
    }
    return executor;
  }

  async send(bytes: Uint8Array): Promise<void> {
    await this.#in!.write(bytes);
  }

  ack(writeId: number, ok = true, error?: string): Promise<void> {
    return this.send(ack(writeId, ok, error));
  }

  async closeIn(): Promise<void> {
    await this.#in?.close();
    this.#in = undefined;
  }

  async closeOut(): Promise<void> {
    await this.#out?.close();
    this.#out = undefined;
  }

  /** The next frame's payload, or nothing at the end of the stream. */
  async frameBytes(): Promise<Buffer | undefined> {
    const prefix = await this.#exactly(4);
    if (prefix.length === 0) return undefined;
    const size = prefix.readUInt32BE();
    const payload = await this.#exactly(size);
    assert.equal(payload.length, size, "the stream ended within a frame");
    return payload;
  }

  async frame(): Promise<any> {
    const payload = await this.frameBytes();
    return payload && decode(payload);
  }

  async frames(): Promise<any[]> {
    const found = [];
    for (let frame = await this.frame(); frame !== undefined; frame = await this.frame()) found.push(frame);
    return found;
  }

  /** The exit code; the folder is gone after it. */
  async end(): Promise<{ code: number; printed: string }> {
    await this.closeIn();
    const [code] = await this.#exit;
    await this.closeOut();
    const printed = readFileSync(join(this.folder, "err"), "utf8");
    rmSync(this.folder, { recursive: true });
    return { code: code as number, printed };
  }

  async #exactly(size: number): Promise<Buffer> {
    const parts = [this.#received];
    let have = this.#received.length;
    while (have < size) {
      const { bytesRead, buffer } = await this.#out!.read(Buffer.allocUnsafe(65536));
      if (bytesRead === 0) break;
      parts.push(buffer.subarray(0, bytesRead));
      have += bytesRead;
    }
    const all = Buffer.concat(parts);
    this.#received = all.subarray(size);
    return all.subarray(0, size);
  }
}

/** Exit code, frames and standard error of a script that is answered nothing. */
export async function run(script: string, request: unknown = REQUEST, argv?: string[]): Promise<{ code: number; frames: any[]; printed: string }> {
  const executor = await Executor.start(script, request, argv);
  await executor.closeIn();
  const frames = await executor.frames();
  return { frames, ...(await executor.end()) };
}

export const types = (frames: any[]): string[] => frames.map((frame) => frame.type);

export async function until(happened: () => boolean, what: string): Promise<void> {
  const deadline = Date.now() + WAIT_MS;
  while (!happened()) {
    assert.ok(Date.now() < deadline, `did not happen: ${what}`);
    await pause(5);
  }
}

/** As the first runtime wrote it: the id in four bytes, `error` only where there is one. */
export function ack(writeId: number, ok = true, error?: string): Buffer {
  const id = Buffer.alloc(4);
  id.writeUInt32BE(writeId);
  const members = [Buffer.from([error === undefined ? 0x83 : 0x84]), Buffer.from("\xa4type\xaefile_write_ack\xa8write_id\xce", "latin1"), id];
  members.push(Buffer.from("\xa2ok", "latin1"), Buffer.from([ok ? 0xc3 : 0xc2]));
  if (error !== undefined) members.push(Buffer.from("\xa5error\xd9", "latin1"), Buffer.from([Buffer.byteLength(error)]), Buffer.from(error));
  return framed(Buffer.concat(members));
}

export function framed(payload: Uint8Array): Buffer {
  const prefix = Buffer.alloc(4);
  prefix.writeUInt32BE(payload.length);
  return Buffer.concat([prefix, payload]);
}

export function decode(payload: Buffer): any {
  const reader = { at: 0, payload };
  const value = next(reader);
  assert.equal(reader.at, payload.length, "bytes behind the value");
  return value;
}

function next(reader: { at: number; payload: Buffer }): any {
  const { payload } = reader;
  const take = (size: number) => payload.subarray(reader.at, (reader.at += size));
  const size = (width: number) => take(width).readUIntBE(0, width);
  const many = (count: number) => Array.from({ length: count }, () => next(reader));
  const map = (count: number) => {
    const pairs = Array.from({ length: count }, () => [next(reader), next(reader)] as [string, unknown]);
    assert.equal(new Set(pairs.map(([key]) => key)).size, count, "a key twice");
    return Object.fromEntries(pairs);
  };
  const first = size(1);
  if (first <= 0x7f) return first;
  if (first >= 0xe0) return first - 256;
  if (first >> 4 === 0x8) return map(first & 15);
  if (first >> 4 === 0x9) return many(first & 15);
  if (first >> 5 === 0b101) return take(first & 31).toString();
  switch (first) {
    case 0xc0: return null;
    case 0xc2: return false;
    case 0xc3: return true;
    case 0xc4: return Buffer.from(take(size(1)));
    case 0xc5: return Buffer.from(take(size(2)));
    case 0xc6: return Buffer.from(take(size(4)));
    case 0xcb: return take(8).readDoubleBE();
    case 0xcc: return size(1);
    case 0xcd: return size(2);
    case 0xce: return size(4);
    case 0xcf: return Number(take(8).readBigUInt64BE());
    case 0xd0: return take(1).readInt8();
    case 0xd1: return take(2).readInt16BE();
    case 0xd2: return take(4).readInt32BE();
    case 0xd3: return Number(take(8).readBigInt64BE());
    case 0xd6: return { ext: take(1).readInt8(), hex: take(4).toString("hex") };
    case 0xd7: return { ext: take(1).readInt8(), hex: take(8).toString("hex") };
    case 0xd9: return take(size(1)).toString();
    case 0xda: return take(size(2)).toString();
    case 0xdb: return take(size(4)).toString();
    case 0xdc: return many(size(2));
    case 0xde: return map(size(2));
  }
  throw new Error(`no value begins with ${first}`);
}
