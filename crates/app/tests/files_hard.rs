//! The workspace's files under those who swap folders for links, kill writers and fill disks.
//!

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::drive::{Host, PATIENCE};
use crate::support::{Ends, Folder, callgate, wait_for};
use callgate_testing::Random;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

/// How long folders are swapped, unless there were so many swaps before.
const SWAPPING: Duration = Duration::from_secs(20);
const SWAPS_MAX: u64 = 1_000_000;
/// Methods that go by the folder, and by the file.
const WAYS: usize = 12;

fn rpc(folder: &Folder) -> Host {
    Host::spawn(callgate(folder).arg("rpc"))
}

fn ask(host: &mut Host, method: &str, params: Value) -> Value {
    host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

fn swap(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("swap them");
}

/// Does `work` while a folder, `real` of the workspace, and a link to the outside, `link` beside it,
/// change places; it is told how often they have, as is `also` each time.
fn while_swapping(
    folder: &Folder,
    outside: &Folder,
    also: impl Fn(u64) + Sync,
    work: impl FnOnce(&AtomicU64),
) {
    symlink(outside.path(), folder.join("link")).expect("make a link");
    let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap(&folder.join("real"), &folder.join("link"));
                also(swaps.fetch_add(1, Ordering::Relaxed) + 1);
            }
        });
        let _ends = Ends(&done);
        work(&swaps);
    });
}

/// no program begins outside because the folder it was to begin in was swapped for a
/// link after it was found.
#[test]
fn no_program_begins_where_a_swapped_link_leads() {
    const EACH: usize = 60;
    let (folder, outside) = (Folder::new(), Folder::new());
    std::fs::create_dir(folder.join("real")).unwrap();
    let (mut began, mut refused) = (0, 0);
    while_swapping(
        &folder,
        &outside,
        |_| (),
        |_| {
            let mut host = rpc(&folder);
            let params = json!({ "command": "pwd", "args": ["-P"], "cwd": "real" });
            let mut judge = |where_it_was: Result<&str, &Value>| match where_it_was {
                Ok(place) => {
                    let inside = Path::new(place.trim_end()).starts_with(folder.path());
                    assert!(inside && place.ends_with('\n'), "{place:?}");
                    began += 1;
                }
                Err(error) => {
                    assert_eq!(error["data"]["field"], "cwd", "{error}");
                    refused += 1;
                }
            };
            for _ in 0..EACH {
                let answer = ask(&mut host, "exec/run", params.clone());
                judge(answer["result"]["stdout"].as_str().ok_or(&answer["error"]));
            }
            let mut params = params;
            params["env"] = json!({ "TERM": "dumb" });
            params["attach"] = json!(false);
            for _ in 0..EACH {
                let made = ask(&mut host, "terminals/create", params.clone());
                let session = &made["result"]["session_id"];
                if session.is_null() {
                    judge(Err(&made["error"]));
                    continue;
                }
                let printed = wait_for("what it prints", || {
                    let on = json!({ "session_id": session });
                    let logs = ask(&mut host, "terminals/read_logs", on);
                    let line = logs["result"]["logs"][0]["data"].as_str();
                    line.map(str::to_owned)
                });
                judge(Ok(&printed));
            }
        },
    );
    assert!(began > 0 && refused > 0, "{began}, {refused}");
}

/// What every method is asked while its way is swapped.
fn calls(round: u64) -> Vec<(&'static str, Value)> {
    let (new, moved) = (
        format!("real/n{}", round % 8),
        format!("real/m{}", round % 8),
    );
    let deep = format!("real/deep{round}");
    let edits = json!([{ "old": "inside", "new": "inside" }]);
    let at = |path: &str| json!({ "path": path });
    let put = |path: &str| json!({ "path": path, "content": "inside", "overwrite": true });
    let edit = |path: &str| json!({ "path": path, "edits": edits });
    let search = |path: &str| json!({ "path": path, "query": "side" });
    let rename = |from: &str, to: &str| json!({ "from": from, "to": to, "overwrite": true });
    vec![
        ("files/read", at("real/a")),
        ("files/write", put(&new)),
        ("files/write", put(&format!("{deep}/x"))),
        ("files/edit", edit("real/a")),
        ("files/list", at("real")),
        ("files/stat", at("real/a")),
        ("files/stat", at("real/only-outside")),
        ("files/search", search("real")),
        ("files/search", json!({ "glob": ["*"] })),
        ("files/move", rename(&new, &moved)),
        ("files/delete", at(&moved)),
        ("files/delete", json!({ "path": deep, "recursive": true })),
        ("files/delete", at("real/only-outside")),
        ("files/read", at("leaf")),
        ("files/edit", edit("leaf")),
        ("files/write", put("leaf")),
        ("files/search", search("leaf")),
        ("files/move", rename("real/a", "leaf/a")),
    ]
}

/// a folder is swapped for a link to the outside and back, a million times or for 20 s, and a
/// file beside it for a link to a file there, while every method goes through them. Each of them
/// meets both; none ever leaves the root.
#[test]
fn a_million_swaps_lead_nowhere() {
    let outside = Folder::new();
    let folder = Folder::new();
    for name in ["a", "only-outside"] {
        outside.write(name, "outside");
    }
    let before = outside.stamps();
    folder.write("real/a", "inside");
    folder.write("leaf", "inside");
    // How often each of the methods met the folder or the file, and how often a link in its place.
    let mut met: BTreeMap<(&str, bool), [u64; 2]> = BTreeMap::new();
    let swap_leaf = |swapped: u64| {
        let next = folder.join("next");
        // Made anew each time: whoever writes replaces the name, and with it the link.
        match swapped % 32 {
            0 => std::fs::write(&next, "inside").expect("write a file"),
            16 => symlink(outside.join("a"), &next).expect("make a link"),
            _ => return,
        }
        std::fs::rename(&next, folder.join("leaf")).expect("take its place");
    };
    while_swapping(&folder, &outside, swap_leaf, |swaps| {
        let mut host = rpc(&folder);
        let (until, mut round) = (Instant::now() + SWAPPING, 0_u64);
        let over = || Instant::now() >= until || swaps.load(Ordering::Relaxed) >= SWAPS_MAX;
        // Each way both times, however slow this machine is.
        let all_met = |met: &BTreeMap<_, [u64; 2]>| {
            met.len() == WAYS && met.values().flatten().all(|count| *count > 0)
        };
        while !(over() && all_met(&met)) && Instant::now() < until + PATIENCE {
            round += 1;
            for (method, params) in calls(round) {
                let path = params.get("path").or(params.get("from"));
                let is_leaf = path.map(|path| path == "leaf");
                let answer = ask(&mut host, method, params);
                let text = answer.get("result").unwrap_or_default().to_string();
                assert!(!text.contains("outside"), "{method}: {text}");
                let Some(is_leaf) = is_leaf else {
                    continue;
                };
                let [through, refused] = met.entry((method, is_leaf)).or_default();
                if answer.get("result").is_some() {
                    *through += 1;
                } else if answer["error"]["code"] == 1002 {
                    // Nothing but a link is refused so.
                    *refused += 1;
                }
            }
            if round % 16 == 0 {
                let params =
                    json!({ "command": "cat", "args": ["a", "only-outside"], "cwd": "real" });
                let answer = ask(&mut host, "exec/run", params);
                assert!(
                    !answer["result"]["stdout"].to_string().contains("outside"),
                    "{answer}"
                );
            }
        }
        eprintln!("{} swaps", swaps.load(Ordering::Relaxed));
    });
    eprintln!("{met:?}");
    assert_eq!(met.len(), WAYS);
    for (way, [through, refused]) in met {
        assert!(through > 0 && refused > 0, "{way:?}: {through}, {refused}");
    }
    assert_eq!(outside.stamps(), before);
    for name in ["a", "only-outside"] {
        assert_eq!(outside.read(name).as_deref(), Some("outside"));
    }
}

/// SIGKILL in the middle of a thousand writes leaves each file old or new, none older than
/// what was acknowledged, and nothing beside them.
#[test]
fn killed_among_a_thousand_writes() {
    const FILES: usize = 100;
    const WRITES: usize = 1000;
    const BYTES: usize = 20_000;
    let mut random = Random::new("killed_among_a_thousand_writes");
    let folder = Folder::new();
    let content = |version: usize| format!("{version:09} ").repeat(BYTES / 10);
    // Of each file: the version that is known to be there at least.
    let mut known = [0; FILES];
    for file in 0..FILES {
        folder.write(&format!("d/{file}"), &content(0));
    }
    for round in 1..=6 {
        // As one leaves it that dies between two steps.
        folder.write("state/files.new", "torn");
        let mut host = rpc(&folder);
        let kill_after = random.below(WRITES);
        let mut seen = 0;
        let mut sent = known;
        let mut acknowledge = |reply: &Value| {
            assert_eq!(reply["result"]["size"], BYTES, "{reply}");
            let write = reply["id"].as_u64().and_then(|id| usize::try_from(id).ok());
            let write = write.expect("our id");
            known[write % FILES] = round * WRITES + write;
        };
        for write in 0..WRITES {
            let version = round * WRITES + write;
            let params = json!({
                "path": format!("d/{}", write % FILES),
                "content": content(version),
                "overwrite": true,
            });
            let request =
                json!({ "jsonrpc": "2.0", "id": write, "method": "files/write", "params": params });
            if !host.send(&request) {
                break;
            }
            sent[write % FILES] = version;
            // A few are always under way.
            while write > seen + 8 {
                acknowledge(&host.reply());
                seen += 1;
            }
            if seen >= kill_after {
                break;
            }
        }
        host.kill_and_hear().iter().for_each(acknowledge);
        for file in 0..FILES {
            let text = folder.read(&format!("d/{file}")).unwrap();
            assert_eq!(text.len(), BYTES, "round {round}, {file}");
            assert_eq!(text, text[..10].repeat(BYTES / 10), "torn in round {round}");
            let version: usize = text[..9].parse().unwrap();
            // Either what was there at the last look or was acknowledged, or what was under way.
            let is_known = version == known[file] || version == sent[file];
            assert!(
                is_known,
                "round {round}, {file}: {version}, {}",
                known[file]
            );
            known[file] = version;
        }
        let names = std::fs::read_dir(folder.join("d")).unwrap().count();
        assert_eq!(names, FILES, "round {round}");
    }
}

/// A small disk, gone with its guard.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(path: &'a Path, bytes: usize) -> Self {
        std::fs::create_dir_all(path).expect("make its folder");
        let options = std::ffi::CString::new(format!("size={bytes}")).expect("no zero byte");
        mount(
            "tmpfs",
            path,
            "tmpfs",
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
        .expect("mount a small disk, as root");
        Self(path)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

/// where the state is on another disk a writer gives its content a name in the workspace for a
/// moment. What one leaves that is killed then is gone with the next write there.
#[cfg(feature = "failpoints")]
#[test]
fn killed_between_two_names() {
    let folder = Folder::new();
    let place = folder.join("small");
    let _disk = Disk::mount(&place, 512 * 1024);
    std::fs::write(place.join("file"), "old").unwrap();
    let mut command = callgate(&folder);
    command.arg("rpc").current_dir(&place);
    let params = json!({ "path": "file", "content": "new", "overwrite": true });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "files/write", "params": params });
    let names = || std::fs::read_dir(&place).unwrap().count();
    let mut host = Host::spawn(command.env("CALLGATE_FAILPOINT", "files.named=kill"));
    host.send(&request);
    host.end();
    assert_eq!(names(), 2);
    assert_eq!(std::fs::read_to_string(place.join("file")).unwrap(), "old");
    let mut host = Host::spawn(command.env_remove("CALLGATE_FAILPOINT"));
    assert_eq!(host.ask(&request)["result"]["overwritten"], true);
    assert_eq!(names(), 1);
    assert_eq!(std::fs::read_to_string(place.join("file")).unwrap(), "new");
}

/// a full disk is an error, and the old file stays as it was.
#[test]
fn a_full_disk_keeps_the_old() {
    let folder = Folder::new();
    let place = folder.join("small");
    let _disk = Disk::mount(&place, 512 * 1024);
    let mut host = Host::spawn(callgate(&folder).arg("rpc").current_dir(&place));
    let write = |host: &mut Host, path: &str, bytes: usize, digit: &str| {
        let params = json!({ "path": path, "content": digit.repeat(bytes), "overwrite": true });
        ask(host, "files/write", params)
    };
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        write(&mut host, "old", 200_000, "1")["result"]["size"],
        200_000
    );
    for bytes in [400_000, 1_000_000, 330_000] {
        let answer = write(&mut host, "old", bytes, "2");
        assert_eq!(answer["error"]["code"], 1006, "{answer}");
        assert_eq!(std::fs::read(place.join("old")).unwrap(), [b'1'; 200_000]);
        assert_eq!(names(), ["old"]);
    }
    let answer = write(&mut host, "new", 400_000, "3");
    assert_eq!(answer["error"]["code"], 1006);
    let edits = json!([{ "old": "1", "new": "22", "all": true }]);
    let answer = ask(
        &mut host,
        "files/edit",
        json!({ "path": "old", "edits": edits }),
    );
    assert_eq!(answer["error"]["code"], 1006, "{answer}");
    assert_eq!(std::fs::read(place.join("old")).unwrap(), [b'1'; 200_000]);
    assert_eq!(names(), ["old"]);
    // With room it goes on.
    assert_eq!(
        write(&mut host, "old", 250_000, "4")["result"]["overwritten"],
        true
    );
    // A program meets the same disk, and says so itself.
    let params = json!({ "command": "head -c 1000000 /dev/zero > fill", "shell": true });
    let answer = ask(&mut host, "exec/run", params);
    assert_ne!(answer["result"]["exit_code"], 0, "{answer}");
    assert_eq!(std::fs::read(place.join("old")).unwrap(), [b'4'; 250_000]);
}
