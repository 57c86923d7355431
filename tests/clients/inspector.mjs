// The Inspector's command line: one process for each operation.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { LARGE, UNICODE, print, runs, settings, until } from "./common.mjs";

const INSPECTOR = "/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
const target = settings.url ? [settings.url] : settings.command;

function start(...args) {
  const words = [process.env.CALLGATE_TEST_MODULES + INSPECTOR, "--cli", ...target];
  words.push("--protocol-era", settings.era, "--format", "json", "-q", ...args);
  return spawn(process.execPath, words, { stdio: ["ignore", "pipe", "pipe"] });
}

async function run(...args) {
  const child = start(...args);
  const said = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => (said.out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (said.err += text));
  await new Promise((done) => child.on("close", done));
  return said;
}

async function call(name, args) {
  const said = await run("--method", "tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(args));
  if (said.out.trim() === "") return { code: JSON.parse(said.err).error.code };
  const { result } = JSON.parse(said.out);
  return { text: result.content[0].text, error: result.isError, version: result.resultType ? "modern" : "legacy" };
}

/** It has no way to take a call back but to leave. */
async function leave() {
  const args = ["--tool-name", "shell_hang", "--tool-args-json", JSON.stringify({ mark: settings.mark })];
  const child = start("--method", "tools/call", ...args);
  const ended = new Promise((done) => child.on("exit", done));
  await until(() => existsSync(settings.mark));
  if (!runs(settings.mark)) throw new Error("the tool is not to be seen");
  child.kill("SIGKILL");
  await ended;
  await until(() => !runs(settings.mark));
  return { ended: "left", tool: "gone" };
}

const list = JSON.parse((await run("--method", "tools/list")).out);
const greeted = await call("text_greet", { name: "Ada" });
const seen = { version: greeted.version, list: list.result.tools.map((tool) => tool.name) };
delete greeted.version;
seen.call = greeted;
const { text, error, code } = await call("text_fail", {});
seen.tool_error = { text, error, code };
seen.unknown_tool = await call("text_nothing", {});
seen.unicode = JSON.parse((await call("text_greet", { name: UNICODE })).text).message === `Hello ${UNICODE}`;
const large = await call("text_large", {});
seen.large = large.text === LARGE ? large.text.length : large.text.slice(0, 200);
const steps = await run("--method", "tools/call", "--tool-name", "text_steps");
seen.progress = steps.err === "" && JSON.parse(steps.out).result.content[0].text === "done" ? "not shown" : steps;
seen.cancel = await leave();
print(seen);
