//! What confinement costs: a static program that ends at once, started plainly by the standard
//! library, and confined by us; by bubblewrap and podman where they can be had.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use callgate_call::{Asker, Guarantee, Guarantees, Needs};
use callgate_sandbox::{Ending, Limits, Spawner, Spec, Trees};

use crate::figure::{Figure, number, quiet};
use crate::launchers::{Podman, bubblewrap};
use crate::scratch::Scratch;
use crate::{Bench, Failure, cpu, in_process};

const ROUNDS: usize = 5;
const CHILDREN: usize = 300;
/// Of others, which take longer: bubblewrap, podman.
const WRAPPED: usize = 60;
const CONTAINERS: usize = 2;

/// The bounds: CPU above a plain start.
const LAYERS_US_MAX: f64 = 500.0;
const NAMESPACES_US_MAX: f64 = 1300.0;

/// An ELF file of one segment whose only code is `exit(0)`.
#[cfg(target_arch = "x86_64")]
const PROGRAM: [u8; 132] = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\
    \x02\0\x3e\0\x01\0\0\0\x78\0\x40\0\0\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0\
    \x01\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x40\0\0\0\0\0\
    \x84\0\0\0\0\0\0\0\x84\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\
    \xb8\x3c\0\0\0\x31\xff\x0f\x05\x90\x90\x90";

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("confined")?;
    let program = place(&scratch.workspace())?;
    let runtime = in_process::runtime()?;
    let mut bwrap = had(bubblewrap(&program));
    let podman = had(Podman::new(scratch.root(), &program));
    let mut all: [Vec<f64>; 7] = Default::default();
    for _ in 0..ROUNDS {
        let ours = |trees, needs| {
            let limits = Limits::default();
            runtime.block_on(children(bench, &program, trees, needs, limits))
        };
        let [plain, bare, layers, namespaces, grouped, wrapped, contained] = &mut all;
        plain.push(by_the_library(&mut Command::new(&program), CHILDREN)?);
        bare.push(ours(Trees::Subreaper, None)?);
        layers.push(ours(Trees::Subreaper, Some(needs(false)))?);
        namespaces.push(ours(Trees::Best, Some(needs(true)))?);
        let (needs, limits) = (Some(needs(false)), limits());
        let limited = children(bench, &program, Trees::Subreaper, needs, limits);
        grouped.push(runtime.block_on(limited)?);
        if let Some(command) = &mut bwrap {
            wrapped.push(by_the_library(command, WRAPPED)?);
        }
        if let Some(podman) = &podman {
            contained.push(by_the_library(&mut podman.run(), CONTAINERS)?);
        }
    }
    let [plain, bare, layers, namespaces, grouped, wrapped, contained] = all.map(|all| quiet(&all));
    let beside = format!(
        "above {} µs of a plain start; our own start without confinement {} µs",
        number(plain),
        number(bare - plain),
    );
    let above = |what: &str, spent: f64| {
        let name = format!("confined: {what}, above a plain start");
        Figure::new(&name, spent - plain, "µs")
    };
    let mut figures = vec![
        above("Landlock, seccomp, exec-once, uid", layers)
            .at_most(LAYERS_US_MAX)
            .beside(beside.clone()),
        above("with pid, net and IPC namespaces", namespaces)
            .at_most(NAMESPACES_US_MAX)
            .beside(beside),
        above("with limits on memory and processes", grouped)
            .beside("of all its processes together, by cgroups where they can be had"),
    ];
    if bwrap.is_some() {
        let what = "all namespaces, no filter, no Landlock, the same uid";
        figures.push(above("bubblewrap", wrapped).beside(what));
    }
    if podman.is_some() {
        let what = "its client alone; the monitor it leaves behind is not counted";
        figures.push(above("podman", contained).beside(what));
    }
    Ok(figures)
}

/// What can not be had is left out, and said.
fn had<T>(rival: Result<T, Failure>) -> Option<T> {
    rival
        .inspect_err(|reason| eprintln!("confined: left out: {reason}"))
        .ok()
}

/// A folder with the program; as root it is somebody else's, so that the uid changes.
fn place(folder: &Path) -> Result<PathBuf, Failure> {
    const NOBODY: u32 = 65_534;
    let program = folder.join("true");
    fs::write(&program, PROGRAM)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    // Only root can, and only root's children become others.
    let _ = chown(folder, Some(NOBODY), Some(NOBODY));
    Ok(program)
}

/// Everything that costs something at a start.
fn needs(strict: bool) -> Arc<Needs> {
    let mut guarantees = Guarantees::default();
    for one in [
        Guarantee::NoFilesystemWrite,
        Guarantee::NoNetwork,
        Guarantee::NoSubprocess,
    ] {
        guarantees.require(one, Asker::Tool);
    }
    Arc::new(Needs {
        guarantees,
        strict,
        ..Needs::default()
    })
}

fn limits() -> Limits {
    Limits {
        address_space_bytes: Some(256 << 20),
        processes: Some(64),
        ..Limits::default()
    }
}

/// CPU of a child on both sides, the start of the spawner and what it finds out shared among
/// all.
pub async fn children(
    bench: &Bench,
    program: &Path,
    trees: Trees,
    needs: Option<Arc<Needs>>,
    limits: Limits,
) -> Result<f64, Failure> {
    let spawner = Spawner::with_trees(bench.callgate.clone(), trees);
    let before = cpu::ours_and_children();
    for _ in 0..CHILDREN {
        let words = vec![OsString::from(program)];
        let folder = program.parent().ok_or("a program is in a folder")?;
        let mut spec = Spec::new(words, folder.to_owned());
        spec.confine.clone_from(&needs);
        spec.limits.clone_from(&limits);
        let mut child = spawner.spawn(spec).await?;
        let exit = child.wait().await;
        if exit.ending != Ending::Code(0) {
            return Err(format!("the program ended with {exit:?}").into());
        }
    }
    // Waits for the spawner, so that its CPU and its children's are ours to see.
    drop(spawner);
    Ok(cpu::micros_each(
        cpu::ours_and_children() - before,
        CHILDREN,
    ))
}

fn by_the_library(command: &mut Command, times: usize) -> Result<f64, Failure> {
    let before = cpu::ours_and_children();
    for _ in 0..times {
        if !command.status()?.success() {
            return Err(format!("{command:?} failed").into());
        }
    }
    Ok(cpu::micros_each(cpu::ours_and_children() - before, times))
}
