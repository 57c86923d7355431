//! Packages of the Python Package Index.

use std::process::Command;

use callgate_installer::{
    InstallError, LockError, PackageLock, PackageProgram, PackageSource, lock_of, remove_installed,
};

use crate::support::{Scene, request, tools_of};

const TIME: &str = "pypi:mcp-server-time==2026.10.19";

#[tokio::test]
async fn a_server_is_installed_and_again_without_a_network() {
    let mut scene = Scene::new();
    let request = request(TIME);
    let (installed, lock) = scene.install(&request).await.unwrap();
    assert_eq!(installed.spec, TIME);
    assert!(installed.integrity.starts_with("sha256:"), "{installed:?}");
    assert_eq!(installed.released.as_deref(), Some("2026-10-19"));
    assert!(installed.packages > 20, "{installed:?}");
    let tools = tools_of(&installed, &[]);
    assert_eq!(tools, ["get_current_time", "convert_time"]);

    scene.settings.pypi.url = "https://index.invalid/simple/".to_owned();
    assert!(remove_installed(&installed).unwrap());
    let again = scene
        .install_locked(&request, &lock, PackageSource::Cache)
        .await
        .unwrap();
    assert_eq!(again.entry, installed.entry);
    assert_eq!(lock_of(&again).unwrap(), lock);
    assert_eq!(tools_of(&again, &[]), tools);
}

/// Of a package without a wheel nothing is built, and no settings around the installation count.
#[tokio::test]
async fn only_wheels_are_installed() {
    let scene = Scene::new();
    for name in [
        "pip.conf",
        "server/pip.conf",
        "server/setup.cfg",
        "server/uv.toml",
    ] {
        let settings = "[global]\nindex-url = https://index.invalid/simple/\nno-binary = :all:\n";
        scene.folder.write(name, settings);
    }
    let refused = scene
        .install(&request("pypi:docopt==0.6.2"))
        .await
        .unwrap_err();
    let InstallError::Failed { words, .. } = &refused else {
        panic!("{refused:?}");
    };
    assert!(words.contains("docopt"), "{words}");
    let (installed, lock) = scene.install(&request("pypi:cowsay==6.1")).await.unwrap();
    let mut cowsay = Command::new(&installed.entry[0]);
    let output = cowsay
        .args(&installed.entry[1..])
        .args(["-t", "hi"])
        .output()
        .unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("hi"));

    let locked = |text: String| PackageLock {
        text,
        ..lock.clone()
    };
    let digest = &installed.integrity["sha256:".len()..];
    let other = lock.text.replace(digest, &"0".repeat(64));
    let refused = scene
        .install_locked(
            &request("pypi:cowsay"),
            &locked(other),
            PackageSource::Registry,
        )
        .await;
    assert!(
        matches!(refused, Err(InstallError::Failed { .. })),
        "{refused:?}"
    );
    let other = lock.text.replacen("# python 3", "# python 2", 1);
    let refused = scene
        .install_locked(
            &request("pypi:cowsay"),
            &locked(other),
            PackageSource::Cache,
        )
        .await;
    assert!(
        matches!(refused, Err(InstallError::OtherInterpreter { .. })),
        "{refused:?}"
    );
    let other = format!("{}--index-url https://index.invalid\n", lock.text);
    let refused = scene
        .install_locked(
            &request("pypi:cowsay"),
            &locked(other),
            PackageSource::Registry,
        )
        .await;
    let error = refused.unwrap_err();
    assert!(
        matches!(error, InstallError::Lock(LockError::Package { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn programs_are_found_as_uvx_finds_them() {
    let scene = Scene::new();
    let mut request = request("pypi:cowsay==6.1");
    for (program, has) in [
        (PackageProgram::Default, true),
        (PackageProgram::Script("cowsay".to_owned()), true),
        (PackageProgram::Script("other".to_owned()), false),
        (PackageProgram::Script("../bin/cowsay".to_owned()), false),
        (PackageProgram::Module("cowsay".to_owned()), true),
    ] {
        request.program = program.clone();
        match scene.install(&request).await {
            Ok((installed, _)) => {
                let mut command = Command::new(&installed.entry[0]);
                let output = command
                    .args(&installed.entry[1..])
                    .args(["-t", "hi"])
                    .output();
                let text = String::from_utf8(output.unwrap().stdout).unwrap();
                assert!(has && text.contains("hi"), "{program:?}");
            }
            Err(InstallError::OtherPrograms { known, .. }) => {
                assert!(!has && known == ["cowsay"], "{program:?}: {known:?}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}
