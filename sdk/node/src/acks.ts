// The runtime's answers to file writes, read from where the run request came.
//
// A runtime that closes the pipe without one answer is one from before there were any: writes
// then succeed unacknowledged. After the first answer the end of the pipe is the end of the
// runtime.

import { unpack } from "./codec.ts";

/** Larger frames are no answer of ours and are read past. */
const ACK_BYTES_MAX = 1024 * 1024;
/** Writes that may wait for their answers at one time. */
export const WAITING_MAX = 256;

/** A file was not kept. The run goes on, and so does every later emit. */
export class StorageError extends Error {
  override name = "StorageError";
}

/** What the answers come from, which keeps the process while one is waited for. */
export interface Source {
  ref(): void;
  unref(): void;
}

interface Waiting {
  kept(): void;
  refused(reason: StorageError): void;
}

export class Acks {
  readonly #source: Source;
  readonly #waiting = new Map<number, Waiting>();
  #received = Buffer.alloc(0);
  #toSkip = 0;
  #hasSeenOne = false;
  #hasEnded = false;

  constructor(source: Source) {
    this.#source = source;
  }

  /** Throws when as many writes wait as may. */
  mayExpect(): void {
    if (this.#waiting.size >= WAITING_MAX) throw new RangeError(`${WAITING_MAX} writes wait for their answers: await them first`);
  }

  /** Settles when the write is answered; rejects with `StorageError` if it was refused. */
  expect(writeId: number): Promise<void> {
    return new Promise((kept, refused) => {
      this.#waiting.set(writeId, { kept, refused });
      this.#source.ref();
      if (this.#hasEnded) this.end();
    });
  }

  feed(bytes: Uint8Array): void {
    const skipped = Math.min(this.#toSkip, bytes.length);
    this.#toSkip -= skipped;
    this.#received = Buffer.concat([this.#received, bytes.subarray(skipped)]);
    while (this.#received.length >= 4) {
      const end = 4 + this.#received.readUInt32BE();
      if (end - 4 > ACK_BYTES_MAX) {
        this.#toSkip = Math.max(end - this.#received.length, 0);
      } else if (this.#received.length < end) {
        return;
      } else {
        this.#take(this.#received.subarray(4, end));
      }
      this.#received = this.#received.subarray(end);
    }
  }

  /** The runtime closed its end. */
  end(): void {
    this.#hasEnded = true;
    for (const writeId of [...this.#waiting.keys()]) {
      this.#settle(writeId, this.#hasSeenOne ? "the runtime went away before it answered" : undefined);
    }
  }

  /** Frames that are no answer, or answer nothing that is waited for, are ignored. */
  #take(payload: Uint8Array): void {
    let ack: Record<string, unknown>;
    try {
      ack = (unpack(payload) ?? {}) as Record<string, unknown>;
    } catch {
      return;
    }
    if (ack["type"] !== "file_write_ack") return;
    this.#hasSeenOne = true;
    const { ok, error } = ack;
    const refusal = ok === true ? undefined : typeof error === "string" ? error : "refused without a reason";
    this.#settle(ack["write_id"] as number, refusal);
  }

  #settle(writeId: number, refusal: string | undefined): void {
    const waiting = this.#waiting.get(writeId);
    if (!waiting) return;
    this.#waiting.delete(writeId);
    if (this.#waiting.size === 0) this.#source.unref();
    if (refusal === undefined) waiting.kept();
    else waiting.refused(new StorageError(refusal));
  }
}
