// A script's life: request, guard, run, terminal event, result, exit code.
//
// Exit 0 is a completed run, 1 a script that failed, 2 one that could not be loaded or whose
// runtime is gone, 3 a bad request. What a script left running does not keep the process.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";

import { Acks } from "./acks.ts";
import { Context, type RunFailure } from "./context.ts";
import { takePipes, type Incoming } from "./pipes.ts";
import { BadRequest, parse, redacted, REQUEST_BYTES_MAX, type RunRequest } from "./request.ts";
import { Stream } from "./stream.ts";

export type Script = (context: Context) => unknown;

const COMPLETED = 0;
const SCRIPT_ERROR = 1;
const CRASH = 2;
export const BAD_REQUEST = 3;
const MESSAGE_CHARS_MAX = 16 * 1024;
const STACK_CHARS_MAX = 64 * 1024;

/** `process.exit` in a script ends its run. */
class ProcessExit extends Error {
  override name = "ProcessExit";
}

/**
 * Runs a function as this process's run, and exits as the contract says.
 *
 * Call it before anything is written to standard output: what is there already the runtime has
 * taken for a frame.
 */
export function main(script: Script): Promise<never> {
  return execute(() => script);
}

/** Runs the script in a file: its default export. */
export function runFile(path: string): Promise<never> {
  return execute(() => load(path));
}

async function execute(find: () => Script | Promise<Script>): Promise<never> {
  const exit = process.exit.bind(process);
  const pipes = takePipes();
  let request: RunRequest;
  let acks: Acks;
  try {
    [request, acks] = await begin(pipes.incoming);
  } catch (error) {
    console.error(`callgate-executor: ${(error as Error).message}`);
    return exit(BAD_REQUEST);
  }
  const stream = new Stream(pipes.outgoing, request);
  const context = new Context(request, stream, acks);
  const ending = new Ending(stream, context);
  ending.watch(exit);
  let script: Script;
  try {
    script = await find();
  } catch (error) {
    return exit(ending.crash(error));
  }
  try {
    await script(context);
    if (!stream.terminal) await context.operations.settled();
  } catch (error) {
    return exit(ending.end(error));
  }
  return exit(ending.end());
}

/** How a run ends, once, whichever way it came about. */
class Ending {
  readonly #stream: Stream;
  readonly #context: Context;
  #code: number | undefined;

  constructor(stream: Stream, context: Context) {
    this.#stream = stream;
    this.#context = context;
  }

  /** Sees to the ends that are no return of the script. */
  watch(exit: (code?: number) => never): void {
    const { operations } = this.#context;
    process.on("uncaughtException", (error) => exit(this.end(error)));
    process.on("unhandledRejection", (reason, promise) => {
      if (!operations.noteUnheard(promise, reason)) exit(this.end(reason));
    });
    process.on("rejectionHandled", (promise) => operations.noteHeard(promise));
    process.exit = (code) => {
      const given = Number(code ?? process.exitCode ?? 0);
      return exit(given === 0 ? this.end() : this.end(new ProcessExit(`the script exited with ${given}`)));
    };
    process.on("exit", () => {
      process.exitCode = this.end(new Error("the script waits for what can not happen"));
    });
  }

  /** The exit code, all frames being out. */
  end(...failure: unknown[]): number {
    this.#code ??= this.#reached(() => this.#finish(failure));
    return this.#code;
  }

  /** The script could not be loaded. */
  crash(error: unknown): number {
    console.error(error);
    this.#code ??= this.#reached(() => {
      this.#result("crash", described(error));
      return CRASH;
    });
    return this.#code;
  }

  #finish(thrown: unknown[]): number {
    const stream = this.#stream;
    const failure = thrown.length > 0 ? thrown : this.#context.operations.unheard();
    if (stream.failure !== undefined) throw stream.failure;
    if (stream.terminal) {
      // The run had ended; its result stands.
      if (failure.length > 0) console.error(failure[0]);
    } else if (failure.length > 0) {
      const { error_type, message, stack } = described(failure[0]);
      this.#context.runError(error_type, message, stack);
    } else {
      this.#context.runComplete();
    }
    const hasFailed = stream.terminal === "run_error";
    this.#result(hasFailed ? "error" : "completed", this.#context.failure);
    return hasFailed ? SCRIPT_ERROR : COMPLETED;
  }

  #result(status: string, failure: RunFailure | undefined): void {
    const { message = null, error_type = null, stack = null } = failure ?? {};
    const { proxyUsed } = this.#context;
    this.#stream.result({ status, message, error_type, stack }, proxyUsed && redacted(proxyUsed));
  }

  #reached(finish: () => number): number {
    try {
      return finish();
    } catch (error) {
      console.error(`callgate-executor: ${(error as Error).message}`);
      return CRASH;
    }
  }
}

/** Reads the request; what comes after it are answers. */
async function begin(incoming: Incoming): Promise<[RunRequest, Acks]> {
  const [line, rest] = await firstLine(incoming);
  const request = parse(line);
  const acks = new Acks({ ref: () => incoming.ref?.(), unref: () => incoming.unref?.() });
  acks.feed(rest);
  incoming.on("data", (bytes: Buffer) => acks.feed(bytes));
  for (const end of ["end", "error", "close"]) incoming.on(end, () => acks.end());
  if (incoming.readableEnded) acks.end();
  incoming.resume();
  incoming.unref?.();
  return [request, acks];
}

function firstLine(incoming: Incoming): Promise<[Uint8Array, Uint8Array]> {
  return new Promise((found, failed) => {
    const received: Buffer[] = [];
    let size = 0;
    const done = (line: Buffer, rest: Uint8Array) => {
      incoming.pause();
      for (const name of ["data", "end", "error"]) incoming.removeAllListeners(name);
      if (line.length > REQUEST_BYTES_MAX) failed(new BadRequest(`a run request of more than ${REQUEST_BYTES_MAX} bytes`));
      else found([line, rest]);
    };
    incoming.on("data", (bytes: Buffer) => {
      const end = bytes.indexOf(0x0a);
      received.push(end < 0 ? bytes : bytes.subarray(0, end));
      size += bytes.length;
      if (end >= 0 || size > REQUEST_BYTES_MAX) done(Buffer.concat(received), end < 0 ? Buffer.alloc(0) : bytes.subarray(end + 1));
    });
    incoming.on("end", () => done(Buffer.concat(received), Buffer.alloc(0)));
    incoming.on("error", failed);
  });
}

async function load(path: string): Promise<Script> {
  const loaded = await import(pathToFileURL(resolve(path)).href);
  // A CommonJS module's `exports` is the default of what is imported.
  const found = typeof loaded.default === "function" ? loaded.default : loaded.default?.default;
  if (typeof found !== "function") throw new TypeError(`${path} has no function as its default export`);
  return found;
}

function described(error: unknown): RunFailure {
  if (!(error instanceof Error)) {
    const message = typeof error === "string" ? error : inspect(error, { depth: 2 });
    return { error_type: "Error", message: message.slice(0, MESSAGE_CHARS_MAX) };
  }
  const name = error.name === "Error" ? error.constructor.name : error.name;
  return {
    error_type: String(name || "Error"),
    message: String(error.message).slice(0, MESSAGE_CHARS_MAX),
    stack: String(error.stack).slice(0, STACK_CHARS_MAX),
  };
}
