//! `callgate search`: finds pieces of the workspace, for people.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use callgate_call::Cancel;
use callgate_search::{Ask, Found};
use callgate_tools::vector;
use clap::Args;

use crate::cli::{Done, Place};
use crate::compose::chain;
use crate::environment::Environment;
use crate::show;

/// Lines that are shown of a piece.
const LINES_SHOWN: usize = 6;

/// Find pieces of the workspace by words and by meaning.
#[derive(Args)]
pub struct Search {
    /// What to look for: words, names, or what it does
    #[arg(required = true)]
    query: Vec<String>,
    /// How many pieces
    #[arg(short = 'k', long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=50))]
    top_k: u64,
    /// How paths begin
    #[arg(long, value_name = "PREFIX")]
    path: Option<String>,
    /// Only what has this tag, or one of these: a language, `test`, `doc`
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// What programs put into this namespace, instead of the workspace's files
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

pub fn run(environment: &Environment, place: &Place, search: &Search) -> Done {
    let parts = super::open(environment, place)?;
    let files = parts.workspace_files().map_err(|error| chain(&error))?;
    let query = search.query.join(" ");
    let ask = Ask {
        query: Some(query.clone()),
        top_k: usize::try_from(search.top_k).unwrap_or(1),
        namespace: search.namespace.clone().unwrap_or_default(),
        path_prefix: search.path.clone().unwrap_or_default(),
        tags: search.tag.clone(),
        rerank: true,
        ..Ask::default()
    };
    let may = |path: &str| files.shows(Path::new(path));
    let store = parts.vector_store().map_err(|error| chain(&error))?;
    let answer = store.search(&ask, &may, &Cancel::new());
    let answer = answer.map_err(|error| vector::fault(&error))?;
    if place.json {
        show::json(&vector::shown(&answer));
        return Ok(ExitCode::SUCCESS);
    }
    if answer.found.is_empty() {
        show::say("nothing found");
        return Ok(ExitCode::SUCCESS);
    }
    let shown: Vec<String> = answer.found.iter().map(|one| piece(one, &query)).collect();
    show::data(&shown.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Where it is, and the lines of it that fit the query best.
fn piece(found: &Found, query: &str) -> String {
    let told = &found.told;
    let (bold, plain) = match std::io::stdout().is_terminal() {
        true => ("\x1b[1m", "\x1b[0m"),
        false => ("", ""),
    };
    let mut text = match told.lines {
        Some((first, _)) => format!("{bold}{}:{first}{plain}\n", show::plain(&told.path)),
        None => format!("{bold}{}{plain}\n", show::plain(&told.key)),
    };
    let first = told.lines.map_or(1, |lines| lines.0 as usize);
    let lines: Vec<&str> = told.text.lines().collect();
    let from = best_window(&lines, query);
    for (at, line) in lines.iter().enumerate().skip(from).take(LINES_SHOWN) {
        text.push_str(&format!("{:>6}  {}\n", first + at, show::plain(line)));
    }
    text
}

/// The first line of the lines with most of the query's words among them.
fn best_window(lines: &[&str], query: &str) -> usize {
    let wanted = callgate_search::counted(&[query]);
    let hits = |line: &&str| {
        let words = callgate_search::counted(&[line]);
        words
            .keys()
            .filter(|word| wanted.contains_key(word))
            .count()
    };
    let hits: Vec<usize> = lines.iter().map(hits).collect();
    let last = lines.len().saturating_sub(LINES_SHOWN);
    let sum = |from: &usize| -> usize { hits.iter().skip(*from).take(LINES_SHOWN).sum() };
    // Of equals the first: `max_by_key` would take the last.
    (0..=last).rev().max_by_key(sum).unwrap_or(0)
}
