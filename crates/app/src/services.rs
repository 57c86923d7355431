//! Background services of a process that serves: named tasks in one set.
//!
//! A service runs until the set is stopped. One that ends before that, by itself or by a panic,
//! is reported by its name, so that the process can end in order instead of going on without it.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// How long a service that was stopped may take to be gone.
const STOP: Duration = Duration::from_secs(5);

/// A service that ended before it was stopped.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceEnded {
    /// It returned.
    #[error("the service `{name}` ended by itself")]
    Returned {
        /// The service.
        name: &'static str,
    },
    /// It panicked.
    #[error("the service `{name}` panicked: {message}")]
    Panicked {
        /// The service.
        name: &'static str,
        /// The words of the panic.
        message: String,
    },
}

/// The services of a process, in the order in which they were started.
#[derive(Default)]
pub struct Services {
    tasks: JoinSet<()>,
    started: Vec<AbortHandle>,
    names: HashMap<Id, &'static str>,
}

impl Services {
    /// Starts a service, which runs until [`stop`](Self::stop).
    pub fn start<F>(&mut self, name: &'static str, service: F)
    where
        F: Future + Send + 'static,
    {
        let task = self.tasks.spawn(async move {
            service.await;
        });
        self.names.insert(task.id(), name);
        self.started.push(task);
    }

    /// Waits until a service ends, which none does in order. Never ready without services.
    pub async fn ended(&mut self) -> ServiceEnded {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => ServiceEnded::Returned {
                name: self.name(id),
            },
            Some(Err(error)) => ServiceEnded::Panicked {
                name: self.name(error.id()),
                message: message_of(error),
            },
            None => std::future::pending().await,
        }
    }

    /// Waits for `work`. A service that ends before that has `stop` called with its error, once,
    /// and is given back beside the result: the process is to end with it.
    pub async fn while_running<T>(
        &mut self,
        work: impl Future<Output = T>,
        stop: impl FnOnce(&ServiceEnded),
    ) -> (T, Option<ServiceEnded>) {
        let mut work = std::pin::pin!(work);
        // Neither arm loses anything: the work goes on below, and the service is gone.
        let ended = tokio::select! {
            done = &mut work => return (done, None),
            ended = self.ended() => ended,
        };
        stop(&ended);
        (work.await, Some(ended))
    }

    /// Stops the services, the last one that was started first. Each is gone before the next is
    /// stopped: an earlier one may be what a later one needs.
    pub async fn stop(mut self) {
        while let Some(task) = self.started.pop() {
            task.abort();
            let gone = async {
                while !task.is_finished() {
                    // The ends of others were to be reported before the stop.
                    self.tasks.join_next_with_id().await;
                }
            };
            if tokio::time::timeout(STOP, gone).await.is_err() {
                tracing::warn!(service = self.name(task.id()), "does not stop");
            }
        }
    }

    fn name(&self, id: Id) -> &'static str {
        self.names.get(&id).copied().unwrap_or("?")
    }
}

/// The words of a panic.
fn message_of(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "cancelled".to_owned();
    };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without words".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Notes its name when it is dropped.
    struct Noted(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(test)
    }

    #[test]
    fn a_service_that_ends_early_is_reported_by_name() {
        let ended = run(async {
            let mut services = Services::default();
            services.start("steady", std::future::pending::<()>());
            services.start("brief", async {});
            let ended = services.ended().await;
            services.stop().await;
            ended
        });
        assert_eq!(ended, ServiceEnded::Returned { name: "brief" });
        assert_eq!(ended.to_string(), "the service `brief` ended by itself");
    }

    /// The work comes to its end in order, and nothing else is reported.
    #[test]
    fn work_is_stopped_where_a_service_ended() {
        let stop = callgate_call::Cancel::new();
        let (done, ended) = run(async {
            let mut services = Services::default();
            services.start("brief", async {});
            let work = async {
                stop.cancelled().await;
                "in order"
            };
            services.while_running(work, |_| stop.cancel()).await
        });
        assert_eq!(done, "in order");
        assert_eq!(ended, Some(ServiceEnded::Returned { name: "brief" }));
        let mut services = Services::default();
        let (done, ended) = run(services.while_running(async { 7 }, |_| unreachable!()));
        assert_eq!((done, ended), (7, None));
    }

    #[test]
    fn a_service_that_panics_is_reported_by_name() {
        let ended = run(async {
            let mut services = Services::default();
            services.start("steady", std::future::pending::<()>());
            services.start("hasty", async { panic!("no more") });
            let ended = services.ended().await;
            services.stop().await;
            ended
        });
        let message = "no more".to_owned();
        assert_eq!(
            ended,
            ServiceEnded::Panicked {
                name: "hasty",
                message
            }
        );
    }

    #[test]
    fn services_stop_in_the_reverse_order_of_their_start() {
        let order = Arc::new(Mutex::new(Vec::new()));
        run(async {
            let mut services = Services::default();
            for name in ["first", "second", "third"] {
                let noted = Noted(name, Arc::clone(&order));
                services.start(name, async move {
                    std::future::pending::<()>().await;
                    drop(noted);
                });
            }
            // None has begun yet, and all are stopped none the less.
            services.stop().await;
        });
        assert_eq!(*order.lock().unwrap(), ["third", "second", "first"]);
    }
}
