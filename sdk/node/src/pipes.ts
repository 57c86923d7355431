// The pipes to the runtime, moved out of reach of what a script prints or reads.
//
// Node can not duplicate a descriptor, but it can open what one leads to, and the lowest free
// number is taken first: standard output is closed and opened again as standard error, so that
// native code and children print there too. Where the system forbids that (a socket, a pipe of
// another user) the descriptors stay, and only what JavaScript prints is led away.

import { closeSync, constants, createReadStream, fstatSync, openSync } from "node:fs";
import { Socket } from "node:net";
import { Readable } from "node:stream";

const { O_APPEND, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
const NULL = "/dev/null";

export interface Pipes {
  /** Where the run request and the answers come from. */
  readonly incoming: Incoming;
  /** The descriptor of the frames. */
  readonly outgoing: number;
}

export type Incoming = Readable & { ref?(): void; unref?(): void };

export function takePipes(): Pipes {
  const incoming = moved(0, O_RDONLY | O_NONBLOCK);
  if (incoming !== undefined) reopen(0, NULL, O_RDONLY);
  const outgoing = moved(1, O_WRONLY | O_APPEND);
  if (outgoing !== undefined) leadAway();
  process.stdout.write = process.stderr.write.bind(process.stderr) as typeof process.stdout.write;
  Object.defineProperty(process, "stdin", { configurable: true, enumerable: true, value: Readable.from([]) });
  return { incoming: reader(incoming ?? 0), outgoing: outgoing ?? 1 };
}

function moved(fd: number, flags: number): number | undefined {
  try {
    return openSync(`/dev/fd/${fd}`, flags);
  } catch {
    return undefined;
  }
}

/** Standard output becomes standard error. */
function leadAway(): void {
  const errors = moved(2, O_WRONLY | O_APPEND);
  if (errors === undefined) return reopen(1, NULL, O_WRONLY);
  reopen(1, `/dev/fd/${errors}`, O_WRONLY | O_APPEND);
  // Two ways into one file write over each other unless both append.
  if (fstatSync(errors).isFile()) reopen(2, `/dev/fd/${errors}`, O_WRONLY | O_APPEND);
  closeSync(errors);
}

function reopen(fd: number, path: string, flags: number): void {
  closeSync(fd);
  const got = openSync(path, flags);
  if (got !== fd) throw new Error(`descriptor ${fd} became ${got}`);
}

function reader(fd: number): Incoming {
  const found = fstatSync(fd);
  if (found.isFIFO() || found.isSocket()) return new Socket({ fd, readable: true, writable: false });
  return createReadStream("", { fd });
}
