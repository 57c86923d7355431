//! Packages of npm.

use callgate_installer::{
    PackageSource, list_installed, lock_of, open_installed, remove_installed,
};

use crate::support::{Scene, request, tools_of};

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
    assert_eq!(list_installed(&scene.root()), [installed.clone()]);
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
