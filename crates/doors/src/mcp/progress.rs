//! Notifications of a call before its answer: the progress and the log messages of its tool, and
//! signs of life while its tool is silent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate_call::{Log, Progress, Sink, Stream};
use callgate_wires::mcp::{Extra, LogParams, ProgressParams, RawJson};
use serde_json::Value;

use super::{Era, Outbox, Request};

/// The interval of signs of life of a silent call. Clients give up at 60 s.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Takes what a running tool says to its client, and says something itself when it does not.
pub(super) struct Beat {
    out: Outbox,
    token: Option<Value>,
    era: Era,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// The progress that was sent last.
    told: Option<f64>,
    beats: u32,
    spoke: bool,
}

impl Last {
    /// Progress must grow with each report: by next to nothing where the tool's does not.
    fn grow(&mut self, done: f64) -> f64 {
        let next = self.told.map_or(done, |told| done.max(told.next_up()));
        self.told = Some(next);
        next
    }
}

impl Beat {
    pub(super) fn new(request: &Request) -> Arc<Self> {
        Arc::new(Self {
            out: request.out.clone(),
            token: request.meta.progress_token.clone(),
            era: request.era.clone(),
            last: Mutex::default(),
        })
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits for `work`, and sends signs of life while it does.
    pub(super) async fn while_waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            // `work` is pinned outside of the loop. Biased so that work that is done is not
            // followed by a sign of life.
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(HEARTBEAT) => self.beat(),
            }
        }
    }

    /// Sends a sign of life that grows so little that the tool's next progress is still greater.
    fn beat(&self) {
        let Some(token) = &self.token else { return };
        let mut last = self.last();
        if std::mem::take(&mut last.spoke) {
            return;
        }
        last.beats += 1;
        let told = last.told.unwrap_or_default();
        let done = last.grow(told + 1e-9);
        let seconds = HEARTBEAT.as_secs() * u64::from(last.beats);
        let params = ProgressParams {
            meta: None,
            message: Some(format!("still running after {seconds} s")),
            progress: done,
            progress_token: token.clone(),
            total: None,
            extra: Extra::new(),
        };
        self.out.offer("notifications/progress", &params);
    }
}

impl Sink for Beat {
    fn chunk(&self, _: Stream, _: &[u8]) {}

    fn progress(&self, progress: &Progress) {
        let Some(token) = &self.token else { return };
        let mut last = self.last();
        last.spoke = true;
        let done = last.grow(progress.done);
        drop(last);
        let params = ProgressParams {
            meta: None,
            message: progress.message.clone(),
            progress: done,
            progress_token: token.clone(),
            total: progress.total,
            extra: Extra::new(),
        };
        self.out.offer("notifications/progress", &params);
    }

    fn log(&self, log: &Log) {
        if !self.era.wants_log(log.level) {
            return;
        }
        let params = LogParams {
            meta: None,
            data: RawJson::of(&log.data),
            level: log.level.as_str().to_owned(),
            logger: log.logger.clone(),
            extra: Extra::new(),
        };
        self.out.offer("notifications/message", &params);
    }

    fn linger(&self) {
        self.out.linger();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Server, rig};
    use super::*;

    /// What is said while a call waits so long, each with when.
    async fn said_within(params: Value, seconds: u64, speaks: &[u64]) -> Vec<(u64, Value)> {
        let (request, mut said) = rig::request(params);
        let beat = Beat::new(&request);
        let start = tokio::time::Instant::now();
        let work = async {
            for at in speaks {
                tokio::time::sleep_until(start + Duration::from_secs(*at)).await;
                beat.progress(&Progress {
                    done: *at as f64,
                    total: None,
                    message: None,
                });
            }
            tokio::time::sleep_until(start + Duration::from_secs(seconds)).await;
        };
        let mut heard = Vec::new();
        {
            let mut waiting = std::pin::pin!(beat.while_waiting(work));
            loop {
                tokio::select! {
                    biased;
                    Some(one) = said.recv() => {
                        let message = rig::message(&one);
                        assert_eq!(message["method"], "notifications/progress");
                        heard.push((start.elapsed().as_secs(), message["params"].clone()));
                    }
                    () = &mut waiting => break,
                }
            }
        }
        heard
    }

    /// A sign of life each 15 s, if its client wants progress and the tool shows none; what the
    /// tool says still comes after it and is more.
    #[tokio::test(start_paused = true)]
    async fn signs_of_life() {
        let token = || json!({ "_meta": { "progressToken": "p" } });
        let times = |heard: &[(u64, Value)]| heard.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(said_within(token(), 14, &[]).await, []);
        let heard = said_within(token(), 61, &[]).await;
        assert_eq!(times(&heard), [15, 30, 45, 60]);
        assert_eq!(heard[1].1["message"], "still running after 30 s");
        assert_eq!(heard[1].1["progressToken"], "p");
        let heard = said_within(token(), 61, &[20, 40]).await;
        assert_eq!(
            times(&heard),
            [15, 20, 40, 60],
            "silent after what the tool said"
        );
        let done: Vec<f64> = heard
            .iter()
            .filter_map(|(_, said)| said["progress"].as_f64())
            .collect();
        assert!(done.is_sorted_by(|one, next| one < next), "{done:?}");
        assert_eq!(said_within(json!({}), 61, &[20]).await, []);
    }

    /// A call shows that it lives, whether the gate carries it out or it is passed on, and if its
    /// client wants progress only.
    #[tokio::test(start_paused = true)]
    async fn signs_of_life_of_every_call() {
        let state = rig::State::new();
        let token = json!({ "progressToken": "p" });
        let beats = ["still running after 15 s", "still running after 30 s"];
        for server in [rig::gate_server(&state), rig::server().0] {
            assert_eq!(heard_of_a_call(&server, &token).await, beats);
            assert_eq!(heard_of_a_call(&server, &json!({})).await, [""; 0]);
        }
    }

    /// What is said of a call that is taken back after 31 s.
    async fn heard_of_a_call(server: &Server, meta: &Value) -> Vec<Value> {
        let params = json!({ "name": "hangs", "_meta": meta });
        let (request, mut said) = rig::call(server, params);
        let mut request = request;
        let cancel = Arc::clone(&request.cancel);
        let taken_back = async {
            tokio::time::sleep(Duration::from_secs(31)).await;
            cancel.cancel();
        };
        let mut answer = Vec::new();
        let (answered, ()) = tokio::join!(server.answer(&mut request, &mut answer), taken_back);
        assert!(answered.silent);
        let mut heard = Vec::new();
        while let Ok(one) = said.try_recv() {
            heard.push(rig::message(&one)["params"]["message"].clone());
        }
        heard
    }

    /// Progress grows with each report, whatever the tool says of itself and however large its
    /// numbers are.
    #[tokio::test]
    async fn progress_grows() {
        let (request, mut said) = rig::request(json!({ "_meta": { "progressToken": "p" } }));
        let beat = Beat::new(&request);
        for done in [0.0, 5.0, 5.0, 3.0, 1e12] {
            beat.progress(&Progress {
                done,
                total: None,
                message: None,
            });
        }
        beat.beat(); // the tool spoke
        beat.beat();
        let mut heard = Vec::new();
        while let Ok(one) = said.try_recv() {
            heard.extend(rig::message(&one)["params"]["progress"].as_f64());
        }
        assert_eq!(heard.len(), 6);
        assert_eq!((heard[0], heard[1], heard[4]), (0.0, 5.0, 1e12));
        assert!(heard.is_sorted_by(|one, next| one < next), "{heard:?}");
    }
}
