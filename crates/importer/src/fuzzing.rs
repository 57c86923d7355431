//! Properties of reading and editing, for the fuzz targets and for a test with mutated fixtures.
//! Each function panics if its property is broken.

use std::path::PathBuf;

use crate::clients::{CLIENTS, Client, Place};
use crate::edit::{Edit, EditError, OwnEntry, Selection, plan_beside, plan_replace};
use crate::file::FileImage;
use crate::find::{ClientFile, FileScope};
use crate::model::Transport;
use crate::read::{Settings, interpret};
use crate::syntax::Syntax;

/// The first byte chooses a client's file, the others are its content: an edit of it is refused,
/// or leaves the servers that stay and one entry of ours in each table that lost some. Text that
/// is plain JSON is plain JSON afterwards.
pub fn replaced_servers(input: &[u8]) {
    let Some((first, content)) = input.split_first() else {
        return;
    };
    let places: Vec<(&Client, &Place)> = CLIENTS
        .iter()
        .flat_map(|client| client.places.iter().map(move |place| (client, place)))
        .collect();
    let (client, place) = places[usize::from(*first) % places.len()];
    check(client, place, content);
}

/// Reads and edits a content. Returns whether it was edited, and how edits were refused.
fn check(client: &'static Client, place: &'static Place, content: &[u8]) -> Option<EditError> {
    let file = ClientFile {
        client: client.id,
        client_name: client.name,
        path: PathBuf::from("/settings"),
        scope: FileScope::User,
        place,
        // The folder that every path is in.
        roots: vec![PathBuf::from("/")],
        companions: Vec::new(),
    };
    let read = |bytes: &[u8]| {
        let image = FileImage {
            bytes: bytes.to_owned(),
            mode: 0o600,
            uid: 0,
            gid: 0,
            links: 1,
        };
        interpret(&file, PathBuf::from("/settings"), image)
    };
    let settings = match read(content) {
        Ok(settings) => settings,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let entry = OwnEntry {
        name: "callgate".to_owned(),
        command: "/opt/callgate".to_owned(),
        args: vec!["mcp".to_owned()],
    };
    let mut refused = None;
    for (is_replaced, edit) in [
        (
            true,
            plan_replace(&file, &settings, &Selection::All, &entry),
        ),
        (false, plan_beside(&file, &settings, &entry)),
    ] {
        match edit {
            Ok(edit) => {
                let after = read(&edit.after).expect("an edited file is read");
                check_servers(&settings, &edit, &after, is_replaced);
                check_form(place, &edit);
            }
            Err(error) => refused = Some(error),
        }
    }
    refused
}

fn check_servers(before: &Settings, edit: &Edit, after: &Settings, is_replaced: bool) {
    let ours = after.servers.iter().filter(|server| server.is_ours).count();
    assert!(ours >= 1, "no entry of ours");
    let is_left = |transport: &Transport| {
        !is_replaced
            || matches!(
                transport,
                Transport::Native { .. } | Transport::Other { .. }
            )
    };
    let left = before.servers.iter().filter(|server| !server.is_ours);
    let left = left.filter(|server| is_left(&server.transport)).count();
    let others = after
        .servers
        .iter()
        .filter(|server| !server.is_ours)
        .count();
    assert_eq!(others, left, "servers that stay");
    assert!(!edit.diff().is_empty() || edit.is_empty());
}

fn check_form(place: &Place, edit: &Edit) {
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes);
    if place.syntax == Syntax::Json && json(&edit.before).is_ok() {
        json(&edit.after).expect("plain JSON stays plain");
    }
    let text = String::from_utf8_lossy(&edit.before);
    if text.contains('\n') && !text.replace("\r\n", "").contains('\n') {
        let after = String::from_utf8_lossy(&edit.after).replace("\r\n", "");
        assert!(!after.contains('\n'), "line ends are kept");
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use callgate_testing::{Random, mutant};

    use super::*;
    use crate::syntax::TextEditError;

    const MUTANTS: usize = 400;
    const WORDS: [&[u8]; 20] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"\"",
        b"\n",
        b"\r\n",
        b"//x\n",
        b"/*x*/",
        b"#x\n",
        b"null",
        b"- ",
        b": ",
        b"  ",
        b"\"mcpServers\": {",
        b"\t",
        b"[mcp_servers.x]\n",
        b"&a ",
        b"*a",
    ];

    fn files(folder: &Path, to: &mut Vec<PathBuf>) {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            match entry.path().is_dir() {
                true => files(&entry.path(), to),
                false => to.push(entry.path()),
            }
        }
    }

    /// A place's own fixtures, mutated. An edit that is refused as unverified is a defect of the
    /// edit unless the text is a rare one: their share is bounded.
    #[test]
    fn edits_of_mutated_files_are_verified_or_refused() {
        let mut random = Random::new("settings files");
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/home");
        let mut paths = Vec::new();
        files(&home, &mut paths);
        let (mut count, mut unverified) = (0, 0);
        for client in CLIENTS {
            for place in client.places {
                let Some(path) = paths.iter().find(|path| path.ends_with(place.path)) else {
                    continue;
                };
                // bound: a fixture of the test
                let seed = std::fs::read(path).unwrap();
                let with_crlf = String::from_utf8_lossy(&seed).replace('\n', "\r\n");
                let seeds = [seed.as_slice(), with_crlf.as_bytes()];
                for _ in 0..MUTANTS {
                    let content = mutant(&mut random, &seeds, &WORDS);
                    let refused = check(client, place, &content);
                    count += 1;
                    if let Some(EditError::Text { source, .. }) = refused
                        && source == TextEditError::Unverified
                    {
                        unverified += 1;
                    }
                }
            }
        }
        println!("{unverified} of {count} edits unverified");
        assert!(
            count > 8_000 && unverified * 100 < count,
            "{unverified} of {count}"
        );
    }
}
