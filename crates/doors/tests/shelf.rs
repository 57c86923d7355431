//! Prompts and resources of a configuration, as MCP clients get them.

use callgate_testing::mcp::{initialize, modern_meta};
use callgate_testing::scripts::{ONE, workspace};
use serde_json::{Value, json};

use crate::support::host::Host;
use callgate_testing_workspace::{Opened, trusted_with};

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
code = ["give.sh"]
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
    let mut host = Host::mcp(&folder, &[]);
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
    host.end();
    // The text of a prompt's file is covered by trust: the trusted copy stays in force.
    folder.write("review.md", "Do as the file says.");
    let mut host = Host::mcp(&folder, &[]);
    let got = ask(
        &mut host,
        "prompts/get",
        review(json!({ "language": "{x}" })),
    );
    assert_eq!(text_of(&got), "Review this {x} code.");
    host.end();
}

/// Pictures are shown as they are written, in both eras, and not where there are none.
#[test]
fn icons_are_shown() {
    let icons = json!([
        { "src": "data:image/png;base64,AA==", "mimeType": "image/png", "sizes": ["48x48"] },
        { "src": "https://example.com/dark.svg", "theme": "dark" },
    ]);
    let written = r#"icons = [
  { src = "data:image/png;base64,AA==", mimeType = "image/png", sizes = ["48x48"] },
  { src = "https://example.com/dark.svg", theme = "dark" },
]"#;
    let mut config = format!("{ONE}{SHELF}");
    for name in ["one", "review", "today", "day"] {
        let line = format!("name = \"{name}\"\n");
        assert_eq!(config.matches(&line).count(), 1);
        config = config.replace(&line, &format!("{line}{written}\n"));
    }
    let folder = trusted_with(&[
        ("callgate.toml", config.as_str()),
        ("review.md", "Review this {language} code."),
        ("give.sh", GIVE),
    ]);
    let mut host = Host::mcp(&folder, &[]);
    for modern in [true, false] {
        let mut list = |method: &str| match modern {
            true => ask(&mut host, method, json!({})),
            false => host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": method })),
        };
        for (method, kind, shown, bare) in [
            ("tools/list", "tools", "one", "give"),
            ("prompts/list", "prompts", "review", "talk"),
            ("resources/list", "resources", "today", ""),
            ("resources/templates/list", "resourceTemplates", "day", ""),
        ] {
            let listed = list(method);
            let all = listed["result"][kind].as_array().expect("a list");
            let of = |name: &str| all.iter().find(|item| item["name"] == *name);
            assert_eq!(of(shown).expect("listed")["icons"], icons, "{method}");
            assert_eq!(
                of(bare).and_then(|item| item.get("icons")),
                None,
                "{method}"
            );
        }
    }
    host.end();
}

/// G-6b: the tool behind a resource or a prompt may need approval as well. A client's user is
/// asked in the way of its era; where nobody can be asked the request is refused, since the
/// result of a tool is none of a resource or a prompt.
#[test]
fn what_a_tool_gives_is_approved_first() {
    let asked = "[[policy]]\ntools = [\"give\"]\ndecision = \"ask\"\n";
    let config = format!("{ONE}{SHELF}{asked}");
    let files = [
        ("callgate.toml", config.as_str()),
        ("review.md", "Review this {language} code."),
        ("give.sh", GIVE),
    ];
    let folder = trusted_with(&files);
    let accept = json!({ "action": "accept", "content": { "approve": true } });
    let wanted = |method: &str, uri: &str| match method {
        "prompts/get" => (json!({ "name": "made" }), "messages"),
        _ => (json!({ "uri": uri }), "contents"),
    };
    let mut host = Host::mcp(&folder, &[]);
    for method in ["resources/read", "prompts/get"] {
        let (params, name) = wanted(method, "notes://monday/all");
        let round = ask(&mut host, method, params.clone());
        assert_eq!(round["result"]["resultType"], "input_required", "{round}");
        let mut again = params;
        again["requestState"] = round["result"]["requestState"].clone();
        again["inputResponses"] = json!({ "callgate_approval": accept });
        let given = ask(&mut host, method, again);
        assert!(given["result"][name].is_array(), "{given}");
        // One that did not say that it can be asked.
        let (mut params, _) = wanted(method, "notes://tuesday/all");
        params["_meta"] = modern_meta();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let request = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params });
        let refused = host.ask(&request);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    host.end();
    for can_be_asked in [true, false] {
        let mut host = Host::mcp(&folder, &[]);
        let mut hello = initialize(1);
        if !can_be_asked {
            hello["params"]["capabilities"] = json!({});
        }
        host.ask(&hello);
        for method in ["resources/read", "prompts/get"] {
            let (params, name) = wanted(method, "notes://friday/all");
            host.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params }));
            let mut reply = host.reply();
            if !can_be_asked {
                assert_eq!(reply["error"]["code"], -32602, "{reply}");
                continue;
            }
            assert_eq!(reply["method"], "elicitation/create", "{reply}");
            host.send(&json!({ "jsonrpc": "2.0", "id": reply["id"], "result": accept }));
            reply = host.reply();
            assert!(reply["result"][name].is_array(), "{reply}");
        }
        host.end();
    }
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
        let said = Opened::new(&folder).trust().expect_err("it was trusted");
        assert!(said.contains(wanted), "{text}: {said}");
    }
}

const GIVERS: &str = r#"
[[prompt]]
name = "made"
tool = "messages"
[[resource]]
uri = "made://{name}"
name = "made"
tool = "contents"
[[tool]]
name = "messages"
runner = { kind = "process", command = ["/bin/cat", "messages.json"] }
[[tool]]
name = "contents"
runner = { kind = "process", command = ["/bin/cat", "contents.json"] }
[[tool]]
name = "content"
gives_content = true
runner = { kind = "process", command = ["/bin/cat", "content.json"] }
"#;

/// B-4: what a tool gives as content, as messages or as contents, a client must be able to read.
/// It is neither passed on nor left out silently.
#[test]
fn malformed_content_of_tools_is_an_error() {
    let files = [
        ("callgate.toml", GIVERS),
        ("messages.json", "{}"),
        ("contents.json", "{}"),
        ("content.json", "{}"),
    ];
    let folder = trusted_with(&files);
    let mut host = Host::mcp(&folder, &[]);
    let mut ask_each = |file: &str, given: &Value| {
        folder.write(file, &given.to_string());
        match file {
            "messages.json" => ask(&mut host, "prompts/get", json!({ "name": "made" })),
            "contents.json" => ask(&mut host, "resources/read", json!({ "uri": "made://a" })),
            _ => ask(&mut host, "tools/call", json!({ "name": "content" })),
        }
    };
    let block = json!({ "type": "text", "text": "a" });
    for (file, given) in [
        (
            "messages.json",
            json!({ "messages": [{ "role": "user", "content": block }] }),
        ),
        (
            "contents.json",
            json!({ "contents": [{ "text": "a" }, "a"] }),
        ),
        ("contents.json", json!({ "day": 1 })),
        ("content.json", json!({ "content": [block] })),
    ] {
        let reply = ask_each(file, &given);
        assert!(reply.get("error").is_none(), "{given}: {reply}");
        assert_ne!(reply["result"]["isError"], true, "{given}: {reply}");
    }
    for (file, given, place) in [
        ("messages.json", json!({ "messages": ["a"] }), "0: "),
        (
            "messages.json",
            json!({ "messages": [{ "role": "user" }] }),
            "0/content: ",
        ),
        ("messages.json", json!({ "text": "a" }), ""),
        (
            "contents.json",
            json!({ "contents": [{ "uri": "made://a" }] }),
            "0/text: ",
        ),
        (
            "contents.json",
            json!({ "contents": [{ "text": 1 }] }),
            "0/text: ",
        ),
    ] {
        let reply = ask_each(file, &given);
        let words = reply["error"]["message"].as_str().unwrap_or_default();
        let wanted = format!("bad output: {place}");
        assert!(words.starts_with(&wanted), "{given}: {reply}");
    }
    for (given, place) in [
        (json!({}), "content: "),
        (json!({ "content": "a" }), "content: "),
        (json!({ "content": ["a"] }), "content/0: "),
        (json!({ "content": [{ "text": "a" }] }), "content/0/type: "),
        (
            json!({ "content": [{ "type": "text", "text": 1 }] }),
            "content/0/text: ",
        ),
    ] {
        let reply = ask_each("content.json", &given);
        assert_eq!(reply["result"]["isError"], true, "{given}: {reply}");
        let words = reply["result"]["content"][0]["text"].as_str();
        let wanted = format!("bad output: {place}");
        assert!(
            words.is_some_and(|w| w.starts_with(&wanted)),
            "{given}: {reply}"
        );
    }
    host.end();
}
