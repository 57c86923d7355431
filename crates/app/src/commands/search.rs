//! `callgate search`: a call of `vector/search`, for people.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use callgate_call::natural_number;
use callgate_registry::environment::Environment;
use clap::Args;
use serde_json::{Value, json};

use super::call;
use crate::cli::{Done, Place};
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
    let query = search.query.join(" ");
    let input = json!({
        "query": query,
        "top_k": search.top_k,
        "namespace": search.namespace,
        "filter": { "path_prefix": search.path, "tags": search.tag },
    });
    let answer = match call::output(environment, place, "vector/search", input)? {
        Ok(answer) => answer,
        Err(code) => return Ok(code),
    };
    let found = answer["matches"].as_array().map_or(&[][..], Vec::as_slice);
    if place.json {
        show::json(&answer);
    } else if found.is_empty() {
        show::say("nothing found");
    } else {
        let shown: Vec<String> = found.iter().map(|one| piece(one, &query)).collect();
        show::data(&shown.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where it is, and the lines of it that fit the query best.
fn piece(found: &Value, query: &str) -> String {
    let about = &found["metadata"];
    let text = |value: &Value| show::plain(value.as_str().unwrap_or_default());
    let (bold, plain) = match std::io::stdout().is_terminal() {
        true => ("\x1b[1m", "\x1b[0m"),
        false => ("", ""),
    };
    let first = natural_number(&about["line_start"]);
    let mut shown = match first {
        Some(first) => format!("{bold}{}:{first}{plain}\n", text(&about["path"])),
        None => format!("{bold}{}{plain}\n", text(&found["id"])),
    };
    let lines: Vec<&str> = about["snippet"]
        .as_str()
        .unwrap_or_default()
        .lines()
        .collect();
    let from = best_window(&lines, query);
    for (number, line) in (first.unwrap_or(1)..)
        .zip(&lines)
        .skip(from)
        .take(LINES_SHOWN)
    {
        shown.push_str(&format!("{number:>6}  {}\n", show::plain(line)));
    }
    shown
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
