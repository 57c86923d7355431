//! Which variables a call may set. Those that make any program load or run other code before its
//! own are always refused. Where the owner lists the programs that may be run, only variables that
//! are known to change nothing but how a program speaks pass, because most programs have variables
//! of their own that name another program to run (`GIT_EXTERNAL_DIFF`, `RUSTC_WRAPPER`, `PAGER`).
//!

/// Beginnings of such names: of the loaders of Linux and macOS, of functions that shells import,
/// and what is ours.
const PREFIXES: [&str; 4] = ["LD_", "DYLD_", "BASH_FUNC_", "CALLGATE_"];

/// Such names: of the C library, of shells, of interpreters.
const NAMES: [&str; 33] = [
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "RESOLV_HOST_CONF",
    "BASH_ENV",
    "ENV",
    "ZDOTDIR",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "IFS",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "PERL5OPT",
    "PERL5LIB",
    "PERLLIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "NODE_OPTIONS",
    "NODE_PATH",
    "LUA_INIT",
    "LUA_PATH",
    "LUA_CPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "CLASSPATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
];

/// Variables that pass beside `exec.allow`: language, time, the terminal, how much is printed.
/// None names a file or a program.
const PLAIN: [&str; 26] = [
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "CI",
    "SOURCE_DATE_EPOCH",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "RUST_TEST_THREADS",
    "CARGO_TERM_COLOR",
    "CARGO_TERM_VERBOSE",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONUTF8",
    "PYTHONIOENCODING",
    "NODE_ENV",
    "GOMAXPROCS",
];

/// The beginning of further such names: the categories of a locale.
const PLAIN_PREFIX: &str = "LC_";

/// Why a variable that may be set where any program may be run does not pass beside a list of
/// programs.
pub(super) const NOT_PLAIN: &str = "exec.allow lists programs, and this variable may make one of \
    them run another: exec.allow_env names further variables that calls may set";

/// Returns whether a variable passes where the owner lists the programs that may be run.
/// `further` are the owner's own words: names, or beginnings of names that end with `*`.
pub(super) fn is_plain(name: &str, value: &str, further: &[String]) -> bool {
    let is_named = |word: &String| match word.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => word == name,
    };
    let is_known = PLAIN.contains(&name) || name.starts_with(PLAIN_PREFIX);
    // `make` takes every variable for one of its own, and runs what `$(shell …)` in it says.
    let runs = |letter: char| matches!(letter, '$' | '`') || letter.is_control();
    is_known && !value.contains(runs) || further.iter().any(is_named)
}

/// Why a variable can not be set; nothing if it can.
pub(super) fn refusal(name: &str, value: &str) -> Option<&'static str> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Some("not a variable's name");
    }
    if value.contains('\0') {
        return Some("holds a zero byte");
    }
    let loads = PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name);
    loads.then_some("decides which code runs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    #[test]
    fn loaders_are_refused() {
        for name in [
            "LD_PRELOAD",
            "LD_",
            "BASH_ENV",
            "PYTHONSTARTUP",
            "PYTHONPATH",
            "PERL5LIB",
            "RUBYLIB",
            "NODE_PATH",
            "NODE_OPTIONS",
        ] {
            assert_eq!(
                refusal(name, "x"),
                Some("decides which code runs"),
                "{name}"
            );
        }
        for name in ["", "A=B", "A\0"] {
            assert_eq!(refusal(name, "x"), Some("not a variable's name"), "{name}");
        }
        assert_eq!(refusal("A", "\0"), Some("holds a zero byte"));
        for name in [
            "PATH",
            "PYTHONUNBUFFERED",
            "RUST_LOG",
            "LDFLAGS",
            "ENVIRONMENT",
        ] {
            assert_eq!(refusal(name, ""), None, "{name}");
        }
    }

    /// what passes beside a list of programs runs nothing and is known by its whole name.
    #[test]
    fn plain_variables() {
        for name in [
            "GIT_EXTERNAL_DIFF",
            "GIT_CONFIG_COUNT",
            "GIT_SSH_COMMAND",
            "GIT_DIR",
            "SSH_ASKPASS",
            "RUSTC_WRAPPER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "CARGO_HOME",
            "MAKEFLAGS",
            "npm_config_script_shell",
            "NPM_CONFIG_USERCONFIG",
            "PIP_CONFIG_FILE",
            "PYTEST_ADDOPTS",
            "PYTHONBREAKPOINT",
            "GOFLAGS",
            "CC",
            "PAGER",
            "EDITOR",
            "VISUAL",
            "BROWSER",
            "PATH",
            "HOME",
            "XDG_CONFIG_HOME",
            "TMPDIR",
            "SHELL",
            "TERMINFO",
            "LESSOPEN",
            "lang",
            "LANGX",
        ] {
            assert!(!is_plain(name, "x", &[]), "{name}");
        }
        for name in ["LANG", "LC_ALL", "TZ", "RUST_LOG"] {
            assert!(is_plain(name, "x", &[]), "{name}");
            for value in ["$(shell id)", "`id`", "a\nb"] {
                assert!(!is_plain(name, value, &[]), "{name} {value}");
            }
        }
        let further = ["MODE".to_owned(), "APP_*".to_owned()];
        for (name, passes) in [
            ("MODE", true),
            ("MODEL", false),
            ("APP_X", true),
            ("AP", false),
        ] {
            assert_eq!(is_plain(name, "$", &further), passes, "{name}");
        }
    }

    /// 100,000 changed variables: what may be set is one variable, and none that loads code.
    #[test]
    fn mutated_variables() {
        const VALUES: [&[u8]; 3] = [b"", b"a=b", b"\xc3\xa9"];
        const WORDS: [&[u8]; 7] = [b"LD_", b"_", b"=", b"\0", b"ENV", b"X", b"\xff"];
        let seeds = NAMES.iter().chain(&PREFIXES).chain(&["A", "PATH"]);
        let seeds: Vec<&[u8]> = seeds.map(|name| name.as_bytes()).collect();
        let mut random = Random::new("mutated variables");
        let mut taken = 0;
        for _ in 0..100_000 {
            let [name, value] = [&seeds[..], &VALUES].map(|seeds| {
                String::from_utf8_lossy(&mutant(&mut random, seeds, &WORDS)).into_owned()
            });
            if refusal(&name, &value).is_some() {
                continue;
            }
            let whole = format!("{name}={value}");
            assert_eq!(whole.split_once('='), Some((&*name, &*value)));
            assert!(!whole.contains('\0') && !name.is_empty());
            assert!(!name.starts_with("LD_") && !name.starts_with("CALLGATE_"));
            assert!(NAMES.iter().all(|known| name != *known), "{name}");
            taken += 1;
        }
        assert!(taken > 0 && taken < 100_000);
    }
}
