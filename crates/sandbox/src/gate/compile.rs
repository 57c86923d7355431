//! From a tool's needs and a machine's facts to what is carried out. The gate does it, and
//! keeps the result for as long as the needs are the same.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Guarantee, Ipc, Needs, Network};

use crate::confine::{Access, Confine, Identity, Root};
use crate::gate::facts::Facts;
use crate::gate::filter::{Execs, Rules, Sockets};
use crate::gate::program_roots;
use crate::gate::root_only;
use crate::gate::system_roots;

/// Programs and their libraries.
const SYSTEM: [&str; 8] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
];

/// What else a tool may read that may read files at all.
const OPEN: [&str; 2] = ["/etc", "/opt"];

/// What the loader and the libraries of every program look at. Node does not start where it
/// finds the last and may not read it.
const LOADER: [&str; 3] = ["/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf"];

/// Devices that harm nobody.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Where names are looked up, which may be a link to somewhere else.
const RESOLVER: &str = "/etc/resolv.conf";

/// What a child is, as far as its confinement depends on it.
pub(crate) struct Subject<'a> {
    pub program: &'a Path,
    pub cwd: &'a Path,
    /// The folder for private temporary folders.
    pub scratch: &'a Path,
    /// It forks for each call.
    pub zygote: bool,
    /// The program brings along nothing that it may read.
    pub named_by_caller: bool,
}

/// Compiled confinements are kept at most; beyond, all are made anew.
const COMPILED_MAX: usize = 256;

/// What was compiled, by the needs and the program it is from.
#[derive(Debug, Default)]
pub(crate) struct Compiled(HashMap<Key, (Arc<Needs>, Arc<Confine>)>);

/// The needs' address, the program where it brings something along, whether it forks for each
/// call.
type Key = (usize, Option<PathBuf>, bool);

impl Compiled {
    /// The one of these needs, made if there is none yet.
    pub fn get(
        &mut self,
        needs: &Arc<Needs>,
        subject: &Subject<'_>,
        facts: &Facts,
    ) -> Arc<Confine> {
        // The needs are held beside, so that no others can have their address.
        let program = (!subject.named_by_caller).then(|| subject.program.to_owned());
        let key = (Arc::as_ptr(needs).addr(), program, subject.zygote);
        if let Some((_, known)) = self.0.get(&key) {
            return Arc::clone(known);
        }
        if self.0.len() >= COMPILED_MAX {
            self.0.clear();
        }
        let made = Arc::new(compile(needs, subject, facts));
        self.0.insert(key, (Arc::clone(needs), Arc::clone(&made)));
        made
    }
}

/// What to carry out for a child of these needs.
pub(crate) fn compile(needs: &Needs, subject: &Subject<'_>, facts: &Facts) -> Confine {
    let requires = |guarantee| needs.guarantees.requires(guarantee);
    let network = needs.reach();
    let outlet = matches!(network, Network::Hosts(_)) && facts.net_listener;
    let forwards = forwards(needs, facts);
    let mut roots = Roots {
        hidden: needs.hidden.iter().map(|path| real(path)).collect(),
        ..Roots::default()
    };
    reads(&mut roots, needs, subject, network);
    for path in &needs.writes {
        roots.add_as_named(path.clone(), access_of(path));
    }
    let blind = requires(Guarantee::NoFilesystemRead);
    let ipc = needs.ipc != Ipc::None && facts.mount_namespace && !blind;
    let nanny_namespaces = ipc && !facts.pid_namespace && facts.pid_namespace_by_user;
    let own_processes = facts.pid_namespace || nanny_namespaces;
    if ipc && own_processes {
        // That of its own processes.
        roots.read(Path::new("/proc"));
    }
    let sockets = match sockets(needs, facts) {
        // Its view would not have the folder that it begins in.
        Sockets::Local if blind || !roots.covers(subject.cwd) => plain_sockets(needs, facts),
        sockets => sockets,
    };
    let local = sockets == Sockets::Local;
    let identity = facts.identity.then(|| identity(needs, subject.cwd));
    let mut ground = Ground::new(needs, &roots, facts, own_processes);
    if facts.mount_namespace && identity.is_some_and(|identity| identity.uid == 0) {
        ground.hide_private(needs, &roots, subject.cwd);
    }
    if local {
        ground.narrow(&roots);
    }
    if facts.mount_namespace {
        ground.cover(needs, &roots, subject);
    }
    let metadata = ground.read_only && facts.ipc_namespace;
    let mut namespaces =
        ground.namespaces(metadata) | flag_if(outlet || !forwards.is_empty(), libc::CLONE_NEWNET);
    namespaces |= flag_if(ipc, libc::CLONE_NEWNS);
    let loopback = local && *network == Network::None;
    let listening = sockets == Sockets::Listening;
    namespaces |= flag_if(loopback || listening, libc::CLONE_NEWNET);
    if needs.strict || (*network == Network::None && !facts.seccomp) {
        namespaces |= flag_if(facts.net_namespace, libc::CLONE_NEWNET);
        namespaces |= flag_if(facts.ipc_namespace, libc::CLONE_NEWIPC);
    }
    if namespaces != 0 && facts.by_user_namespace && !nanny_namespaces {
        namespaces |= libc::CLONE_NEWUSER;
    }
    let rules = Rules {
        sockets,
        forks: !requires(Guarantee::NoSubprocess) || subject.zygote,
        execs: if requires(Guarantee::NoSubprocess) && facts.exec_once {
            Execs::Once
        } else {
            Execs::Any
        },
        metadata,
        // With no more than a loopback in its network there is nothing to learn by it.
        route: needs.ipc != Ipc::None && namespaces & libc::CLONE_NEWNET != 0,
    };
    Confine {
        landlock: facts.landlock,
        roots: roots.list,
        no_tcp: outlet || *network == Network::None && !loopback,
        outlet,
        forwards,
        filter: facts.seccomp.then_some(rules),
        namespaces: namespaces.unsigned_abs(),
        nanny_namespaces,
        read_only: ground.read_only,
        kept: ground.kept,
        hidden: ground.hidden,
        covered: ground.covered,
        shm: ipc,
        loopback,
        proc: ground.proc,
        identity,
        scratch: c_path(subject.scratch),
    }
}

/// The sockets of a child. Unix ones need names that are private, by a network of its own or by
/// Landlock, and paths that are: either nothing connects, or its view is narrow.
pub(crate) fn sockets(needs: &Needs, facts: &Facts) -> Sockets {
    let network = needs.reach();
    let own_network = facts.net_namespace && facts.net_listener;
    let apart = match network {
        Network::Any => facts.landlock >= SCOPES,
        Network::None | Network::Hosts(_) => own_network,
    };
    match needs.ipc {
        Ipc::Local if facts.mount_namespace && facts.seccomp && apart => Sockets::Local,
        Ipc::Private | Ipc::Local
            if *network == Network::None
                && needs.forwarded().is_empty()
                && facts.seccomp
                && own_network =>
        {
            Sockets::Listening
        }
        _ => plain_sockets(needs, facts),
    }
}

/// The ports that are forwarded, where there can be a network to forward them from.
fn forwards(needs: &Needs, facts: &Facts) -> Vec<u16> {
    let can_be = facts.net_namespace && facts.net_listener;
    let ports = needs.forwarded().iter().filter(|_| can_be);
    ports.map(|(port, _)| *port).collect()
}

fn plain_sockets(needs: &Needs, facts: &Facts) -> Sockets {
    match needs.reach() {
        // A forwarded port is connected to in a network of its own.
        Network::None if !forwards(needs, facts).is_empty() => Sockets::Inet,
        Network::None => Sockets::None,
        Network::Hosts(_) | Network::Any => Sockets::Inet,
    }
}

/// Landlock from this version on keeps abstract Unix sockets apart.
const SCOPES: u8 = 6;

fn flag_if(yes: bool, flag: libc::c_int) -> libc::c_int {
    if yes { flag } else { 0 }
}

fn reads(roots: &mut Roots, needs: &Needs, subject: &Subject<'_>, network: &Network) {
    let blind = needs.guarantees.requires(Guarantee::NoFilesystemRead);
    let bounded = needs.roots.is_some();
    match bounded {
        true => system_roots::system_reads(network)
            .iter()
            .for_each(|path| roots.read(path)),
        false => SYSTEM.iter().for_each(|path| roots.read(Path::new(path))),
    }
    if blind || bounded {
        LOADER.iter().for_each(|path| roots.read(Path::new(path)));
    } else {
        OPEN.iter().for_each(|path| roots.read(Path::new(path)));
    }
    if !blind {
        // A folder that it may write is one of its roots as it is. By its name, a link that
        // somebody swaps in for it would make another one.
        let written = needs
            .writes
            .iter()
            .any(|root| subject.cwd.starts_with(root));
        match &needs.roots {
            None if written => {}
            None => roots.read(subject.cwd),
            Some(kept) => kept
                .readable(&[subject.cwd.to_owned()])
                .iter()
                .for_each(|path| roots.read(path)),
        }
        if *network == Network::Any {
            roots.read(Path::new(RESOLVER));
        }
    }
    if !subject.named_by_caller {
        for path in program_roots::of_program(&subject.cwd.join(subject.program)) {
            roots.read(&path);
        }
    }
    needs.code.iter().for_each(|path| roots.read(path));
    for path in &needs.reads {
        roots.add_as_named(path.clone(), Access::Read);
    }
    for path in DEVICES {
        roots.add(Path::new(path), Access::Device);
    }
}

/// Roots by real path, none inside another of the same kind.
#[derive(Default)]
struct Roots {
    list: Vec<Root>,
    paths: Vec<(PathBuf, Access)>,
    /// What is covered, so that a root inside it must be there by its own name.
    hidden: Vec<PathBuf>,
}

impl Roots {
    fn read(&mut self, path: &Path) {
        self.add(path, Access::Read);
    }

    fn add(&mut self, path: &Path, access: Access) {
        self.add_as_named(real(path), access);
    }

    /// What a tool declares is a real path since it was loaded: a link that is there by now was
    /// planted, perhaps by a tool that may write there, and is an error when it is opened.
    fn add_as_named(&mut self, path: PathBuf, access: Access) {
        let covered = |(known, kind): &(PathBuf, Access)| {
            path.starts_with(known) && (*kind == access || access == Access::Read && kind.writes())
        };
        let beneath_hidden = self.hidden.iter().any(|hidden| path.starts_with(hidden));
        if !beneath_hidden && self.paths.iter().any(covered) {
            return;
        }
        if let Some(text) = c_path(&path) {
            self.list.push(Root { path: text, access });
            self.paths.push((path, access));
        }
    }

    fn covers(&self, path: &Path) -> bool {
        self.paths.iter().any(|(root, _)| path.starts_with(root))
    }

    fn lets_write(&self, path: &Path) -> bool {
        self.paths
            .iter()
            .any(|(root, access)| access.writes() && path.starts_with(root))
    }
}

/// What mounts have to see to.
struct Ground {
    read_only: bool,
    kept: Vec<CString>,
    hidden: Vec<CString>,
    covered: Vec<CString>,
    proc: bool,
}

impl Ground {
    fn new(needs: &Needs, roots: &Roots, facts: &Facts, own_processes: bool) -> Self {
        let nothing = Self {
            read_only: false,
            kept: Vec::new(),
            hidden: Vec::new(),
            covered: Vec::new(),
            proc: false,
        };
        if !facts.mount_namespace {
            return nothing;
        }
        let text = |path: PathBuf| c_path(&path);
        let all = |paths: &[PathBuf], wanted: &dyn Fn(&Path) -> bool| -> Vec<CString> {
            let real = paths.iter().map(|path| real(path));
            real.filter(|path| wanted(path)).filter_map(text).collect()
        };
        let kept = all(&needs.kept, &|path| roots.lets_write(path));
        let hidden = all(&needs.hidden, &|path| roots.covers(path));
        Self {
            read_only: !needs.writes.is_empty(),
            kept,
            hidden,
            covered: Vec::new(),
            proc: own_processes && roots.covers(Path::new("/proc/self")),
        }
    }

    /// Covers all folders of the system's root that are not readable as a whole: sockets of
    /// others may be there, and more may come.
    fn narrow(&mut self, roots: &Roots) {
        // Processes and the kernel's settings have files, and no sockets; devices are needed.
        const LEFT: [&str; 3] = ["/proc", "/sys", "/dev"];
        let entries = fs::read_dir("/").into_iter().flatten().flatten();
        let folders = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .filter(|path| !LEFT.iter().any(|left| path == Path::new(left)))
            .filter(|path| !roots.covers(path));
        self.covered = folders.filter_map(|path| c_path(&path)).collect();
        self.covered.sort_unstable();
        // Where it is a socket and not a link to one.
        self.hidden.extend(c_path(Path::new("/dev/log")));
    }

    /// Covers folders that the needs name, but for what of them may be reached. One stays as it is
    /// where it is readable as a whole, and where the program is found in it by a link: a link that
    /// is not in a root is not there in the view.
    fn cover(&mut self, needs: &Needs, roots: &Roots, subject: &Subject<'_>) {
        let names = match subject.named_by_caller {
            true => Vec::new(),
            false => program_roots::names_of(&subject.cwd.join(subject.program)),
        };
        for folder in needs.covered.iter().map(|folder| real(folder)) {
            let is_gone = |name: &PathBuf| name.starts_with(&folder) && !roots.covers(name);
            let beneath = |covered: &CString| folder.starts_with(as_path(covered));
            let stays = folder.parent().is_none()
                || !folder.is_dir()
                || roots.covers(&folder)
                || self.covered.iter().any(beneath)
                || names.iter().any(is_gone);
            if !stays {
                self.covered.extend(c_path(&folder));
            }
        }
    }

    /// Hides what is root's alone, but for what the owner names: the workspace and `reads`.
    fn hide_private(&mut self, needs: &Needs, roots: &Roots, cwd: &Path) {
        let named = |path: &PathBuf| {
            let mut inner = needs.reads.iter().filter(|read| read.starts_with("/etc/"));
            path.starts_with(cwd) || inner.any(|read| path.starts_with(read))
        };
        let private = root_only::settings().into_iter();
        let private = private.filter(|path| roots.covers(path) && !named(path));
        self.hidden.extend(private.filter_map(|path| c_path(&path)));
    }

    fn namespaces(&self, metadata: bool) -> libc::c_int {
        let lists = [&self.kept, &self.hidden, &self.covered];
        let covered = lists.iter().any(|list| !list.is_empty());
        let mounts = self.read_only || covered || self.proc;
        // Where the filter lets System V memory through, it is memory of its own.
        flag_if(mounts, libc::CLONE_NEWNS) | flag_if(metadata, libc::CLONE_NEWIPC)
    }
}

/// P-16: the owner of what it may write, else of the workspace.
fn identity(needs: &Needs, cwd: &Path) -> Identity {
    let place = needs.writes.first().map_or(cwd, PathBuf::as_path);
    let owner = plain(place)
        .ancestors()
        .find_map(|path| fs::metadata(path).ok())
        .map(|owner| (owner.uid(), owner.gid()));
    let (uid, gid) = owner.unwrap_or((65_534, 65_534));
    Identity { uid, gid }
}

/// What a writable path is or is to be. One that is not there is a file if its name has an
/// ending, and a folder if it has none.
pub(crate) fn access_of(path: &Path) -> Access {
    let is_file = match fs::metadata(path) {
        Ok(found) => !found.is_dir(),
        Err(_) => {
            let slash = path.as_os_str().as_bytes().ends_with(b"/");
            !slash && path.extension().is_some()
        }
    };
    if is_file {
        Access::WriteFile
    } else {
        Access::WriteFolder
    }
}

/// The path without `.` and doubled slashes.
pub(crate) fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// The real path: links resolved as far as there is something.
#[must_use]
pub fn real(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let Ok(found) = there.canonicalize() {
            let rest = path.strip_prefix(there).expect("an ancestor of it");
            // Joining nothing would add a slash.
            return if rest.as_os_str().is_empty() {
                found
            } else {
                found.join(rest)
            };
        }
    }
    path.to_owned()
}

fn as_path(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

pub(crate) fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
