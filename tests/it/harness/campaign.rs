//! Random campaigns of properties.

pub(crate) use mandate_tests::campaign::{scale, seed};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Runs `cases` property cases, times the scale.
pub(crate) fn runner(campaign: &str, cases: u32) -> TestRunner {
    let config = Config { cases: cases * scale(), failure_persistence: None, ..Config::default() };
    let seed = seed(campaign).to_le_bytes().repeat(4);
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}
