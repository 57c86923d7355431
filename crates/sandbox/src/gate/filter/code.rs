//! From rules to the kernel's instructions: a balanced search over the numbers, because what
//! a filter costs at each start grows with its length and depth.

use super::policy::{ALLOWED, Clause, KILLED, REFUSED, Rule};
use super::table::{Arch, Kind};

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    sock_filter,
};

/// The most the kernel takes.
pub(super) const INSTRUCTIONS_MAX: usize = 4096;

/// Offsets in `seccomp_data`.
pub(super) const NUMBER_AT: u32 = 0;
pub(super) const ARCH_AT: u32 = 4;
pub(super) const ARGUMENTS_AT: u32 = 16;

/// The program that judges each call of `arch` by the rule of its kind, and numbers without a
/// call by `unlisted`.
pub(super) fn build(arch: Arch, unlisted: Rule, rule: impl Fn(Kind) -> Rule) -> Vec<sock_filter> {
    let mut code = Backwards::default();
    let search = code.search(&ranges(arch, unlisted, rule));
    let number = code.load(NUMBER_AT, search);
    let killed = code.answer(KILLED);
    let check = code.branch(BPF_JEQ, arch.audit(), number, killed);
    code.load(ARCH_AT, check);
    let program = code.finish();
    assert!(program.len() <= INSTRUCTIONS_MAX, "bounded by the table");
    program
}

/// The numbers as runs with one rule each: from which number on, in order, from 0.
fn ranges(arch: Arch, unlisted: Rule, rule: impl Fn(Kind) -> Rule) -> Vec<(u32, Rule)> {
    let mut calls: Vec<(u32, Rule)> = arch
        .calls()
        .map(|(number, row)| (number, rule(row.kind)))
        .collect();
    calls.sort_unstable_by_key(|(number, _)| *number);
    let mut ranges = vec![(0, unlisted)];
    for (number, rule) in calls {
        ranges.push((number, rule));
        ranges.push((number + 1, unlisted));
    }
    // The later of two that start together counts; then neighbours that agree are one.
    ranges.reverse();
    ranges.dedup_by_key(|(start, _)| *start);
    ranges.reverse();
    ranges.dedup_by_key(|(_, rule)| *rule);
    ranges
}

/// Where the low half of an argument is: it comes first on both machines.
fn argument_at(argument: u8) -> u32 {
    ARGUMENTS_AT + 8 * u32::from(argument)
}

/// A place in the program, counted from its end.
#[derive(Clone, Copy)]
struct Place(usize);

/// A program written from its end to its start: jumps only go forward, so what they jump to
/// is written first. The first instruction of each part is the last one written of it.
#[derive(Default)]
struct Backwards {
    written: Vec<sock_filter>,
    /// Where each answer was written last.
    answers: Vec<(u32, Place)>,
}

impl Backwards {
    fn finish(mut self) -> Vec<sock_filter> {
        self.written.reverse();
        self.written
    }

    fn search(&mut self, ranges: &[(u32, Rule)]) -> Place {
        match ranges {
            [] => unreachable!("there is always a first range"),
            [(_, rule)] => self.rule(*rule),
            _ => {
                let (below, above) = ranges.split_at(ranges.len() / 2);
                let (start, _) = above[0];
                let above = self.search(above);
                let below = self.search(below);
                self.branch(BPF_JGE, start, above, below)
            }
        }
    }

    fn rule(&mut self, rule: Rule) -> Place {
        let (clauses, hit_is_allowed) = match rule {
            Rule::Answer(answer) => return self.answer(answer),
            Rule::AllOf(clauses) => (clauses, true),
            Rule::NoneOf(clauses) => (clauses, false),
            Rule::AnyOf(lists) => {
                let mut next = self.answer(REFUSED);
                for clauses in lists.iter().rev() {
                    let allow = self.answer(ALLOWED);
                    let refuse = next;
                    next = allow;
                    for clause in clauses.iter().rev() {
                        next = self.clause(clause, next, refuse);
                    }
                }
                return next;
            }
            Rule::ByCommand { commands, metadata } => {
                let runs = commands.runs(metadata).into_iter();
                let runs: Vec<(u32, Rule)> = runs
                    .map(|(start, answer)| (start, Rule::Answer(answer)))
                    .collect();
                let search = self.search(&runs);
                return self.load(argument_at(commands.argument), search);
            }
        };
        let mut next = self.answer(ALLOWED);
        let refuse = self.answer(REFUSED);
        for clause in clauses.iter().rev() {
            next = if hit_is_allowed {
                self.clause(clause, next, refuse)
            } else {
                self.clause(clause, refuse, next)
            };
        }
        next
    }

    fn clause(&mut self, clause: &Clause, hit: Place, miss: Place) -> Place {
        let mut first = miss;
        for &value in clause.values.iter().rev() {
            first = self.branch(BPF_JEQ, value, hit, first);
        }
        if clause.mask != u32::MAX {
            first = self.follow(BPF_ALU | BPF_AND | BPF_K, clause.mask, first);
        }
        self.load(argument_at(clause.argument), first)
    }

    fn load(&mut self, offset: u32, next: Place) -> Place {
        self.follow(BPF_LD | BPF_W | BPF_ABS, offset, next)
    }

    /// An instruction that goes on at `next`.
    fn follow(&mut self, code: u32, k: u32, next: Place) -> Place {
        if self.distance(next) != 0 {
            self.jump(next);
        }
        self.write(code, 0, 0, k)
    }

    fn branch(&mut self, test: u32, k: u32, yes: Place, no: Place) -> Place {
        // One more instruction may come between for each that is far.
        let (yes, no) = (self.near(yes), self.near(no));
        let (jt, jf) = (self.distance(yes), self.distance(no));
        let short = |distance| u8::try_from(distance).expect("made near above");
        self.write(BPF_JMP | test | BPF_K, short(jt), short(jf), k)
    }

    /// The place itself, or a jump to it that a branch reaches.
    fn near(&mut self, place: Place) -> Place {
        const REACH: usize = u8::MAX as usize - 1;
        if self.distance(place) <= REACH {
            return place;
        }
        self.jump(place)
    }

    fn jump(&mut self, to: Place) -> Place {
        let distance = u32::try_from(self.distance(to)).expect("far below the limit");
        self.write(BPF_JMP | BPF_JA, 0, 0, distance)
    }

    /// An answer: one that is in reach already, or a new one.
    fn answer(&mut self, answer: u32) -> Place {
        // Half of a branch's reach, so that what is written next still has it in reach.
        const CLOSE: usize = 128;
        let known = self.answers.iter().position(|(known, _)| *known == answer);
        if let Some(place) = known.map(|at| self.answers[at].1)
            && self.distance(place) <= CLOSE
        {
            return place;
        }
        let place = self.write(BPF_RET | BPF_K, 0, 0, answer);
        match known {
            Some(at) => self.answers[at].1 = place,
            None => self.answers.push((answer, place)),
        }
        place
    }

    /// How many instructions the next one would skip to get there.
    fn distance(&self, to: Place) -> usize {
        self.written.len() - to.0 - 1
    }

    fn write(&mut self, code: u32, jt: u8, jf: u8, k: u32) -> Place {
        let code = u16::try_from(code).expect("a code is 16 bits");
        self.written.push(sock_filter { code, jt, jf, k });
        Place(self.written.len() - 1)
    }
}
