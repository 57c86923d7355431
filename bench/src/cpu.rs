//! CPU time, user and system together, of whoever it is.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

use crate::Failure;

/// Ticks of `/proc/PID/stat`, which Linux fixes at 100 a second for programs.
const TICK: Duration = Duration::from_millis(10);

/// Of this thread.
pub fn thread() -> Duration {
    now(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Of this process and of every child that was waited for, theirs included.
pub fn ours_and_children() -> Duration {
    now(ClockId::CLOCK_PROCESS_CPUTIME_ID) + children()
}

/// Of every child that was waited for, theirs included.
pub fn children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the kernel always tells");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.unsigned_abs())
}

fn now(clock: ClockId) -> Duration {
    clock
        .now()
        .map(Duration::from)
        .expect("a clock every Linux has")
}

/// Of a process, its descendants, and those of them that are gone and were waited for. The
/// living are exact; the dead come in ticks of 10 ms.
pub fn tree(root: u32) -> Result<Duration, Failure> {
    let parents = processes()?;
    let mut members = vec![root];
    let mut at = 0;
    while let Some(&member) = members.get(at) {
        members.extend(
            parents
                .iter()
                .filter(|(_, parent)| **parent == member)
                .map(|(pid, _)| pid),
        );
        at += 1;
    }
    let mut sum = Duration::ZERO;
    for pid in members {
        // One that has gone since is in its parent's sum the next time.
        sum += process(pid);
        if let Some(stat) = Stat::read(pid) {
            sum += TICK * u32::try_from(stat.children_ticks).unwrap_or(u32::MAX);
        }
    }
    Ok(sum)
}

/// Of one process alone.
pub fn process(pid: u32) -> Duration {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed()));
    clock
        .and_then(ClockId::now)
        .map(Duration::from)
        .unwrap_or_default()
}

/// While it is held, this thread and whatever it starts share one core. For what is done in
/// turns: waking somebody on another core costs a virtual machine more than a call does, it is
/// counted as the waker's, and who gets to be on another core is the scheduler's choice.
pub struct OneCore {
    before: CpuSet,
}

impl OneCore {
    pub fn hold() -> Result<Self, Failure> {
        let before = sched_getaffinity(Pid::from_raw(0))?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu()?)?;
        sched_setaffinity(Pid::from_raw(0), &one)?;
        Ok(Self { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // At worst the benches after this one have one core, too.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

/// Every process and its parent.
fn processes() -> Result<BTreeMap<u32, u32>, Failure> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            parents.extend(Stat::read(pid).map(|stat| (pid, stat.parent)));
        }
    }
    Ok(parents)
}

struct Stat {
    parent: u32,
    children_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before it may contain anything, a bracket too.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
        Some(Self {
            parent: u32::try_from(field(1)?).ok()?,
            children_ticks: field(13)? + field(14)?,
        })
    }
}

/// Reads and writes a process made so far.
pub fn io_calls(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some(field("syscr:")? + field("syscw:")?)
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Microseconds of each of `count`.
pub fn micros_each(cpu: Duration, count: usize) -> f64 {
    cpu.as_secs_f64() * 1e6 / count as f64
}
