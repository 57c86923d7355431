// Bytes of any size, cut into chunks: never more than one chunk of them is held.

import { closeSync, openSync, readSync } from "node:fs";

import { CHUNK_BYTES_MAX, type Stream } from "./stream.ts";

const PIECE_BYTES = 1024 * 1024;

/** Bytes, the path of a file as a `file:` URL or `{ path }`, or a stream of bytes. */
export type Bytes = Uint8Array | ArrayBuffer | ArrayBufferView;
export type File = URL | { readonly path: string };
export type Pieces = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
export type Artifact = Bytes | File | Pieces;

/** Takes pieces and sends chunks. The last chunk is known by nothing coming after it. */
export class Cutter {
  sizeBytes = 0;
  readonly #stream: Stream;
  readonly #artifactId: string;
  readonly #held: Uint8Array[] = [];
  #heldBytes = 0;
  #seq = 0;

  constructor(stream: Stream, artifactId: string) {
    this.#stream = stream;
    this.#artifactId = artifactId;
  }

  push(piece: unknown): void {
    let rest = octets(piece);
    while (rest.length > 0) {
      if (this.#heldBytes === CHUNK_BYTES_MAX) this.#send(this.#take(), false);
      const part = rest.subarray(0, CHUNK_BYTES_MAX - this.#heldBytes);
      // Whoever gave the piece may fill it anew.
      this.#held.push(part.slice());
      this.#heldBytes += part.length;
      rest = rest.subarray(part.length);
    }
  }

  /** All of it at once, straight from where it is. */
  pushWhole(bytes: Bytes): void {
    const all = octets(bytes);
    let start = 0;
    do {
      const part = all.subarray(start, start + CHUNK_BYTES_MAX);
      start += part.length;
      this.#send(part, start === all.length);
    } while (start < all.length);
  }

  end(): void {
    this.#send(this.#take(), true);
  }

  #take(): Uint8Array {
    this.#heldBytes = 0;
    return Buffer.concat(this.#held.splice(0));
  }

  #send(data: Uint8Array, isLast: boolean): void {
    this.#seq += 1;
    this.#stream.chunk(this.#artifactId, this.#seq, isLast, data);
    this.sizeBytes += data.length;
  }
}

export function isBytes(source: unknown): source is Bytes {
  return source instanceof ArrayBuffer || ArrayBuffer.isView(source);
}

export function isFile(source: unknown): source is File {
  return source instanceof URL || (typeof source === "object" && source !== null && typeof Reflect.get(source, "path") === "string" && !isPieces(source));
}

function isPieces(source: object): boolean {
  return Symbol.asyncIterator in source || Symbol.iterator in source;
}

/** Sends what is at hand, and says so; a stream is for `cutStream`. */
export function cutAtHand(source: Bytes | File, cutter: Cutter): void {
  if (isBytes(source)) return cutter.pushWhole(source);
  const fd = openSync(source instanceof URL ? source : source.path, "r");
  try {
    const piece = new Uint8Array(PIECE_BYTES);
    for (let size = readSync(fd, piece); size > 0; size = readSync(fd, piece)) cutter.push(piece.subarray(0, size));
    cutter.end();
  } finally {
    closeSync(fd);
  }
}

export async function cutStream(source: Pieces, cutter: Cutter): Promise<void> {
  if (typeof source !== "object" || source === null || !isPieces(source)) {
    throw new TypeError(`an artifact is bytes, a file or a stream, not ${typeof source}`);
  }
  for await (const piece of source) cutter.push(piece);
  cutter.end();
}

export function octets(bytes: unknown): Uint8Array {
  if (bytes instanceof ArrayBuffer) return new Uint8Array(bytes);
  if (ArrayBuffer.isView(bytes)) return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  throw new TypeError(`a piece of type ${typeof bytes}: pieces are bytes`);
}
