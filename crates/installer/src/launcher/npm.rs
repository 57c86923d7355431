//! Launchers of npm packages.

use super::words::{FlagKind, Word, Words};
use super::{Launcher, LauncherError, NpmLaunch};
use crate::spec::PackageSpec;

/// A flag that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Package;

type Kind = Option<FlagKind<Package>>;

/// A launcher's name, flags, and whether flags behind the first plain word are its own.
struct Manner {
    launcher: &'static str,
    kind: fn(&str) -> Kind,
    /// `npm exec X --flag` takes the flag for its own until `--`.
    takes_all_flags: bool,
}

pub(super) fn parse(name: &str, rest: &[String]) -> Result<Launcher, LauncherError> {
    let (manner, rest) = match (name, rest) {
        ("npx", rest) => (manner("npx", npx), rest),
        ("pnpx", rest) => (manner("pnpx", pnpm), rest),
        ("bunx", rest) => (manner("bunx", bun), rest),
        ("npm", [word, rest @ ..]) if word == "exec" || word == "x" => {
            let manner = Manner {
                launcher: "npm exec",
                kind: npx,
                takes_all_flags: true,
            };
            (manner, rest)
        }
        ("bun", [word, rest @ ..]) if word == "x" => (manner("bun x", bun), rest),
        ("yarn", [word, rest @ ..]) if word == "dlx" => (manner("yarn dlx", yarn), rest),
        ("pnpm", rest) => match rest.iter().position(|word| word == "dlx") {
            // Flags of the launcher may stand before its command.
            Some(at) if rest[..at].iter().all(|word| word.starts_with('-')) => {
                let words = [&rest[..at], &rest[at + 1..]].concat();
                return launch(&manner("pnpm dlx", pnpm), &words);
            }
            _ => return Ok(Launcher::Plain),
        },
        _ => return Ok(Launcher::Plain),
    };
    launch(&manner, rest)
}

fn manner(launcher: &'static str, kind: fn(&str) -> Kind) -> Manner {
    Manner {
        launcher,
        kind,
        takes_all_flags: false,
    }
}

fn launch(manner: &Manner, rest: &[String]) -> Result<Launcher, LauncherError> {
    let launcher = manner.launcher;
    let read = |text: &str| {
        PackageSpec::parse_npm(text).map_err(|source| LauncherError::Spec { launcher, source })
    };
    let mut words = Words::new(launcher, rest);
    let mut packages = Vec::new();
    let mut plain = Vec::new();
    while let Some(word) = words.next(manner.kind)? {
        match word {
            Word::Flag(Package, value) => packages.push(read(value)?),
            Word::End => {
                plain.extend(words.rest());
                break;
            }
            Word::Plain(word) => {
                plain.push(word.to_owned());
                if !manner.takes_all_flags {
                    plain.extend(words.rest());
                    break;
                }
            }
        }
    }
    let mut plain = plain.into_iter();
    let Some(first) = plain.next() else {
        return Err(LauncherError::Nothing { launcher });
    };
    let mut packages = packages.into_iter();
    let (spec, bin) = match packages.next() {
        Some(spec) => (spec, Some(first)),
        None => (read(&first)?, None),
    };
    Ok(Launcher::Npm(NpmLaunch {
        spec,
        with: packages.collect(),
        bin,
        args: plain.collect(),
    }))
}

fn npx(flag: &str) -> Kind {
    Some(match flag {
        "-p" | "--package" => FlagKind::Value(Package),
        "-y"
        | "--yes"
        | "-q"
        | "--quiet"
        | "-s"
        | "--silent"
        | "--ignore-existing"
        | "--ignore-scripts"
        | "--prefer-online"
        | "--prefer-offline"
        | "--offline"
        | "--no-audit"
        | "--no-fund"
        | "--no-update-notifier"
        | "--no-progress" => FlagKind::Ignored,
        "--loglevel" => FlagKind::IgnoredValue,
        _ => return None,
    })
}

fn pnpm(flag: &str) -> Kind {
    Some(match flag {
        "-p" | "--package" => FlagKind::Value(Package),
        "-s" | "--silent" | "-y" | "--yes" | "--prefer-offline" | "--offline"
        | "--ignore-scripts" => FlagKind::Ignored,
        "--reporter" | "--loglevel" => FlagKind::IgnoredValue,
        _ => return None,
    })
}

fn bun(flag: &str) -> Kind {
    Some(match flag {
        "-p" | "--package" => FlagKind::Value(Package),
        "-y" | "--yes" | "--silent" | "--verbose" | "--no-install" => FlagKind::Ignored,
        _ => return None,
    })
}

fn yarn(flag: &str) -> Kind {
    Some(match flag {
        "-p" | "--package" => FlagKind::Value(Package),
        "-q" | "--quiet" => FlagKind::Ignored,
        _ => return None,
    })
}
