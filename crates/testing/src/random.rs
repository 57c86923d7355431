//! Random numbers that can be reproduced: the seed is printed with the test's output.

/// A generator (splitmix64).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// A generator seeded from `CALLGATE_TEST_SEED`, or at random. Prints `what` and the seed.
    pub fn new(what: &str) -> Self {
        let given = std::env::var("CALLGATE_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            use std::hash::{BuildHasher as _, Hasher as _};
            std::hash::RandomState::new().build_hasher().finish() >> 16
        });
        eprintln!("{what}: CALLGATE_TEST_SEED={seed}");
        Self(seed)
    }

    /// An independent generator, for another thread.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Any number.
    #[expect(
        clippy::should_implement_trait,
        reason = "the numbers have no end, so each would be unwrapped"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("below a usize")
    }

    /// True one time in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A random element of `of`.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
