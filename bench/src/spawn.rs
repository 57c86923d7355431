//! A child costs the same however big the gate has become.

use std::ffi::OsString;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;

use callgate_sandbox::{Ending, Spawner, Spec};

use crate::figure::{Figure, median, number, ratio};
use crate::{Bench, Failure, cpu, in_process};

const ROUNDS: usize = 7;
const CHILDREN: usize = 60;
const BALLAST_BYTES: usize = 1 << 30;
const PAGE_BYTES: usize = 4096;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let runtime = in_process::runtime()?;
    let (mut small, mut big, mut library) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        small.push(runtime.block_on(children(bench))?);
        let ballast = ballast();
        big.push(runtime.block_on(children(bench))?);
        library.push(by_the_library()?);
        drop(black_box(ballast));
    }
    let beside = format!(
        "{} µs with 1 GiB resident, {} µs without; the standard library's own spawn {} µs with 1 GiB",
        number(median(&big)),
        number(median(&small)),
        number(median(&library)),
    );
    Ok(vec![
        Figure::new(
            "spawn: CPU with 1 GiB against small",
            ratio(&big, &small),
            "x",
        )
        .at_most(1.1)
        .beside(beside),
    ])
}

/// CPU of a child on both sides, the start of the spawner shared among all.
async fn children(bench: &Bench) -> Result<f64, Failure> {
    let before = cpu::ours_and_children();
    let spawner = Spawner::new(bench.callgate.clone());
    for _ in 0..CHILDREN {
        let spec = Spec::new(vec![OsString::from("/bin/true")], PathBuf::from("/"));
        let mut child = spawner.spawn(spec).await?;
        let exit = child.wait().await;
        if exit.ending != Ending::Code(0) {
            return Err(format!("/bin/true ended with {exit:?}").into());
        }
    }
    // Waits for the spawner, so that its CPU and its children's are ours to see.
    drop(spawner);
    Ok(cpu::micros_each(
        cpu::ours_and_children() - before,
        CHILDREN,
    ))
}

fn by_the_library() -> Result<f64, Failure> {
    let before = cpu::ours_and_children();
    for _ in 0..CHILDREN {
        Command::new("/bin/true").status()?;
    }
    Ok(cpu::micros_each(
        cpu::ours_and_children() - before,
        CHILDREN,
    ))
}

/// Memory with something in every page.
fn ballast() -> Vec<u8> {
    let mut ballast = vec![0; BALLAST_BYTES];
    for page in ballast.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    ballast
}
