// The process the gate starts to run Node tools.
//
// It takes calls, one JSON line each, from the stream socket whose descriptor CALLGATE_FD
// names, runs the function an `entry` points at, and answers with one JSON line. Standard
// output and error stay the tool's own: nothing a tool prints can be mistaken for a reply.
//
//   {"call":"7","tool":"greet","entry":"tools/greet.mjs:greet","input":{"name":"Ada"}}
//   {"call":"7","progress":{"progress":1,"total":2}}
//   {"call":"7","output":{"message":"Hello Ada"}}
//   {"call":"7","error":{"type":"TypeError","message":"no such name"}}
//   {"call":"7","exit":3}
//
// A function gets the input and a second argument: { progress, log, slots }. Left out on
// purpose: schemas, deadlines, size limits and confinement. Those are the gate's, which does
// not trust this process. No dependencies; Node 18 and later.

import { existsSync, realpathSync, writeSync } from "node:fs";
import * as modules from "node:module";
import { Socket } from "node:net";
import { extname, isAbsolute, relative, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inspect } from "node:util";

const MESSAGE_CHARS_MAX = 16 * 1024;
const CAUSES_MAX = 64;
const SLOT_MAX = 255;
const EXTENSIONS = [".mjs", ".js", ".cjs"];
const LONE = /\p{Surrogate}/u;
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/** `process.exit` in a tool ends its call, not the worker. */
class Exit extends Error {
  constructor(code) {
    super(`exit ${code}`);
    this.code = code;
  }
}

/**
 * Returns the check of a file that is about to be loaded: of the workspace only the code that
 * the gate names may be, because callers can write the rest. Text is the workspace and a path
 * for each further line. JSON is data. Stands alone, since hooks may run in a thread of theirs.
 */
function checkOf(text, { isAbsolute, realpathSync, relative, resolve }) {
  const real = (path) => {
    try {
      return realpathSync(path);
    } catch {
      return resolve(path);
    }
  };
  const within = (path, folder) => path === folder || path.startsWith(folder.endsWith("/") ? folder : folder + "/");
  const [first, ...paths] = text.split("\n");
  const root = real(first);
  const code = paths.map((path) => real(resolve(root, path)));
  return (file) => {
    if (!isAbsolute(file) || file.endsWith(".json")) return;
    const found = real(file);
    if (!within(found, root) || code.some((path) => within(found, path))) return;
    const name = relative(root, found);
    const line = name.includes("/") ? name.split("/")[0] + "/**" : name;
    const message = `${name} of the workspace is not code of this tool; to allow it, its configuration says code = ["${line}"]`;
    throw Object.assign(new Error(message), { code: "ERR_MODULE_NOT_FOUND" });
  };
}

/** Holds what this process loads to the code that the gate names. */
function holdImports(text) {
  const tools = { isAbsolute, realpathSync, relative, resolve };
  const check = checkOf(text, tools);
  const Module = modules.Module ?? modules.default;
  const plain = Module._resolveFilename;
  Module._resolveFilename = function (...words) {
    const file = plain.apply(this, words);
    check(file);
    return file;
  };
  if (modules.registerHooks) {
    modules.registerHooks({
      resolve(specifier, context, next) {
        const found = next(specifier, context);
        if (found.url.startsWith("file:")) check(fileURLToPath(found.url));
        return found;
      },
    });
  } else if (modules.register) {
    const hooks = `
      import { realpathSync } from "node:fs";
      import { isAbsolute, relative, resolve as join } from "node:path";
      import { fileURLToPath } from "node:url";
      const check = (${checkOf})(${JSON.stringify(text)}, { isAbsolute, realpathSync, relative, resolve: join });
      export async function resolve(specifier, context, next) {
        const found = await next(specifier, context);
        if (found.url.startsWith("file:")) check(fileURLToPath(found.url));
        return found;
      }`;
    modules.register("data:text/javascript," + encodeURIComponent(hooks));
  }
}

async function main() {
  const at = process.argv.indexOf("--imports");
  if (at > 0) holdImports(process.argv[at + 1]);
  const fd = Number(process.env.CALLGATE_FD || NaN);
  delete process.env.CALLGATE_FD;
  let gate;
  try {
    gate = new Socket({ fd, readable: true, writable: true });
  } catch {
    console.error("callgate worker: CALLGATE_FD must name an open descriptor");
    process.exit(2);
  }
  const exit = process.exit;
  const worker = new Worker((line) => gate.write(line));
  // Async code of a tool that failed behind its back fails its call, or nobody's.
  process.on("uncaughtException", (error) => worker.stray(error));
  process.exit = (code) => {
    throw worker.leaves(code ?? process.exitCode ?? 0);
  };
  gate.on("error", () => exit(0));
  gate.setEncoding("utf8");
  let rest = "";
  for await (const text of gate) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.trim() !== "") gate.write(await worker.answer(line));
    }
  }
  exit(0); // what a tool left running must not keep the process
}

class Worker {
  constructor(tell) {
    this.tell = tell;
    this.loaded = new Map();
    this.call = undefined; // while its function runs
    this.fail = undefined; // ends it early
  }

  async answer(line) {
    let request;
    try {
      request = JSON.parse(line);
      if (typeof request.call !== "string" || typeof request.entry !== "string") throw new TypeError("no call");
    } catch (error) {
      return failure(request?.call ?? null, "ProtocolError", `not a call: ${error.message}`);
    }
    const { call, entry, guarantees } = request;
    const inexact = inexactInteger(line);
    if (inexact) {
      return failure(call, "RangeError", `the integer ${inexact} is another one in JavaScript: send it as a string`);
    }
    try {
      const reply = await this.run(request);
      try {
        return encode(reply);
      } catch (error) {
        throw new TypeError(`the result is not JSON: ${error.message}`);
      }
    } catch (error) {
      if (error instanceof Exit) return encode({ call, exit: error.code });
      report(error);
      const { name, message } = words(error);
      return failure(call, name, this.loaded.has(entry) ? message : `entry \`${entry}\`: ${message}`, blocked(error, guarantees));
    } finally {
      this.call = this.fail = undefined;
    }
  }

  async run({ call, entry, input, slots: given }) {
    this.call = call;
    const early = new Promise((_, reject) => (this.fail = reject));
    early.catch(() => {}); // one that nobody waits for any more is nobody's
    const work = async () => {
      const target = this.loaded.get(entry) ?? (await load(entry));
      this.loaded.set(entry, target);
      const slots = given && Object.fromEntries(Object.entries(given).map(([slot, one]) => [slot, structuredClone(one)]));
      const output = (await target(input, this.desk(call, slots))) ?? null;
      return given ? { call, output, ...changes(given, slots) } : { call, output };
    };
    return await Promise.race([work(), early]);
  }

  /** What a function gets beside its input. What outlived its call is not heard. */
  desk(call, slots) {
    const tell = (kind, report) => {
      if (this.call === call) this.tell(encode({ call, [kind]: report }));
    };
    return {
      slots,
      progress(progress, total, message) {
        if (!Number.isFinite(progress)) throw new TypeError("progress is a number");
        tell("progress", { progress, total, message });
      },
      log(level, data, logger) {
        if (!LEVELS.includes(level)) throw new RangeError(`level is one of ${LEVELS.join(", ")}`);
        tell("log", { level, data: data ?? null, logger });
      },
    };
  }

  stray(error) {
    if (this.fail) this.fail(error);
    else report(error);
  }

  leaves(code) {
    const exit = new Exit((Number(code) || 0) & 0xff);
    this.stray(exit);
    return exit;
  }
}

/** The function behind `file:function`, or `folder.module:function` as bindings write it. */
async function load(entry) {
  const at = entry.lastIndexOf(":");
  if (at < 1 || at + 1 === entry.length) throw new SyntaxError("not of the form file:function");
  const module = await import(pathToFileURL(file(entry.slice(0, at))).href);
  // What a CommonJS file exports may be behind `default` only.
  const found = module[entry.slice(at + 1)] ?? module.default?.[entry.slice(at + 1)];
  if (typeof found !== "function") throw new TypeError("not a function");
  return found;
}

function file(name) {
  const dotted = resolve(name.replaceAll(".", "/"));
  const found = EXTENSIONS.map((extension) => dotted + extension).find(existsSync);
  return EXTENSIONS.includes(extname(name)) ? resolve(name) : (found ?? resolve(name));
}

/** JSON has no word for these, and JSON.stringify drops or changes most of them in silence. */
function strict(key, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value}`);
  if (["function", "symbol", "bigint"].includes(typeof value)) throw new TypeError(`a ${typeof value}`);
  if (LONE.test(key) || (typeof value === "string" && LONE.test(value))) throw new TypeError("half a character");
  return value;
}

function changes(before, slots) {
  const changed = {};
  for (const [slot, artifact] of Object.entries(slots)) {
    if (!/^(0|[1-9]\d{0,2})$/.test(slot) || Number(slot) > SLOT_MAX) {
      throw new TypeError(`slot numbers are integers from 0 to ${SLOT_MAX}, not ${slot}`);
    }
    if (artifact === null || typeof artifact !== "object" || Array.isArray(artifact)) {
      throw new TypeError(`slot ${slot} is not an object`);
    }
    if (JSON.stringify(before[slot]) !== JSON.stringify(artifact)) changed[slot] = artifact;
  }
  const removed = Object.keys(before).filter((slot) => !(slot in slots));
  return { slots: changed, removed_slots: removed.map(Number) };
}

function encode(value) {
  return JSON.stringify(value, strict) + "\n";
}

/**
 * The first integer of a request that JavaScript has no number for. Its text would be read as the
 * nearest double: a tool would get another number than the one that was checked and approved.
 */
function inexactInteger(line) {
  if (!/\d{16}/u.test(line)) return undefined;
  const tokens = line.match(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/gu) ?? [];
  return tokens.find((token) => /^-?\d{16,}$/u.test(token) && BigInt(token) !== BigInt(Number(token)));
}

function failure(call, type, message, blocked) {
  const whole = message.slice(0, MESSAGE_CHARS_MAX).replace(new RegExp(LONE, "gu"), "\ufffd");
  return encode({ call, error: { type, message: whole, blocked } });
}

function words(error) {
  try {
    if (error instanceof Error) return { name: String(error.name || "Error"), message: String(error.message) };
    return { name: "Error", message: typeof error === "string" ? error : inspect(error) };
  } catch {
    return { name: "Error", message: "(its message could not be read)" };
  }
}

/** Where the gate keeps stderr. */
function report(error) {
  try {
    writeSync(2, `${error?.stack ?? inspect(error)}\n`);
  } catch {
    // a broken stderr must not cost the reply
  }
}

const NETWORK = ["connect", "bind", "listen", "send", "socket", "getaddrinfo", "queryA", "queryAaaa"];
const WRITES = ["mkdir", "rmdir", "unlink", "rename", "link", "symlink", "chmod", "chown", "utime", "ftruncate", "truncate", "write", "copyfile", "rm", "mkdtemp"];
const READS = ["scandir", "readlink", "read", "opendir"];

/**
 * Which of the guarantees asked for lies behind this error, if one does: a friendly word, from
 * what Node says it tried. No claim rests on it.
 */
function blocked(error, asked) {
  if (!asked?.length) return undefined;
  const waiting = [error];
  for (let seen = 0; waiting.length > 0 && seen < CAUSES_MAX; seen++) {
    const one = waiting.pop();
    if (one === null || typeof one !== "object") continue;
    const kind = refused(one, asked);
    if (kind && asked.includes(kind)) return kind;
    waiting.push(one.cause, ...(Array.isArray(one.errors) ? one.errors : []));
  }
  return undefined;
}

function refused({ code, syscall }, asked) {
  if (typeof syscall !== "string") return undefined;
  if (NETWORK.includes(syscall) && ["EPERM", "EACCES", "ENOSYS", "EAI_AGAIN", "ENOTFOUND"].includes(code)) return "no_network";
  if (code === "EROFS") return "no_filesystem_write";
  if (!["EPERM", "EACCES", "ENOSYS"].includes(code)) return undefined;
  if (syscall.startsWith("spawn") || syscall === "fork") return "no_subprocess";
  if (WRITES.includes(syscall)) return "no_filesystem_write";
  if (READS.includes(syscall)) return "no_filesystem_read";
  // Node does not say what a file was opened for.
  if (syscall === "open") return asked.includes("no_filesystem_read") ? "no_filesystem_read" : "no_filesystem_write";
  return undefined;
}

await main();
