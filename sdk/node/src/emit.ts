// Write an executor of streamed runs: `callgate/emit`.
//
//   export default async (ctx) => {
//     ctx.item("product", { name: ctx.job.name, price: 7.5 });
//   };
//
//   callgate-executor script.mjs     runs such a script
//   main(function)                   is the executor itself
//
// An emit blocks while the runtime does not take what is said, drops nothing and buffers
// nothing. What is printed goes to standard error. A script that returns has completed, one
// that throws has failed.

export { StorageError, WAITING_MAX } from "./acks.ts";
export type { Artifact, Bytes, File, Pieces } from "./artifact.ts";
export { Context, LEVELS, Storage, STREAMS_MAX, type Level } from "./context.ts";
export { main, type Script } from "./executor.ts";
export type { ProxyEndpoint, StoragePlace } from "./request.ts";
export { CHUNK_BYTES_MAX, CONTRACT_VERSION, PAYLOAD_BYTES_MAX, SinkFailedError, TerminalEventError } from "./stream.ts";
