//! What a configuration takes away, read leniently: of a form that is not trusted these words
//! apply at once, and no others. Nothing here can grant anything, because each part is only ever
//! added to what counts and the stricter of the two is taken. G-9.

use callgate_tools::files::Lists;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{BuiltinsConfig, Config, DecisionConfig, LimitConfig, PolicyConfig};

/// The words that restrict.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Restrictions {
    /// `[files] allow`, as a further list that a path must be in.
    pub files_allow: Vec<String>,
    /// `[files] deny`.
    pub files_deny: Vec<String>,
    /// `[exec] off`.
    exec_off: bool,
    /// `[exec] allow`.
    exec_allow: Vec<String>,
    /// `[exec] toolchains = false`.
    toolchains_off: bool,
    /// `[runs] off`.
    runs_off: bool,
    /// `[terminals] off`.
    terminals_off: bool,
    /// `[http] off`.
    http_off: bool,
    /// `[[policy]]`, rules that ask or deny among those that allow.
    pub policies: Vec<PolicyConfig>,
    /// `[leases] enforce_from_tier`.
    pub leases_from_tier: Option<u64>,
    /// `[secrets] env`.
    secrets: Vec<String>,
    /// `[[limit]]`.
    limits: Vec<LimitConfig>,
    /// `[builtins]`.
    pub builtins: BuiltinsConfig,
}

impl Restrictions {
    /// Those of a text that may not be a configuration: each part that can be read counts. The
    /// error is a text of which nothing can be read.
    pub fn of(text: &str) -> Result<Self, toml::de::Error> {
        let table: Table = toml::from_str(text)?;
        let decides = |rule: &PolicyConfig| rule.decision != DecisionConfig::Allow;
        let mut policies: Vec<PolicyConfig> = entries(&table, "policy");
        // Which rules come before one that restricts bears on what it restricts.
        let last = policies.iter().rposition(decides);
        policies.truncate(last.map_or(0, |last| last + 1));
        let tier: Option<u64> = value(&table, "leases", "enforce_from_tier");
        let mut limits: Vec<LimitConfig> = entries(&table, "limit");
        limits.retain(|limit| limit.read().is_ok());
        let is_pattern = |pattern: &String| Lists::new(&[], std::slice::from_ref(pattern)).is_ok();
        let mut files = ["allow", "deny"].map(|key| words(&table, "files", key));
        files.iter_mut().for_each(|list| list.retain(is_pattern));
        let [files_allow, files_deny] = files;
        let off = |section| value(&table, section, "off").unwrap_or(false);
        Ok(Self {
            files_allow,
            files_deny,
            exec_off: off("exec"),
            exec_allow: words(&table, "exec", "allow"),
            toolchains_off: value(&table, "exec", "toolchains") == Some(false),
            runs_off: off("runs"),
            terminals_off: off("terminals"),
            http_off: off("http"),
            policies,
            leases_from_tier: tier.filter(|tier| *tier <= 3),
            secrets: words(&table, "secrets", "env"),
            limits,
            builtins: BuiltinsConfig {
                off: off("builtins"),
                allow: value(&table, "builtins", "allow"),
            },
        })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds them to what counts.
    pub fn apply(self, config: &mut Config) {
        let exec = &mut config.exec;
        if exec.allow.is_empty() {
            exec.allow.clone_from(&self.exec_allow);
        } else if !self.exec_allow.is_empty() {
            // Those that are taken away count again one day, and stay closed to callers until then.
            exec.kept.extend(exec.allow.iter().cloned());
            exec.allow
                .retain(|program| self.exec_allow.contains(program));
            // An empty list would allow every program.
            exec.off |= exec.allow.is_empty();
        }
        exec.off |= self.exec_off;
        if self.toolchains_off {
            exec.toolchains = Some(false);
        }
        config.runs.off |= self.runs_off;
        config.terminals.off |= self.terminals_off;
        config.http.off |= self.http_off;
        config.builtins.off |= self.builtins.off;
        config.files.deny.extend(self.files_deny.iter().cloned());
        config.secrets.env.extend(self.secrets.iter().cloned());
        // The first limit that fits a tool counts, so these are for tools without one.
        config.limits.extend(self.limits.iter().cloned());
        config.restricted.push(self);
    }
}

fn value<T: DeserializeOwned>(table: &Table, section: &str, key: &str) -> Option<T> {
    table.get(section)?.get(key)?.clone().try_into().ok()
}

/// The texts of a list.
fn words(table: &Table, section: &str, key: &str) -> Vec<String> {
    let list = table.get(section).and_then(|section| section.get(key));
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

/// The entries of a list of tables that read.
fn entries<T: DeserializeOwned>(table: &Table, name: &str) -> Vec<T> {
    let list = table
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    list.filter_map(|entry| entry.clone().try_into().ok())
        .collect()
}
