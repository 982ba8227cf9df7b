//! The basis of each decision, compared with what the decisions before it give: the month's spending, and the recent requests.

use super::Step;
use crate::export::{Follows, Spending};

/// Compares the basis of a decision.
pub(super) fn compare(step: &mut Step<'_>, follows: &Follows) {
    let said = step.decision.basis;
    if let Spending::Is(sum) = follows.spent {
        step.found("spent", said.spent, format!("{sum}, the sum of the month's decisions"));
    }
    if let Some(count) = follows.recent.filter(|count| !count.allows(said.recent_requests)) {
        step.found(
            "recent_requests",
            said.recent_requests,
            format!("{count}, by the agent's requests before"),
        );
    }
}
