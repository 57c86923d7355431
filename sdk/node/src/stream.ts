// The frames of a run, in order, down one descriptor.
//
// Writes are synchronous: an emit returns when the pipe has taken its frame, whether the script
// awaits it or not. A runtime that does not read stalls the script, and there is no queue to
// grow (ST-77, ST-78). Nothing else of the process runs meanwhile, which is the point.

import { randomUUID } from "node:crypto";
import { writevSync } from "node:fs";

import { bytesHead, pack, packWithLast, type Members } from "./codec.ts";
import { given, type RunRequest } from "./request.ts";

/** What runtimes compare. Callgate accepts any version of its own major. */
export const CONTRACT_VERSION = "0.13.4";
/** The contract's 16 MiB, which count the prefix. */
export const PAYLOAD_BYTES_MAX = 16 * 1024 * 1024 - 4;
export const CHUNK_BYTES_MAX = 8 * 1024 * 1024;
const WRITE_ID_MAX = 2 ** 32 - 1;
/** How long to wait for a pipe that another process made non-blocking, before asking again. */
const RETRY_MS = 2;

/** The run has announced its end: nothing more can be emitted. */
export class TerminalEventError extends Error {
  override name = "TerminalEventError";
}

/** The runtime is gone, or a frame was cut short: nothing more can be emitted. */
export class SinkFailedError extends Error {
  override name = "SinkFailedError";
}

export type Terminal = "run_complete" | "run_error";

/** What the runtime reads. */
export class Stream {
  terminal: Terminal | undefined;
  failure: unknown;
  readonly #fd: number;
  readonly #request: RunRequest;
  #seq = 0;
  #writeId = 0;
  #hasResult = false;

  constructor(fd: number, request: RunRequest) {
    this.#fd = fd;
    this.#request = request;
  }

  /** The next event. */
  event(type: string, payload: Members): void {
    this.#mayEmit();
    const { run_id, attempt, job_id, parent_run_id } = this.#request;
    const envelope = {
      contract_version: CONTRACT_VERSION,
      event_id: randomUUID(),
      run_id,
      type,
      ts: new Date().toISOString(),
      payload,
      attempt,
      ...given({ job_id, parent_run_id }),
    };
    const body = packWithLast(envelope, "seq", pack(this.#seq + 1));
    fits(body.length);
    this.#seq += 1;
    if (type === "run_complete" || type === "run_error") this.terminal = type;
    this.#write(body);
  }

  chunk(artifact_id: string, seq: number, is_last: boolean, data: Uint8Array): void {
    this.#mayEmit();
    this.#write(packWithLast({ type: "artifact_chunk", artifact_id, seq, is_last }, "data", bytesHead(data.length)), data);
  }

  /** The id of the write. */
  fileWrite(filename: string, content_type: string, data: Uint8Array): number {
    this.#mayEmit();
    const write_id = (this.#writeId % WRITE_ID_MAX) + 1;
    const head = packWithLast({ type: "file_write", write_id, filename, content_type }, "data", bytesHead(data.length));
    fits(head.length + data.length);
    this.#writeId = write_id;
    this.#write(head, data);
    return write_id;
  }

  /** The frame that closes the run; a second one is not sent. ST-44. */
  result(outcome: Members, proxy_used: Members | undefined): void {
    this.#mustReach();
    if (this.#hasResult) return;
    this.#hasResult = true;
    this.#write(pack(given({ type: "run_result", outcome, proxy_used })));
  }

  /** Throws where nothing can be emitted any more. */
  #mayEmit(): void {
    if (this.terminal) throw new TerminalEventError(`the run has ended with ${this.terminal}`);
    this.#mustReach();
  }

  #mustReach(): void {
    if (this.failure !== undefined) throw lost(this.failure);
  }

  #write(...parts: Uint8Array[]): void {
    const prefix = Buffer.alloc(4);
    prefix.writeUInt32BE(parts.reduce((size, part) => size + part.length, 0));
    try {
      writeAll(this.#fd, [prefix, ...parts]);
    } catch (error) {
      // Part of a frame may be out.
      this.failure = error;
      throw lost(error);
    }
  }
}

function lost(cause: unknown): SinkFailedError {
  return new SinkFailedError(`nothing reaches the runtime any more: ${(cause as Error).message}`, { cause });
}

function fits(payloadBytes: number): void {
  if (payloadBytes > PAYLOAD_BYTES_MAX) {
    throw new RangeError(`a frame of ${payloadBytes} bytes; at most ${PAYLOAD_BYTES_MAX}: send an artifact`);
  }
}

function writeAll(fd: number, parts: Uint8Array[]): void {
  let left = parts.filter((part) => part.length > 0);
  while (left.length > 0) {
    let written = writeSome(fd, left);
    while (left.length > 0 && written >= left[0]!.length) {
      written -= left[0]!.length;
      left = left.slice(1);
    }
    if (written > 0) left[0] = left[0]!.subarray(written);
  }
}

function writeSome(fd: number, parts: Uint8Array[]): number {
  try {
    return writevSync(fd, parts);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
    return 0;
  }
}
