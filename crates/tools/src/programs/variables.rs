//! Which variables a call may set. Those that make a program load or run code of somebody's
//! before its own are refused: with them, what may be run would be what they say.

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
    use crate::mutate::mutant;
    use crate::random::Random;

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
