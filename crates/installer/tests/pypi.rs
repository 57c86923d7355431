//! Packages of the Python Package Index.

use callgate_installer::{PackageSource, lock_of, remove_installed};

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
