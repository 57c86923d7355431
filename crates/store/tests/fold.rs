//! Folding changes where the state is kept, not what it is: a seeded sequence of operations on
//! several stores is compared with a plain model, before and after folds, and after the index
//! is deleted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use callgate_call::{CallId, LeaseToken, ManualClock, Tier};
use callgate_store::{
    ApprovalId, Begun, Finish, Health, LeaseGrant, Options, Recorded, Refusal, Seen, Start, Store,
    Tuning, View,
};

fn options(fold: bool) -> Options {
    Options {
        fold,
        key_life: Duration::from_secs(600),
        tuning: Tuning {
            segment_bytes: 6000,
            fold_bytes: 9000,
            close_bytes: 0,
            run_keys: 16,
        },
        ..Options::default()
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Key {
    Running {
        call: u128,
        store: usize,
        input: &'static str,
    },
    Ended {
        call: u128,
        text: String,
        input: &'static str,
        at: u64,
    },
}

#[derive(Default)]
struct Model {
    keys: BTreeMap<u64, Key>,
    failures: BTreeMap<&'static str, u32>,
    trust: BTreeMap<String, &'static str>,
    leases: Vec<(String, LeaseToken, &'static str)>,
    approvals: Vec<(ApprovalId, &'static str)>,
    notes: Vec<u64>,
}

struct World {
    folder: Folder,
    clock: Arc<ManualClock>,
    stores: Vec<Store>,
    model: Model,
    dice: Dice,
    calls: u128,
    now: u64,
}

const TOOLS: [&str; 2] = ["files/write", "exec/run"];
const INPUTS: [&str; 2] = ["x", "y"];

impl World {
    fn step(&mut self) {
        let at = self.dice.roll(self.stores.len() as u64) as usize;
        let number = self.dice.roll(40);
        let input_text = INPUTS[usize::from(self.dice.roll(8) == 0)];
        match self.dice.roll(20) {
            0..=6 => self.call(at, number, input_text),
            7..=9 => self.end(number),
            10 => {
                let tool = TOOLS[self.dice.roll(2) as usize];
                let trouble = self.dice.roll(3) > 0;
                let health = if trouble {
                    Health::Trouble
                } else {
                    Health::Works
                };
                let me = me();
                let ended = Finish {
                    tool,
                    slots: None,
                    health,
                    ..finish(1, None, "{}")
                };
                let ticket = self.stores[at].record_pure(
                    Start {
                        tool,
                        ..start(1, None, &me)
                    },
                    ended,
                );
                settle(&self.stores[at], ticket);
                let failures = self.model.failures.entry(tool).or_default();
                *failures = if trouble { *failures + 1 } else { 0 };
            }
            11 => {
                let path = format!("p{}", number % 5);
                if self.dice.roll(3) == 0 {
                    let known = self.stores[at].untrust(&path).unwrap();
                    assert_eq!(known, self.model.trust.remove(&path).is_some());
                } else {
                    self.stores[at].trust(&path, input(input_text)).unwrap();
                    self.model.trust.insert(path, input_text);
                }
            }
            12 => {
                let life = Duration::from_secs(3600);
                let tier = Tier::Dangerous;
                let grant = LeaseGrant {
                    tool: "files/write",
                    tier,
                    life,
                    caller: None,
                    input: None,
                };
                let (id, token) = self.stores[at].grant_lease(grant).unwrap();
                self.model.leases.push((id.0, token, "active"));
            }
            13..=14 if !self.model.leases.is_empty() => {
                let index = number as usize % self.model.leases.len();
                let me = me();
                let (_, token, state) = &mut self.model.leases[index];
                let begun = self.stores[at]
                    .begin(with_lease(start(5, None, &me), token))
                    .unwrap();
                match (&*state, begun) {
                    (&"active", Begun::Started(_)) => *state = "spent",
                    (state, Begun::LeaseRefused(refusal)) => assert_eq!(
                        refusal.as_str(),
                        match *state {
                            "spent" => "already consumed",
                            _ => "not found",
                        }
                    ),
                    other => panic!("{other:?}"),
                }
            }
            15 if !self.model.leases.is_empty() => {
                let index = number as usize % self.model.leases.len();
                let (id, _, state) = &mut self.model.leases[index];
                self.stores[at].revoke_lease(id).unwrap();
                if *state == "active" {
                    *state = "revoked";
                }
            }
            16 => {
                let me = me();
                let what = input(&format!("ask {}", number % 6));
                let asked = self.stores[at]
                    .ask(&me, "files/write", what, Tier::Write, "{}")
                    .unwrap();
                let known = self.model.approvals.iter().find(|(id, _)| *id == asked.id);
                match known {
                    Some((_, state)) => assert!(["pending", "granted"].contains(state)),
                    None => self.model.approvals.push((asked.id, "pending")),
                }
            }
            17 => {
                let pending = self
                    .model
                    .approvals
                    .iter_mut()
                    .find(|(_, s)| *s == "pending");
                if let Some((id, state)) = pending {
                    let granted = number.is_multiple_of(2);
                    self.stores[at].decide(id, granted, "uid:0", None).unwrap();
                    *state = if granted { "granted" } else { "denied" };
                }
            }
            18 => {
                let text = format!("note{} about word{}", self.model.notes.len(), number % 7);
                self.stores[at].memory_append(&text, None).unwrap();
                self.model.notes.push(number % 7);
            }
            _ => {
                self.clock.advance(Duration::from_secs(7));
                self.now += 7000;
                match self.dice.roll(4) {
                    0 => self.stores[at].close().unwrap(),
                    1 => self.stores[at].maintain().unwrap(),
                    _ => {}
                }
            }
        }
    }

    fn call(&mut self, at: usize, number: u64, text: &'static str) {
        self.calls += 1;
        let call = self.calls;
        let me = me();
        if self.expected(number, text) == Seen::New && self.dice.roll(3) == 0 {
            self.pure_call(at, number, text);
            return;
        }
        let start = Start {
            input: input(text),
            ..start(call, Some(key(&number.to_string())), &me)
        };
        let begun = self.stores[at].begin(start).unwrap();
        match (self.expected(number, text), begun) {
            (Seen::New, Begun::Started(_)) => {
                self.model.keys.insert(
                    number,
                    Key::Running {
                        call,
                        store: at,
                        input: text,
                    },
                );
            }
            (Seen::InFlight { call: a, .. }, Begun::Seen(Seen::InFlight { call: b, .. })) => {
                assert_eq!(a, b);
            }
            (wanted, Begun::Seen(seen)) => assert_eq!(seen, wanted),
            other => panic!("{other:?}"),
        }
    }

    fn pure_call(&mut self, at: usize, number: u64, text: &'static str) {
        let (call, me, key) = (self.calls, me(), Some(key(&number.to_string())));
        let output = format!("{{\"call\":{call}}}");
        let input = input(text);
        let ticket = self.stores[at].record_pure(
            Start {
                input,
                ..start(call, key, &me)
            },
            Finish {
                input,
                ..finish(call, key, &output)
            },
        );
        settle(&self.stores[at], ticket);
        self.model.failures.insert("files/write", 0);
        let ended = Key::Ended {
            call,
            text: output,
            input: text,
            at: self.now,
        };
        self.model.keys.insert(number, ended);
    }

    fn end(&mut self, number: u64) {
        let Some(Key::Running {
            call,
            store,
            input: text,
        }) = self.model.keys.get(&number)
        else {
            return;
        };
        let (call, store, text) = (*call, *store, *text);
        let output = format!("{{\"call\":{call}}}");
        let keep = self.dice.roll(6) > 0;
        let ended = Finish {
            input: input(text),
            keep,
            ..finish(call, Some(key(&number.to_string())), &output)
        };
        let ticket = self.stores[store].finish(ended).unwrap();
        settle(&self.stores[store], ticket);
        self.model.failures.insert("files/write", 0);
        if keep {
            let ended = Key::Ended {
                call,
                text: output,
                input: text,
                at: self.now,
            };
            self.model.keys.insert(number, ended);
        } else {
            self.model.keys.remove(&number);
        }
    }

    fn expected(&self, number: u64, text: &str) -> Seen {
        match self.model.keys.get(&number) {
            None => Seen::New,
            Some(Key::Ended { at, .. }) if self.now - at >= 600_000 => Seen::New,
            Some(Key::Running { call, input, .. } | Key::Ended { call, input, .. })
                if *input != text =>
            {
                Seen::Conflict {
                    call: CallId(*call),
                }
            }
            Some(Key::Running { call, .. }) => Seen::InFlight {
                owner: Default::default(),
                call: CallId(*call),
            },
            Some(Key::Ended { call, text, .. }) => Seen::Finished(Recorded {
                slots: None,
                call: CallId(*call),
                result: Ok(text.clone()),
            }),
        }
    }

    fn check(&self, store: &Store) {
        for number in 0..40 {
            for text in INPUTS {
                let seen = store
                    .peek(
                        &key(&number.to_string()),
                        "files/write",
                        &input(text),
                        View::Full,
                    )
                    .unwrap();
                match (self.expected(number, text), seen) {
                    (Seen::InFlight { call: a, .. }, Seen::InFlight { call: b, .. }) => {
                        assert_eq!(a, b);
                    }
                    (wanted, seen) => assert_eq!(seen, wanted, "key {number}"),
                }
            }
        }
        for tool in TOOLS {
            let wanted = self.model.failures.get(tool).copied().unwrap_or(0);
            assert_eq!(store.breaker(tool).unwrap().failures, wanted);
        }
        for n in 0..5 {
            let path = format!("p{n}");
            let wanted = self.model.trust.get(&path).map(|text| input(text));
            assert_eq!(store.trusted(&path).unwrap(), wanted);
        }
        let mut leases: Vec<(String, String)> = store
            .leases()
            .unwrap()
            .into_iter()
            .map(|lease| {
                let state = format!("{:?}", lease.state).to_lowercase();
                (
                    lease.id.0,
                    state.split([' ', '{']).next().unwrap().to_owned(),
                )
            })
            .collect();
        let mut wanted: Vec<(String, String)> = self
            .model
            .leases
            .iter()
            .map(|(id, _, s)| (id.clone(), (*s).to_owned()))
            .collect();
        leases.sort();
        wanted.sort();
        assert_eq!(leases, wanted);
        for (id, state) in &self.model.approvals {
            let found = format!("{:?}", store.approval(id).unwrap().unwrap().state);
            assert!(
                found.to_lowercase().starts_with(state),
                "{found} is not {state}"
            );
        }
        assert_eq!(store.approvals().unwrap().len(), self.model.approvals.len());
        for word in 0..7 {
            let found = store
                .memory_query(&format!("word{word}"), 1000)
                .unwrap()
                .len();
            let wanted = self.model.notes.iter().filter(|&&n| n == word).count();
            assert_eq!(found, wanted, "word{word}");
        }
    }
}

/// D-4, G-3, G-5, G-7, T-12: the same state from every store, by every way.
#[test]
fn folding_changes_nothing() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let folder = Folder::new("model");
        let clock = clock();
        // Two that fold, one that never does (T-12).
        let stores = [true, true, false]
            .map(|fold| open_with(&folder, options(fold), &clock))
            .into();
        let mut world = World {
            folder,
            clock: Arc::clone(&clock),
            stores,
            model: Model::default(),
            dice: Dice(seed * 7919),
            calls: 100,
            now: NOON,
        };
        for step in 0..600 {
            world.step();
            if step % 60 == 59 {
                for store in &world.stores {
                    world.check(store);
                }
                world.check(&open_with(&world.folder, options(step % 120 == 59), &clock));
            }
        }
        assert!(
            world.stores.iter().any(|store| store.stats().folds > 1),
            "folds happened"
        );
        assert_eq!(world.stores[2].stats().folds, 0);
        let records = assert_good(&world.stores[0]);
        for name in ["state.db", "state.db-wal", "state.db-shm", "state.mark"] {
            if seed.is_multiple_of(2) || name != "state.mark" {
                let _ = fs::remove_file(world.folder.0.join(name));
            }
        }
        let rebuilt = open_with(&world.folder, options(true), &clock);
        world.check(&rebuilt);
        rebuilt.close().unwrap();
        world.check(&rebuilt);
        let fresh = open_with(&world.folder, options(true), &clock);
        world.check(&fresh);
        assert_eq!(assert_good(&fresh), records);
    }
}

/// G-3: the index holds at least as many finished keys as promised, and not many more.
#[test]
fn finished_keys_leave_oldest_first() {
    let folder = Folder::new("oldest");
    let tuning = Tuning {
        fold_bytes: 20_000,
        run_keys: 50,
        ..Tuning::default()
    };
    let store = open_with(
        &folder,
        Options {
            keys_max: 200,
            tuning,
            ..Options::default()
        },
        &clock(),
    );
    for n in 0..1000_u128 {
        let ticket = run(&store, n, key(&n.to_string()), "{}");
        settle(&store, ticket);
    }
    let kept: Vec<u32> = (0..1000)
        .filter(|n| matches!(peek(&store, key(&n.to_string())), Seen::Finished(_)))
        .collect();
    assert!((200..350).contains(&kept.len()), "{}", kept.len());
    assert_eq!(
        kept,
        (1000 - kept.len() as u32..1000).collect::<Vec<_>>(),
        "the newest"
    );
}

/// D-4: a mark that runs ahead of the index (a power cut took the index's end) does no harm.
#[test]
fn a_mark_ahead_of_the_index_is_seen_through() {
    let folder = Folder::new("ahead");
    let clock = clock();
    let store = open_with(&folder, options(true), &clock);
    let db = || ["state.db", "state.db-wal", "state.db-shm"].map(|name| folder.0.join(name));
    settle(&store, run(&store, 1, key("a"), "1"));
    store.close().unwrap();
    drop(store);
    let old = db().map(|path| fs::read(path).ok());
    let store = open_with(&folder, options(true), &clock);
    settle(&store, run(&store, 2, key("b"), "2"));
    store.close().unwrap();
    drop(store);
    for (path, bytes) in db().iter().zip(old) {
        match bytes {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => drop(fs::remove_file(path)),
        }
    }
    for fold in [false, true] {
        let store = open_with(&folder, options(fold), &clock);
        assert_eq!(replay(&store, key("b")), "2");
        assert_eq!(replay(&store, key("a")), "1");
        assert_eq!(peek(&store, key("c")), Seen::New);
    }
}

/// T-12, G-3: an end that was given up for want of space leaves its key unknown, and what comes
/// after is folded as ever.
#[test]
fn a_given_up_end_does_not_stop_folding() {
    let (folder, store) = full("given-up", true);
    store.finish(finish(2, Some(key("b")), "2")).unwrap();
    assert_eq!(replay(&store, key("b")), "2", "known here, so far");
    let caller = callgate_call::Caller::named(&"c".repeat(1000));
    let mut last = None;
    while store.stats().lost == 0 {
        last = Some(store.refuse(Refusal {
            call: CallId(3),
            tool: "files/write",
            caller: &caller,
            wire: "gate",
            input: None,
            fault: "denied",
            trace_id: None,
        }));
    }
    let unknown = Seen::Unknown { call: CallId(2) };
    assert_eq!(peek(&store, key("b")), unknown);
    fs::remove_dir(folder.segment(2)).unwrap();
    assert!(store.settle_now(last.unwrap()).is_err(), "given up");
    settle(&store, run(&store, 4, key("d"), "4"));
    store.close().unwrap();
    assert_eq!(store.stats().folds, 1);
    for store in [&store, &open(&folder)] {
        assert_eq!(peek(store, key("b")), unknown);
        assert_eq!(replay(store, key("a")), "1");
        assert_eq!(replay(store, key("d")), "4");
    }
    let me = me();
    let again = Start {
        idempotent: true,
        ..start(5, Some(key("b")), &me)
    };
    assert_eq!(begun(&store, again).again, Some(CallId(2)));
    settle(
        &store,
        store.finish(finish(5, Some(key("b")), "5")).unwrap(),
    );
    store.close().unwrap();
    assert_eq!(store.stats().folds, 2);
    assert_eq!(replay(&open(&folder), key("b")), "5");
    assert_good(&store);
}

/// G-3: keys of the dead make room, however many old ones of the living there are.
#[test]
fn dead_keys_expire_behind_living_ones() {
    const LIVING: u128 = 600;
    const DEAD: u128 = 20;
    let folder = Folder::new("behind");
    let clock = clock();
    let options = Options {
        keys_max: (LIVING + DEAD) as u64,
        ..options(true)
    };
    let options = Options {
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..options
    };
    let store = open_with(&folder, options.clone(), &clock);
    let other = open_with(&folder, options, &clock);
    let me = me();
    for n in 0..LIVING {
        let _ = begun(&store, start(n, Some(key(&n.to_string())), &me));
    }
    for n in LIVING..LIVING + DEAD {
        let _ = begun(&other, start(n, Some(key(&n.to_string())), &me));
    }
    drop(other);
    let full = store.begin(start(9999, Some(key("new")), &me)).unwrap();
    assert_eq!(full, Begun::Full);
    clock.advance(Duration::from_secs(601));
    store.close().unwrap();
    assert_eq!(store.stats().folds, 1);
    for n in 0..DEAD {
        let _ = begun(&store, start(1000 + n, Some(key(&format!("new{n}"))), &me));
    }
    let full = store.begin(start(9999, Some(key("new")), &me)).unwrap();
    assert_eq!(full, Begun::Full, "the living keep theirs");
    assert!(matches!(peek(&store, key("7")), Seen::InFlight { .. }));
}

/// Notes are found by their words; a query has no syntax to abuse.
#[test]
fn memory_finds_words() {
    let folder = Folder::new("memory");
    let store = open_with(&folder, options(true), &clock());
    let texts = [
        "the cat sat on the mat",
        "a dog and a cat",
        "Élan vital, naïve words",
        "nothing here",
    ];
    for (n, text) in texts.iter().enumerate() {
        store
            .memory_append(text, (n == 1).then_some("{\"tag\":1}"))
            .unwrap();
        if n == 1 {
            store.close().unwrap();
        }
    }
    for round in 0..2 {
        let found = |query: &str, k: usize| -> Vec<String> {
            store
                .memory_query(query, k)
                .unwrap()
                .into_iter()
                .map(|note| note.text)
                .collect()
        };
        assert_eq!(found("cat dog", 5), [texts[1], texts[0]], "round {round}");
        assert_eq!(found("CAT", 1), [texts[1]], "the one that says little else");
        assert_eq!(found("élan", 5), [texts[2]]);
        assert_eq!(found("cat nothing", 5).len(), 3);
        let odd = [
            "",
            "\"",
            "\" OR 1 NEAR(",
            "* - ^ : {}",
            "AND",
            "NOT cat\"",
            "\0",
        ];
        for query in odd {
            let _ = found(query, 5);
        }
        assert_eq!(found("cat", 0), [""; 0]);
        assert_eq!(
            store.memory_query("dog", 1).unwrap()[0].meta.as_deref(),
            Some("{\"tag\":1}")
        );
        store.close().unwrap();
    }
    let big = "x".repeat(callgate_store::NOTE_BYTES_MAX);
    store.memory_append(&big, None).unwrap();
    assert!(store.memory_append(&format!("{big}x"), None).is_err());
    assert_good(&store);
}
