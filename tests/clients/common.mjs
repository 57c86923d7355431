// What the JavaScript drivers share: the operations, on a client that each of them adapts.
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";

export const UNICODE = 'Zoë \u{1d11e} \u2028\u2029 日本 "\\\n\t 👩\u200d🚀 \u007f';
export const LARGE = Array.from({ length: 125_000 }, (_, n) => String(n).padStart(7, "0") + " ").join("");
const WAIT_MS = 60_000;

export const settings = JSON.parse(process.argv[2]);

/** A package of the folder that the tests were given; this file stands elsewhere. */
export function load(name) {
  const require = createRequire(process.env.CALLGATE_TEST_MODULES + "/");
  return import(pathToFileURL(require.resolve(name)));
}

/** `{text, error}`, or `{code}` for an error of the protocol. */
export async function told(call) {
  try {
    const result = await call;
    return { text: result.content[0].text, error: result.isError === true };
  } catch (error) {
    if (typeof error.code !== "number") throw error;
    return { code: error.code };
  }
}

export async function observe(client, version) {
  const call = (name, args, options) => told(client.callTool(name, args, options));
  const seen = { version, list: await client.names() };
  seen.call = await call("text_greet", { name: "Ada" });
  seen.tool_error = await call("text_fail", {});
  seen.unknown_tool = await call("text_nothing", {});
  const unicode = await call("text_greet", { name: UNICODE });
  seen.unicode = JSON.parse(unicode.text).message === `Hello ${UNICODE}`;
  const large = await call("text_large", {});
  seen.large = large.text === LARGE ? large.text.length : large.text.slice(0, 200);
  seen.progress = [];
  const onprogress = ({ progress, total, message }) => {
    seen.progress.push([progress, total, message]);
    // The tool waits for it: what is seen here is seen while it runs.
    writeFileSync(`${settings.mark}-${seen.progress.length}`, "");
  };
  await call("text_steps", { mark: settings.mark }, { onprogress });
  seen.cancel = await cancel(client, call);
  return seen;
}

/** Cancels a call whose tool has begun, waits for the tool's end, and calls again. */
async function cancel(client, call) {
  const abort = new AbortController();
  const pending = client.callTool("shell_hang", { mark: settings.mark }, { signal: abort.signal }).then(
    () => "answered",
    () => "cancelled",
  );
  await until(() => existsSync(settings.mark));
  if (!runs(settings.mark)) throw new Error("the tool is not to be seen");
  abort.abort("the test changed its mind");
  const ended = await pending;
  await until(() => !runs(settings.mark));
  return { ended, tool: "gone", after: await call("text_greet", { name: "Ada" }) };
}

/** Whether a process has `mark` among its arguments. A tool's own pid may be another's outside. */
export function runs(mark) {
  return readdirSync("/proc").some((pid) => {
    if (!/^[0-9]+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes(mark);
    } catch {
      return false; // it ended while we looked
    }
  });
}

export async function until(holds) {
  for (let waited = 0; waited < WAIT_MS; waited += 10) {
    if (holds()) return;
    await pause(10);
  }
  throw new Error("waited in vain");
}

export function print(seen) {
  console.log(JSON.stringify(seen));
}
