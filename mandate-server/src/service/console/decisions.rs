//! The log of decisions, searched as people search it.

use mandate_core::log::token_hash;
use mandate_core::{AgentId, DecisionId, Mandate, PolicyVersion, Timestamp, Verdict};

use super::rules::{Rule, rules};
use crate::error::Fault;
use crate::model::call::Environment;
use crate::model::records::{Direction, Slice};
use crate::service::decisions::{Filter, SEARCHED_ROWS, show, token};
use crate::service::exports::csv_rows;
use crate::service::public_log::shown::{self, Place};
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::store::sql::decisions::Whole;
pub use crate::store::sql::exports::Format;

/// How many decisions a page shows.
pub const PAGE: usize = 50;
/// How many decisions a download reads at a time.
const DOWNLOADED: i64 = 500;

/// Which verdicts are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdicts {
    /// All of them.
    #[default]
    All,
    /// All denials.
    Denials,
    /// One of them.
    One(Verdict),
}

/// Which decisions are searched for.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Of this agent.
    pub agent: Option<AgentId>,
    /// With these verdicts.
    pub verdicts: Verdicts,
    /// Made at this instant or later.
    pub since: Option<Timestamp>,
    /// Made before this instant.
    pub until: Option<Timestamp>,
}

/// A page of decisions, newest first.
#[derive(Debug)]
pub struct Page {
    /// The decisions.
    pub rows: Vec<Whole>,
    /// Where the next page begins, if there may be more.
    pub older: Option<DecisionId>,
}

/// A piece of a download.
#[derive(Debug)]
pub struct Piece {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The last decision in it. None: it is the last piece.
    pub last: Option<DecisionId>,
}

/// A decision with all that is known of it.
#[derive(Debug)]
pub struct One {
    /// The decision.
    pub whole: Whole,
    /// The mandate that governed it.
    pub mandate: Option<Mandate>,
    /// Why it came out so.
    pub rules: Vec<Rule>,
    /// Its token.
    pub token: String,
    /// Where the public log has it. None: not yet.
    pub place: Option<Place>,
}

impl Verdicts {
    /// The searches that find them. The log finds one verdict, or any.
    fn each(self) -> Vec<Option<Verdict>> {
        match self {
            Self::All => vec![None],
            Self::One(verdict) => vec![Some(verdict)],
            Self::Denials => Verdict::ALL.into_iter().filter(|v| v.is_denial()).map(Some).collect(),
        }
    }

    fn has(self, verdict: Verdict) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == verdict,
            Self::Denials => verdict.is_denial(),
        }
    }
}

impl Search {
    fn filter(&self, verdict: Option<Verdict>) -> Filter {
        let Self { agent, since, until, .. } = self.clone();
        Filter { agent, verdict, since, until, ..Filter::default() }
    }
}

/// The page that begins behind `before`, or at the newest decision.
///
/// # Errors
/// The database fails.
pub fn search(
    tx: &mut Tx<'_>,
    environment: i64,
    search: &Search,
    before: Option<DecisionId>,
    now: Timestamp,
) -> Result<Page, Fault> {
    let from = before.map_or([0xff; 16], DecisionId::to_bytes);
    let slice = Slice { direction: Direction::Older, from, limit: i64::try_from(PAGE).unwrap_or(i64::MAX) };
    let (mut ids, mut reached) = (Vec::new(), None);
    for verdict in search.verdicts.each() {
        let filter = search.filter(verdict);
        let found = sql::decisions::search(tx, environment, &filter, &slice, now, SEARCHED_ROWS)?;
        // What is older than where one search ended may be missing from it.
        let full = found.ids.last().filter(|_| found.ids.len() == PAGE).copied();
        reached = reached.max(found.stopped_at.or(full));
        ids.extend(found.ids);
    }
    ids.sort_unstable_by(|one, other| other.cmp(one));
    ids.retain(|id| reached.is_none_or(|reached| *id >= reached));
    let is_cut = ids.len() > PAGE;
    ids.truncate(PAGE);
    let older = if is_cut { ids.last().copied() } else { reached };
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        rows.push(find(tx, environment, id)?.ok_or_else(lost)?);
    }
    Ok(Page { rows, older })
}

/// One decision. None if the environment has none of that id.
///
/// # Errors
/// The database fails.
pub fn one(tx: &mut Tx<'_>, environment: &Environment, id: DecisionId) -> Result<Option<One>, Fault> {
    let Some(whole) = find(tx, environment.id, id)? else { return Ok(None) };
    let mandate = whole.decision.mandate;
    let mandate = mandate.map(|id| sql::mandates::find(tx, environment.id, id)).transpose()?.flatten();
    let token = token(&whole, &environment.policy_version)?;
    let place = token_hash(&token).map(|hash| shown::look_up(tx, &hash)).transpose()?.flatten();
    let rules = rules(&whole.decision, mandate.as_ref());
    Ok(Some(One { whole, mandate, rules, token, place }))
}

/// The newest decision, with which a download ends that is asked for now. None if there is none.
///
/// # Errors
/// The database fails.
pub fn newest(tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<Option<DecisionId>, Fault> {
    let slice = Slice { direction: Direction::Older, from: [0xff; 16], limit: 1 };
    let found = sql::decisions::search(tx, environment, &Filter::default(), &slice, now, SEARCHED_ROWS)?;
    Ok(found.ids.first().copied())
}

/// The next piece of a download, oldest first, of the decisions after `after`, up to and with `newest`. The first piece of CSV
/// begins with the names of the columns.
///
/// # Errors
/// The database fails.
pub fn download(
    tx: &mut Tx<'_>,
    environment: &Environment,
    search: &Search,
    format: Format,
    (after, newest): (Option<DecisionId>, Option<DecisionId>),
    now: Timestamp,
) -> Result<Piece, Fault> {
    let verdict = if let Verdicts::One(verdict) = search.verdicts { Some(verdict) } else { None };
    let filter = search.filter(verdict);
    let from = after.map_or([0; 16], DecisionId::to_bytes);
    let mut page = sql::decisions::onward(tx, environment.id, &filter, from, DOWNLOADED)?;
    let last = page.last().map(|whole| whole.decision.id).filter(|last| Some(*last) < newest);
    page.retain(|whole| Some(whole.decision.id) <= newest && search.verdicts.has(whole.decision.verdict));
    let policy_version = &environment.policy_version;
    let bytes = match format {
        Format::Csv => csv_rows(&page, policy_version, (after.is_none(), now))?,
        Format::Ndjson => lines(&page, policy_version, now)?,
    };
    Ok(Piece { bytes, last })
}

/// The decisions as the API shows them, one on each line.
fn lines(page: &[Whole], policy_version: &PolicyVersion, now: Timestamp) -> Result<Vec<u8>, Fault> {
    let mut lines = Vec::new();
    for whole in page {
        lines.extend_from_slice(show(whole, policy_version, now)?.get().as_bytes());
        lines.push(b'\n');
    }
    Ok(lines)
}

fn find(tx: &mut Tx<'_>, environment: i64, id: DecisionId) -> Result<Option<Whole>, Fault> {
    sql::decisions::find(tx, environment, id)
}

fn lost() -> Fault {
    Fault::corrupt("database: a decision just found is not there")
}
