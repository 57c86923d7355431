//! What confinement costs: a static program that ends at once, started plainly by the standard
//! library, and confined by us; bubblewrap beside them where it is installed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use callgate_call::{Asker, Guarantee, Guarantees, Needs};
use callgate_sandbox::{Ending, Spawner, Spec, Trees};

use crate::figure::{Figure, number, quiet};
use crate::scratch::Scratch;
use crate::{Bench, Failure, cpu, in_process};

const ROUNDS: usize = 5;
const CHILDREN: usize = 300;

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
    let (mut plain, mut bare, mut layers, mut namespaces, mut bwrap) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(by_the_library(&mut Command::new(&program))?);
        let ours = |trees, needs| runtime.block_on(children(bench, &program, trees, needs));
        bare.push(ours(Trees::Subreaper, None)?);
        layers.push(ours(Trees::Subreaper, Some(needs(false)))?);
        namespaces.push(ours(Trees::Best, Some(needs(true)))?);
        if let Some(mut command) = bubblewrap(&program) {
            bwrap.push(by_the_library(&mut command)?);
        }
    }
    let base = quiet(&plain);
    let others = match bwrap.is_empty() {
        true => "bubblewrap is not installed".to_owned(),
        false => format!("bubblewrap {} µs", number(quiet(&bwrap) - base)),
    };
    let beside = format!(
        "above {} µs of a plain start; our own start without confinement {} µs; {others}",
        number(base),
        number(quiet(&bare) - base),
    );
    let above = |name, values: &[f64]| Figure::new(name, quiet(values) - base, "µs");
    Ok(vec![
        above(
            "confined: Landlock, seccomp, exec-once, uid, above a plain start",
            &layers,
        )
        .at_most(LAYERS_US_MAX)
        .beside(beside.clone()),
        above(
            "confined: with pid, net and IPC namespaces, above a plain start",
            &namespaces,
        )
        .at_most(NAMESPACES_US_MAX)
        .beside(beside),
    ])
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

/// CPU of a child on both sides, the start of the spawner and what it finds out shared among
/// all.
async fn children(
    bench: &Bench,
    program: &Path,
    trees: Trees,
    needs: Option<Arc<Needs>>,
) -> Result<f64, Failure> {
    let spawner = Spawner::with_trees(bench.callgate.clone(), trees);
    let before = cpu::ours_and_children();
    for _ in 0..CHILDREN {
        let words = vec![OsString::from(program)];
        let folder = program.parent().ok_or("a program is in a folder")?;
        let mut spec = Spec::new(words, folder.to_owned());
        spec.confine.clone_from(&needs);
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

fn by_the_library(command: &mut Command) -> Result<f64, Failure> {
    let before = cpu::ours_and_children();
    for _ in 0..CHILDREN {
        if !command.status()?.success() {
            return Err(format!("{command:?} failed").into());
        }
    }
    Ok(cpu::micros_each(
        cpu::ours_and_children() - before,
        CHILDREN,
    ))
}

fn bubblewrap(program: &Path) -> Option<Command> {
    let there = Command::new("bwrap")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    there.ok().filter(|status| status.success())?;
    let mut command = Command::new("bwrap");
    command
        .args(["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"])
        .arg(program);
    Some(command)
}
