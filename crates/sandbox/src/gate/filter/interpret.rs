//! The kernel's side, for tests: what a program answers to a call.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    sock_filter,
};

use super::code::{ARCH_AT, ARGUMENTS_AT, NUMBER_AT};

/// A call as a filter sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub number: u32,
    pub arch: u32,
    pub arguments: [u64; 6],
}

impl Seen {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            NUMBER_AT => self.number,
            ARCH_AT => self.arch,
            _ => {
                let from = offset.checked_sub(ARGUMENTS_AT).expect("an argument");
                assert!(from.is_multiple_of(4), "a whole word");
                let argument = self.arguments[from as usize / 8];
                let half = if from.is_multiple_of(8) {
                    argument
                } else {
                    argument >> 32
                };
                u32::try_from(half & 0xffff_ffff).expect("masked")
            }
        }
    }
}

/// The answer of `program`, and how many instructions it took. Panics where the kernel would
/// not take the program: a jump out of it, no answer at its end.
pub(super) fn run(program: &[sock_filter], seen: &Seen) -> (u32, usize) {
    let (mut at, mut steps, mut accumulator) = (0, 0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        (at, steps) = (at + 1, steps + 1);
        let skip = |yes: bool| usize::from(if yes { jt } else { jf });
        match u32::from(code) {
            c if c == BPF_LD | BPF_W | BPF_ABS => accumulator = seen.word(k),
            c if c == BPF_ALU | BPF_AND | BPF_K => accumulator &= k,
            c if c == BPF_JMP | BPF_JA => at += k as usize,
            c if c == BPF_JMP | BPF_JEQ | BPF_K => at += skip(accumulator == k),
            c if c == BPF_JMP | BPF_JGE | BPF_K => at += skip(accumulator >= k),
            c if c == BPF_RET | BPF_K => return (k, steps),
            other => panic!("an instruction we never write: {other:#x}"),
        }
    }
}
