// The run request: what a run is told before it begins. One JSON object on a line of its own;
// what does not fit the contract ends the executor before any script is loaded.

/** As large as a frame may be. */
export const REQUEST_BYTES_MAX = 16 * 1024 * 1024;
const ATTEMPT_MAX = 2 ** 32 - 1;
const PROTOCOLS = ["http", "https", "socks5"];

/** A run request that is none. */
export class BadRequest extends Error {
  override name = "BadRequest";
}

/** The proxy that a run is to go through. */
export interface ProxyEndpoint {
  readonly protocol: "http" | "https" | "socks5";
  readonly host: string;
  readonly port: number;
  readonly username?: string;
  readonly password?: string;
}

/** Where the runtime keeps what the run emits. */
export interface StoragePlace {
  readonly dataset: string;
  readonly source: string;
  readonly category: string;
  readonly day: string;
  readonly run_id: string;
}

export interface RunRequest {
  readonly run_id: string;
  readonly attempt: number;
  readonly job: unknown;
  readonly job_id?: string;
  readonly parent_run_id?: string;
  readonly proxy?: ProxyEndpoint;
  readonly browser_ws_endpoint?: string;
  readonly storage?: StoragePlace;
}

type Fields = Record<string, unknown>;

export function parse(line: Uint8Array): RunRequest {
  const fields = object("the run request", json(line));
  const attempt = fields["attempt"];
  if (!Number.isInteger(attempt) || (attempt as number) < 1 || (attempt as number) > ATTEMPT_MAX) {
    throw new BadRequest("`attempt` is not an integer of 1 or more");
  }
  const parent = text(fields, "parent_run_id");
  if ((attempt as number) > 1 !== (parent !== undefined)) {
    throw new BadRequest("`parent_run_id` belongs to attempts after the first, and to all of them");
  }
  if (!("job" in fields)) throw new BadRequest("`job` is missing");
  return given({
    run_id: needed(fields, "run_id"),
    attempt: attempt as number,
    job: fields["job"],
    job_id: text(fields, "job_id"),
    parent_run_id: parent,
    proxy: proxy(fields["proxy"]),
    browser_ws_endpoint: text(fields, "browser_ws_endpoint") || undefined,
    storage: storage(fields["storage"]),
  }) as unknown as RunRequest;
}

/** What a result may tell of a proxy. */
export function redacted({ password: _, ...endpoint }: ProxyEndpoint): Fields {
  return endpoint;
}

/** Options that were left out have no key. */
export function given(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function json(line: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line));
  } catch (error) {
    throw new BadRequest(`the run request is not JSON: ${(error as Error).message}`);
  }
}

function object(what: string, value: unknown): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new BadRequest(`${what} is not an object`);
  return value as Fields;
}

function text(fields: Fields, name: string): string | undefined {
  const value = fields[name] ?? undefined;
  if (value !== undefined && (typeof value !== "string" || !value.isWellFormed())) throw new BadRequest(`\`${name}\` is not a string`);
  return value as string | undefined;
}

function needed(fields: Fields, name: string): string {
  const value = text(fields, name);
  if (!value) throw new BadRequest(`\`${name}\` is missing or empty`);
  return value;
}

function proxy(value: unknown): ProxyEndpoint | undefined {
  if (value === undefined || value === null) return undefined;
  const fields = object("`proxy`", value);
  const protocol = needed(fields, "protocol");
  const port = fields["port"];
  if (!PROTOCOLS.includes(protocol)) throw new BadRequest(`\`protocol\` of the proxy is none of ${PROTOCOLS.join(", ")}`);
  if (!Number.isInteger(port) || (port as number) < 1 || (port as number) > 65_535) {
    throw new BadRequest("`port` of the proxy is not 1 to 65535");
  }
  const host = needed(fields, "host");
  const [username, password] = [text(fields, "username"), text(fields, "password")];
  if ((username === undefined) !== (password === undefined)) {
    throw new BadRequest("`username` and `password` of the proxy come together");
  }
  return given({ protocol, host, port, username, password }) as unknown as ProxyEndpoint;
}

function storage(value: unknown): StoragePlace | undefined {
  if (value === undefined || value === null) return undefined;
  const fields = object("`storage`", value);
  const names = ["dataset", "source", "category", "day", "run_id"];
  return Object.fromEntries(names.map((name) => [name, needed(fields, name)])) as unknown as StoragePlace;
}
