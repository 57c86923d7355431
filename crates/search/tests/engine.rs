//! An index that several use at once, and what it makes of odd vectors.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use callgate_call::{Clock, Timestamp};
use callgate_search::{Ask, Engine, Found, Item, SearchError};
use callgate_store::search::NewChunk;

struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// A state folder, gone with the test.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("callgate-{name}-{}", std::process::id()));
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// As another process would see it.
fn engine(state: &Path) -> Engine {
    Engine::new(state, None, Arc::new(NoClock))
}

fn item(key: &str, embedding: Option<Vec<f32>>) -> Item {
    let chunk = NewChunk {
        key: key.to_owned(),
        path: key.to_owned(),
        text: format!("text of {key}"),
        ..NewChunk::default()
    };
    Item { chunk, embedding }
}

fn near(engine: &Engine, namespace: &str, embedding: &[f32], top_k: usize) -> Vec<Found> {
    let ask = Ask {
        embedding: Some(embedding.to_vec()),
        namespace: namespace.to_owned(),
        top_k,
        ..Ask::default()
    };
    engine.search(&ask, &|_| true).expect("an answer").found
}

fn keys(found: &[Found]) -> Vec<&str> {
    found.iter().map(|one| one.told.key.as_str()).collect()
}

/// One who has it open goes on with the one that took its place.
#[test]
fn an_index_that_is_replaced() {
    let state = State::new("replaced");
    let reader = engine(&state.0);
    for name in ["old", "new"] {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(state.0.join(format!("search.db{end}")));
        }
        let put = engine(&state.0).upsert("n", vec![item(name, Some(vec![1.0, 0.0]))]);
        assert_eq!(put.expect("put"), 1);
        assert_eq!(keys(&near(&reader, "n", &[1.0, 0.0], 5)), [name]);
    }
}

/// Whatever moment a reader looks, it finds all by their vectors in the end.
#[test]
fn items_that_come_while_it_is_read() {
    let state = State::new("meanwhile");
    let (reader, writer) = (engine(&state.0), engine(&state.0));
    let vector = |n: usize| vec![1.0, n as f32];
    let put = |n: usize| writer.upsert("n", vec![item(&n.to_string(), Some(vector(n)))]);
    put(0).expect("put");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                near(&reader, "n", &[1.0, 0.0], 1);
            }
        });
        for n in 1..400 {
            put(n).expect("put");
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let found = near(&reader, "n", &[1.0, 0.0], 400);
    assert_eq!(found.len(), 400);
}

/// Vectors have a direction, however long they are.
#[test]
fn tiny_and_huge_vectors() {
    let state = State::new("lengths");
    let engine = engine(&state.0);
    let items = [
        ("tiny", [1e-30, 0.0]),
        ("least", [f32::from_bits(1), 0.0]),
        ("one", [1.0, 0.0]),
        ("huge", [1e38, 0.0]),
        ("most", [f32::MAX, 0.0]),
        ("across", [0.0, f32::MAX]),
        ("slant", [3e38, 3e38]),
        ("none", [0.0, 0.0]),
    ];
    let items = items.map(|(key, vector)| item(key, Some(vector.to_vec())));
    engine.upsert("n", items.to_vec()).expect("put");
    for to in [[1.0, 0.0], [1e-30, 0.0], [1e38, 0.0], [f32::MAX, 0.0]] {
        assert_eq!(near(&engine, "n", &to, 1).len(), 1, "{to:?}");
        let found = near(&engine, "n", &to, 8);
        let scores: Vec<f32> = found.iter().map(|one| one.score).collect();
        assert_eq!(scores.len(), 8, "{to:?}");
        assert!(scores[..5].iter().all(|score| *score == 1.0), "{scores:?}");
        assert!((scores[5] - 0.5_f32.sqrt()).abs() < 1e-6, "{scores:?}");
        assert_eq!(scores[6..], [0.0, 0.0], "{to:?}");
    }
    assert_eq!(keys(&near(&engine, "n", &[1e38, 1e38], 1)), ["slant"]);
}

/// Of two who are first at once, one says how long vectors are.
#[test]
fn two_who_are_first() {
    let state = State::new("first");
    for round in 0..20 {
        let namespace = round.to_string();
        let begin = Barrier::new(2);
        let put = |length: usize| {
            let engine = engine(&state.0);
            begin.wait();
            engine.upsert(&namespace, vec![item("a", Some(vec![1.0; length]))])
        };
        let (two, three) = std::thread::scope(|scope| {
            let two = scope.spawn(|| put(2));
            (put(3), two.join().expect("no panic"))
        });
        let refused = [two, three].into_iter().filter_map(Result::err);
        let refused: Vec<SearchError> = refused.collect();
        assert!(
            matches!(&refused[..], [SearchError::Wrong { .. }]),
            "{refused:?}"
        );
    }
}

/// nothing is in a namespace that nobody used; one without vectors can not be asked for
/// what is near.
#[test]
fn namespaces_without_vectors() {
    let state = State::new("unknown");
    let engine = engine(&state.0);
    engine.upsert("texts", vec![item("a", None)]).expect("put");
    assert!(near(&engine, "nobody's", &[1.0], 5).is_empty());
    let ask = Ask {
        embedding: Some(vec![1.0]),
        namespace: "texts".to_owned(),
        top_k: 5,
        ..Ask::default()
    };
    let refused = engine.search(&ask, &|_| true);
    assert!(matches!(refused, Err(SearchError::NoVectors(_))));
    engine.delete("texts", &["a".to_owned()]).expect("removed");
    assert!(near(&engine, "texts", &[1.0], 5).is_empty());
}
