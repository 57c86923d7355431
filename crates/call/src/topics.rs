//! Events that outlive the call that caused them: a terminal's output, a plan's new state. One
//! bounded ring for all: who publishes never waits, who falls behind is told of the gap and goes
//! on from the oldest event that is left.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Events kept for those who read slowly or come back.
const EVENTS_MAX: usize = 16 * 1024;
/// Bytes of their bodies.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Who hears events: a connection that lasts, or whoever comes as this caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hearer {
    /// One connection, which ends.
    Connection(u64),
    /// A caller without one: all their event streams.
    Caller(Arc<str>),
}

/// Whom an event is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All who listen.
    Everyone,
    /// Those who follow this subject, by `Topics::follow`.
    Followers(Arc<str>),
    /// One of them.
    One(Hearer),
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// Grows by one from each event to the next, whomever they are for.
    pub seq: u64,
    /// What kind: `planner/plan_updated`.
    pub name: &'static str,
    /// An object, as JSON.
    pub body: Arc<str>,
    audience: Audience,
}

/// What a subscription says next.
#[derive(Clone, Debug)]
pub enum Told {
    /// An event.
    Event(Event),
    /// So many events left the ring unheard. Not all of them were for this hearer.
    Gap(u64),
}

/// Where events are published and heard. Clones are the same place.
#[derive(Clone, Default)]
pub struct Topics {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    ring: Mutex<Ring>,
    news: Notify,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<Event>,
    bytes: usize,
    next: u64,
    connections: u64,
    /// What each hearer follows, and the event from which on.
    follows: HashMap<Hearer, HashMap<Arc<str>, u64>>,
}

impl Topics {
    /// Tells `audience` that something happened.
    pub fn publish(&self, name: &'static str, body: impl Into<Arc<str>>, audience: Audience) {
        self.ring().push(name, body.into(), audience);
        self.shared.news.notify_waiters();
    }

    /// A hearer that is a connection of its own.
    #[must_use]
    pub fn connection(&self) -> Hearer {
        let mut ring = self.ring();
        ring.connections += 1;
        Hearer::Connection(ring.connections)
    }

    /// From now on `hearer` hears what is for the followers of `subject`. `first` is an event for
    /// this hearer alone, before all those.
    pub fn follow(&self, hearer: &Hearer, subject: &Arc<str>, first: (&'static str, Arc<str>)) {
        let mut ring = self.ring();
        let since = ring.next;
        ring.push(first.0, first.1, Audience::One(hearer.clone()));
        let follows = ring.follows.entry(hearer.clone()).or_default();
        follows.insert(Arc::clone(subject), since);
        drop(ring);
        self.shared.news.notify_waiters();
    }

    /// True if somebody follows `subject`, so that it is worth telling.
    #[must_use]
    pub fn is_followed(&self, subject: &str) -> bool {
        let ring = self.ring();
        ring.follows.values().any(|one| one.contains_key(subject))
    }

    /// Nobody follows `subject` any more: there is nothing more to come.
    pub fn close(&self, subject: &str) {
        self.ring().follows.retain(|_, follows| {
            follows.remove(subject);
            !follows.is_empty()
        });
    }

    /// Hears what is published from now on.
    #[must_use]
    pub fn listen(&self, hearer: Hearer) -> Subscription {
        let next = self.ring().next;
        self.listen_from(hearer, next)
    }

    /// Hears everything from the event `seq` on.
    #[must_use]
    pub fn listen_from(&self, hearer: Hearer, seq: u64) -> Subscription {
        Subscription {
            topics: self.clone(),
            hearer,
            next: seq,
        }
    }

    /// How many events there have been.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ring().next
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        let lock = self.shared.ring.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, name: &'static str, body: Arc<str>, audience: Audience) {
        self.bytes += body.len();
        self.events.push_back(Event {
            seq: self.next,
            name,
            body,
            audience,
        });
        self.next += 1;
        while self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let Some(old) = self.events.pop_front() else {
                break;
            };
            self.bytes -= old.body.len();
        }
    }

    fn is_for(&self, event: &Event, hearer: &Hearer) -> bool {
        match &event.audience {
            Audience::Everyone => true,
            Audience::One(one) => one == hearer,
            Audience::Followers(subject) => {
                let since = self.follows.get(hearer).and_then(|f| f.get(subject));
                since.is_some_and(|since| event.seq > *since)
            }
        }
    }

    /// The next thing for `hearer`, from the event `next` on.
    fn next(&self, hearer: &Hearer, next: &mut u64) -> Option<Told> {
        let oldest = self.next - self.events.len() as u64;
        if *next < oldest {
            let missed = oldest - *next;
            *next = oldest;
            return Some(Told::Gap(missed));
        }
        // One that was told of events to come, by an earlier process say, waits for them.
        let from = usize::try_from(*next - oldest).unwrap_or(usize::MAX);
        let event = self
            .events
            .range(from.min(self.events.len())..)
            .find(|event| self.is_for(event, hearer));
        *next = event.map_or((*next).max(self.next), |event| event.seq + 1);
        event.cloned().map(Told::Event)
    }
}

/// One who listens. A connection follows nothing more once it is dropped.
pub struct Subscription {
    topics: Topics,
    hearer: Hearer,
    next: u64,
}

impl Subscription {
    /// The first event it has not been past: to go on from there is to miss nothing.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.next
    }

    /// What there is to be heard already.
    pub fn now(&mut self) -> Option<Told> {
        self.topics.ring().next(&self.hearer, &mut self.next)
    }

    /// The next thing, when it happens. Nothing is lost where this is given up.
    pub async fn next(&mut self) -> Told {
        let shared = Arc::clone(&self.topics.shared);
        loop {
            let news = shared.news.notified();
            tokio::pin!(news);
            // From here on no news is missed, so that looking comes after.
            news.as_mut().enable();
            if let Some(told) = self.now() {
                return told;
            }
            news.await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Hearer::Connection(_) = self.hearer {
            self.topics.ring().follows.remove(&self.hearer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(subscription: &mut Subscription) -> Vec<String> {
        std::iter::from_fn(|| subscription.now())
            .map(|told| match told {
                Told::Event(event) => event.body.to_string(),
                Told::Gap(missed) => format!("gap {missed}"),
            })
            .collect()
    }

    #[test]
    fn everyone_hears_in_order() {
        let topics = Topics::default();
        topics.publish("x", "early", Audience::Everyone);
        let mut one = topics.listen(topics.connection());
        let mut other = topics.listen(Hearer::Caller("uid:1".into()));
        let mut late = topics.listen_from(topics.connection(), 0);
        for index in 0..3 {
            topics.publish("x", index.to_string(), Audience::Everyone);
        }
        assert_eq!(heard(&mut one), ["0", "1", "2"]);
        assert_eq!(heard(&mut other), ["0", "1", "2"]);
        assert_eq!(heard(&mut late), ["early", "0", "1", "2"]);
        assert!(heard(&mut one).is_empty());
    }

    #[test]
    fn followers_hear_their_subject_after_its_first_word() {
        let topics = Topics::default();
        let subject: Arc<str> = "s1".into();
        let to = || Audience::Followers(Arc::clone(&subject));
        let (viewer, stranger) = (topics.connection(), topics.connection());
        let mut views = topics.listen(viewer.clone());
        let mut strange = topics.listen(stranger);
        // Published before it follows, heard by nobody, though it is still in the ring.
        topics.publish("out", "before", to());
        topics.follow(&viewer, &subject, ("out", "screen".into()));
        topics.publish("out", "after", to());
        assert_eq!(heard(&mut views), ["screen", "after"]);
        assert!(heard(&mut strange).is_empty());
        drop(views);
        let mut views = topics.listen(viewer);
        topics.publish("out", "gone", to());
        assert!(heard(&mut views).is_empty(), "a new connection starts anew");
    }

    #[test]
    fn a_closed_subject_has_no_followers() {
        let topics = Topics::default();
        let caller = Hearer::Caller("uid:1".into());
        topics.follow(&caller, &"s".into(), ("out", "screen".into()));
        assert!(topics.is_followed("s") && !topics.is_followed("t"));
        topics.close("s");
        assert!(!topics.is_followed("s"));
        assert!(topics.ring().follows.is_empty());
    }

    #[test]
    fn who_falls_behind_is_told_once() {
        let topics = Topics::default();
        let mut slow = topics.listen(topics.connection());
        for index in 0..EVENTS_MAX + 2 {
            topics.publish("x", index.to_string(), Audience::Everyone);
        }
        let heard = heard(&mut slow);
        assert_eq!(heard[..2], ["gap 2".to_owned(), "2".to_owned()]);
        assert_eq!(heard.len(), EVENTS_MAX + 1);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let topics = Topics::default();
        for _ in 0..40 {
            topics.publish("x", "y".repeat(1 << 20), Audience::Everyone);
        }
        assert_eq!(topics.ring().bytes, BYTES_MAX);
        assert_eq!(topics.ring().events.len(), 16);
    }

    #[tokio::test]
    async fn waits_for_news() {
        let topics = Topics::default();
        let mut hears = topics.listen(topics.connection());
        let publisher = topics.clone();
        let (told, ()) = tokio::join!(hears.next(), async move {
            tokio::task::yield_now().await;
            publisher.publish("x", "news", Audience::Everyone);
        });
        assert!(matches!(told, Told::Event(event) if &*event.body == "news"));
    }
}
