//! What stays readable of the system for a tool that a request keeps within a root: interpreters
//! and their libraries, and what those read at their start. TP-12.

use std::fs;
use std::path::{Path, PathBuf};

use callgate_call::Network;

/// Programs, interpreters and their libraries. Not the rest of `/usr`: documents, sources, data.
const INTERPRETERS: [&str; 31] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/libexec",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/libexec",
    "/usr/share/i18n",
    "/usr/share/locale",
    "/usr/share/node_modules",
    "/usr/share/nodejs",
    "/usr/share/perl",
    "/usr/share/perl5",
    "/usr/share/python3",
    "/usr/share/ruby",
    "/usr/share/rubygems-integration",
    "/usr/share/tcltk",
    "/usr/share/terminfo",
    "/usr/share/zoneinfo",
];

/// What looking up names and checking certificates needs.
const NETWORK: [&str; 11] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// The folders of the system that such a tool may read beside the loader's own files.
pub(crate) fn system_reads(network: &Network) -> Vec<PathBuf> {
    let network: &[&str] = match network {
        Network::None => &[],
        Network::Hosts(_) | Network::Any => &NETWORK,
    };
    let fixed = INTERPRETERS.iter().chain(network).map(PathBuf::from);
    fixed.chain(python_settings()).collect()
}

/// Debian's Python reads its `sitecustomize` there at each start.
fn python_settings() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    let is_python = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("python")) && Path::is_dir(path)
    };
    entries
        .map(|entry| entry.path())
        .filter(is_python)
        .collect()
}
