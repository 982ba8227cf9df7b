//! How long the random campaigns are, the seed that repeats one, and numbers that follow from it.

use std::hash::{BuildHasher as _, RandomState};

/// `MANDATE_TEST_SCALE`: by how much a campaign is longer than in an ordinary run. 1 by default.
#[must_use]
pub fn scale() -> u32 {
    number("MANDATE_TEST_SCALE").map_or(1, |scale| u32::try_from(scale).expect("a scale of at most 32 bits"))
}

/// `MANDATE_TEST_SEED`, or a new seed. Printed, so that a failure can be repeated.
#[must_use]
pub fn seed(campaign: &str) -> u64 {
    let seed = number("MANDATE_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(campaign));
    println!("{campaign}: repeat with MANDATE_TEST_SEED={seed}");
    seed
}

/// Numbers that look random and follow from a seed (SplitMix64): enough to vary tests, and nothing else.
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// Numbers that follow from `seed`.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % bound as u64).unwrap()
    }

    /// One of these.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment sets the length and seed of a campaign")]
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a whole number; got `{text}`")))
}
