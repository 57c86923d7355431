//! The ring of traces: its bound, its look-ups, and what others leave in it.

use std::io::Write as _;

use crate::common::{Folder, clock, open, open_with};
use callgate_call::CallId;
use callgate_store::{Options, Store, TRACE_BYTES_MAX, TRACES_BYTES_MIN};

fn keep(store: &Store, call: u128, text: &str) {
    store.keep_traces([(CallId(call), text)].into_iter());
}

fn ring(folder: &Folder, traces_max_bytes: u64) -> Store {
    let options = Options {
        traces_max_bytes,
        ..Options::default()
    };
    open_with(folder, options, &clock())
}

/// The size of each file of the ring.
fn sizes(folder: &Folder) -> Vec<u64> {
    let files = std::fs::read_dir(folder.0.join("traces")).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .collect()
}

fn all(store: &Store) -> Vec<String> {
    let mut all = Vec::new();
    let mut each = |text: &str| {
        all.push(text.to_owned());
        true
    };
    store.show_traces(&mut each).unwrap();
    all
}

#[test]
fn found_by_id_and_by_its_beginning() {
    let folder = Folder::new("traces-found");
    let store = open(&folder);
    assert_eq!(all(&store), [""; 0]);
    keep(&store, 0xab << 120, "{\"n\":1}");
    keep(&store, 0xac << 120, "{\"n\":2}");
    let find = |prefix: &str| store.find_traces(prefix, 9).unwrap();
    assert_eq!(find(&format!("ab{}", "0".repeat(30))), ["{\"n\":1}"]);
    assert_eq!(find("ac"), ["{\"n\":2}"]);
    assert_eq!(find("a").len(), 2);
    assert_eq!(find("b"), [""; 0]);
    assert_eq!(all(&store), ["{\"n\":2}", "{\"n\":1}"]);
}

/// All files together stay within the bound; the oldest leave, the newest are there.
#[test]
fn the_bound_is_kept() {
    let folder = Folder::new("traces-bound");
    let stores: Vec<Store> = (0..4).map(|_| ring(&folder, TRACES_BYTES_MIN)).collect();
    let text = format!("{{\"x\":\"{}\"}}", "y".repeat(5000));
    for call in 0..1200_u32 {
        keep(&stores[call as usize % 4], u128::from(call), &text);
        if call % 50 == 0 {
            let sum: u64 = sizes(&folder).iter().sum();
            assert!(sum <= TRACES_BYTES_MIN, "{sum}");
        }
    }
    let sum: u64 = sizes(&folder).iter().sum();
    assert!(
        (TRACES_BYTES_MIN / 2..=TRACES_BYTES_MIN).contains(&sum),
        "{sum}"
    );
    let find = |call: u128| stores[0].find_traces(&CallId(call).to_string(), 1).unwrap();
    assert_eq!(find(1199).len(), 1);
    assert_eq!(find(0), [""; 0]);
    assert_eq!(stores.iter().map(Store::traces_lost).sum::<u64>(), 0);
}

/// Processes that end after one trace share a file.
#[test]
fn short_lives_leave_no_crowd() {
    let folder = Folder::new("traces-short");
    for call in 0..40 {
        keep(&open(&folder), call, "{}");
    }
    assert_eq!(sizes(&folder).len(), 1);
    assert_eq!(all(&open(&folder)).len(), 40);
}

/// A torn line is skipped, and the next one is whole.
#[test]
fn torn_lines() {
    let folder = Folder::new("traces-torn");
    keep(&open(&folder), 1, "{\"n\":1}");
    let file = std::fs::read_dir(folder.0.join("traces")).unwrap().next();
    let path = file.unwrap().unwrap().path();
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    write!(file, "{} {{\"n\":", CallId(2)).unwrap();
    drop(file);
    assert_eq!(all(&open(&folder)), ["{\"n\":1}"]);
    keep(&open(&folder), 3, "{\"n\":3}");
    assert_eq!(all(&open(&folder)), ["{\"n\":3}", "{\"n\":1}"]);
}

/// At, and just past, the largest; and where none are wanted.
#[test]
fn limits() {
    let folder = Folder::new("traces-limits");
    let store = open(&folder);
    let of = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    keep(&store, 1, &of(TRACE_BYTES_MAX));
    keep(&store, 2, &of(TRACE_BYTES_MAX + 1));
    keep(&store, 3, "{\n}");
    assert_eq!((all(&store).len(), store.traces_lost()), (1, 2));
    let off = Folder::new("traces-off");
    let store = ring(&off, 0);
    keep(&store, 1, "{}");
    assert!(!store.keeps_traces() && !off.0.join("traces").exists());
}
