//! Damage: what a crash leaves is mended, all else is found and named.

use std::fs;

use std::time::Duration;

use crate::common::*;
use callgate_call::{Digest, Tier};
use callgate_store::{
    Bad, LeaseGrant, Options, Seen, Store, StoreError, Tuning, View, verify_file,
};

/// What a person is asked about; it stands beside the chain only.
const SHOWN: &str = "{\"path\":\"a\"}";

/// Some records of most kinds, three segments, an orderly stop if `closed`.
fn journal(name: &str, closed: bool) -> (Folder, u64) {
    let folder = Folder::new(name);
    let store = open_with(&folder, small(), &clock());
    let me = me();
    for n in 0..4 {
        run(&store, n, key(&n.to_string()), &format!("{{\"n\":{n}}}"));
        store.record_pure(start(100 + n, None, &me), finish(100 + n, None, "{}"));
    }
    store.trust("callgate.toml", input("c")).unwrap();
    store.memory_append("a note about nothing", None).unwrap();
    let grant = LeaseGrant {
        tool: "files/write",
        tier: Tier::Write,
        life: Duration::from_secs(60),
        caller: None,
        input: None,
    };
    store.grant_lease(grant).unwrap();
    store
        .ask(&me, "files/write", input("x"), Tier::Write, SHOWN)
        .unwrap();
    let ticket = run(&store, 9, key("last"), "{}");
    settle(&store, ticket);
    if closed {
        store.close().unwrap();
    }
    let records = assert_good(&store);
    (folder, records)
}

fn small() -> Options {
    let tuning = Tuning {
        segment_bytes: 2500,
        ..Tuning::default()
    };
    Options {
        tuning,
        fold: false,
        ..Options::default()
    }
}

/// As `fs::write`, without emptying the file first, which some file systems answer with a flush.
fn put(path: impl AsRef<std::path::Path>, bytes: &[u8]) {
    use std::io::Write as _;
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

fn verify(folder: &Folder) -> callgate_store::Verdict {
    open_with(folder, small(), &clock()).verify().unwrap()
}

fn bad(folder: &Folder) -> Option<Bad> {
    verify(folder).bad
}

/// Where each record's bytes are: (record, segment, from, to), headers left out.
struct Layout {
    frames: Vec<(u64, u64, usize, usize)>,
    records: Vec<(u64, u64, usize, usize)>,
}

fn layout(folder: &Folder) -> Layout {
    let mut layout = Layout {
        frames: Vec::new(),
        records: Vec::new(),
    };
    for number in 1.. {
        let Ok(bytes) = fs::read(folder.segment(number)) else {
            break;
        };
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let mut at = 64;
        while at < bytes.len() {
            let end = at + 16 + word(at + 12);
            if end - at == 56 {
                break;
            }
            let first = word(at + 16) as u64;
            layout.frames.push((first, number, at, end));
            let (mut seq, mut from) = (first, at + 24);
            while from < end {
                let to = from + 40 + word(from) + word(from + 4);
                layout.records.push((seq, number, from, to));
                (seq, from) = (seq + 1, to);
            }
            at = end;
        }
    }
    layout
}

/// D-5, G-8: a process killed while writing leaves a prefix of its frame; whoever comes next cuts it
/// off, loses nothing else and goes on.
#[test]
fn a_torn_end_is_mended_at_every_byte() {
    let (folder, records) = journal("torn", false);
    let layout = layout(&folder);
    let &(first, segment, from, to) = layout.frames.last().unwrap();
    assert!(records >= first);
    for cut in from..to {
        let copy = folder.copy("torn-copy");
        let bytes = fs::read(folder.segment(segment)).unwrap();
        put(copy.segment(segment), &bytes[..cut]);
        let verdict = verify(&copy);
        assert!(verdict.is_good(), "cut at {cut}: {verdict:?}");
        assert_eq!(
            (verdict.records, verdict.torn_bytes),
            (first - 1, (cut - from) as u64)
        );
        let store = open_with(&copy, small(), &clock());
        assert_eq!(
            replay(&store, key("3")),
            "{\"n\":3}",
            "reading does not mind"
        );
        settle(&store, run(&store, 77, key("new"), "{}"));
        assert_eq!(assert_good(&store), first - 1 + 2, "cut at {cut}");
        store.close().unwrap();
        assert_eq!(verify(&copy).torn_bytes, 0);
    }
}

/// D-5: a segment whose maker was killed before its header was down is begun again.
#[test]
fn a_torn_segment_header_is_mended() {
    let (folder, records) = journal("torn-header", false);
    let last = (1..)
        .take_while(|&n| folder.segment(n).exists())
        .last()
        .unwrap();
    let header = fs::read(folder.segment(last)).unwrap()[..64].to_vec();
    for cut in 0..=64 {
        let copy = folder.copy("torn-header-copy");
        put(copy.segment(last + 1), &header[..cut]);
        let store = open_with(&copy, small(), &clock());
        assert_eq!(assert_good(&store), records);
        for n in 0..5 {
            settle(&store, run(&store, 77, key(&format!("new{n}")), "{}"));
        }
        assert_eq!(assert_good(&store), records + 10, "cut at {cut}");
    }
}

/// D-5, D-8: a flipped byte anywhere is found and named: the record it is in, or the first one
/// of the transaction or segment whose header it is in.
#[test]
fn every_flipped_byte_is_named() {
    let (folder, records) = journal("flip", true);
    let layout = layout(&folder);
    for number in 1.. {
        let Ok(bytes) = fs::read(folder.segment(number)) else {
            break;
        };
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let path = folder.segment(number);
            put(&path, &flipped);
            let bad = bad(&folder).unwrap_or_else(|| panic!("segment {number} byte {at}"));
            let of_record = |&&(_, segment, from, to): &&(u64, u64, usize, usize)| {
                segment == number && (from..to).contains(&at)
            };
            let of_header = layout.frames.iter().find(of_record);
            let wanted = layout.records.iter().find(of_record).or(of_header);
            // A roll at the end of a segment, or a segment's header, is named by what follows.
            let first_here = layout
                .records
                .iter()
                .find(|r| r.1 == number)
                .map_or(records + 1, |r| r.0);
            let after = layout
                .records
                .iter()
                .filter(|r| r.1 <= number)
                .map(|r| r.0 + 1)
                .max();
            let wanted = match wanted {
                Some(&(seq, ..)) => seq,
                None if at < 64 => first_here,
                None => after.unwrap(),
            };
            assert_eq!(bad.seq, wanted, "segment {number} byte {at}: {bad:?}");
            put(&path, &bytes);
        }
    }
    for name in ["head.json", "head.pub"] {
        let path = folder.0.join(name);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            put(&path, &flipped);
            assert!(bad(&folder).is_some(), "{name} byte {at}");
        }
        put(&path, &bytes);
    }
    assert_eq!(bad(&folder), None);
    let path = folder.0.join("head.json");
    let kept = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(bad(&folder).is_some(), "a missing head");
    // Who writes does not sign another one over it: what was found stays to be found.
    for half in [None, Some(&kept[..kept.len() / 2])] {
        half.iter().for_each(|half| put(&path, half));
        let signed = open(&folder).sign_head();
        assert!(
            matches!(signed, Err(StoreError::Damaged { .. })),
            "{signed:?}"
        );
        assert!(bad(&folder).is_some());
        assert_eq!(fs::read(&path).ok().as_deref(), half);
    }
    put(&path, &kept);
    assert_eq!(bad(&folder), None);
}

/// The check of frames and headers, written once more: a forger would do it.
fn check_of(bytes: &[u8]) -> [u8; 8] {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |lane: u64, word: u64| (lane ^ word).wrapping_mul(ODD).rotate_left(29);
    let mut lanes = [1, 2, 3, 4].map(|lane| step(lane, bytes.len() as u64));
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        lanes[index % 4] = step(lanes[index % 4], u64::from_le_bytes(*word));
    }
    for &byte in rest {
        lanes[3] = step(lanes[3], u64::from(byte));
    }
    let sum = lanes.into_iter().fold(ODD, step);
    step(sum ^ (sum >> 32), ODD).to_le_bytes()
}

/// D-9: a byte of what is kept beside the chain is changed and the check repaired: the record
/// whose change it is is named, be it a lease's expiry, an approval's text or an output.
#[test]
fn every_byte_beside_the_chain_is_covered() {
    let (folder, records) = journal("beside", true);
    let layout = layout(&folder);
    let mut sides = Vec::new();
    for &(seq, number, from, to) in &layout.records {
        let bytes = fs::read(folder.segment(number)).unwrap();
        let body_bytes = u32::from_le_bytes(bytes[from..from + 4].try_into().unwrap());
        let side = from + 40 + body_bytes as usize;
        let within = |frame: &&(u64, u64, usize, usize)| {
            frame.1 == number && (frame.2..frame.3).contains(&from)
        };
        let &(_, _, begin, end) = layout.frames.iter().find(within).unwrap();
        for at in side..to {
            let mut forged = bytes.clone();
            forged[at] ^= 1 << (at % 8);
            let check = check_of(&forged[begin + 12..end]);
            forged[begin + 4..begin + 12].copy_from_slice(&check);
            put(folder.segment(number), &forged);
            let found = bad(&folder).unwrap_or_else(|| panic!("record {seq} byte {at}"));
            assert_eq!(found.seq, seq, "byte {at}: {found:?}");
        }
        put(folder.segment(number), &bytes);
        sides.extend_from_slice(&bytes[side..to]);
    }
    assert_eq!(verify(&folder).records, records);
    let sides = String::from_utf8_lossy(&sides);
    let shown = SHOWN.replace('"', "\\\"");
    for kept in ["\"expires_at\":", &shown, "{\"n\":3}"] {
        assert!(sides.contains(kept), "{kept} was among them");
    }
}

/// D-10: a journal of another format is refused by name, by all that would read or write it.
#[test]
fn another_format_is_refused() {
    let (folder, _) = journal("format", true);
    let path = folder.segment(1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..8].copy_from_slice(b"CGSEG001");
    let check = check_of(&bytes[..56]);
    bytes[56..64].copy_from_slice(&check);
    put(&path, &bytes);
    let store = open_with(&folder, small(), &clock());
    let told = "journal is of format CGSEG001, and this version reads and writes CGSEG002 only";
    let peeked = store.peek(&key("0"), "files/write", &input("x"), View::Full);
    let shown = store.show(&Default::default(), &mut |record| panic!("{record:?}"));
    let ticket = store.record_pure(start(1, None, &me()), finish(1, None, "{}"));
    for refused in [
        peeked.map(drop),
        store.begin(start(50, Some(key("new")), &me())).map(drop),
        store.settle_now(ticket),
        store.export(&mut Vec::new()).map(drop),
        shown,
    ] {
        assert_eq!(refused.unwrap_err().to_string(), told);
    }
    let found = store.verify().unwrap().bad.unwrap();
    assert_eq!((found.seq, found.segment), (1, 1));
    assert!(found.reason.contains("CGSEG001"), "{found:?}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "left as it is");
}

/// D-8: removed and exchanged transactions and segments are named.
#[test]
fn removal_and_reordering_are_named() {
    let (folder, records) = journal("remove", true);
    let layout = layout(&folder);
    let segment = |n| fs::read(folder.segment(n)).unwrap();
    for (index, &(seq, number, from, to)) in layout.frames.iter().enumerate() {
        let bytes = segment(number);
        let without = [&bytes[..from], &bytes[to..]].concat();
        put(folder.segment(number), &without);
        assert_eq!(bad(&folder).unwrap().seq, seq, "without frame {index}");
        if let Some(&(_, next, _, end)) = layout.frames.get(index + 1).filter(|f| f.1 == number) {
            assert_eq!(next, number);
            let swapped = [
                &bytes[..from],
                &bytes[to..end],
                &bytes[from..to],
                &bytes[end..],
            ]
            .concat();
            put(folder.segment(number), &swapped);
            assert_eq!(bad(&folder).unwrap().seq, seq, "frame {index} exchanged");
        }
        let doubled = [&bytes[..to], &bytes[from..]].concat();
        put(folder.segment(number), &doubled);
        assert!(bad(&folder).unwrap().seq > seq, "frame {index} twice");
        put(folder.segment(number), &bytes);
    }
    let count = (1..).take_while(|&n| folder.segment(n).exists()).count() as u64;
    assert!(count >= 3, "{count}");
    for number in 1..=count {
        let first = layout.records.iter().find(|r| r.1 == number).unwrap().0;
        let bytes = segment(number);
        fs::remove_file(folder.segment(number)).unwrap();
        let found = bad(&folder).unwrap();
        assert_eq!(
            (found.seq, found.segment.min(count)),
            (first, number.min(found.segment))
        );
        put(folder.segment(number), &bytes);
    }
    let (a, b) = (segment(1), segment(2));
    put(folder.segment(1), &b);
    put(folder.segment(2), &a);
    assert_eq!(bad(&folder).unwrap().seq, 1);
    put(folder.segment(1), &a);
    put(folder.segment(2), &b);
    assert_eq!(verify(&folder).records, records);
}

/// D-8: after an orderly stop a cut end is found, at whatever byte, and nothing is appended
/// over it; reading goes on.
#[test]
fn a_cut_end_is_named_after_an_orderly_stop() {
    let (folder, records) = journal("cut", true);
    let layout = layout(&folder);
    let &(_, number, from, to) = layout.frames.last().unwrap();
    let bytes = fs::read(folder.segment(number)).unwrap();
    assert_eq!(to, bytes.len());
    for cut in from.saturating_sub(3)..to {
        put(folder.segment(number), &bytes[..cut]);
        let found = bad(&folder).unwrap_or_else(|| panic!("cut at {cut}"));
        assert!(found.seq <= records, "{found:?}");
        let store = open_with(&folder, small(), &clock());
        assert_eq!(replay(&store, key("0")), "{\"n\":0}");
        let refused = store.begin(start(50, Some(key("new")), &me()));
        assert!(
            matches!(refused, Err(StoreError::Damaged { .. })),
            "{refused:?}"
        );
        let ticket = store.record_pure(start(51, None, &me()), finish(51, None, "{}"));
        assert!(matches!(
            store.settle_now(ticket),
            Err(StoreError::Damaged { .. })
        ));
        assert_eq!(
            fs::read(folder.segment(number)).unwrap(),
            bytes[..cut],
            "left as it is"
        );
    }
}

/// D-5: damage in the middle stops appending, not reading, showing or verifying.
#[test]
fn damage_in_the_middle_stops_appending() {
    let (folder, _) = journal("middle", false);
    let layout = layout(&folder);
    let [.., frame, _] = &layout.frames[..] else {
        panic!()
    };
    let path = folder.segment(frame.1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[frame.2 + 40] ^= 0x40;
    put(&path, &bytes);
    let store = open_with(&folder, small(), &clock());
    assert_eq!(replay(&store, key("0")), "{\"n\":0}");
    let refused = store.trust("x", input("x"));
    let Err(error @ StoreError::Damaged { seq, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(seq, frame.0);
    assert!(
        error.to_string().contains("run callgate audit verify"),
        "{error}"
    );
    assert_eq!(store.verify().unwrap().bad.unwrap().seq, frame.0);
    let mut shown = 0;
    store
        .show(&Default::default(), &mut |_| {
            shown += 1;
            true
        })
        .unwrap_or(());
    assert_eq!(shown, frame.0 - 1);
}

/// D-8, D-9: an export verifies on its own, without what stands beside the chain, and against the
/// workspace's key; changed lines are named.
#[test]
fn an_export_is_verified() {
    let (folder, records) = journal("export", true);
    let store = open_with(&folder, small(), &clock());
    let mut out = Vec::new();
    let head = store.export(&mut out).unwrap().unwrap();
    let check = |bytes: &[u8]| verify_file(&mut &bytes[..], Some(&head.public_key)).unwrap();
    let verdict = check(&out);
    assert!(
        verdict.is_good() && verdict.records == records,
        "{verdict:?}"
    );
    assert!(verify_file(&mut &out[..], None).unwrap().is_good());
    assert!(
        !verify_file(&mut &out[..], Some(&[7; 32]))
            .unwrap()
            .is_good(),
        "another key"
    );
    let all = String::from_utf8(out.clone()).unwrap();
    for kept in [
        "\\\"path\\\"",
        "a note about nothing",
        "{\\\"n\\\"",
        "{\"n\"",
    ] {
        assert!(!all.contains(kept), "{kept} stays at home");
    }
    let lines: Vec<&[u8]> = out.split_inclusive(|&b| b == b'\n').collect();
    assert_eq!(lines.len() as u64, records + 1);
    let text = std::str::from_utf8(lines[0]).unwrap();
    assert!(
        text.starts_with("{\"hash\":\"") && text.contains("\"kind\":\"start\""),
        "{text}"
    );
    for (index, line) in lines.iter().enumerate() {
        let named = check(&[&lines[..index], &lines[index + 1..]].concat().concat())
            .bad
            .unwrap();
        assert_eq!(named.seq, index as u64 + 1, "without line {index}");
        let before: usize = lines[..index].iter().map(|line| line.len()).sum();
        for at in (0..line.len()).step_by(7) {
            let mut bytes = out.clone();
            bytes[before + at] ^= 1;
            let named = check(&bytes)
                .bad
                .unwrap_or_else(|| panic!("line {index} byte {at}"));
            assert_eq!(named.seq, index as u64 + 1);
        }
        if index + 2 < lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(index, index + 1);
            assert_eq!(check(&swapped.concat()).bad.unwrap().seq, index as u64 + 1);
        }
    }
    assert!(
        check(&lines[..lines.len() - 1].concat()).bad.is_some(),
        "no head"
    );
    assert!(check(b"").bad.is_some());
}

/// D-5, D-8: 20,000 seeded mutations of the journal never panic and never pass for the truth.
#[test]
fn mutations_never_pass() {
    let (folder, records) = journal("mutate", true);
    let truth = story(&folder);
    let originals: Vec<Vec<u8>> = (1..)
        .map_while(|n| fs::read(folder.segment(n)).ok())
        .collect();
    let seed = 0x5EED_1234;
    let mut dice = Dice(seed);
    for round in 0..20_000 {
        let number = dice.roll(originals.len() as u64) as usize;
        let mut bytes = originals[number].clone();
        for _ in 0..=dice.roll(3) {
            if bytes.is_empty() {
                break;
            }
            let at = dice.roll(bytes.len() as u64) as usize;
            let len = dice.roll(40) as usize;
            let end = (at + len).min(bytes.len());
            match dice.roll(5) {
                0 => bytes[at] ^= 1 << dice.roll(8),
                1 => drop(bytes.drain(at..end)),
                2 => bytes.truncate(at),
                3 => {
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes[at..end].fill(dice.roll(256) as u8),
            }
        }
        if bytes == originals[number] {
            continue;
        }
        let path = folder.segment(number as u64 + 1);
        put(&path, &bytes);
        let verdict = verify(&folder);
        if verdict.is_good() {
            // Bytes of no transaction after the last one change nothing.
            assert_eq!(verdict.records, records, "seed {seed:x} round {round}");
            assert!(story(&folder) == truth, "seed {seed:x} round {round}");
        }
        if round % 50 == 0 {
            let store = open_with(&folder, small(), &clock());
            let _ = store.peek(
                &key("3"),
                "files/write",
                &input("x"),
                callgate_store::View::Full,
            );
            let _ = store.show(&Default::default(), &mut |_| true);
            let _ = store.begin(start(1, Some(key("0")), &me()));
            drop(store);
            for (index, bytes) in originals.iter().enumerate() {
                put(folder.segment(index as u64 + 1), bytes);
            }
            let _ = fs::remove_file(folder.segment(originals.len() as u64 + 1));
        }
        put(&path, &originals[number]);
    }
    assert_eq!(verify(&folder).records, records);
}

fn story(folder: &Folder) -> Vec<(Digest, String)> {
    let mut story = Vec::new();
    open_with(folder, small(), &clock())
        .show(&Default::default(), &mut |record| {
            story.push((record.hash, record.body.to_owned()));
            true
        })
        .unwrap();
    story
}

/// G-8: a state folder that cannot be used says so.
#[test]
fn an_unusable_folder_is_an_error() {
    let folder = Folder::new("unusable");
    fs::write(&folder.0, "a file").unwrap();
    let opened = Store::open(&folder.0, Options::default(), clock());
    assert!(matches!(opened, Err(StoreError::Open { .. })));
    fs::remove_file(&folder.0).unwrap();
    let store = open(&folder);
    assert_eq!(peek(&store, key("a")), Seen::New);
    let mode = |path: &std::path::Path| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).unwrap().mode() & 0o777
    };
    settle(&store, run(&store, 1, key("a"), "{}"));
    store.close().unwrap();
    assert_eq!(mode(&folder.0), 0o700);
    for name in ["journal.lock", "head.json", "head.pub", "signing.key"] {
        assert_eq!(mode(&folder.0.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&folder.segment(1)), 0o600);
}

/// T-12: a store without a folder has nothing and takes nothing, also once there is one: others
/// hold a lock there by then. What is no folder is refused all the same.
#[test]
fn a_folder_that_can_not_be_made_may_be_lacking() {
    let folder = Folder::new("lacking");
    fs::write(&folder.0, "a file").unwrap();
    let lacking = Options {
        may_lack_folder: true,
        ..Options::default()
    };
    let opened = Store::open(&folder.0, lacking.clone(), clock());
    assert!(matches!(opened, Err(StoreError::Open { .. })));
    let dir = folder.0.join("state");
    let opened = Store::open(&dir, Options::default(), clock());
    assert!(matches!(opened, Err(StoreError::Open { .. })));
    let store = Store::open(&dir, lacking, clock()).unwrap();
    let takes_nothing = |store: &Store| {
        assert_eq!(peek(store, key("a")), Seen::New);
        let refused = store.trust("x", input("x"));
        assert!(
            matches!(refused, Err(StoreError::Full { .. })),
            "{refused:?}"
        );
    };
    takes_nothing(&store);
    fs::remove_file(&folder.0).unwrap();
    let other = Store::open(&dir, Options::default(), clock()).unwrap();
    settle(&other, run(&other, 1, key("a"), "{}"));
    takes_nothing(&store);
    assert_good(&other);
}
