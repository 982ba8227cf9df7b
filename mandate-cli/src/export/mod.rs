//! An export of decisions, as the service writes it.
//!
//! Each line is a JSON object: first `export`, the request; then each `mandate` that governed one of the decisions; then
//! the `governing` records of the public log, by number; then each `decision`, by id, which is each agent's order of
//! sequence; last the `trailer`, a JWT. Decisions and governing records have their `blind` beside them.

mod granted;
mod history;
mod logged;
mod mandates;
mod people;
mod reader;
mod record;
mod sorted;
mod walk;

use mandate_core::json::{Field, Object};
use mandate_core::people::Answer;
use mandate_core::{
    AgentId, Basis, DecisionId, Denials, ExportId, Invalid, Mandate, MandateId, ReviewId, ReviewStatus,
    Terms, Timestamp, Verdict, VerdictClaims,
};

pub(crate) use self::granted::{Grants, Stop};
pub(crate) use self::history::{Follows, History, Order, Spending};
pub(crate) use self::logged::{Logged, LoggedRow};
pub(crate) use self::mandates::{Contradiction, Listed, Mandates, with_revocation};
pub(crate) use self::people::{Actor, Conflict, Moment, NoPasskey, People, PersonRecord, Resolution};
pub(crate) use self::reader::{Prologue, Raw, Reader};
pub(crate) use self::record::{Inconsistent, Record};
pub(crate) use self::walk::walk;

/// The request for the export.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) id: ExportId,
    pub(crate) environment: String,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) agent: Option<AgentId>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    /// The last decision, where `until` does not bound the export.
    pub(crate) last: Option<DecisionId>,
}

/// A decision, as the API shows it.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) claims: VerdictClaims,
    /// Its number among its agent's decisions: 1, 2, 3 … without a gap.
    pub(crate) sequence: u64,
    /// By which instant it was decided. It need not ascend with the sequence: clocks step.
    pub(crate) decided_at: Timestamp,
    pub(crate) mode: String,
    pub(crate) reason: Option<String>,
    pub(crate) supersedes: Option<DecisionId>,
    pub(crate) denials: Denials,
    pub(crate) basis: Basis,
    pub(crate) review: Option<Review>,
    pub(crate) verdict_token: String,
}

/// The review of a decision.
#[derive(Debug, Clone)]
pub(crate) struct Review {
    pub(crate) id: Option<ReviewId>,
    pub(crate) status: ReviewStatus,
    /// The decision that resulted from its approval.
    pub(crate) decision: Option<DecisionId>,
    /// The agent's last sequence when it was denied.
    pub(crate) resolved_after: Option<u64>,
    pub(crate) resolved_at: Option<Timestamp>,
    /// Why it was denied.
    pub(crate) reason: Option<String>,
    pub(crate) resolved_by: Option<Actor>,
    /// What a person signed.
    pub(crate) answer: Option<Box<Answer>>,
}

/// One line.
#[derive(Debug)]
pub(crate) enum Entry {
    Export(Header),
    Mandate(Box<Mandate>),
    /// A record of the public log by its number: see [`Logged`]; and what it says of people, reviews and mandates.
    Governing(u64, Option<PersonRecord>),
    Decision(Box<Decision>),
    Trailer(String),
}

/// An instant in RFC 3339.
fn instant(field: &Field<'_>) -> Result<Timestamp, Invalid> {
    Timestamp::parse(&field.string()?).map_err(|e| e.at(field.path()))
}

/// A whole number of at least `least`.
fn count(field: &Field<'_>, least: u64) -> Result<u64, Invalid> {
    let count = u64::try_from(field.integer()?).ok().filter(|count| *count >= least);
    count.ok_or_else(|| Invalid::value(field.path(), &format!("must be {least} or greater"), field.raw()))
}

impl Entry {
    /// Reads a line.
    pub(crate) fn read(line: &[u8]) -> Result<Self, Invalid> {
        let mut whole = Object::parse_as("line", line)?;
        let entry = if let Some(field) = whole.take("decision") {
            let decision = Box::new(Decision::read(&field)?);
            whole.take("blind").map(|field| logged::hash(&field)).transpose()?;
            Self::Decision(decision)
        } else if let Some(field) = whole.take("mandate") {
            Self::Mandate(Box::new(read_mandate(field.object()?, true)?))
        } else if let Some(field) = whole.take("governing") {
            let answer = whole.take("answer");
            let number = Logged::governing(&field, &mut whole)?.number();
            Self::Governing(number, PersonRecord::read(&field, number, answer.as_ref())?)
        } else if let Some(field) = whole.take("trailer") {
            Self::Trailer(field.string()?.into_owned())
        } else {
            Self::Export(Header::read(whole.require("export")?.object()?)?)
        };
        whole.finish()?;
        Ok(entry)
    }
}

impl Header {
    fn read(mut header: Object<'_>) -> Result<Self, Invalid> {
        let instant = |field: Field<'_>| instant(&field);
        Ok(Self {
            id: ExportId::parse(&header.require("id")?.string()?)?,
            environment: header.require("environment")?.string()?.into_owned(),
            verdict: header.take("verdict").map(|f| Verdict::parse(&f.string()?)).transpose()?,
            agent: header.take("agent").map(|f| AgentId::parse(&f.string()?)).transpose()?,
            since: header.take("since").map(instant).transpose()?,
            until: header.take("until").map(instant).transpose()?,
            last: header.take("last").map(|f| DecisionId::parse(&f.string()?)).transpose()?,
        })
    }

    /// Whether the export has every decision of its agents and its period.
    pub(crate) fn is_complete(&self) -> bool {
        self.verdict.is_none()
    }

    /// Whether the export has every governing record, and not only those of people's passkeys.
    pub(crate) fn has_all_records(&self) -> bool {
        self.agent.is_none() && self.verdict.is_none()
    }

    /// Whether a decision is in the export's period, by the time in its id.
    pub(crate) fn covers(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at < until)
    }
}

impl Decision {
    fn read(field: &Field<'_>) -> Result<Self, Invalid> {
        let claims = VerdictClaims::read(field.raw().as_bytes())?;
        let mut shown = field.object()?;
        let text = |field: Option<Field<'_>>| field.map(|f| Ok(f.string()?.into_owned())).transpose();
        let mut denials = Denials::default();
        for element in shown.take("denials").map(|f| f.array()).transpose()?.unwrap_or_default() {
            denials.add(Verdict::parse(&element.string()?)?);
        }
        let sequence = shown.require("sequence")?;
        let decided_at = shown.require("decided_at")?;
        Ok(Self {
            claims,
            sequence: count(&sequence, 1)?,
            decided_at: instant(&decided_at)?,
            mode: shown.require("mode")?.string()?.into_owned(),
            reason: text(shown.take("reason"))?,
            supersedes: shown.take("supersedes").map(|f| DecisionId::parse(&f.string()?)).transpose()?,
            denials,
            basis: Basis::read(shown.require("basis")?.object()?)?,
            review: shown.take("review").map(|f| Review::read(f.object()?)).transpose()?,
            verdict_token: shown.require("verdict_token")?.string()?.into_owned(),
        })
    }

    /// Whether its verdict, or one of its denials, is that the mandate was revoked.
    pub(crate) fn is_denied_as_revoked(&self) -> bool {
        self.claims.verdict == Verdict::DenyRevoked
            || self.denials.iter().any(|denial| denial == Verdict::DenyRevoked)
    }

    /// The time in its id. `since` and `until` of an export go by it, and nothing else does.
    pub(crate) fn placed_at(&self) -> Timestamp {
        self.claims.jti.created_at()
    }
}

impl Review {
    fn read(mut review: Object<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            id: review.take("id").map(|f| ReviewId::parse(&f.string()?)).transpose()?,
            status: ReviewStatus::parse(&review.require("status")?.string()?)?,
            decision: review.take("decision").map(|f| DecisionId::parse(&f.string()?)).transpose()?,
            resolved_after: review.take("resolved_after").map(|f| count(&f, 0)).transpose()?,
            resolved_at: review.take("resolved_at").map(|f| instant(&f)).transpose()?,
            reason: review.take("reason").map(|f| Ok(f.string()?.into_owned())).transpose()?,
            resolved_by: review.take("resolved_by").map(|f| Actor::read(&f)).transpose()?,
            answer: review.take("answer").map(|f| Ok(Box::new(Answer::read(f.object()?)?))).transpose()?,
        })
    }
}

/// A mandate as the API shows it; or only its terms, unless it must be a recorded one.
pub(crate) fn read_mandate(mut shown: Object<'_>, is_recorded: bool) -> Result<Mandate, Invalid> {
    let mut recorded = |name| if is_recorded { shown.require(name).map(Some) } else { Ok(shown.take(name)) };
    let id =
        recorded("id")?.map(|f| MandateId::parse(&f.string()?).map_err(|e| e.at(f.path()))).transpose()?;
    let created_at = recorded("created_at")?.map(|f| instant(&f)).transpose()?;
    let governs_from = recorded("governs_from")?.map(|f| count(&f, 1)).transpose()?;
    let revoked_at = shown.take("revoked_at").map(|f| instant(&f)).transpose()?;
    let replaced_by = shown.take("replaced_by").map(|f| MandateId::parse(&f.string()?)).transpose()?;
    let revoked_after = shown.take("revoked_after").map(|f| count(&f, 0)).transpose()?;
    let governed_until = shown.take("governed_until").map(|f| count(&f, 0)).transpose()?;
    // What follows from the rest.
    let _ = shown.take("status");
    let id = id.unwrap_or(MandateId::from_bytes([0; 16]));
    let created_at = created_at.unwrap_or(Timestamp::from_seconds(0));
    let mandate = Mandate::new(id, Terms::read(shown)?, created_at);
    let governs_from = governs_from.unwrap_or(mandate.governs_from);
    Ok(Mandate { revoked_at, replaced_by, governs_from, revoked_after, governed_until, ..mandate })
}
