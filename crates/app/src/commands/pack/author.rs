//! For those who make packs.

use std::collections::BTreeMap;
use std::path::Path;

use callgate_call::Clock as _;
use callgate_registry::pack::{SEAL_FILE, Seal};
use callgate_store::{NewFolder, write_file};
use callgate_wires::tool_protocol::{
    Binding, Capabilities, Kind, PackManifest, RunnerWord, is_pack_id, slug, write_bindings,
    write_capabilities, write_pack,
};
use serde_json::json;

use super::{At, DONE, about, key_name, needs, read};
use crate::cli::Done;
use crate::clock::SystemClock;
use crate::show;

const TOOL: &str = r#"def run(payload):
    return {"message": "Hello " + payload.get("name", "you")}
"#;

pub fn init(at: &At<'_>, folder: &Path, id: Option<&str>, tool: &str) -> Done {
    let whole = at.path(folder);
    let name = whole.file_name().and_then(|name| name.to_str());
    let (Some(parent), Some(name)) = (whole.parent(), name) else {
        return Err(format!("{}: name a new folder", folder.display()).into());
    };
    let id = id.unwrap_or(name);
    if !is_pack_id(id) {
        let words = format!("`{id}` is no pack's id: say one with --id, such as acme.greeter");
        return Err(words.into());
    }
    if whole.exists() {
        return Err(format!("{}: is there already", folder.display()).into());
    }
    let module = slug(tool);
    let manifest = PackManifest {
        id: id.to_owned(),
        name: id.to_owned(),
        version: "0.1.0".to_owned(),
        description: "What its tools do".to_owned(),
        author: "Who made it".to_owned(),
        license: "MIT".to_owned(),
        tools: vec![tool.to_owned()],
        ..PackManifest::default()
    };
    let binding = Binding {
        kind: Kind::Python,
        entry: format!("tools.{module}:run"),
        runner: Some(RunnerWord::Local),
        url: None,
        image: None,
        command: None,
        env: None,
        purity: None,
        timeout_ms: None,
        sandbox: None,
        enforcement: None,
    };
    let bindings = BTreeMap::from([(tool.to_owned(), binding)]);
    let needed = BTreeMap::from([(tool.to_owned(), Capabilities::default())]);
    let code = format!("tools/{module}.py");
    let files = [
        ("pack.yaml", write_pack(&manifest)),
        ("tools.yaml", write_bindings(&bindings)),
        ("capabilities.yaml", write_capabilities(&needed)),
        (code.as_str(), TOOL.to_owned()),
    ];
    let made = NewFolder::fill(parent, name, &files).and_then(|new| new.put(false));
    made?;
    read(&whole)?;
    at.show(
        &json!({ "folder": whole, "id": id, "tool": tool }),
        &format!(
            "made {}: look at its files, then `callgate pack check {0}`",
            folder.display()
        ),
    );
    DONE
}

pub fn check(at: &At<'_>, folder: &Path) -> Done {
    let pack = read(&at.path(folder))?;
    if at.place.json {
        show::json(&about(&pack));
        return DONE;
    }
    let rows: Vec<Vec<String>> = pack
        .bindings
        .iter()
        .map(|(name, binding)| {
            let runner = binding.runner.unwrap_or(RunnerWord::Local).as_str();
            let needed = needs(&pack.capabilities(name));
            vec![
                name.clone(),
                runner.to_owned(),
                binding.entry.clone(),
                needed,
            ]
        })
        .collect();
    show::table(&["TOOL", "RUNNER", "ENTRY", "NEEDS"], &rows);
    show::say(&format!(
        "{} {}: {} files, {} bytes, risk {}, digest {}",
        pack.manifest.id,
        pack.manifest.version,
        pack.files.content().count(),
        pack.files.bytes(),
        pack.risk().as_str(),
        pack.files.digest(),
    ));
    DONE
}

pub fn keygen(at: &At<'_>, name: &str) -> Done {
    let made = at.owner.make_key(key_name(name)?);
    let (path, signer) = made?;
    let public = signer.public().to_string();
    if at.place.json {
        show::json(&json!({ "name": name, "key": public, "file": path }));
    } else {
        show::data(&format!("{public}\n"));
        show::say(&format!(
            "the secret half is in {}: keep it to yourself; others say \
             `callgate pack trust {name} {public}`",
            path.display()
        ));
    }
    DONE
}

pub fn sign(at: &At<'_>, folder: &Path, key: &str) -> Done {
    let whole = at.path(folder);
    let pack = read(&whole)?;
    let signer = at.owner.signer(key_name(key)?);
    let signer = signer?;
    let now = SystemClock::new(at.environment).now();
    let seal = Seal::sign(&pack, &signer, now.rfc3339());
    let written = write_file(&whole.join(SEAL_FILE), &seal.to_text(), 0o644);
    written?;
    at.show(
        &json!({
            "id": seal.pack,
            "version": seal.version,
            "digest": seal.digest.to_hex(),
            "key": seal.key.to_string(),
            "signed_at": seal.signed_at,
        }),
        &format!(
            "signed {} {} with {key}: {} files, in {SEAL_FILE}",
            seal.pack,
            seal.version,
            seal.files.len()
        ),
    );
    DONE
}
