//! The reviews of an environment that wait for an answer.

use mandate_core::{Principal, ReviewId, Timestamp};

use crate::error::Fault;
use crate::model::records::Mode;
use crate::store::sql;
use crate::store::sql::reviews::Reach;
use crate::store::tx::Tx;

pub use crate::store::sql::reviews::Waiting;

/// How many reviews the queue of a person shows at most.
pub const MAX_SHOWN: usize = 100;
/// Where more wait: of those that expire first so many are looked at, and so many of a role and in all are kept. Whatever
/// waits for others, a role keeps its own.
const REACH: Reach = Reach { looked_at: 10_000, of_role: 100, found: 1_000 };

/// The queue of an environment, for people of any role.
#[derive(Debug, PartialEq, Eq)]
pub struct Queue {
    /// The reviews of each role, the one that expires first at the top.
    pub waiting: Vec<Waiting>,
    /// How many wait, or were looked at.
    pub total: usize,
    /// More wait than were looked at.
    pub is_cut: bool,
    /// Some of those that wait are not here.
    pub has_more: bool,
    /// The mode in force.
    pub mode: Mode,
}

/// The reviews that wait at `now`.
///
/// # Errors
/// The database fails.
pub fn queue(tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<Queue, Fault> {
    let mode = super::mode(tx, environment)?;
    let first = i64::try_from(MAX_SHOWN + 1).unwrap_or(i64::MAX);
    let waiting = sql::reviews::waiting(tx, environment, now, first)?;
    if waiting.len() <= MAX_SHOWN {
        return Ok(Queue { total: waiting.len(), waiting, is_cut: false, has_more: false, mode });
    }
    let (mut waiting, looked_at) = sql::reviews::waiting_by_role(tx, environment, now, REACH)?;
    waiting.sort_by_key(|waiting| (waiting.expires_at, waiting.review));
    let total = usize::try_from(looked_at).unwrap_or(usize::MAX);
    let is_cut = looked_at >= REACH.looked_at;
    Ok(Queue { has_more: is_cut || waiting.len() < total, waiting, total, is_cut, mode })
}

impl Queue {
    /// Whether it is known that a review does not wait any more.
    #[must_use]
    pub fn is_without(&self, review: ReviewId) -> bool {
        !self.has_more && self.waiting.iter().all(|waiting| waiting.review != review)
    }

    /// What a person with these roles is shown: what waits for them, then the rest.
    #[must_use]
    pub fn shown_to(&self, roles: &[Principal]) -> Vec<&Waiting> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.waiting.iter().partition(|waiting| roles.contains(&waiting.waits_for));
        own.into_iter().chain(others).take(MAX_SHOWN).collect()
    }
}
