//! How long the random campaigns are, and the seed that repeats one.

use std::hash::{BuildHasher as _, RandomState};

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// `MANDATE_TEST_SCALE`: by how much a campaign is longer than in an ordinary run. 1 by default.
pub(crate) fn scale() -> u32 {
    number("MANDATE_TEST_SCALE").map_or(1, |scale| u32::try_from(scale).expect("a scale of at most 32 bits"))
}

/// `MANDATE_TEST_SEED`, or a new seed. Printed, so that a failure can be repeated.
pub(crate) fn seed(campaign: &str) -> u64 {
    let seed = number("MANDATE_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(campaign));
    println!("{campaign}: repeat with MANDATE_TEST_SEED={seed}");
    seed
}

/// Runs `cases` property cases, times the scale.
pub(crate) fn runner(campaign: &str, cases: u32) -> TestRunner {
    let config = Config { cases: cases * scale(), failure_persistence: None, ..Config::default() };
    let seed = seed(campaign).to_le_bytes().repeat(4);
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

#[expect(clippy::disallowed_methods, reason = "a campaign is set by whoever starts the tests")]
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a whole number; got `{text}`")))
}
