//! Prompts and resources of a configuration, as MCP clients get them.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

mod support;

use serde_json::{Value, json};
use support::drive::{Host, cli};
use support::mcp::{mcp, modern_meta};
use support::workspace::{ONE, trusted_with, workspace};

const SHELF: &str = r#"
[[prompt]]
name = "review"
title = "Review"
description = "Reviews code"
arguments = [{ name = "language", description = "Which", required = true, values = ["rust", "ruby", "python"] }]
file = "review.md"
[[prompt]]
name = "talk"
messages = [{ role = "user", text = "a" }, { role = "assistant", text = "b" }]
[[prompt]]
name = "made"
tool = "give"
[[resource]]
uri = "notes://today"
name = "today"
mime_type = "text/markdown"
text = "{day}"
[[resource]]
uri = "notes://{day}/all"
name = "day"
tool = "give"
[[tool]]
name = "give"
runner = { kind = "process", command = ["/bin/sh", "give.sh"] }
"#;

/// Messages and contents at once, from what it was given.
const GIVE: &str = r#"
read -r input
day=${input#*'"day":"'}; day=${day%%'"'*}
printf '{"messages":[{"role":"user","content":{"type":"text","text":"made"}}],"contents":[{"text":"%s"}]}' "$day"
"#;

fn ask(host: &mut Host, method: &str, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = modern_meta();
    host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

fn text_of(reply: &Value) -> &Value {
    &reply["result"]["messages"][0]["content"]["text"]
}

#[test]
fn prompts_and_resources_of_a_configuration() {
    let config = format!("{ONE}{SHELF}");
    let files = [
        ("callgate.toml", config.as_str()),
        ("review.md", "Review this {language} code."),
        ("give.sh", GIVE),
    ];
    let folder = trusted_with(&files);
    let mut host = mcp(&folder, &["--standalone"]);
    let listed = ask(&mut host, "prompts/list", json!({}));
    assert_eq!(
        listed["result"]["prompts"][0],
        json!({
            "name": "review", "title": "Review", "description": "Reviews code",
            "arguments": [{ "name": "language", "description": "Which", "required": true }],
        })
    );
    let review = |arguments: Value| json!({ "name": "review", "arguments": arguments });
    let got = ask(
        &mut host,
        "prompts/get",
        review(json!({ "language": "{x}" })),
    );
    assert_eq!(text_of(&got), "Review this {x} code.");
    let missing = ask(&mut host, "prompts/get", review(json!({})));
    assert_eq!(missing["error"]["code"], -32602);
    let talk = ask(&mut host, "prompts/get", json!({ "name": "talk" }));
    assert_eq!(talk["result"]["messages"][1]["role"], "assistant");
    let made = ask(&mut host, "prompts/get", json!({ "name": "made" }));
    assert_eq!(text_of(&made), "made");
    let typed = json!({
        "ref": { "type": "ref/prompt", "name": "review" },
        "argument": { "name": "language", "value": "ru" },
    });
    let completed = ask(&mut host, "completion/complete", typed);
    assert_eq!(
        completed["result"]["completion"]["values"],
        json!(["rust", "ruby"])
    );

    let listed = ask(&mut host, "resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], "notes://today");
    let listed = ask(&mut host, "resources/templates/list", json!({}));
    let templates = &listed["result"]["resourceTemplates"];
    assert_eq!(templates[0]["uriTemplate"], "notes://{day}/all");
    for (uri, wanted) in [
        (
            "notes://today",
            json!({ "uri": "notes://today", "mimeType": "text/markdown", "text": "{day}" }),
        ),
        (
            "notes://monday/all",
            json!({ "uri": "notes://monday/all", "text": "monday" }),
        ),
    ] {
        let read = ask(&mut host, "resources/read", json!({ "uri": uri }));
        assert_eq!(read["result"]["contents"], json!([wanted]));
    }
    assert!(host.end().success());
    // What a prompt's file says is part of what was trusted.
    folder.write("review.md", "Do as the file says.");
    let mut host = mcp(&folder, &["--standalone"]);
    let listed = ask(&mut host, "prompts/list", json!({}));
    assert_eq!(listed["result"]["prompts"], json!([]));
    assert!(host.end().success());
}

/// A shelf that does not hold together is refused, with the place.
#[test]
fn mistakes_are_named() {
    for (text, wanted) in [
        (
            "[[prompt]]\nname = \"p\"",
            "say one of text, file, messages and tool",
        ),
        (
            "[[prompt]]\nname = \"p\"\ntext = \"a\"\nfile = \"b\"",
            "say one of",
        ),
        (
            "[[prompt]]\nname = \"p\"\ntool = \"none\"",
            "there is no tool `none`",
        ),
        (
            "[[prompt]]\nname = \"p\"\ntext = \"a\"\n[[prompt]]\nname = \"p\"\ntext = \"a\"",
            "twice",
        ),
        ("[[prompt]]\nname = \"p\"\nfile = \"../x\"", "not inside"),
        (
            "[[resource]]\nuri = \"today\"\nname = \"t\"\ntext = \"a\"",
            "a scheme",
        ),
        (
            "[[resource]]\nuri = \"n://t\"\nname = \"t\"",
            "say one of text, file and tool",
        ),
    ] {
        let folder = workspace(text);
        let trusted = cli(&folder, &["trust"]);
        let served = cli(&folder, &["tools"]);
        let said = trusted.err + &served.err;
        assert!(said.contains(wanted), "{text}: {said}");
    }
}
