//! Bounds on the numbers of a configured runner.

use crate::config::{LimitsConfig, PoolConfig, RunnerConfig};

/// A number of a runner that could only be a slip.
#[derive(Debug, thiserror::Error)]
pub enum BoundsError {
    /// A number outside its range.
    #[error("{name}: {given} is not 1 to {max}")]
    Outside {
        /// The field.
        name: &'static str,
        /// As written.
        given: usize,
        /// The largest.
        max: usize,
    },
    /// A limit that containers do not have.
    #[error("cpu_percent: not for containers")]
    ContainerCpu,
}

/// Refuses numbers that could only be slips, before they become queues and buffers.
pub fn check_bounds(config: &RunnerConfig) -> Result<(), BoundsError> {
    let (limits, pool) = match config {
        RunnerConfig::Process { limits, .. } => (limits, &PoolConfig::default()),
        RunnerConfig::Executor(executor) => (&executor.limits, &PoolConfig::default()),
        RunnerConfig::Pool { limits, pool, .. }
        | RunnerConfig::Python { limits, pool, .. }
        | RunnerConfig::Node { limits, pool, .. } => (limits, pool),
        RunnerConfig::Service(service) => {
            let limits = LimitsConfig {
                output_bytes: service.output_bytes,
                ..LimitsConfig::default()
            };
            return check_numbers(&limits, &PoolConfig::default());
        }
        RunnerConfig::Container(container) if container.limits.cpu_percent.is_some() => {
            return Err(BoundsError::ContainerCpu);
        }
        RunnerConfig::Container(container) => (&container.limits, &container.pool),
    };
    check_numbers(limits, pool)
}

fn check_numbers(limits: &LimitsConfig, pool: &PoolConfig) -> Result<(), BoundsError> {
    let within = |name: &'static str, value: Option<usize>, max: usize| match value {
        Some(given) if given == 0 || given > max => Err(BoundsError::Outside { name, given, max }),
        _ => Ok(()),
    };
    let percent = limits
        .cpu_percent
        .map(|percent| percent.try_into().unwrap_or(usize::MAX));
    within("cpu_percent", percent, 100_000)?;
    within("output_bytes", limits.output_bytes, 1 << 30)?;
    within("workers_max", pool.workers_max, 1024)?;
    within("queue_max", pool.queue_max, 65_536)?;
    within("crashes_max", pool.crashes_max, 1_000_000)
}
