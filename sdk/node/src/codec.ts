// Values as msgpack: what a script gives, made plain and checked, and maps whose last member
// is added later.
//
// What storage could not keep as JSON (a NaN, a Map, a function) is refused here, where the
// script can still do something about it.

import { decode, Encoder } from "@msgpack/msgpack";

export const DEPTH_MAX = 100;

export type Members = Record<string, unknown>;

const encoder = new Encoder({ maxDepth: 2 * DEPTH_MAX });

/** A value as msgpack: `TypeError` or `RangeError` for one that has no form in it. */
export function pack(value: unknown): Uint8Array {
  return encoder.encode(plain(value, DEPTH_MAX));
}

/** The one value in `bytes`; throws where there is none, or more. */
export function unpack(bytes: Uint8Array): unknown {
  return decode(bytes);
}

/** A map of fewer than 15 members with one more at its end, whose bytes are given. */
export function packWithLast(members: Members, last: string, value: Uint8Array): Uint8Array {
  const head = pack(members);
  head[0] = head[0]! + 1; // a fixmap holds its count in its first byte
  return Buffer.concat([head, pack(last), value]);
}

/** What stands before so many bytes. */
export function bytesHead(size: number): Uint8Array {
  const head = Buffer.alloc(5);
  if (size < 0x100) return head.fill(0xc4, 0, 1).subarray(0, head.writeUInt8(size, 1));
  if (size < 0x10000) return head.fill(0xc5, 0, 1).subarray(0, head.writeUInt16BE(size, 1));
  return head.fill(0xc6, 0, 1).subarray(0, head.writeUInt32BE(size, 1));
}

function plain(value: unknown, depth: number): unknown {
  if (depth < 0) throw new RangeError(`a value nested deeper than ${DEPTH_MAX}, or holding itself`);
  switch (typeof value) {
    case "boolean":
    case "undefined":
      return value ?? null;
    case "string":
      return wellFormed(value);
    case "number":
      if (!Number.isFinite(value)) throw new RangeError(`${value} is not a number that can be kept`);
      return value;
    case "object":
      return value === null ? null : plainObject(value, depth);
    default:
      throw new TypeError(`a value of type ${typeof value}`);
  }
}

function plainObject(value: object, depth: number): unknown {
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw new RangeError("a date that is none");
    return value;
  }
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (Array.isArray(value)) return Array.from(value, (member) => plain(member, depth - 1));
  if ("toJSON" in value && typeof value.toJSON === "function") return plain(value.toJSON(), depth - 1);
  if (value instanceof Map || value instanceof Set) throw new TypeError(`a ${value.constructor.name}: give an object or an array`);
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [wellFormed(key), plain(member, depth - 1)]));
}

/** Halves of surrogate pairs become U+FFFD, as everywhere that text leaves JavaScript. */
function wellFormed(text: string): string {
  return text.isWellFormed() ? text : text.toWellFormed();
}
