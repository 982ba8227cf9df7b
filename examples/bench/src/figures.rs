//! Figures of several rounds: their medians and ratios.

use serde::{Deserialize, Serialize};

use crate::Failure;

/// The share of a pace that must be reached.
const KEPT: f64 = 0.95;

/// What `load` reports of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) errors: usize,
    /// With a pace: how many requests a second there were to be.
    pub(crate) rate: Option<f64>,
    pub(crate) verdicts: std::collections::BTreeMap<String, usize>,
    pub(crate) requests: usize,
    pub(crate) requests_per_second: f64,
    pub(crate) p50_microseconds: f64,
    pub(crate) p99_microseconds: f64,
    pub(crate) server_cpu_microseconds_per_request: f64,
    pub(crate) client_cpu_microseconds_per_request: f64,
    pub(crate) processors_busy_elsewhere: f64,
    pub(crate) server_peak_bytes: f64,
}

impl Report {
    /// The report, unless agents asked so fast that the velocity rule has answered: that is not what is measured.
    pub(crate) fn keeps_to_velocity(self) -> Result<Self, Failure> {
        if self.verdicts.contains_key("deny_velocity") {
            let seconds = "30,000 agents can be asked for 10 s at 30,000 a second, warm-up and all";
            return Err(format!(
                "the agents were too fast for the velocity rule: give fewer --seconds; {seconds}"
            )
            .into());
        }
        Ok(self)
    }

    /// Whether all requests of a pace were answered about as fast as they came.
    pub(crate) fn kept_pace(&self) -> bool {
        self.rate.is_none_or(|rate| self.requests_per_second >= KEPT * rate)
    }
}

/// The median; of an even number of figures, the lower of the two in the middle.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<_> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// The median of one figure over the rounds.
pub(crate) fn over(rounds: &[Report], figure: impl Fn(&Report) -> f64) -> f64 {
    median(rounds.iter().map(figure))
}

/// The median of the ratios of one figure, round by round: what was measured one after the other is compared.
pub(crate) fn ratio(rounds: &[Report], to: &[Report], figure: impl Fn(&Report) -> f64) -> f64 {
    median(rounds.iter().zip(to).map(|(one, other)| figure(one) / figure(other)))
}
