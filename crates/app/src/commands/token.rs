//! `callgate token`: who may call over HTTP, and what at most.

use std::process::ExitCode;
use std::time::Duration;

use callgate_call::{RateLimit, Scope, Tier};
use callgate_registry::environment::Environment;
use callgate_store::{Token as Made, TokenGrant, TokenState};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{Done, Place};
use crate::error::ArgumentError;
use crate::show;

/// Make, list and revoke tokens for callers over HTTP.
#[derive(Args)]
pub struct Token {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Make a token; it is printed once
    Create {
        /// The caller will be token:NAME
        name: String,
        /// Only tools that fit one of these patterns, such as files/*; else every tool
        #[arg(long, value_name = "PATTERN", num_args = 1..)]
        tools: Vec<String>,
        /// The highest tier it may call
        #[arg(long, value_name = "0-3", default_value = "1", value_parser = super::lease::tier)]
        tier_max: Tier,
        /// Calls a second, and how many at once, such as 5/s or 5/s,20
        #[arg(long, value_name = "N/s[,BURST]", value_parser = rate)]
        rate: Option<RateLimit>,
        /// How long it is good, such as 12h or 30d; else until it is revoked
        #[arg(long, value_name = "TIME", value_parser = super::duration)]
        expires: Option<Duration>,
    },
    /// All tokens, without their secrets
    List,
    /// Take a token back; a running gate refuses it from then on
    Revoke {
        /// Its name
        name: String,
    },
    /// Print the owner's own token
    Owner,
}

/// Reads `5/s` or `0.5/s,20`. Without a burst it is a second's worth, at least one.
fn rate(text: &str) -> Result<RateLimit, ArgumentError> {
    let wrong = || ArgumentError::Rate;
    let (rate, burst) = match text.split_once(',') {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (text, None),
    };
    let per_second: f64 = rate
        .strip_suffix("/s")
        .and_then(|number| number.trim().parse().ok())
        .filter(|number: &f64| number.is_finite() && *number > 0.0)
        .ok_or_else(wrong)?;
    let burst = match burst {
        // A float that is too large becomes the largest number.
        None => per_second.ceil() as u32,
        Some(burst) => burst.trim().parse().map_err(|_| wrong())?,
    };
    if burst == 0 {
        return Err(wrong());
    }
    Ok(RateLimit { per_second, burst })
}

pub fn run(environment: &Environment, place: &Place, token: &Token) -> Done {
    let parts = super::open(environment, place)?;
    let store = &parts.store;
    match &token.command {
        TokenCommand::Create {
            name,
            tools,
            tier_max,
            rate,
            expires,
        } => {
            let scope = Scope {
                is_mcp: false,
                is_only: false,
                client: None,
                tools: tools.clone(),
                tier_max: *tier_max,
                rate: *rate,
            };
            let grant = TokenGrant {
                name,
                scope: &scope,
                life: *expires,
            };
            let secret = store.create_token(grant)?;
            if place.json {
                show::json(&json!({
                    "name": name,
                    "token": secret.reveal(),
                    "tools": tools,
                    "tier_max": tier_max.number(),
                }));
            } else {
                show::data(&format!("{}\n", secret.reveal()));
                show::say(&format!(
                    "token `{name}` for {}, up to tier {}; it is not shown again",
                    patterns(tools),
                    tier_max.number(),
                ));
            }
        }
        TokenCommand::List => {
            let tokens = store.tokens()?;
            if place.json {
                let all: Vec<Value> = tokens.iter().map(token_json).collect();
                show::json(&json!({ "tokens": all }));
            } else {
                let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
                show::table(
                    &[
                        "NAME", "STATE", "TIER", "RATE", "CREATED", "EXPIRES", "TOOLS",
                    ],
                    &rows,
                );
            }
        }
        TokenCommand::Revoke { name } => {
            let revoked = store.revoke_token(name)?;
            if place.json {
                show::json(&token_json(&revoked));
            } else {
                show::say(&format!("token `{name}`: {}", state(&revoked)));
            }
        }
        TokenCommand::Owner => {
            let (secret, _) = store.owner_token()?;
            if place.json {
                show::json(&json!({ "token": secret.reveal() }));
            } else {
                show::data(&format!("{}\n", secret.reveal()));
            }
        }
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn patterns(tools: &[String]) -> String {
    if tools.is_empty() {
        "every tool".to_owned()
    } else {
        tools.join(" ")
    }
}

fn state(token: &Made) -> &'static str {
    match token.state {
        TokenState::Active => "active",
        TokenState::Expired => "expired",
        TokenState::Revoked { .. } => "revoked",
    }
}

fn token_json(token: &Made) -> Value {
    let rate = token
        .scope
        .rate
        .map(|rate| json!({ "per_second": rate.per_second, "burst": rate.burst }));
    json!({
        "name": token.name,
        "state": state(token),
        "tools": token.scope.tools,
        "tier_max": token.scope.tier_max.number(),
        "rate": rate,
        "created_at_ms": token.created_at.0,
        "expires_at_ms": token.expires_at.map(|at| at.0),
    })
}

fn row(token: &Made) -> Vec<String> {
    let rate = token
        .scope
        .rate
        .map(|rate| format!("{}/s,{}", rate.per_second, rate.burst));
    let expires = token.expires_at.map(|at| show::time(at.0));
    vec![
        token.name.clone(),
        state(token).to_owned(),
        token.scope.tier_max.number().to_string(),
        rate.unwrap_or_default(),
        show::time(token.created_at.0),
        expires.unwrap_or_default(),
        patterns(&token.scope.tools),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, wanted) in [
            ("5/s", Some((5.0, 5))),
            ("0.5/s", Some((0.5, 1))),
            ("5/s,20", Some((5.0, 20))),
            ("5", None),
            ("0/s", None),
            ("-1/s", None),
            ("inf/s", None),
            ("5/s,0", None),
            ("5/m", None),
        ] {
            let read = rate(text).ok().map(|rate| (rate.per_second, rate.burst));
            assert_eq!(read, wanted, "{text}");
        }
    }
}
