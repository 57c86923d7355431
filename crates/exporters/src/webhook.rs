//! Tells somebody that a run has ended: a POST of JSON, again while their server has troubles.
//! Nobody's outcome depends on it. `callgate run` tells of its own runs; of those that come by a
//! wire, the process that serves it does.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Clock, Event, Timestamp, Told, chain};
use callgate_dial::{Address, Ask, Dialer};
use callgate_registry::config::{RunsConfig, WebhookConfig};
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_store::{Run, StoreError};
use callgate_text::encode_hex;
use callgate_wires::stream::CONTRACT_VERSION;
use hyper::header::{HeaderName, HeaderValue};
use ring::hmac;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// How often it is tried.
const ATTEMPTS: u32 = 5;
/// Before the second time; twice as long before each further one.
const PAUSE: Duration = Duration::from_millis(500);
/// For one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Of an answer, which is not looked at.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

const SIGNATURE: HeaderName = HeaderName::from_static("callgate-signature");

/// Why a webhook cannot be told of the ends of runs.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// An address that cannot be asked.
    #[error("{0}")]
    Address(String),
    /// The variable with the secret.
    #[error("the variable {0} is not set")]
    Secret(String),
}

/// A webhook that cannot be used, and where it is named.
#[derive(Debug, thiserror::Error)]
#[error("{place}")]
pub struct NamedWebhookError {
    /// The setting or the option.
    place: &'static str,
    source: WebhookError,
}

impl WebhookError {
    /// The same with the place where the webhook is named.
    fn at(place: &'static str) -> impl FnOnce(Self) -> NamedWebhookError {
        move |source| NamedWebhookError { place, source }
    }
}

/// Why the end of a run was not told.
#[derive(Debug, thiserror::Error)]
pub enum NoticeError {
    /// The state cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The webhook of the configuration.
    #[error(transparent)]
    Webhook(#[from] NamedWebhookError),
    /// A run that has ended without a report.
    #[error("its report is not there")]
    NoReport,
    /// An answer that will not change.
    #[error("{to} answered {status}")]
    Refused {
        /// The webhook.
        to: String,
        /// Its answer.
        status: u16,
    },
    /// No attempt succeeded.
    #[error("{last}; tried {ATTEMPTS} times")]
    GivenUp {
        /// What the last attempt came to.
        last: String,
    },
}

/// Only looked at, so that nothing is trusted that could not be told.
pub fn check(config: &RunsConfig) -> Result<(), NamedWebhookError> {
    let Some(webhook) = &config.webhook else {
        return Ok(());
    };
    let address = Address::parse(&webhook.url);
    let address = address.map_err(WebhookError::Address);
    address.map(drop).map_err(WebhookError::at("runs.webhook"))
}

/// Where ends are told, and with which signature.
pub struct Notifier {
    to: Address,
    secret: Option<hmac::Key>,
}

/// The options that name it.
pub struct Named<'a> {
    url: Option<&'a str>,
    secret_env: Option<&'a str>,
}

impl Named<'_> {
    /// What the options say; nothing if they say nothing.
    pub fn named(&self, environment: &Environment) -> Result<Option<Notifier>, NamedWebhookError> {
        let Some(url) = self.url else { return Ok(None) };
        let made = Notifier::new(url, self.secret_env, environment);
        made.map(Some).map_err(WebhookError::at("--notify"))
    }
}

impl Notifier {
    /// From options.
    pub fn of<'a>(url: Option<&'a str>, secret_env: Option<&'a str>) -> Named<'a> {
        Named { url, secret_env }
    }

    /// `[runs] webhook` of the configuration in force.
    pub fn configured(parts: &Parts) -> Result<Option<Self>, NoticeError> {
        match &parts.in_force()?.into_config().runs.webhook {
            Some(webhook) => Ok(Some(Self::from_config(webhook, &parts.environment)?)),
            None => Ok(None),
        }
    }

    fn from_config(
        config: &WebhookConfig,
        environment: &Environment,
    ) -> Result<Self, NamedWebhookError> {
        Self::new(&config.url, config.secret_env.as_deref(), environment)
            .map_err(WebhookError::at("runs.webhook"))
    }

    fn new(
        url: &str,
        secret_env: Option<&str>,
        environment: &Environment,
    ) -> Result<Self, WebhookError> {
        let to = Address::parse(url).map_err(WebhookError::Address)?;
        let secret = match secret_env {
            None => None,
            Some(name) => {
                let secret = environment.text(name);
                let secret = secret.ok_or_else(|| WebhookError::Secret(name.to_owned()))?;
                Some(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
            }
        };
        Ok(Self { to, secret })
    }

    /// Tells it, until an answer is final: 2xx is good, and 4xx will not change.
    pub async fn tell(
        &self,
        dialer: &Dialer,
        clock: &dyn Clock,
        body: &str,
    ) -> Result<(), NoticeError> {
        let mut pause = PAUSE;
        let mut why = String::new();
        for attempt in 1..=ATTEMPTS {
            if attempt > 1 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let asked = dialer.ask(&self.to, self.ask(clock.now(), body), ANSWER_BYTES_MAX);
            why = match tokio::time::timeout(ANSWER, asked).await {
                Ok(Ok(reply)) if (200..300).contains(&reply.status) => return Ok(()),
                Ok(Ok(reply)) if reply.status < 500 => {
                    return Err(NoticeError::Refused {
                        to: self.to.to_string(),
                        status: reply.status,
                    });
                }
                Ok(Ok(reply)) => format!("{} answered {}", self.to, reply.status),
                Ok(Err(trouble)) => trouble.to_string(),
                Err(_) => format!("{}: no answer in {} s", self.to, ANSWER.as_secs()),
            };
        }
        Err(NoticeError::GivenUp { last: why })
    }

    fn ask(&self, now: Timestamp, body: &str) -> Ask {
        let mut ask = Ask::post(self.to.path(), body.as_bytes().to_vec());
        if let Some(secret) = &self.secret {
            let header = HeaderValue::from_str(&signature(secret, now.0 / 1000, body));
            ask.header(SIGNATURE, header.expect("digits and hex"));
        }
        ask
    }
}

/// `t=SECONDS,v1=HEX`: HMAC-SHA256 over `SECONDS.BODY`, so that an old one can not be sent again.
fn signature(secret: &hmac::Key, seconds: u64, body: &str) -> String {
    let tag = hmac::sign(secret, format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", encode_hex(tag.as_ref()))
}

/// Ends that are told of at a time; further ones wait in the ring of events.
const TELLING_MAX: usize = 64;

/// Tells `[runs] webhook` of every run that ends in this process.
pub fn follow(parts: &Arc<Parts>) -> impl Future<Output = Infallible> + use<> {
    let parts = Arc::clone(parts);
    let mut heard = parts.topics.listen(parts.topics.connection());
    async move {
        let mut telling: JoinSet<Result<(), NoticeError>> = JoinSet::new();
        loop {
            // `next` and `join_next` are cancel safe: an event stays in the ring, a finished notice
            // in the set.
            tokio::select! {
                told = heard.next(), if telling.len() < TELLING_MAX => match told {
                    Told::Event(event) => begin_telling(&parts, &event, &mut telling),
                    Told::Gap(missed) => tracing::warn!(target: "callgate::notify", missed, "ends of runs may be untold"),
                },
                Some(done) = telling.join_next() => {
                    if let Ok(Err(error)) = done {
                        let why = chain(&error);
                        tracing::warn!(target: "callgate::notify", why, "the end of a run was not told");
                    }
                }
            }
        }
    }
}

fn begin_telling(parts: &Parts, event: &Event, telling: &mut JoinSet<Result<(), NoticeError>>) {
    if event.name != "runs/updated" {
        return;
    }
    let news: Value = serde_json::from_str(&event.body).unwrap_or_default();
    let (Some(run_id), true) = (news["run_id"].as_str(), news["state"] == "ended") else {
        return;
    };
    match notice_of(parts, run_id) {
        Ok(None) => {}
        Ok(Some((notifier, body))) => {
            let (dialer, clock) = (Arc::clone(&parts.dialer), Arc::clone(&parts.clock));
            telling.spawn(async move { notifier.tell(&dialer, &*clock, &body).await });
        }
        Err(error) => {
            let why = chain(&error);
            tracing::warn!(target: "callgate::notify", why, "the end of a run was not told");
        }
    }
}

/// Whom to tell of a run's end, and what; nothing if nobody wants to know.
fn notice_of(parts: &Parts, run_id: &str) -> Result<Option<(Notifier, String)>, NoticeError> {
    let Some(notifier) = Notifier::configured(parts)? else {
        return Ok(None);
    };
    let run = parts.store.run(run_id)?;
    let report = parts.store.run_report(run_id)?;
    let report = report.and_then(|text| serde_json::from_slice(&text).ok());
    let (Some(run), Some(report)) = (run, report) else {
        return Err(NoticeError::NoReport);
    };
    let body = notice(&run, &report, parts.clock.now());
    Ok(Some((notifier, body)))
}

/// What is told of a run that has ended.
pub fn notice(run: &Run, report: &Value, now: Timestamp) -> String {
    let mut notice = json!({
        "contract_version": CONTRACT_VERSION,
        "event_type": "run_completed",
        "run_id": run.run_id,
        "attempt": run.attempt,
        "source": run.partition.source,
        "category": run.partition.category,
        "day": run.partition.day,
        "outcome": report["outcome"],
        "message": report["message"],
        "storage_path": run.path(),
        "timestamp": now.rfc3339(),
        "event_count": report["event_count"],
        "duration_ms": report["duration_ms"],
    });
    if let Some(job_id) = &run.job_id {
        notice["job_id"] = json!(job_id);
    }
    notice.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As any library has it: `printf '7.{}' | openssl dgst -sha256 -hmac secret`.
    #[test]
    fn signed_as_others_sign() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        assert_eq!(
            signature(&key, 7, "{}"),
            "t=7,v1=76aad9429f417882918162a1928a38769fff65cc07b6bfa344ac9c5fb1e3448e"
        );
    }
}
