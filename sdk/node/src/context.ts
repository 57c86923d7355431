// What a script holds while it runs: what it was asked, and every way to answer.

import { randomUUID } from "node:crypto";

import { Acks } from "./acks.ts";
import { Cutter, cutAtHand, cutStream, isBytes, isFile, octets, type Artifact, type Bytes } from "./artifact.ts";
import { given, type ProxyEndpoint, type RunRequest, type StoragePlace } from "./request.ts";
import { CHUNK_BYTES_MAX, type Stream } from "./stream.ts";

export const LEVELS = ["debug", "info", "warn", "error"] as const;
export type Level = (typeof LEVELS)[number];
/** Streams that may be sent as artifacts at one time: each holds up to one chunk. */
export const STREAMS_MAX = 16;
/** Longest name and content type of an artifact. A longer one the runtime would end the run for. */
export const TEXT_BYTES_MAX = 1024;
/** Failures that may wait to be heard. */
const UNHEARD_MAX = 256;
const BINARY = "application/octet-stream";

export interface RunFailure {
  error_type: string;
  message: string;
  stack?: string;
}

/**
 * A run, from the inside.
 *
 * Every emit returns once the runtime's pipe has taken what it says; there is nothing to await
 * but artifacts and files. A value that can not be sent throws `TypeError` or `RangeError` and
 * leaves the run as it was. After `runComplete` or `runError` every method throws
 * `TerminalEventError`.
 */
export class Context {
  readonly runId: string;
  readonly attempt: number;
  /** What the run is to work on. */
  readonly job: any;
  readonly jobId: string | undefined;
  readonly parentRunId: string | undefined;
  readonly browserWsEndpoint: string | undefined;
  readonly storage: Storage;
  readonly #proxy: ProxyEndpoint | undefined;
  readonly #stream: Stream;
  readonly #operations = new Operations();
  #proxyUsed: ProxyEndpoint | undefined;
  #streams = 0;
  #failure: RunFailure | undefined;

  constructor(request: RunRequest, stream: Stream, acks: Acks) {
    this.runId = request.run_id;
    this.attempt = request.attempt;
    this.job = request.job;
    this.jobId = request.job_id;
    this.parentRunId = request.parent_run_id;
    this.#proxy = request.proxy;
    this.browserWsEndpoint = request.browser_ws_endpoint;
    this.#stream = stream;
    this.storage = new Storage(request.storage, stream, acks, this.#operations);
  }

  /** What to go through. Whoever asks is taken to use it: the run's result then says so. */
  get proxy(): ProxyEndpoint | undefined {
    this.#proxyUsed = this.#proxy;
    return this.#proxy;
  }

  get proxyUsed(): ProxyEndpoint | undefined {
    return this.#proxyUsed;
  }

  /** One thing that was found. */
  item(itemType: string, data: object): void {
    this.#stream.event("item", { item_type: text("itemType", itemType), data: object("data", data) });
  }

  /**
   * Bytes of any size: bytes, a file (`{ path }` or a `file:` URL) or a stream of bytes.
   *
   * Resolves to the artifact's id; the artifact exists then. If the stream fails midway, what
   * was sent of it is collected by the runtime.
   */
  artifact(name: string, source: Artifact, options: { contentType?: string } = {}): Promise<string> {
    const contentType = short("contentType", options.contentType ?? BINARY);
    return this.#operations.track(this.#artifact(short("name", name), source, contentType));
  }

  /** How far the script has come. */
  checkpoint(checkpointId: string, options: { note?: string } = {}): void {
    const note = optional("note", options.note);
    this.#stream.event("checkpoint", given({ checkpoint_id: text("checkpointId", checkpointId), note }));
  }

  /** More work: a script and its job. */
  enqueue(target: string, params: object, options: { source?: string; category?: string } = {}): void {
    const source = optional("source", options.source);
    const category = optional("category", options.category);
    this.#stream.event("enqueue", given({ target: text("target", target), params: object("params", params), source, category }));
  }

  /** The proxy should be another one next time. */
  rotateProxy(reason?: string): void {
    this.#stream.event("rotate_proxy", given({ reason: optional("reason", reason) }));
  }

  /** A line for people. */
  log(level: Level, message: string, fields?: object): void {
    if (!LEVELS.includes(level)) throw new RangeError(`level is one of ${LEVELS.join(", ")}, not ${level}`);
    const more = fields === undefined ? undefined : object("fields", fields);
    this.#stream.event("log", given({ level, message: text("message", message), fields: more }));
  }

  /** The run has failed. Terminal. */
  runError(errorType: string, message: string, stack?: string): void {
    const failure = given({ error_type: text("errorType", errorType), message: text("message", message), stack: optional("stack", stack) });
    this.#stream.event("run_error", failure);
    this.#failure = failure as unknown as RunFailure;
  }

  /** The run has done what it was to do. Terminal. */
  runComplete(summary?: object): void {
    this.#stream.event("run_complete", summary === undefined ? {} : { summary: object("summary", summary) });
  }

  /** What the terminal event said of an error. */
  get failure(): RunFailure | undefined {
    return this.#failure;
  }

  /** The artifacts and files that the script began. */
  get operations(): Operations {
    return this.#operations;
  }

  async #artifact(name: string, source: Artifact, content_type: string): Promise<string> {
    const artifact_id = randomUUID();
    const cutter = new Cutter(this.#stream, artifact_id);
    if (isBytes(source) || isFile(source)) {
      cutAtHand(source, cutter);
    } else {
      if (this.#streams >= STREAMS_MAX) throw new RangeError(`${STREAMS_MAX} streams are under way: await them first`);
      this.#streams += 1;
      try {
        await cutStream(source, cutter);
      } finally {
        this.#streams -= 1;
      }
    }
    this.#stream.event("artifact", { artifact_id, name, content_type, size_bytes: cutter.sizeBytes });
    return artifact_id;
  }
}

/** Small files beside the events. */
export class Storage {
  readonly #place: StoragePlace | undefined;
  readonly #stream: Stream;
  readonly #acks: Acks;
  readonly #operations: Operations;

  constructor(place: StoragePlace | undefined, stream: Stream, acks: Acks, operations: Operations) {
    this.#place = place;
    this.#stream = stream;
    this.#acks = acks;
    this.#operations = operations;
  }

  /**
   * Keeps at most 8 MiB under a name without folders; resolves to its key, where the runtime
   * said where. Rejects with `StorageError` when the runtime refuses, a name written twice for
   * one; the run goes on.
   */
  put(filename: string, data: Bytes, options: { contentType?: string } = {}): Promise<string | undefined> {
    return this.#operations.track(this.#put(text("filename", filename), octets(data), text("contentType", options.contentType ?? BINARY)));
  }

  async #put(filename: string, data: Uint8Array, contentType: string): Promise<string | undefined> {
    if (filename === "" || /[/\\]|\.\./.test(filename)) {
      throw new RangeError(`${JSON.stringify(filename)} can not be a file's name: no folders, not empty, no \`..\``);
    }
    if (data.length > CHUNK_BYTES_MAX) {
      throw new RangeError(`a file of ${data.length} bytes; at most ${CHUNK_BYTES_MAX}: send an artifact`);
    }
    this.#acks.mayExpect();
    await this.#acks.expect(this.#stream.fileWrite(filename, contentType, data));
    return this.#place && keyOf(this.#place, filename);
  }
}

/**
 * Artifacts and files under way, and those that failed without the script having heard of it.
 *
 * A script may await an operation long after it failed, so that a failure counts as unheard
 * only while nobody has asked for it.
 */
export class Operations {
  readonly #underWay = new Set<Promise<unknown>>();
  readonly #begun = new WeakSet<Promise<unknown>>();
  readonly #unheard = new Map<Promise<unknown>, unknown>();

  /** What is handed out is heard only by who awaits it: our own wait is for another promise. */
  track<T>(operation: Promise<T>): Promise<T> {
    this.#underWay.add(operation);
    const handedOut = operation.finally(() => this.#underWay.delete(operation));
    this.#begun.add(handedOut);
    return handedOut;
  }

  /** Waits for what the script did not wait for. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
    // Node tells of what nobody heard at the end of a turn.
    await new Promise((done) => setImmediate(done));
  }

  /** Nobody has heard of this failure so far. False if it is not of ours, or one too many. */
  noteUnheard(promise: Promise<unknown>, reason: unknown): boolean {
    if (!this.#begun.has(promise) || this.#unheard.size >= UNHEARD_MAX) return false;
    this.#unheard.set(promise, reason);
    return true;
  }

  noteHeard(promise: Promise<unknown>): void {
    this.#unheard.delete(promise);
  }

  /** The first failure that the script never heard of, if there is one. */
  unheard(): unknown[] {
    return [...this.#unheard.values()].slice(0, 1);
  }
}

function keyOf({ dataset, source, category, day, run_id }: StoragePlace, filename: string): string {
  return `datasets/${dataset}/partitions/source=${source}/category=${category}/day=${day}/run_id=${run_id}/files/${filename}`;
}

function text(name: string, value: unknown): string {
  if (typeof value !== "string") throw new TypeError(`${name} is text, not ${typeof value}`);
  return value;
}

/** Text of a length that every runtime takes. */
function short(name: string, value: unknown): string {
  const bytes = Buffer.byteLength(text(name, value));
  if (bytes > TEXT_BYTES_MAX) throw new RangeError(`${name} is at most ${TEXT_BYTES_MAX} bytes long, not ${bytes}`);
  return value as string;
}

function optional(name: string, value: unknown): string | undefined {
  return value === undefined ? undefined : text(name, value);
}

function object(name: string, value: unknown): object {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TypeError(`${name} is an object`);
  return value;
}
