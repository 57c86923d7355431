//! A server that is confined: its home, and the hosts it may reach.

use super::*;
use callgate_call::{Needs, Network};
use callgate_sandbox::Homes;

/// A real interpreter, which a shim only stands for, and the folder it lives in.
fn python() -> [PathBuf; 2] {
    let script = "import sys; print(sys.executable); print(sys.base_prefix)";
    let told = std::process::Command::new("python3")
        .args(["-c", script])
        .output()
        .unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let mut lines = told.lines().map(PathBuf::from);
    [lines.next().unwrap(), lines.next().unwrap()]
}

/// A confined server whose one further tool runs `body`.
fn confined(folder: &Path, body: &str, network: Network) -> (Arc<Upstream>, Arc<Needs>) {
    let mut settings = python_server(folder);
    let script = folder.join("server.py");
    let text = SERVER.replace(
        "    if name == \"fail\":",
        &format!("    if name == \"run\":\n        {body}\n    if name == \"fail\":"),
    );
    std::fs::write(&script, text.replace("\"refuse\")", "\"refuse\", \"run\")")).unwrap();
    let [program, prefix] = python();
    settings.command = vec![program.into(), script.into()];
    settings.cwd = Some(folder.to_path_buf());
    settings.home = Some(Arc::new(Homes {
        root: folder.join("state/homes"),
        owner: None,
        bytes_max: 1 << 30,
        furnishings: Vec::new(),
    }));
    let needs = Needs {
        reads: vec![folder.to_path_buf()],
        code: vec![prefix],
        network,
        ..Needs::default()
    };
    (upstream_of(settings), Arc::new(needs))
}

/// Its home outlives its process.
#[tokio::test]
async fn a_home_is_kept() {
    let folder = folder();
    let body = "path = os.path.expanduser('~/notes'); open(path, 'a').write('x'); \
                return {'content': [], 'structuredContent': len(open(path).read())}";
    let (upstream, needs) = confined(&folder, body, Network::None);
    let mut bench = bench_of(&upstream, "run");
    bench.plan.confinement = Some(needs);
    for n in 1..=2 {
        assert_eq!(bench.value(json!({})).await["structuredContent"], 2 * n - 1);
        assert_eq!(bench.value(json!({})).await["structuredContent"], 2 * n);
        upstream.stop_and_wait().await;
    }
    assert_eq!(upstream.status().starts, 2);
    let _ = std::fs::remove_dir_all(folder);
}

/// A refused host is named to the call that asked for it, and to no later one.
#[tokio::test]
async fn refused_hosts_are_named() {
    if !spawner().facts().net_listener {
        return;
    }
    let folder = folder();
    let body = "import urllib.request; urllib.request.urlopen('http://' + arguments['host'])";
    let body = format!(
        "\n        try:\n            {body}\n        except Exception as error:\n            \
                        return {{'content': [{{'type': 'text', 'text': str(error)}}], 'isError': True}}"
    );
    let hosts = Network::Hosts(vec!["a.test:443".to_owned()]);
    let (upstream, needs) = confined(&folder, &body, hosts);
    for host in ["b.test", "c.test:81"] {
        let mut bench = bench_of(&upstream, "run");
        bench.plan.confinement = Some(Arc::clone(&needs));
        let fault = bench.fault(json!({ "host": host })).await;
        assert!(fault.starts_with("tool_failed: HTTP Error 403"), "{fault}");
        let refused = bench.sink.fact_of("network_refused");
        let port = if host.contains(':') { "" } else { ":80" };
        assert_eq!(refused, format!("1: {host}{port} not allowed"));
    }
    assert_eq!(upstream.status().starts, 1);
    let _ = std::fs::remove_dir_all(folder);
}
