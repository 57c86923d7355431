//! Worker pools that tools share.

use std::collections::HashMap;
use std::sync::Arc;

use callgate_call::Needs;
use callgate_runners::{Pool, PoolPlan};
use callgate_sandbox::Spawner;

/// Everything in which two tools may differ that run in worker pools, but for their entries.
///
/// Tools share a pool if their keys are equal. The key holds the values themselves, not a text
/// of them: a derived `Debug` may leave out a field or redact a secret, and so would merge two
/// pools in silence. Values of secrets are a part of it, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// The workers: program, environment, secrets, bounds, isolation, interpreter.
    plan: PoolPlan,
    /// What the workers are confined to.
    needs: Option<Needs>,
}

impl PoolKey {
    /// The key of a tool whose workers are to be like this.
    pub fn new(plan: PoolPlan, needs: Option<&Needs>) -> Self {
        Self {
            plan,
            needs: needs.cloned(),
        }
    }
}

/// The pools of a catalog.
#[derive(Default)]
pub struct SharedPools(HashMap<PoolKey, Arc<Pool>>);

impl SharedPools {
    /// Returns the pool of a key, and makes it if there is none yet.
    pub fn get(&mut self, key: PoolKey, spawner: &Arc<Spawner>) -> Arc<Pool> {
        let plan = key.plan.clone();
        let made = || plan.pool(Arc::clone(spawner));
        Arc::clone(self.0.entry(key).or_insert_with(made))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use callgate_call::{Isolation, Network};
    use callgate_sandbox::SpawnerSettings;

    use super::*;
    use crate::catalog::Workshop;
    use crate::config::{Config, parse};
    use crate::environment::Environment;
    use crate::needs::Ground;
    use crate::paths::Paths;

    fn environment() -> Environment {
        let variables = [("A", "one"), ("B", "one"), ("C", "two")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        Environment::new(BTreeMap::from(variables), "/".into(), 1000)
    }

    /// Pools of a configuration's tools, made in a workspace that is not there.
    fn pools(config: Config) -> usize {
        let environment = environment();
        let paths = Paths {
            workspace: "/nowhere/workspace".into(),
            state: "/nowhere/state".into(),
            socket: "/nowhere/state/gate.sock".into(),
            home: None,
            gate: None,
        };
        let ground = Ground::new(&paths, &config, &[]);
        let spawner = Spawner::with_settings("/nowhere/program".into(), SpawnerSettings::default());
        let mut workshop = Workshop {
            environment: &environment,
            root: paths.workspace,
            spawner,
            ground: &ground,
            secrets: &config.secrets.env.clone(),
            worker: &|| vec!["/nowhere/callgate/worker.py".into()],
            node_worker: &|| vec!["/nowhere/worker.mjs".into()],
            lay_out: &|_| Ok("/nowhere/pack".into()),
            remotes: None,
            runs: None,
            pools: SharedPools::default(),
        };
        for tool in config.tools {
            workshop.tool(tool).unwrap();
        }
        workshop.pools.0.len()
    }

    /// A configuration of two tools that differ in their names and in these words of their own.
    fn two(first: [&str; 2], second: [&str; 2]) -> Config {
        let tool = |name: &str, [table, runner]: [&str; 2]| {
            format!("[[tool]]\nname = \"{name}\"\n{table}\nrunner = {{ {runner} }}\n")
        };
        let text = format!(
            "[secrets]\nenv = [\"A\", \"B\"]\n{}{}",
            tool("first", first),
            tool("second", second)
        );
        parse(&text).unwrap()
    }

    const PROGRAM: &str = "kind = \"pool\", command = [\"work\"]";
    const PYTHON: &str = "kind = \"python\", entry = \"tools.a:run\"";
    const NODE: &str = "kind = \"node\", entry = \"tools/a.mjs:run\"";

    #[test]
    fn equal_tools_share_a_pool() {
        for runner in [PROGRAM, PYTHON, NODE] {
            assert_eq!(pools(two(["", runner], ["", runner])), 1, "{runner}");
            let table = "description = \"other words\"\ntier = 3\ntags = [\"t\"]";
            assert_eq!(pools(two(["", runner], [table, runner])), 1, "{runner}");
        }
        let other = "kind = \"pool\", command = [\"work\"], entry = \"b\"";
        assert_eq!(pools(two(["", PROGRAM], ["", other])), 1);
        let spelt = "kind = \"pool\", command = [\"work\"], pool = { workers_max = 4 }";
        assert_eq!(pools(two(["", PROGRAM], ["", spelt])), 1);
    }

    /// What is written of the tool beside its runner, and of the runner itself.
    #[test]
    fn a_difference_in_one_field_makes_two_pools() {
        let runners = [
            "env = { V = \"1\" }",
            "limits = { memory_bytes = 1000000 }",
            "limits = { cpu_seconds = 1 }",
            "limits = { cpu_percent = 1 }",
            "limits = { processes = 9 }",
            "limits = { file_bytes = 1 }",
            "limits = { open_files = 9 }",
            "limits = { output_bytes = 9 }",
            "limits = { whole_tree = true }",
            "pool = { workers_max = 1 }",
            "pool = { queue_max = 1 }",
            "pool = { backoff_min_ms = 1 }",
            "pool = { backoff_max_ms = 1 }",
            "pool = { crashes_max = 1 }",
            "pool = { crash_window_ms = 1 }",
            "pool = { idle_ms = 1 }",
            "pool = { calls_max = 1 }",
        ];
        let tables = [
            "reads = [\"data\"]",
            "writes = [\"out\"]",
            "network = true",
            "network = { allow = [\"h:1\"] }",
            "guarantees = { no_subprocess = true }",
            "guarantees = { secrets_allowed = [\"A\"] }",
            "sandbox = \"strict\"",
            "sandbox = false",
            "ipc = true",
            "allow_unsafe_execution = true",
            "isolation = \"cold\"",
        ];
        for base in [PROGRAM, PYTHON, NODE] {
            for more in runners {
                let runner = format!("{base}, {more}");
                assert_eq!(pools(two(["", base], ["", &runner])), 2, "{runner}");
            }
            for table in tables {
                assert_eq!(pools(two(["", base], [table, base])), 2, "{base}: {table}");
            }
        }
        for (base, more) in [
            (PYTHON, "python = \"/usr/bin/python3.9\""),
            (PYTHON, "preload = [\"json\"]"),
            (NODE, "node = \"/usr/bin/node20\""),
        ] {
            let runner = format!("{base}, {more}");
            assert_eq!(pools(two(["", base], ["", &runner])), 2, "{runner}");
        }
        let other = "kind = \"pool\", command = [\"other\"]";
        assert_eq!(pools(two(["", PROGRAM], ["", other])), 2);
        assert_eq!(pools(two(["", PROGRAM], ["", PYTHON])), 2);
        assert_eq!(pools(two(["", PYTHON], ["", NODE])), 2);
    }

    /// Values count as they are, not as they are written: neither a reference nor a redaction
    /// hides a difference, and the name of a secret is one.
    #[test]
    fn values_of_variables_decide() {
        let with = |value: &str| format!("{PROGRAM}, env = {{ V = \"{value}\" }}");
        for (first, second, count) in [
            ("${A}", "${A}", 1),
            ("${A}", "${C}", 2),
            // Equal values of two secrets, of which a tool may be allowed one.
            ("${A}", "${B}", 2),
            // The same value, which is a secret in one of them alone.
            ("${A}", "one", 2),
            ("${C}", "two", 1),
        ] {
            let (first, second) = (with(first), with(second));
            assert_eq!(
                pools(two(["", &first], ["", &second])),
                count,
                "{first} {second}"
            );
        }
    }

    /// Every field of what a tool needs.
    #[test]
    fn needs_are_compared_whole() {
        let plan = || {
            let settings = callgate_runners::PoolSettings::new(
                vec!["work".into()],
                Vec::new(),
                "/nowhere".into(),
            );
            PoolPlan::program(settings)
        };
        let base = Needs::default();
        let path = || vec![Path::new("/p").to_owned()];
        let other: Vec<Needs> = vec![
            Needs {
                reads: path(),
                ..base.clone()
            },
            Needs {
                writes: path(),
                ..base.clone()
            },
            Needs {
                code: path(),
                ..base.clone()
            },
            Needs {
                kept: path(),
                ..base.clone()
            },
            Needs {
                hidden: path(),
                ..base.clone()
            },
            Needs {
                covered: path(),
                ..base.clone()
            },
            Needs {
                network: Network::Any,
                ..base.clone()
            },
            Needs {
                unsafe_execution: true,
                ..base.clone()
            },
            Needs {
                unconfined: true,
                ..base.clone()
            },
            Needs {
                strict: true,
                ..base.clone()
            },
            Needs {
                isolation: Isolation::Call,
                ..base.clone()
            },
        ];
        let mut keys = vec![
            PoolKey::new(plan(), None),
            PoolKey::new(plan(), Some(&base)),
        ];
        keys.extend(other.iter().map(|needs| PoolKey::new(plan(), Some(needs))));
        for (at, key) in keys.iter().enumerate() {
            let equal: Vec<usize> = (0..keys.len()).filter(|i| keys[*i] == *key).collect();
            assert_eq!(equal, [at]);
        }
    }
}
