//! Events that outlive the call that caused them: a terminal's output, a plan's new state. One
//! bounded ring for all: who publishes never waits, who falls behind is told of the gap and goes
//! on from the oldest event that is left. What leaves it at its bound is the oldest of those who
//! take the most room, so that a terminal that floods it pushes out nobody's events but its own.

use std::cmp::Reverse;
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

/// Whom an event is for. Each audience has a share of the ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// None of them empty.
    shares: HashMap<Audience, Share>,
    events: usize,
    bytes: usize,
    next: u64,
    /// As a share's, for those that nothing is left of: who they were for is not known any more.
    lost_to: u64,
    connections: u64,
    /// What each hearer follows, and the event from which on.
    follows: HashMap<Hearer, HashMap<Arc<str>, u64>>,
}

/// The events of one audience.
#[derive(Default)]
struct Share {
    events: VecDeque<Event>,
    bytes: usize,
    /// After the newest of those that left.
    lost_to: u64,
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

    /// True if `hearer` follows `subject`, and so hears of its end.
    #[must_use]
    pub fn is_followed_by(&self, hearer: &Hearer, subject: &str) -> bool {
        let ring = self.ring();
        let follows = ring.follows.get(hearer);
        follows.is_some_and(|follows| follows.contains_key(subject))
    }

    /// Nobody follows `subject` any more: there is nothing more to come. Who followed it and has
    /// not heard all of it is told of the gap.
    pub fn close(&self, subject: &Arc<str>) {
        let mut ring = self.ring();
        let mut was_followed = false;
        ring.follows.retain(|_, follows| {
            was_followed |= follows.remove(subject).is_some();
            !follows.is_empty()
        });
        let gone = ring.forget(&Audience::Followers(Arc::clone(subject)));
        if let Some(last) = gone.as_ref().and_then(|share| share.events.back())
            && was_followed
        {
            ring.lost_to = ring.lost_to.max(last.seq + 1);
        }
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
            told_to: seq,
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
        let (seq, bytes) = (self.next, body.len());
        let share = self.shares.entry(audience).or_default();
        share.events.push_back(Event { seq, name, body });
        share.bytes += bytes;
        self.events += 1;
        self.bytes += bytes;
        self.next += 1;
        while self.events > EVENTS_MAX && self.drop_one(|share| share.events.len()) {}
        while self.bytes > BYTES_MAX && self.drop_one(|share| share.bytes) {}
    }

    /// Drops the oldest event of the largest share, of equal ones the oldest of all. False if there
    /// is none.
    fn drop_one(&mut self, size: impl Fn(&Share) -> usize) -> bool {
        let oldest = |share: &Share| share.events.front().map(|event| event.seq);
        let by_size = |share: &Share| (size(share), Reverse(oldest(share)));
        let largest = self
            .shares
            .iter_mut()
            .max_by_key(|(_, share)| by_size(share));
        let Some((audience, share)) = largest else {
            return false;
        };
        if let Some(old) = share.events.pop_front() {
            share.bytes -= old.body.len();
            share.lost_to = old.seq + 1;
            self.events -= 1;
            self.bytes -= old.body.len();
        }
        if share.events.is_empty() {
            self.lost_to = self.lost_to.max(share.lost_to);
            let audience = audience.clone();
            self.shares.remove(&audience);
        }
        true
    }

    /// Nobody will hear these.
    fn forget(&mut self, audience: &Audience) -> Option<Share> {
        let share = self.shares.remove(audience)?;
        self.events -= share.events.len();
        self.bytes -= share.bytes;
        Some(share)
    }

    /// The shares that `hearer` hears, each with the first event that is for it.
    fn heard_by(&self, hearer: &Hearer) -> impl Iterator<Item = (&Share, u64)> {
        let own = [Audience::Everyone, Audience::One(hearer.clone())];
        let follows = self.follows.get(hearer).into_iter().flatten();
        let followed = follows.map(|(subject, since)| {
            let audience = Audience::Followers(Arc::clone(subject));
            (audience, since + 1)
        });
        let all = own
            .into_iter()
            .map(|audience| (audience, 0))
            .chain(followed);
        all.filter_map(|(audience, from)| Some((self.shares.get(&audience)?, from)))
    }

    /// The next thing for `hearer`, from the event `next` on. Gaps before `told_to` are known.
    fn next(&self, hearer: &Hearer, next: &mut u64, told_to: &mut u64) -> Option<Told> {
        let lost = self
            .heard_by(hearer)
            .map(|(share, from)| match share.lost_to {
                lost_to if lost_to > from => lost_to,
                _ => 0,
            });
        let lost_to = lost.fold(self.lost_to, u64::max);
        let seen = (*next).max(*told_to);
        if lost_to > seen {
            *told_to = lost_to;
            return Some(Told::Gap(self.left_between(seen, lost_to)));
        }
        let first = |(share, from): (&'_ Share, u64)| {
            let from = share.place_of((*next).max(from));
            share.events.get(from).cloned()
        };
        let event = self
            .heard_by(hearer)
            .filter_map(first)
            .min_by_key(|event| event.seq);
        // One that was told of events to come, by an earlier process say, waits for them.
        *next = event
            .as_ref()
            .map_or((*next).max(self.next), |event| event.seq + 1);
        event.map(Told::Event)
    }

    /// How many events of this range are not there any more.
    fn left_between(&self, from: u64, to: u64) -> u64 {
        let there = |share: &Share| share.place_of(to) - share.place_of(from);
        let there: usize = self.shares.values().map(there).sum();
        (to - from).saturating_sub(there as u64)
    }
}

impl Share {
    /// Where the first event is that is not before `seq`.
    fn place_of(&self, seq: u64) -> usize {
        self.events.partition_point(|event| event.seq < seq)
    }
}

/// One who listens. A connection follows nothing more once it is dropped.
pub struct Subscription {
    topics: Topics,
    hearer: Hearer,
    next: u64,
    /// It knows of the gaps before this event.
    told_to: u64,
}

impl Subscription {
    /// The first event it has not been past: to go on from there is to miss nothing.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.next
    }

    /// What there is to be heard already.
    pub fn now(&mut self) -> Option<Told> {
        let ring = self.topics.ring();
        ring.next(&self.hearer, &mut self.next, &mut self.told_to)
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
            let mut ring = self.topics.ring();
            ring.follows.remove(&self.hearer);
            let _ = ring.forget(&Audience::One(self.hearer.clone()));
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
        topics.publish("out", "x", Audience::Followers("s".into()));
        topics.close(&"s".into());
        assert!(!topics.is_followed("s"));
        assert!(topics.ring().follows.is_empty());
        assert_eq!(topics.ring().events, 1, "only what its caller was told");
    }

    /// who was slow is told what they miss; who heard all of it, and who comes later, is not.
    #[test]
    fn a_closed_subject_leaves_a_gap() {
        let topics = Topics::default();
        let subject: Arc<str> = "s".into();
        let [slow, quick] = [topics.connection(), topics.connection()];
        let [mut lags, mut follows] = [&slow, &quick].map(|one| topics.listen(one.clone()));
        for hearer in [&slow, &quick] {
            topics.follow(hearer, &subject, ("out", "screen".into()));
        }
        topics.publish("out", "last", Audience::Followers(Arc::clone(&subject)));
        topics.publish("x", "plan", Audience::Everyone);
        assert_eq!(heard(&mut follows), ["screen", "last", "plan"]);
        topics.close(&subject);
        assert_eq!(heard(&mut lags), ["gap 1", "screen", "plan"]);
        assert!(heard(&mut follows).is_empty());
        assert!(heard(&mut topics.listen(topics.connection())).is_empty());
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
        assert_eq!(topics.ring().events, 16);
    }

    /// A subject that floods the ring pushes out its own events; others are told all of theirs, and
    /// hear of no gap; who follows it hears of one, once, and what is left after it.
    #[test]
    fn a_flood_pushes_out_itself() {
        for size in [1, 64 * 1024] {
            let topics = Topics::default();
            let flood: Arc<str> = "flood".into();
            let (viewer, other) = (topics.connection(), topics.connection());
            let mut views = topics.listen(viewer.clone());
            let mut hears = topics.listen(other.clone());
            topics.follow(&viewer, &flood, ("out", "screen".into()));
            topics.publish("x", "plan", Audience::Everyone);
            topics.publish("y", "own", Audience::One(other));
            let count = EVENTS_MAX + 100;
            for index in 0..count {
                let text = format!("{index} {}", "z".repeat(size));
                topics.publish("out", text, Audience::Followers(Arc::clone(&flood)));
            }
            topics.publish("x", "later", Audience::Everyone);
            assert_eq!(heard(&mut hears), ["plan", "own", "later"], "{size}");
            let ring = topics.ring();
            assert!(ring.events <= EVENTS_MAX && ring.bytes <= BYTES_MAX);
            let left = ring.shares[&Audience::Followers(Arc::clone(&flood))]
                .events
                .len();
            drop(ring);
            let heard = heard(&mut views);
            assert_eq!(heard[0], format!("gap {}", count - left), "{size}");
            assert_eq!(heard[1..3], ["screen".to_owned(), "plan".to_owned()]);
            assert!(heard[3].starts_with(&format!("{} ", count - left)));
            assert_eq!(heard.len(), left + 4);
        }
    }

    /// Two that flood have half of it each.
    #[test]
    fn shares_are_equal() {
        let topics = Topics::default();
        for index in 0..EVENTS_MAX * 2 {
            for (subject, every) in [("a", 1), ("b", 4)] {
                if index % every == 0 {
                    topics.publish("out", "x", Audience::Followers(subject.into()));
                }
            }
        }
        let ring = topics.ring();
        let sizes =
            ["a", "b"].map(|one| ring.shares[&Audience::Followers(one.into())].events.len());
        assert_eq!(sizes, [EVENTS_MAX / 2; 2]);
    }

    /// A connection that ends leaves nothing behind; one share that lost everything is not forgotten
    /// by who was there.
    #[test]
    fn nothing_is_left_of_connections() {
        let topics = Topics::default();
        let mut others = topics.listen(topics.connection());
        let hearer = topics.connection();
        let hears = topics.listen(hearer.clone());
        topics.publish("x", "y", Audience::One(hearer.clone()));
        drop(hears);
        let ring = topics.ring();
        assert_eq!((ring.events, ring.bytes), (0, 0));
        assert!(ring.shares.is_empty());
        drop(ring);
        let mut hears = topics.listen(topics.connection());
        topics.publish("x", "z".repeat(BYTES_MAX + 1), Audience::Everyone);
        assert!(topics.ring().shares.is_empty());
        assert_eq!(heard(&mut hears), ["gap 1"]);
        assert_eq!(heard(&mut others), ["gap 2"]);
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
