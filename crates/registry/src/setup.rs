//! The setup of a gate, made of the configuration in force: tools, policy, secrets, limits.

use std::cell::OnceCell;
use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Clock, RateLimit, RunWatch, Secrets, Tier, Tool, Topics, fits_any};
use callgate_dial::Dialer;
use callgate_gate::{
    BreakerPolicy, Catalog, CatalogError, Decision, Entries, LeasePolicy, Policy, Rule, Setup,
};
use callgate_runners::{Containers, Executors};
use callgate_sandbox::Spawner;
use callgate_search::Engine;
use callgate_store::{Store, StoreError};
use callgate_tools::files::{self, Files, FilesLimits, Lists};
use callgate_tools::planner::{self, Program};
use callgate_tools::terminals::Terminals;
use callgate_tools::vector::{self, Vectors};

use crate::catalog::{SharedPools, ToolError, Workshop};
use crate::config::{
    BuiltinsError, Config, DecisionConfig, LimitConfig, LimitError, PolicyConfig, Restrictions,
    SecretsConfig, ToolConfig,
};
use crate::entries::Functions;
use crate::environment::Environment;
use crate::exec::{self, ExecError};
use crate::lock::LockError;
use crate::needs::Ground;
use crate::node;
use crate::paths::Paths;
use crate::project;
use crate::python;
use crate::remote::{self, Remotes};
use crate::runs;
use crate::search::SearchError;
use crate::servers::{self, RunningServers, ServerProblem};
use crate::shelf::{self, ShelfError};
use crate::suggest;
use crate::terminals;
use crate::trust::{Basis, InForce};
use crate::unserved;
use crate::workspace::Source;

/// The variable that our own token is usually in.
const TOKEN_VARIABLE: &str = "CALLGATE_TOKEN";

/// What is in the name of a variable that holds a secret.
const SECRET_WORDS: [&str; 7] = [
    "CREDENTIAL",
    "CREDENTIALS",
    "KEY",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "TOKEN",
];

/// Everything one process needs to serve a workspace.
pub struct Parts {
    /// Environment of the process.
    pub environment: Arc<Environment>,
    /// Folders and sockets of the workspace.
    pub paths: Paths,
    /// Journal, keys and artifacts of the workspace.
    pub store: Arc<Store>,
    /// Starts all child processes.
    pub spawner: Arc<Spawner>,
    /// Containers of all setups: they are removed by whoever has them last.
    pub containers: Arc<Containers>,
    /// Connections to services.
    pub dialer: Arc<Dialer>,
    /// Events of tools, which outlive calls and setups.
    pub topics: Topics,
    /// Terminal sessions, which outlive them too.
    pub terminals: Arc<Terminals>,
    /// The search index, which is in memory once and for all setups.
    pub engine: Arc<Engine>,
    /// The index of memory.
    pub notes: Arc<Engine>,
    /// The MCP servers, whose processes outlive setups.
    pub servers: Arc<RunningServers>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Who looks on while runs stream; of the setups that are made from now on.
    pub run_watch: Option<Arc<dyn RunWatch>>,
    /// What the crates above this one contribute.
    pub extensions: Extensions,
}

/// Checks settings without starting what they are for.
pub type CheckServices =
    fn(&Config, &Environment, &Arc<dyn Clock>) -> Result<(), Box<dyn Error + Send + Sync>>;

/// Functions of the crates above this one that a setup is made with.
#[derive(Clone, Copy)]
pub struct Extensions {
    /// Checks the settings of doors and exporters.
    pub check: CheckServices,
}

/// Which tools a gate is to have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Builtins {
    /// Beside the configured ones.
    With,
    /// Only what the configuration has.
    Without,
}

impl Parts {
    /// Which configuration is in force, and why.
    pub fn in_force(&self) -> Result<InForce, StoreError> {
        InForce::look(&self.environment, &self.paths, &self.store)
    }

    /// The workspace's setup, by the configuration in force. The error is one that does not hold
    /// together, or that nothing is in force.
    pub fn setup(&self) -> Result<Setup, SetupError> {
        self.setup_in_force(self.in_force()?)
    }

    /// The setup of a configuration in force.
    pub fn setup_in_force(&self, in_force: InForce) -> Result<Setup, SetupError> {
        let (note, doubt) = (in_force.note(), in_force.doubt());
        if let Basis::Nothing(reason) = in_force.basis {
            return Err(SetupError::Nothing(reason));
        }
        let source = in_force.source();
        let files = source.map_or_else(Vec::new, |source| source.files.clone());
        let place = source.map(|source| source.file.clone());
        let config = in_force.into_config();
        let setup = self.setup_of_config(config, &files, Builtins::With, note);
        let setup = setup.map_err(|error| error.placed(place))?;
        Ok(Setup { doubt, ..setup })
    }

    /// The setup of a workspace that serves nothing, and says why.
    pub fn closed(in_force: &InForce) -> Setup {
        Setup {
            doubt: in_force.doubt(),
            note: in_force.note(),
            ..Setup::default()
        }
    }

    /// The setup of the word `builtin`: the built-in tools, under the restrictions of the
    /// configuration in force. T-11.
    pub fn builtins(&self) -> Result<Setup, SetupError> {
        let in_force = self.in_force()?;
        let mut config = Config::default();
        match &in_force.basis {
            Basis::Nothing(reason) => return Err(SetupError::Nothing(reason.clone())),
            Basis::Files(source) | Basis::Copy(source) => {
                if let Some(text) = &source.text
                    && let Ok(restrictions) = Restrictions::of(text)
                {
                    restrictions.apply(&mut config);
                }
            }
            Basis::Builtins => {}
        }
        for restrictions in in_force.restrictions {
            restrictions.apply(&mut config);
        }
        let note = "built-in tools".to_owned();
        Ok(self.setup_of_config(config, &[], Builtins::With, note)?)
    }

    /// The setup of a configuration that counts.
    pub fn setup_of(
        &self,
        source: Source,
        builtins: Builtins,
        note: String,
    ) -> Result<Setup, SetupError> {
        let file = source.file.clone();
        self.setup_of_config(source.config, &source.files, builtins, note)
            .map_err(|error| error.placed(Some(file)))
    }

    fn setup_of_config(
        &self,
        mut config: Config,
        files: &[PathBuf],
        builtins: Builtins,
        note: String,
    ) -> Result<Setup, SettingsError> {
        let secrets = self.secrets(&config);
        let policy = policy(&self.environment, &config)?;
        config.builtins.check()?;
        // Only checked, so that nothing is trusted that could not be served.
        (self.extensions.check)(&config, &self.environment, &self.clock)
            .map_err(SettingsError::Service)?;
        let breaker = BreakerPolicy {
            failures_max: config.breaker.failures_max,
            open: Duration::from_millis(config.breaker.open_ms),
        };
        let limits = config.limits.iter().map(LimitConfig::read);
        let limits: Vec<_> = limits.collect::<Result<_, _>>()?;
        let mut ground = Ground::new(&self.paths, &config, files);
        ground.hide(exec::homes_folder(self));
        let entries = self.entries(&config, &ground);
        let printed = self.printed_secrets(&secrets);
        let executors = runs::executors(self, &printed);
        let mut catalog = Catalog::default();
        if builtins == Builtins::With {
            let secrets = [&secrets, &printed];
            let tools = self.builtin_tools(&config, &ground, secrets, &executors)?;
            add_builtins(&mut catalog, tools, &config, &limits)?;
        }
        let tools = std::mem::take(&mut config.tools);
        let (remotes, worker, node_worker) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        let make_remotes = || Arc::new(self.remotes(&config.secrets));
        let code_home = project::code_home(&self.environment, &self.paths.workspace);
        let mut workshop = Workshop {
            environment: &self.environment,
            root: self.paths.workspace.clone(),
            spawner: Arc::clone(&self.spawner),
            ground: &ground,
            secrets: &config.secrets.env,
            worker: &|| worker.get_or_init(|| self.worker(false)).clone(),
            node_worker: &|| node_worker.get_or_init(|| self.worker(true)).clone(),
            lay_out: &|code| code.lay_out(&self.store, code_home.as_deref()),
            remotes: Some(&|| Arc::clone(remotes.get_or_init(make_remotes))),
            runs: Some((&executors, config.runs.order())),
            pools: SharedPools::default(),
        };
        if builtins == Builtins::With {
            let program = config.planner.tool().map(|tool| workshop.tool(tool));
            let tools = self.planner(&secrets, program.transpose()?);
            add_builtins(&mut catalog, tools, &config, &limits)?;
            unserved::note(&mut catalog, &config);
        }
        for tool in tools {
            let tool = workshop.tool(tool)?;
            catalog.add(limited(tool, &limits))?;
        }
        let offered = servers::offer(self, &config, &ground, &mut catalog)?;
        let secrets = secrets.with(offered.secret_values);
        let mut shelf = shelf::shelf(&mut config, &catalog)?;
        let mut problems: Vec<_> = offered.problems.iter().map(ServerProblem::words).collect();
        problems.extend(servers::put_beside(&mut shelf, offered.shelf));
        Ok(Setup {
            problems,
            catalog,
            entries,
            policy,
            breaker,
            secrets,
            shelf,
            note,
            doubt: None,
        })
    }

    /// The functions that may be run though no tool names them, where the owner allows any.
    fn entries(&self, config: &Config, ground: &Ground) -> Option<Arc<dyn Entries>> {
        let service = &config.service;
        let patterns = service.allow_entries.clone();
        (!patterns.is_empty()).then(|| {
            let functions = Functions::new(self, patterns, service.clone(), Some(ground));
            Arc::new(functions) as Arc<dyn Entries>
        })
    }

    /// The built-in tools but for the planner's. `secrets` are those of the configuration, and
    /// with them what programs of callers may not print.
    fn builtin_tools(
        &self,
        config: &Config,
        ground: &Ground,
        [secrets, printed]: [&Secrets; 2],
        executors: &Executors,
    ) -> Result<Vec<Tool>, SettingsError> {
        let mut tools = callgate_tools::builtins(&self.store, &self.notes, secrets);
        let files = self.files(ground, config)?;
        tools.extend(files::tools(&files));
        let vectors = Vectors {
            store: self.vector_store_of(&config.search)?,
            files,
            secrets: secrets.clone(),
        };
        tools.extend(vector::tools(&Arc::new(vectors)));
        tools.extend(exec::tool(self, config, ground, printed)?);
        tools.extend(terminals::tools(self, ground, config, printed)?);
        tools.extend(runs::tools(self, config, ground, executors)?);
        Ok(tools)
    }

    /// One tool by itself, beside no others.
    pub fn tool_alone(&self, config: &Config, tool: ToolConfig) -> Result<Tool, ToolError> {
        let ground = Ground::new(&self.paths, config, &[]);
        let mut workshop = Workshop {
            environment: &self.environment,
            root: self.paths.workspace.clone(),
            spawner: Arc::clone(&self.spawner),
            ground: &ground,
            secrets: &[],
            worker: &|| self.worker(false),
            node_worker: &|| self.worker(true),
            lay_out: &|code| code.lay_out(&self.store, None),
            remotes: None,
            runs: None,
            pools: SharedPools::default(),
        };
        workshop.tool(tool)
    }

    /// The workspace's files as the configuration in force lets them be reached, and what of them
    /// is secret.
    pub fn workspace_files(&self) -> Result<(Arc<Files>, Secrets), SetupError> {
        let in_force = self.in_force()?;
        if let Basis::Nothing(reason) = in_force.basis {
            return Err(SetupError::Nothing(reason));
        }
        let files = in_force.source().map(|source| source.files.clone());
        let config = in_force.into_config();
        let ground = Ground::new(&self.paths, &config, &files.unwrap_or_default());
        let secrets = self.printed_secrets(&self.secrets(&config));
        Ok((self.files(&ground, &config)?, secrets))
    }

    /// The workspace's files, without what is the gate's own.
    fn files(&self, ground: &Ground, config: &Config) -> Result<Arc<Files>, SettingsError> {
        let files = &config.files;
        let mut lists = Lists::new(&files.allow, &files.deny).map_err(SettingsError::Files)?;
        for restricted in &config.restricted {
            let narrowed = lists.narrowed(&restricted.files_allow);
            lists = narrowed.map_err(SettingsError::Files)?;
        }
        let files = Files::open(
            &self.paths.workspace,
            (ground.own(), lists),
            &self.paths.state.join("files.lock"),
            (Arc::clone(&self.clock), Arc::clone(&self.store)),
            FilesLimits::default(),
        );
        let files = files.map_err(|source| {
            let path = self.paths.workspace.clone();
            SettingsError::Workspace { path, source }
        })?;
        Ok(Arc::new(files))
    }

    /// The tools over plans; `program` makes the tasks, where there is one.
    fn planner(&self, secrets: &Secrets, program: Option<Tool>) -> Vec<Tool> {
        let program = program.map(|tool| Program {
            runner: tool.runner,
            needs: tool.needs,
            timeout: tool.timeout,
        });
        planner::tools(&self.store, secrets, program)
    }

    fn remotes(&self, secrets: &SecretsConfig) -> Remotes {
        Remotes {
            dialer: Arc::clone(&self.dialer),
            containers: Arc::clone(&self.containers),
            secrets: Arc::new(remote::named_secrets(&self.environment, secrets)),
            profiles: remote::profiles(&self.store),
        }
    }

    /// What Python and Node run. A child that becomes somebody else (P-16) may not enter the
    /// state, and gets the worker as text.
    fn worker(&self, node: bool) -> Vec<OsString> {
        let another = project::is_of_another(&self.environment, &self.paths.workspace);
        match (node, another) {
            (false, false) => python::worker(&self.store),
            (false, true) => python::worker_as_text(),
            (true, false) => node::worker(&self.store),
            (true, true) => node::worker_as_text(),
        }
    }

    /// what is called so, and what programs are let see under a name that says so.
    fn secrets(&self, config: &Config) -> Secrets {
        let seen = config.exec.env.iter().filter(|name| says_secret(name));
        let names = config.secrets.env.iter().chain(seen);
        let value = |name: &String| self.environment.text(name).map(str::to_owned);
        Secrets::new(names.filter_map(value).collect())
    }

    /// The owner's token too, for what programs print that callers name. Of the tokens of others
    /// there are but hashes.
    fn printed_secrets(&self, secrets: &Secrets) -> Secrets {
        let brought = self.environment.text(TOKEN_VARIABLE).map(str::to_owned);
        let own = self.store.known_owner_token();
        secrets.with(
            brought
                .into_iter()
                .chain(own.map(|own| own.reveal().to_owned())),
        )
    }
}

/// Why there is no setup.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The state can not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the configuration asks for does not hold together.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The same of a configuration that a file has.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What does not hold together.
        source: SettingsError,
    },
    /// No configuration is in force, not even none.
    #[error("nothing is served: {0}")]
    Nothing(String),
}

impl SettingsError {
    /// The same with the file that it is about, where there is one.
    fn placed(self, file: Option<PathBuf>) -> SetupError {
        match file {
            Some(path) => SetupError::File { path, source: self },
            None => SetupError::Settings(self),
        }
    }
}

/// Why the settings of a configuration make no setup.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A tool.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A tool that clashes with another, or has a schema that does not compile.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A prompt or a resource.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// `[builtins]`.
    #[error(transparent)]
    Builtins(#[from] BuiltinsError),
    /// `callgate.lock`.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// `[[limit]]`.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// `[exec]`, `[runs]` or `[terminals]`.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// `[search]`.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// `[files]`: a pattern that is none.
    #[error("{0}")]
    Files(String),
    /// The workspace does not open.
    #[error("open the workspace {}", path.display())]
    Workspace {
        /// The workspace.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// `[[policy]]`: a client may approve by a rule of this kind only.
    #[error("approve_by_client is for a rule that asks, and names its callers")]
    ApproveByClient,
    /// `[leases]`.
    #[error("leases.enforce_from_tier: {0} is not a number from 0 to 3")]
    LeaseTier(u64),
    /// A setting of a door or an exporter.
    #[error(transparent)]
    Service(Box<dyn Error + Send + Sync>),
}

fn rule(config: &PolicyConfig) -> Result<Rule, SettingsError> {
    let decision = match config.decision {
        DecisionConfig::Allow => Decision::Allow,
        DecisionConfig::Deny => Decision::Deny,
        DecisionConfig::Ask => Decision::Ask,
    };
    // So large a word is for callers that somebody thought of.
    if config.approve_by_client && (decision != Decision::Ask || config.callers.is_empty()) {
        return Err(SettingsError::ApproveByClient);
    }
    Ok(Rule {
        tools: config.tools.clone(),
        callers: config.callers.clone(),
        decision,
        approve_by_client: config.approve_by_client,
    })
}

/// A rule that only restricts: it lets no client approve anything.
fn restriction(config: &PolicyConfig) -> Rule {
    Rule {
        tools: config.tools.clone(),
        callers: config.callers.clone(),
        decision: match config.decision {
            DecisionConfig::Allow => Decision::Allow,
            DecisionConfig::Deny => Decision::Deny,
            DecisionConfig::Ask => Decision::Ask,
        },
        approve_by_client: false,
    }
}

/// A tool under the first limit that is about it, unless it has its own.
fn limited(tool: Tool, limits: &[(&[String], RateLimit)]) -> Tool {
    let names = tool.rule_names();
    let found = limits.iter().find(|(tools, _)| fits_any(tools, &names));
    let rate_limit = tool.rate_limit.or(found.map(|(_, rate)| *rate));
    Tool { rate_limit, ..tool }
}

/// True for names of variables such as `GITHUB_TOKEN` and `AWS_SECRET_ACCESS_KEY`.
fn says_secret(name: &str) -> bool {
    let words = name.split('_').map(str::to_ascii_uppercase);
    words
        .into_iter()
        .any(|word| SECRET_WORDS.contains(&word.as_str()))
}

fn policy(environment: &Environment, config: &Config) -> Result<Policy, SettingsError> {
    let rules = config.policies.iter().map(rule).collect::<Result<_, _>>()?;
    let restrictions = config.restricted.iter();
    let restrictions = restrictions.flat_map(|restricted| &restricted.policies);
    let restrictions = restrictions.map(restriction).collect();
    let configured = match config.leases.enforce_from_tier {
        None => None,
        Some(number) => Some(Tier::from_number(number).ok_or(SettingsError::LeaseTier(number))?),
    };
    let asked = matches!(
        environment.text("MACHINA_LEASE_ENFORCE"),
        Some("1" | "true")
    );
    let toolhost = match (asked, configured) {
        (true, Some(tier)) => Some(tier.min(Tier::Write)),
        (true, None) => Some(Tier::Write),
        (false, configured) => configured,
    };
    let mut leases = LeasePolicy {
        toolhost,
        local: configured,
        tcp: Some(configured.unwrap_or(Tier::System)),
    };
    let restricted = config.restricted.iter();
    let tiers = restricted.filter_map(|restricted| restricted.leases_from_tier);
    tiers
        .filter_map(Tier::from_number)
        .for_each(|tier| leases.tighten(tier));
    Ok(Policy {
        rules,
        restrictions,
        leases,
    })
}

/// Adds the built-in tools that `[builtins]` leaves, that of forms that are not trusted included.
fn add_builtins(
    catalog: &mut Catalog,
    tools: Vec<Tool>,
    config: &Config,
    limits: &[(&[String], RateLimit)],
) -> Result<(), SettingsError> {
    let restricted = config.restricted.iter().map(|words| &words.builtins);
    let words: Vec<_> = restricted.chain([&config.builtins]).collect();
    for mut tool in tools {
        if words.iter().any(|words| !words.allows(&tool.name)) {
            continue;
        }
        tool.hidden_over_mcp = unserved::hidden_over_mcp(config, &tool);
        catalog.add_builtin(limited(tool, limits))?;
    }
    Ok(())
}

/// What loads and can still hardly be meant: rules that no tool ever meets. A denial that is
/// misspelt denies nothing, so the owner should hear of it.
pub fn warnings(setup: &Setup) -> Vec<String> {
    let problems = setup.problems.iter().cloned();
    problems.chain(idle_rules(setup)).collect()
}

/// Rules that no tool ever meets.
fn idle_rules(setup: &Setup) -> Vec<String> {
    let idle = |rule: &&Rule| !setup.catalog.tools().any(|tool| rule.covers(tool));
    setup
        .policy
        .rules
        .iter()
        .filter(idle)
        .map(|rule| {
            let names = setup.catalog.tools().flat_map(|tool| tool.rule_names());
            let near = match rule.tools.as_slice() {
                [only] => suggest::question(only, names),
                _ => String::new(),
            };
            format!("policy: no tool fits tools = {:?}{near}", rule.tools)
        })
        .collect()
}
