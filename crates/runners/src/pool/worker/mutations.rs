//! Seeded mutations of what workers say, 100,000: nothing panics, and lines mean the same in
//! whatever pieces they come.

use super::properties::{Came, check_lines, test_tool};
use callgate_testing::{Random, mutant};

const CASES: usize = 100_000;

const LINES: [&[u8]; 6] = [
    b"{\"call\":\"0000000000000000000000000000abcd\",\"output\":{\"a\":[1,2.5,null]}}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"progress\":{\"progress\":1,\"total\":2}}\n{\"call\":\"0000000000000000000000000000abcd\",\"output\":1}\n\t{\"exit\":0}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"log\":{\"level\":\"info\",\"data\":{\"x\":1}}}\n{\"call\":\"0000000000000000000000000000abcd\",\"error\":{\"type\":\"E\",\"message\":\"m\"}}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"ask\":{\"q\":{\"message\":\"?\"}}}\n\t{\"signal\":9,\"left\":true}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"output\":{},\"slots\":{\"6\":{\"type\":\"t\",\"content_json\":\"{}\",\"size_bytes\":2}},\"removed_slots\":[1]}\n",
    b"{\"call\":\"0000000000000000000000000000abcd\",\"exit\":3}\nmore\n\n",
];

const WORDS: [&[u8]; 20] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\"",
    b"\n",
    b"\t",
    b"\t{\"exit\":0}\n",
    b"null",
    b"1e309",
    b"\\ud800",
    b"\xff",
    b"\"output\":1",
    b"\"call\":\"x\"",
    b"\"exit\":0",
    b"\"progress\":{\"progress\":1e308}",
    b"\"log\":{\"level\":\"loud\",\"data\":1}",
    b"\0",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

#[test]
fn lines() {
    let mut random = Random::new("worker lines");
    let tool = test_tool();
    let (mut answers, mut outputs) = (0, 0);
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &LINES, &WORDS);
        let forks = random.one_in(2);
        let mut cuts: Vec<usize> = (0..random.below(5))
            .map(|_| random.below(bytes.len() + 1))
            .collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let came = check_lines(&tool, forks, random.one_in(2), &bytes, &pieces);
        answers += usize::from(came >= Came::Answer);
        outputs += usize::from(came == Came::Output);
    }
    eprintln!("{answers} answers and {outputs} outputs of {CASES}");
    assert!(outputs > 0 && outputs < answers && answers < CASES);
}
