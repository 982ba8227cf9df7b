//! The mandate: data that grants an agent authority to spend.

use std::fmt;

use serde::Serialize;

use crate::amount::{self, Amount, Total};
use crate::error::Invalid;
use crate::id::MandateId;
use crate::json::{Field, Object};
use crate::name::{AgentId, Category, Currency, Principal};
use crate::time::{Day, Timestamp};

/// How many categories a mandate may hold.
pub const MAX_CATEGORIES: usize = 64;

/// The terms of a mandate: who may spend, how much, on what, and until when. Serializing gives what was read.
///
/// ```
/// use mandate_core::{Terms, json::Object};
/// let body = br#"{
///     "principal": "role:head-of-it",
///     "agent": "agt_buyer",
///     "limits": {"per_transaction": 500, "per_month": 2000, "currency": "USD"},
///     "categories": ["software", "cloud"],
///     "review_above": 200,
///     "expires": "2026-12-31"
/// }"#;
/// let terms = Terms::read(Object::parse(body)?)?;
/// assert_eq!(terms.limits.per_transaction.to_string(), "500");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Terms {
    /// The accountable party.
    pub principal: Principal,
    /// The agent that may spend.
    pub agent: AgentId,
    /// How much it may spend.
    pub limits: Limits,
    /// What it may be spent on: 1 to [`MAX_CATEGORIES`], without duplicates.
    pub categories: Vec<Category>,
    /// Amounts above this wait for a person. Absent: no amount does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review_above: Option<Total>,
    /// The last day, UTC, on which the mandate is valid.
    pub expires: Day,
    /// Stored and returned; the engine does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escrow: Option<EscrowTerms>,
}

/// The limits of a mandate, all in one currency.
///
/// ```
/// use mandate_core::{Amount, Currency, Limits};
/// let limits = Limits {
///     per_transaction: Amount::parse("500")?,
///     per_month: Some(Amount::parse("2000")?),
///     currency: Currency::parse("USD")?,
/// };
/// assert!(limits.per_month > Some(limits.per_transaction));
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The most that one authorization may allow.
    pub per_transaction: Amount,
    /// The most that may be spent in a calendar month (UTC). Absent: no such cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_month: Option<Amount>,
    /// The currency of all limits.
    pub currency: Currency,
}

/// The part of a mandate about escrows.
///
/// ```
/// use mandate_core::{Amount, EscrowTerms, Total};
/// let escrow = EscrowTerms { required_above: Total::parse("1000")? };
/// assert!(Total::from(Amount::parse("1500")?) > escrow.required_above);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EscrowTerms {
    /// Amounts above this should use an escrow. Informative.
    pub required_above: Total,
}

/// A mandate as recorded. Its terms never change; revoking or replacing it only adds to it.
///
/// ```
/// use mandate_core::{Mandate, MandateId, MandateStatus, Terms, Timestamp, json::Object};
/// # let body = br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud"],
/// #     "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"}"#;
/// # let terms = Terms::read(Object::parse(body)?)?;
/// let now = Timestamp::parse("2026-06-01T12:00:00Z")?;
/// let mandate = Mandate::new(MandateId::new(now, 1), terms, now);
/// let revoked = Mandate { revoked_at: Some(now), revoked_after: Some(3), ..mandate };
/// assert_eq!(revoked.status(now), MandateStatus::Revoked);
/// assert!(revoked.governs(4) && revoked.is_revoked_for(4), "it governs, and denies");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mandate {
    /// Its id.
    pub id: MandateId,
    /// What it grants.
    pub terms: Terms,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was revoked, if ever.
    pub revoked_at: Option<Timestamp>,
    /// The agent's newer mandate that replaced it, if any.
    pub replaced_by: Option<MandateId>,
    /// The first decision that it may govern, by the agent's own sequence 1, 2, 3 …
    pub governs_from: u64,
    /// The agent's last decision before the revocation, by sequence; 0 when there was none. Absent: not revoked.
    pub revoked_after: Option<u64>,
    /// The last decision that it governed, by sequence: `governs_from` − 1 when it governed none. Absent: not replaced.
    pub governed_until: Option<u64>,
}

/// The status of a mandate.
///
/// ```
/// assert_eq!(mandate_core::MandateStatus::Active.to_string(), "active");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MandateStatus {
    /// It governs its agent.
    Active,
    /// It was revoked.
    Revoked,
    /// A newer mandate governs its agent.
    Replaced,
    /// Its last day has passed.
    Expired,
}

impl Terms {
    /// Reads the body of POST /v1/mandates.
    ///
    /// ```
    /// use mandate_core::{Terms, json::Object};
    /// let body = Object::parse(br#"{"principal": "head-of-it"}"#)?;
    /// assert_eq!(Terms::read(body).unwrap_err().field(), "principal");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// A field is missing or unknown, its type or value is invalid, or two fields contradict each other.
    pub fn read(mut body: Object<'_>) -> Result<Self, Invalid> {
        let principal = Principal::parse(&body.require("principal")?.string()?)?;
        let agent = AgentId::parse(&body.require("agent")?.string()?)?;
        let limits = body.take("limits").map(|field| field.object()).transpose()?;
        // Without limits it is their currency that is missing, as with limits that hold nothing.
        let limits = Limits::read(limits.ok_or_else(|| Invalid::new("limits.currency", "is required"))?)?;
        let categories = read_categories(&body.require("categories")?)?;
        let review_above = body.take("review_above").map(|f| threshold(&f)).transpose()?;
        let expires = Day::parse(&body.require("expires")?.string()?).map_err(|e| e.at("expires"))?;
        let escrow = body.take("escrow").map(|f| EscrowTerms::read(f.object()?)).transpose()?;
        body.finish()?;
        if let Some(above) = review_above.filter(|above| above.exceeds(limits.per_transaction)) {
            let most = limits.per_transaction;
            let problem = format!("must not be above limits.per_transaction, {most}; got `{above}`");
            return Err(Invalid::new("review_above", problem));
        }
        Ok(Self { principal, agent, limits, categories, review_above, expires, escrow })
    }

    /// Refuses terms that have already expired at `now`.
    ///
    /// ```
    /// use mandate_core::{Terms, Timestamp, json::Object};
    /// # let body = br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud"],
    /// #     "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"}"#;
    /// let terms = Terms::read(Object::parse(body)?)?; // "expires": "2026-12-31"
    /// assert!(terms.must_hold_at(Timestamp::parse("2026-12-31T23:59:59Z")?).is_ok());
    /// assert!(terms.must_hold_at(Timestamp::parse("2027-01-01T00:00:00Z")?).is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// `expires` is before the day of `now`.
    pub fn must_hold_at(&self, now: Timestamp) -> Result<(), Invalid> {
        if self.expires.contains_or_follows(now) {
            return Ok(());
        }
        let problem =
            format!("must not be in the past; got `{}`, today is {} (UTC)", self.expires, now.day());
        Err(Invalid::new("expires", problem))
    }
}

impl Limits {
    fn read(mut limits: Object<'_>) -> Result<Self, Invalid> {
        let currency = limits.require("currency")?;
        let currency = Currency::parse(&currency.string()?).map_err(|e| e.at("limits.currency"))?;
        let per_transaction = limits.require("per_transaction")?.amount()?;
        let per_month = limits.take("per_month").map(|f| f.amount()).transpose()?;
        limits.finish()?;
        Ok(Self { per_transaction, per_month, currency })
    }
}

impl EscrowTerms {
    fn read(mut escrow: Object<'_>) -> Result<Self, Invalid> {
        let required_above = threshold(&escrow.require("required_above")?)?;
        escrow.finish()?;
        Ok(Self { required_above })
    }
}

/// An amount, or 0 in any spelling. A threshold of 0 applies to every amount.
fn threshold(field: &Field<'_>) -> Result<Total, Invalid> {
    match field.number()? {
        text if amount::is_zero(text) => Ok(Total::ZERO),
        text if text.starts_with('-') => Err(Invalid::value(field.path(), "must be 0 or greater", text)),
        _ => field.amount().map(Total::from),
    }
}

fn read_categories(field: &Field<'_>) -> Result<Vec<Category>, Invalid> {
    let elements = field.array()?;
    if elements.is_empty() || elements.len() > MAX_CATEGORIES {
        let problem = format!("must hold 1 to {MAX_CATEGORIES} categories; got {}", elements.len());
        return Err(Invalid::new("categories", problem));
    }
    let mut categories = Vec::with_capacity(elements.len());
    for element in elements {
        let category = Category::parse(&element.string()?).map_err(|e| e.at(element.path()))?;
        if categories.contains(&category) {
            return Err(Invalid::value(element.path(), "must not appear twice", category.as_str()));
        }
        categories.push(category);
    }
    Ok(categories)
}

impl Mandate {
    /// A mandate just written for an agent that has made no request: it governs from the first one on.
    ///
    /// ```
    /// use mandate_core::{Mandate, MandateId, Terms, Timestamp, json::Object};
    /// # let body = br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud"],
    /// #     "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"}"#;
    /// # let (terms, created_at) = (Terms::read(Object::parse(body)?)?, Timestamp::from_seconds(0));
    /// let mandate = Mandate::new(MandateId::new(created_at, 1), terms, created_at);
    /// assert_eq!((mandate.governs_from, mandate.governed_until), (1, None));
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn new(id: MandateId, terms: Terms, created_at: Timestamp) -> Self {
        Self {
            id,
            terms,
            created_at,
            revoked_at: None,
            replaced_by: None,
            governs_from: 1,
            revoked_after: None,
            governed_until: None,
        }
    }

    /// Whether it governs its agent's decision number `sequence`. A revoked mandate governs until it is replaced: each
    /// decision names it, and denies.
    ///
    /// ```
    /// use mandate_core::{Mandate, MandateId, Terms, Timestamp, json::Object};
    /// # let body = br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud"],
    /// #     "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"}"#;
    /// # let (terms, created_at) = (Terms::read(Object::parse(body)?)?, Timestamp::from_seconds(0));
    /// # let id = MandateId::new(created_at, 1);
    /// let mandate = Mandate { governs_from: 3, governed_until: Some(5), ..Mandate::new(id, terms, created_at) };
    /// assert_eq!([2, 3, 5, 6].map(|sequence| mandate.governs(sequence)), [false, true, true, false]);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn governs(&self, sequence: u64) -> bool {
        self.governs_from <= sequence && self.governed_until.is_none_or(|last| sequence <= last)
    }

    /// Whether it was revoked when its agent's decision number `sequence` was made. No clock is asked.
    ///
    /// ```
    /// use mandate_core::{Mandate, MandateId, Terms, Timestamp, json::Object};
    /// # let body = br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud"],
    /// #     "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"}"#;
    /// # let (terms, created_at) = (Terms::read(Object::parse(body)?)?, Timestamp::from_seconds(0));
    /// # let id = MandateId::new(created_at, 1);
    /// let mandate = Mandate { revoked_after: Some(7), ..Mandate::new(id, terms, created_at) };
    /// assert!(!mandate.is_revoked_for(7) && mandate.is_revoked_for(8));
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn is_revoked_for(&self, sequence: u64) -> bool {
        self.revoked_after.is_some_and(|last| sequence > last)
    }

    /// The status of the mandate at `now`.
    ///
    /// ```
    /// use mandate_core::{Mandate, MandateId, MandateStatus, Terms, Timestamp, json::Object};
    /// # let body = br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud"],
    /// #     "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"}"#;
    /// # let (terms, id) = (Terms::read(Object::parse(body)?)?, MandateId::from_bytes([0; 16]));
    /// # let created_at = Timestamp::from_seconds(0);
    /// let mandate = Mandate::new(id, terms, created_at);
    /// assert_eq!(mandate.status(Timestamp::parse("2026-12-31T12:00:00Z")?), MandateStatus::Active);
    /// assert_eq!(mandate.status(Timestamp::parse("2027-01-01T00:00:00Z")?), MandateStatus::Expired);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn status(&self, now: Timestamp) -> MandateStatus {
        if self.revoked_at.is_some() {
            MandateStatus::Revoked
        } else if self.replaced_by.is_some() {
            MandateStatus::Replaced
        } else if self.terms.expires.contains_or_follows(now) {
            MandateStatus::Active
        } else {
            MandateStatus::Expired
        }
    }

    /// The mandate as the API shows it at `now`, to be serialized as JSON.
    ///
    /// ```
    /// use mandate_core::{Mandate, MandateId, Terms, Timestamp, json::Object};
    /// # let body = br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud"],
    /// #     "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"}"#;
    /// # let (terms, id) = (Terms::read(Object::parse(body)?)?, MandateId::from_bytes([0; 16]));
    /// # let created_at = Timestamp::from_seconds(0);
    /// let mandate = Mandate::new(id, terms, created_at);
    /// let shown = serde_json::to_value(mandate.view(created_at))?;
    /// assert_eq!((&shown["agent"], &shown["status"]), (&"agt_buyer".into(), &"active".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn view(&self, now: Timestamp) -> MandateView<'_> {
        MandateView {
            id: self.id,
            terms: &self.terms,
            status: self.status(now),
            created_at: self.created_at,
            revoked_at: self.revoked_at,
            replaced_by: self.replaced_by,
            governs_from: self.governs_from,
            revoked_after: self.revoked_after,
            governed_until: self.governed_until,
        }
    }
}

/// A mandate as the API shows it. Serialize it to get the JSON object.
#[derive(Debug, Serialize)]
pub struct MandateView<'a> {
    id: MandateId,
    #[serde(flatten)]
    terms: &'a Terms,
    status: MandateStatus,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<MandateId>,
    governs_from: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    governed_until: Option<u64>,
}

impl MandateStatus {
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Active, Self::Revoked, Self::Replaced, Self::Expired];

    /// The word in bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
            Self::Replaced => "replaced",
            Self::Expired => "expired",
        }
    }

    /// Reads the word.
    ///
    /// ```
    /// use mandate_core::MandateStatus;
    /// assert_eq!(MandateStatus::parse("revoked")?, MandateStatus::Revoked);
    /// assert!(MandateStatus::parse("gone").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is none of the four.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wanted = "must be active, revoked, replaced or expired";
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| Invalid::value("status", wanted, text))
    }
}

impl fmt::Display for MandateStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
