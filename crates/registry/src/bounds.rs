//! Bounds on the numbers of a configured runner.

use crate::config::{LimitsConfig, PoolConfig, RunnerConfig};

/// Refuses numbers that could only be slips, before they become queues and buffers.
pub fn check_bounds(config: &RunnerConfig) -> Result<(), String> {
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
            return Err("cpu_percent: not for containers".to_owned());
        }
        RunnerConfig::Container(container) => (&container.limits, &container.pool),
    };
    check_numbers(limits, pool)
}

fn check_numbers(limits: &LimitsConfig, pool: &PoolConfig) -> Result<(), String> {
    let within = |name: &str, value: Option<usize>, max: usize| match value {
        Some(value) if value == 0 || value > max => {
            Err(format!("{name}: {value} is not 1 to {max}"))
        }
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
