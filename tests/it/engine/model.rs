//! The model: the rules once more, from their description alone. It keeps the whole history and adds it up anew for
//! each request; amounts are whole numbers of the eighth decimal place, the calendar is counted from 1970 year by year.

/// Units in one whole.
const WHOLE: u128 = 100_000_000;
const DAY_MILLIS: i64 = 86_400_000;

/// A mandate as it is written.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) per_transaction: u128,
    pub(super) per_month: Option<u128>,
    pub(super) currency: &'static str,
    pub(super) categories: Vec<&'static str>,
    pub(super) review_above: Option<u128>,
    /// From today to the last day.
    pub(super) days: i64,
}

/// A mandate in its present state.
pub(super) struct Granted {
    pub(super) id: String,
    pub(super) terms: Written,
    last_day: i64,
    revoked: bool,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) amount: u128,
    pub(super) currency: &'static str,
    pub(super) category: &'static str,
}

/// Whether the agent asks, or a person approves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Approval,
}

/// What both engines answer, as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: String,
    pub(super) denials: Vec<String>,
    pub(super) reason: Option<String>,
    pub(super) spent: String,
    pub(super) recent_requests: u32,
}

struct Past {
    at: i64,
    kind: Kind,
    ask: Ask,
    allowed: bool,
}

/// One agent and all that has happened to it.
pub(super) struct Model {
    agent: &'static str,
    pub(super) now: i64,
    mandates: Vec<Granted>,
    past: Vec<Past>,
}

impl Model {
    pub(super) fn new(agent: &'static str, now: i64) -> Self {
        Self { agent, now, mandates: Vec::new(), past: Vec::new() }
    }

    /// The newest mandate.
    pub(super) fn governing(&self) -> Option<&Granted> {
        self.mandates.last()
    }

    /// Writes a mandate. Returns the body to write it with.
    pub(super) fn write(&mut self, terms: Written, id: String) -> String {
        let last_day = self.now / DAY_MILLIS + terms.days;
        let body = terms.body(self.agent, last_day);
        self.mandates.push(Granted { id, terms, last_day, revoked: false });
        body
    }

    pub(super) fn revoke(&mut self) {
        if let Some(mandate) = self.mandates.last_mut() {
            mandate.revoked = true;
        }
    }

    pub(super) fn left_of_month(&self, currency: &str) -> Option<u128> {
        self.governing()?.terms.per_month?.checked_sub(self.spent(currency))
    }

    fn spent(&self, currency: &str) -> u128 {
        let this_month = |past: &&Past| month(past.at) == month(self.now);
        let counts = |past: &&Past| past.allowed && past.ask.currency == currency;
        self.past.iter().filter(counts).filter(this_month).map(|past| past.ask.amount).sum()
    }

    fn recent_requests(&self) -> usize {
        self.past.iter().filter(|past| past.kind == Kind::Request && past.at > self.now - 60_000).count()
    }

    /// Decides, and takes note.
    pub(super) fn decide(&mut self, ask: &Ask, kind: Kind) -> Answer {
        let spent = self.spent(ask.currency);
        let recent = self.recent_requests();
        let mut held: Vec<(&str, String)> = Vec::new();
        if let Some(mandate) = self.governing() {
            let (id, terms) = (&mandate.id, &mandate.terms);
            if mandate.revoked {
                held.push(("deny_revoked", format!("mandate {id} is revoked")));
            }
            if self.now / DAY_MILLIS > mandate.last_day {
                let day = date(mandate.last_day);
                held.push(("deny_expired", format!("mandate {id} expired at the end of {day}")));
            }
            if let Some(why) = terms.limit(ask, spent) {
                held.push(("deny_limit", why));
            }
            if !terms.categories.contains(&ask.category) {
                let category = ask.category;
                held.push((
                    "deny_category",
                    format!("category {category} is not among the mandate's categories"),
                ));
            }
        } else {
            held.push(("deny_no_mandate", format!("agent {} has no mandate", self.agent)));
        }
        if kind == Kind::Request && recent + 1 > 10 {
            held.push(("deny_velocity", "more than 10 requests in 60 seconds".to_owned()));
        }
        let threshold = self.governing().and_then(|mandate| mandate.terms.review_above);
        let verdict = match held.first() {
            Some((denial, _)) => denial,
            None if kind == Kind::Request && threshold.is_some_and(|above| ask.amount > above) => "review",
            None => "allow",
        };
        self.past.push(Past { at: self.now, kind, ask: ask.clone(), allowed: verdict == "allow" });
        Answer {
            verdict: verdict.to_owned(),
            denials: held.iter().map(|(denial, _)| (*denial).to_owned()).collect(),
            reason: held.into_iter().next().map(|(_, reason)| reason),
            spent: decimal(spent),
            recent_requests: u32::try_from(recent.min(10)).unwrap(),
        }
    }
}

impl Written {
    fn limit(&self, ask: &Ask, spent: u128) -> Option<String> {
        let amount = decimal(ask.amount);
        if ask.currency != self.currency {
            return Some(format!(
                "currency {} is not the mandate's currency {}",
                ask.currency, self.currency
            ));
        }
        if ask.amount > self.per_transaction {
            return Some(format!(
                "amount {amount} exceeds per_transaction limit {}",
                decimal(self.per_transaction)
            ));
        }
        match self.per_month {
            Some(limit) if spent + ask.amount > limit => {
                let (limit, spent) = (decimal(limit), decimal(spent));
                Some(format!("amount {amount} exceeds per_month limit {limit} ({spent} spent)"))
            }
            _ => None,
        }
    }

    fn body(&self, agent: &str, last_day: i64) -> String {
        let per_month = self.per_month.map(|units| format!(r#","per_month":{}"#, decimal(units)));
        let review_above = self.review_above.map(|units| format!(r#","review_above":{}"#, decimal(units)));
        format!(
            r#"{{"principal":"role:cfo","agent":"{agent}","limits":{{"per_transaction":{},"currency":"{}"{}}},"categories":{:?},"expires":"{}"{}}}"#,
            decimal(self.per_transaction),
            self.currency,
            per_month.unwrap_or_default(),
            self.categories,
            date(last_day),
            review_above.unwrap_or_default(),
        )
    }
}

impl Ask {
    /// The body of the request, its amount written in one of the ways in which JSON can write it.
    pub(super) fn body(&self, spelling: u8) -> String {
        let units = self.amount;
        let (whole, fraction) = (units / WHOLE, units % WHOLE);
        let amount = match spelling % 6 {
            0 => format!("{units}e-8"),
            1 => format!("{units}00E-10"),
            2 => format!("{whole}.{fraction:08}"),
            3 => format!("{whole}.{fraction:08}000e+0"),
            4 if fraction == 0 => format!("0.{whole}e{}", whole.to_string().len()),
            _ => decimal(units),
        };
        let (currency, category) = (self.currency, self.category);
        format!(
            r#"{{"amount":{amount},"currency":"{currency}","recipient":"vendor:acme","category":"{category}"}}"#
        )
    }
}

/// The plain rendering, without trailing zeros.
fn decimal(units: u128) -> String {
    let mut text = format!("{}.{:08}", units / WHOLE, units % WHOLE);
    while text.ends_with('0') {
        text.pop();
    }
    text.trim_end_matches('.').to_owned()
}

/// Year and month of an instant, and the day within the month, each counted off from 1970.
fn civil(day: i64) -> (i64, usize, i64) {
    let mut left = day;
    let mut year = 1970;
    loop {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (place, length) in lengths.into_iter().enumerate() {
            if left < length {
                return (year, place + 1, left + 1);
            }
            left -= length;
        }
        year += 1;
    }
}

fn month(at: i64) -> (i64, usize) {
    let (year, month, _) = civil(at / DAY_MILLIS);
    (year, month)
}

fn date(day: i64) -> String {
    let (year, month, day) = civil(day);
    format!("{year:04}-{month:02}-{day:02}")
}
