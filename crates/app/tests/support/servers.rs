//! Workspaces with a small MCP server of somebody else: Python, the standard library only.

use serde_json::{Value, json};

use super::Folder;
use super::drive::{cli, python};
use super::workspace::folder_of;

/// Speaks MCP on standard input and output. Its tools are in `tools.json`, its prompts in
/// `prompts.json`, its resources and templates in `resources.json`, its instructions in
/// `instructions.txt`. A call of `note` leaves a line in `effects.log`; `die` ends it in the middle
/// of the call.
pub const SERVER: &str = r#"
import json, os, sys
process = os.urandom(8).hex()
here = os.path.dirname(os.path.abspath(__file__))
def file(name):
    try:
        with open(os.path.join(here, name)) as f:
            return f.read()
    except FileNotFoundError:
        return None
def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        capabilities = {"tools": {}}
        if file("prompts.json"):
            capabilities["prompts"] = {}
        if file("resources.json"):
            capabilities["resources"] = {}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                  "serverInfo": {"name": "small", "version": "1.0"}}
        if file("instructions.txt"):
            result["instructions"] = file("instructions.txt")
        answer(id, result)
    elif method == "tools/list":
        answer(id, {"tools": json.loads(file("tools.json"))})
    elif method == "prompts/list":
        answer(id, {"prompts": json.loads(file("prompts.json"))})
    elif method == "resources/list":
        answer(id, {"resources": json.loads(file("resources.json"))[0]})
    elif method == "resources/templates/list":
        answer(id, {"resourceTemplates": json.loads(file("resources.json"))[1]})
    elif method == "resources/read" and params["uri"] != "memo://none":
        answer(id, {"contents": [{"uri": params["uri"], "text": "at " + params["uri"]}]})
    elif method == "prompts/get":
        text = "Greet " + params["arguments"]["who"] + " (" + params["name"] + ")"
        answer(id, {"description": "A greeting", "messages": [
            {"role": "user", "content": {"type": "text", "text": text}}]})
    elif method == "tools/call":
        name, given = params["name"], params.get("arguments") or {}
        if name in ("note", "die"):
            with open(os.path.join(here, "effects.log"), "a") as f:
                f.write(name + "\n")
        if name == "die":
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        text = given.get("text", "") if name != "pid" else process
        if name == "fail":
            answer(id, {"content": [{"type": "text", "text": "cannot"}], "isError": True})
        elif name == "env":
            answer(id, {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]})
        else:
            answer(id, {"content": [{"type": "text", "text": text}],
                        "structuredContent": {"said": text}, "_meta": {"vendor/x": 1}})
    elif id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}),
              flush=True)
"#;

/// A tool that takes a text.
pub fn tool(name: &str) -> Value {
    json!({
        "name": name,
        "title": format!("Title of {name}"),
        "description": format!("Does {name}."),
        "inputSchema": {
            "type": "object",
            "properties": { "text": { "type": "string" } },
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": true, "vendorHint": [1] },
        "_meta": { "vendor/y": { "z": 1 } },
    })
}

/// The tools of the server.
pub fn tools() -> Vec<Value> {
    ["say", "note", "die", "pid", "fail", "env"]
        .map(tool)
        .to_vec()
}

/// A prompt with one argument.
pub fn prompt(name: &str) -> Value {
    json!({
        "name": name,
        "title": format!("Title of {name}"),
        "description": "Greets somebody.",
        "arguments": [{ "name": "who", "description": "Somebody.", "required": true }],
        "_meta": { "vendor/p": 1 },
    })
}

/// The table of a server `small`, with `more` of its fields.
pub fn table(more: &str) -> String {
    let python = python();
    format!(
        "[[server]]\nname = \"small\"\ncommand = [{python:?}, \"${{PLACE}}/server.py\"]\n\
         reads = [\".\"]\nwrites = [\"effects.log\"]\n{more}\n"
    )
}

/// A workspace with that server, not looked at yet.
pub fn untrusted(more: &str) -> Folder {
    let folder = folder_of(&[("server.py", SERVER), ("effects.log", "")]);
    write_tools(&folder, &tools());
    let place = folder.path().display().to_string();
    folder.write("callgate.toml", &table(more).replace("${PLACE}", &place));
    folder
}

/// The same, trusted and pinned.
pub fn pinned(more: &str) -> Folder {
    let folder = untrusted(more);
    cli(&folder, &["trust"]).good();
    cli(&folder, &["servers", "trust", "--yes"]).good();
    folder
}

/// Changes the prompts of the server from its next start on.
pub fn write_prompts(folder: &Folder, prompts: &[Value]) {
    folder.write("prompts.json", &Value::from(prompts.to_vec()).to_string());
}

/// Changes what the server lists from its next start on.
pub fn write_tools(folder: &Folder, tools: &[Value]) {
    folder.write("tools.json", &Value::from(tools.to_vec()).to_string());
}
