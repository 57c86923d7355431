//! Packages of npm.

use std::process::{Command, Stdio};
use std::time::Duration;

use callgate_installer::{
    InstallError, InstallStage, LockError, PackageLock, PackageProgram, PackageSource,
    list_installed, lock_of, open_installed, remove_installed,
};
use serde_json::{Value, json};

use crate::support::{Scene, TestRegistry, names, request, tools_of};

const EVERYTHING: &str = "npm:@modelcontextprotocol/server-everything@2026.8.31";

#[tokio::test]
async fn a_server_is_installed_and_again_without_a_network() {
    let mut scene = Scene::new();
    let request = request(EVERYTHING);
    let (installed, lock) = scene.install(&request).await.unwrap();
    assert_eq!(installed.spec, EVERYTHING);
    assert!(installed.integrity.starts_with("sha512-"), "{installed:?}");
    assert_eq!(installed.released.as_deref(), Some("2026-09-02"));
    assert!(installed.packages > 50, "{installed:?}");
    let tools = tools_of(&installed, &["stdio"]);
    assert!(tools.contains(&"echo".to_owned()), "{tools:?}");
    assert_eq!(
        list_installed(&scene.root()),
        std::slice::from_ref(&installed)
    );
    assert_eq!(lock_of(&installed).unwrap(), lock);

    // The registry is not there any more; the downloads are.
    scene.settings.npm.url = "https://registry.invalid/".to_owned();
    scene.settings.npm.archive_hosts = vec!["registry.npmjs.org:443".to_owned()];
    assert!(remove_installed(&installed).unwrap());
    assert!(scene.names().is_empty());
    let again = scene
        .install_locked(&request, &lock, PackageSource::Cache)
        .await
        .unwrap();
    assert_eq!(again.entry, installed.entry);
    assert_eq!(lock_of(&again).unwrap(), lock);
    assert_eq!(tools_of(&again, &["stdio"]), tools);
    assert_eq!(open_installed(&scene.root(), &lock).unwrap(), again);
    assert_eq!(scene.names().len(), 1);
}

/// A package with one program, which depends on `dependencies`.
fn package(dependencies: &Value) -> Value {
    json!({
        "manifest": { "bin": { "run": "run.js" }, "dependencies": dependencies },
        "files": { "run.js": "console.log('ran')" },
    })
}

fn output(installed: &callgate_installer::Installed) -> String {
    let mut command = Command::new(&installed.entry[0]);
    let output = command.args(&installed.entry[1..]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// No script of a package runs, whatever settings are in the folders around the installation.
#[tokio::test]
async fn scripts_do_not_run_and_settings_of_others_do_not_count() {
    let scripts: serde_json::Map<String, Value> =
        ["preinstall", "install", "postinstall", "prepare"]
            .map(|name| {
                (
                    name.to_owned(),
                    "node -e \"fs.writeFileSync('ran', '')\"".into(),
                )
            })
            .into_iter()
            .collect();
    let mut hostile = package(&json!({}));
    hostile["manifest"]["scripts"] = scripts.into();
    let registry = TestRegistry::new(&json!({
        "server": { "1.0.0": package(&json!({ "hostile": "^1" })) },
        "hostile": { "1.0.0": hostile },
    }));
    let scene = Scene::with_registry(&registry);
    let settings = "registry=https://registry.invalid/\nignore-scripts=false\n\
        script-shell=/bin/false\nomit-lockfile-registry-resolved=true\n";
    scene.folder.write(".npmrc", settings);
    scene.folder.write("server/.npmrc", settings);
    scene
        .folder
        .write("package.json", "{\"workspaces\": [\"server/*\"]}");
    let (installed, lock) = scene.install(&request("npm:server")).await.unwrap();
    assert_eq!(output(&installed), "ran\n");
    assert!(lock.text.contains(&registry.url) && !lock.text.contains("registry.invalid"));
    let hostile = installed.folder.join("node_modules/hostile");
    assert_eq!(names(&hostile), ["package.json", "run.js"]);
    assert!(!installed.folder.join("ran").exists());
    let stages = std::mem::take(&mut *scene.stages.lock().unwrap());
    use InstallStage::{Check, Install, Place, Prepare, Resolve};
    assert_eq!(stages, [Prepare, Resolve, Install, Check, Place]);
}

/// What does not come from the registry with a digest is not installed.
#[tokio::test]
async fn packages_come_from_the_registry_with_a_digest() {
    let mut elsewhere = package(&json!({}));
    elsewhere["resolved"] = json!("http://elsewhere.invalid/x.tgz");
    let mut weak = package(&json!({}));
    weak["integrity"] = json!("sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
    let registry = TestRegistry::new(&json!({
        "git": { "1.0.0": package(&json!({ "x": "git+https://github.com/u/x.git" })) },
        "github": { "1.0.0": package(&json!({ "x": "u/x" })) },
        "url": { "1.0.0": package(&json!({ "x": "https://elsewhere.invalid/x.tgz" })) },
        "file": { "1.0.0": package(&json!({ "x": "file:/etc" })) },
        "elsewhere": { "1.0.0": elsewhere },
        "weak": { "1.0.0": weak },
    }));
    let scene = Scene::with_registry(&registry);
    for name in ["git", "github", "url", "file", "elsewhere", "weak"] {
        let refused = scene.install(&request(&format!("npm:{name}"))).await;
        match refused.unwrap_err() {
            InstallError::Lock(LockError::Package { .. }) => {}
            InstallError::Failed { refused, .. } if ["git", "github", "url"].contains(&name) => {
                assert_eq!(refused.is_some(), name == "url", "{name}: {refused:?}");
            }
            error => panic!("{name}: {error:?}"),
        }
    }
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

#[tokio::test]
async fn an_installation_is_what_its_lock_says() {
    let registry = TestRegistry::new(&json!({
        "server": {
            "1.0.0": package(&json!({ "part": "^1" })),
            "1.1.0": package(&json!({ "part": "^1" })),
        },
        "part": { "1.0.0": package(&json!({})) },
    }));
    let scene = Scene::with_registry(&registry);
    let old = request("npm:server@1.0.0");
    let (first, lock) = scene.install(&old).await.unwrap();
    let (second, new_lock) = scene.install(&request("npm:server")).await.unwrap();
    assert_eq!(second.version, "1.1.0");
    // Both are there: the older one can be taken again.
    assert_eq!(list_installed(&scene.root()).len(), 2);
    assert_eq!(
        (output(&first), output(&second)),
        ("ran\n".into(), "ran\n".into())
    );

    let locked = |text: String| PackageLock {
        text,
        ..lock.clone()
    };
    let refused = scene
        .install_locked(&old, &new_lock, PackageSource::Registry)
        .await;
    assert!(matches!(refused, Err(InstallError::Lock(_))), "{refused:?}");
    let text = lock.text.replacen("sha512-", "sha512-AAAA", 1);
    let text = text.replacen("==\"", "\"", 1);
    let refused = scene
        .install_locked(&old, &locked(text), PackageSource::Registry)
        .await;
    assert!(refused.is_err(), "{refused:?}");
    // The bytes are others than those of the digest.
    let digest = lock.text.find("sha512-").unwrap() + 10;
    let mut text = lock.text.clone();
    let other = if text.as_bytes()[digest] == b'A' {
        "B"
    } else {
        "A"
    };
    text.replace_range(digest..=digest, other);
    for source in [PackageSource::Registry, PackageSource::Cache] {
        let refused = scene
            .install_locked(&old, &locked(text.clone()), source)
            .await;
        assert!(
            matches!(refused, Err(InstallError::Failed { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(list_installed(&scene.root()).len(), 2);
    // A damaged installation is replaced by a whole one.
    std::fs::remove_dir_all(first.folder.join("node_modules")).unwrap();
    let again = scene
        .install_locked(&old, &lock, PackageSource::Cache)
        .await
        .unwrap();
    assert_eq!(
        (output(&again), again.folder),
        ("ran\n".into(), first.folder)
    );
}

#[tokio::test]
async fn programs_are_found_as_npx_finds_them() {
    let several = json!({
        "manifest": { "bin": { "one": "one.js", "two": "two.js" } },
        "files": { "one.js": "console.log(1)", "two.js": "console.log(2)" },
    });
    let mut own = several.clone();
    own["manifest"]["bin"] = json!({ "one": "one.js", "own": "two.js" });
    let mut native = several.clone();
    native["manifest"]["bin"] = json!("native");
    native["files"]["native"] = json!("#!/bin/sh\necho native\n");
    let mut outside = several.clone();
    outside["manifest"]["bin"] = json!("../../../../../../../../etc/passwd");
    let none = json!({ "manifest": {}, "files": {} });
    let registry = TestRegistry::new(&json!({
        "several": { "1.0.0": several },
        "@scope/own": { "1.0.0": own },
        "native": { "1.0.0": native },
        "outside": { "1.0.0": outside },
        "none": { "1.0.0": none },
    }));
    let scene = Scene::with_registry(&registry);
    for (spec, program, wanted) in [
        ("npm:several", Some("two"), "2\n"),
        ("npm:@scope/own", None, "2\n"),
        ("npm:@scope/own", Some("one"), "1\n"),
        ("npm:native", None, "native\n"),
    ] {
        let mut request = request(spec);
        if let Some(name) = program {
            request.program = PackageProgram::Script(name.to_owned());
        }
        let (installed, _) = scene.install(&request).await.unwrap();
        assert_eq!(output(&installed), wanted, "{spec}");
    }
    let refused = scene.install(&request("npm:several")).await.unwrap_err();
    assert!(matches!(&refused, InstallError::OtherPrograms { known, .. } if known.len() == 2));
    let refused = scene.install(&request("npm:none")).await.unwrap_err();
    assert!(
        matches!(refused, InstallError::NoProgram { .. }),
        "{refused:?}"
    );
    let refused = scene.install(&request("npm:outside")).await.unwrap_err();
    let is_refused = matches!(
        refused,
        InstallError::Differs { .. } | InstallError::File { .. } | InstallError::NoProgram { .. }
    );
    assert!(is_refused, "{refused:?}");
}

#[tokio::test]
async fn an_installation_is_bounded() {
    let mut large = package(&json!({}));
    large["files"]["large"] = "x".repeat(200_000).into();
    let registry = TestRegistry::new(&json!({ "large": { "1.0.0": large } }));
    let mut scene = Scene::with_registry(&registry);
    scene.settings.bytes_max = 100_000;
    let refused = scene.install(&request("npm:large")).await.unwrap_err();
    // npm may not even write the file.
    let is_bound = matches!(
        refused,
        InstallError::TooLarge { .. } | InstallError::Failed { .. }
    );
    assert!(is_bound, "{refused:?}");
    assert!(scene.names().is_empty());
    scene.settings.bytes_max = 1 << 30;
    scene.settings.files_max = 4;
    let refused = scene.install(&request("npm:large")).await.unwrap_err();
    assert!(
        matches!(refused, InstallError::TooLarge { .. }),
        "{refused:?}"
    );
    scene.settings.files_max = 200_000;
    scene.install(&request("npm:large")).await.unwrap();
    scene.settings.timeout = Duration::ZERO;
    let refused = scene.install(&request("npm:large")).await.unwrap_err();
    assert!(
        matches!(refused, InstallError::Timeout { .. }),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let mut scene = Scene::new();
    scene.settings.search = scene.folder.path().into();
    for (spec, program) in [("npm:x", "node"), ("pypi:x", "python3")] {
        match scene.install(&request(spec)).await.unwrap_err() {
            InstallError::ProgramMissing { program: named, .. } => assert_eq!(named, program),
            error => panic!("{error:?}"),
        }
    }
}

const VICTIM: &str = "CALLGATE_TEST_INSTALL";

/// Installs for `a_killed_installer_leaves_nothing_half`, in a process of its own.
#[tokio::test]
async fn installs_until_it_is_killed() {
    let Ok(arguments) = std::env::var(VICTIM) else {
        return;
    };
    let (url, root) = arguments.split_once(' ').unwrap();
    let mut scene = Scene::new();
    scene.settings.npm.url = url.to_owned();
    let installer = scene.installer();
    let request = request("npm:server");
    loop {
        let installed = installer.install(root.as_ref(), &request, &|_, _| ()).await;
        drop(installed.unwrap());
    }
}

#[tokio::test]
async fn a_killed_installer_leaves_nothing_half() {
    let registry = TestRegistry::new(&json!({
        "server": { "1.0.0": package(&json!({ "part": "1" })) },
        "part": { "1.0.0": package(&json!({})) },
    }));
    let scene = Scene::with_registry(&registry);
    let root = scene.root();
    let has = |part: &str| {
        let hidden = |name: &String| name.starts_with(".new-");
        let mut drafts = scene.names().into_iter().filter(hidden);
        drafts.any(|name| root.join(name).join(part).exists())
    };
    for part in [
        "tree",
        "tree/package-lock.json",
        "tree/node_modules",
        "tree/installed.json",
    ] {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "npm::installs_until_it_is_killed"])
            .env(VICTIM, format!("{} {}", registry.url, root.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !has(part) {
            assert!(
                victim.try_wait().unwrap().is_none(),
                "it ended before {part}"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        // What has its name is whole.
        for installed in list_installed(&root) {
            assert_eq!(output(&installed), "ran\n", "{part}");
        }
        let placed = scene
            .names()
            .into_iter()
            .filter(|name| name.starts_with("pkg-"));
        assert_eq!(placed.count(), list_installed(&root).len(), "{part}");
    }
    scene.install(&request("npm:server")).await.unwrap();
    // The trees of the killed ones have ended, and nobody holds what they left.
    assert_eq!(scene.names().len(), 1, "{:?}", scene.names());
}
