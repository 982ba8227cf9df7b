//! The two ends of a batch of authorizations, each in one round trip: load what it needs, keep what it made.
//!
//! The agents' rows are taken first, in the order of their keys, and held until the end: whoever decides for an agent, or
//! changes what decides, has them. An agent's API key is used for that agent alone, so that its row also guards the
//! idempotency keys. What is read, is read by statements that begin when the rows are held.

use std::collections::{BTreeMap, BTreeSet};

use mandate_core::{AgentId, Currency, Month, Timestamp};

use super::super::records::{AgentKey, KeptKey, Mode, UsageKey, UsageRecord};
use super::super::tx::{Row, Tally};
use super::super::{Authorization, Decider, Loaded, sql};
use super::columns::columns;
use super::ground::Ground;
use super::keep;
use super::link::{Ran, Step};
use crate::error::Fault;
use crate::service::Answer;

const HOLD: &str =
    "SELECT 1 FROM agents WHERE (environment, agent) IN (SELECT * FROM unnest($1::bigint[], $2::text[]))
    ORDER BY environment, agent FOR NO KEY UPDATE";
const STATES: &str =
    "SELECT a.environment, a.agent, a.recent, m.mandate, m.agent, m.terms, m.created_at, m.revoked_at,
        m.replaced_by
    FROM unnest($1::bigint[], $2::text[]) AS k (environment, agent)
    JOIN agents a ON a.environment = k.environment AND a.agent = k.agent
    LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing";
const USAGE: &str = "SELECT u.environment, u.agent, u.currency, u.spent, u.requests, u.allow, u.review,
        u.deny_no_mandate, u.deny_revoked, u.deny_expired, u.deny_limit, u.deny_category, u.deny_velocity
    FROM unnest($1::bigint[], $2::text[], $3::text[]) AS k (environment, agent, currency)
    JOIN usage u ON u.environment = k.environment AND u.month = $4 AND u.agent = k.agent AND u.currency = k.currency";
/// The modes, and the time by the database's clock when the rows are held.
const MODES: &str = "SELECT environment, mode, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM environments WHERE environment = ANY ($1::bigint[])";
const KEPT: &str =
    "SELECT i.environment, i.api_key, i.name, i.fingerprint, i.status, i.body, i.sealed, i.created_at
    FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS k (environment, api_key, name)
    JOIN idempotency i ON i.environment = k.environment AND i.api_key = k.api_key AND i.name = k.name";

/// Decides on a batch inside an open transaction, and has what it made written with COMMIT. Says what was made.
pub(super) fn run(
    ground: &mut Ground<'_>,
    decider: &dyn Decider,
    batch: &[Authorization],
) -> Result<(Vec<Result<Answer, Fault>>, Tally), Fault> {
    let asked = Asked::of(batch)?;
    let before = decider.now();
    let month = before.month();
    let mut loaded = asked.load(ground, month)?;
    // Each batch compares anew: since the last time the clock may have been set, or the machine may have stood still.
    loaded.compared = loaded.compared.map(|(_, shown)| (before, decider.elsewhere(shown)));
    // The time of the decisions lies behind that at which the rows were had.
    let now = decider.now();
    if now.month() != month {
        loaded.usage = asked.usage(ground.send(vec![asked.usage_step(now.month())?])?.pop(), now.month())?;
    }
    // A kept answer that is given again must have come to where COMMIT waits for it, as it would when it is given first.
    ground.wrote |= !loaded.kept.is_empty();
    let answers = decider.decide(batch, now, &mut loaded);
    let tally = keep::keep(ground, &loaded)?;
    Ok((answers, tally))
}

/// What a batch asks about.
#[derive(Debug, Default)]
struct Asked {
    /// Whose rows are held: those of all callers.
    agents: BTreeSet<AgentKey>,
    /// The agents and the currencies of the requests.
    currencies: BTreeSet<(AgentKey, Currency)>,
    kept: BTreeSet<KeptKey>,
}

impl Asked {
    fn of(batch: &[Authorization]) -> Result<Self, Fault> {
        let mut asked = Self::default();
        for authorization in batch {
            let caller = &authorization.call.caller;
            let agent = caller.agent.clone();
            let agent = agent.ok_or_else(|| Fault::new("an authorization without an agent"))?;
            let agent = AgentKey { environment: caller.environment.id, agent };
            asked.kept.extend(authorization.call.idempotency.as_ref().map(|claim| claim.key(caller)));
            if let Ok(request) = &authorization.request {
                if request.agent != agent.agent {
                    return Err(Fault::new("an authorization for another agent than the caller"));
                }
                asked.currencies.insert((agent.clone(), request.currency.clone()));
            }
            asked.agents.insert(agent);
        }
        Ok(asked)
    }

    /// Takes the agents' rows, and reads the state of all that the batch concerns.
    fn load(&self, ground: &mut Ground<'_>, month: Month) -> Result<Loaded, Fault> {
        let agents = || {
            columns("it", self.agents.iter().map(|key| [key.environment.into(), key.agent.as_str().into()]))
        };
        let environments: BTreeSet<i64> = self.agents.iter().map(|key| key.environment).collect();
        let mut steps = vec![
            Step::Run(HOLD, agents()?),
            Step::Run(STATES, agents()?),
            self.usage_step(month)?,
            Step::Run(MODES, columns("i", environments.into_iter().map(|number| [number.into()]))?),
        ];
        if !self.kept.is_empty() {
            let keys = self.kept.iter();
            let keys = keys.map(|key| [key.environment.into(), key.api_key.into(), key.name.as_str().into()]);
            steps.push(Step::Run(KEPT, columns("iit", keys)?));
        }
        let mut ran = ground.send(steps)?.into_iter().skip(1);
        let mut loaded = Loaded::default();
        for mut row in rows(ran.next()) {
            let agent = read_agent(&mut row)?;
            loaded.agents.insert(agent, sql::agents::read_state(&mut row)?);
        }
        loaded.usage = self.usage(ran.next(), month)?;
        for mut row in rows(ran.next()) {
            loaded.modes.insert(row.integer()?, Mode::parse(&row.text()?)?);
            let shown = Timestamp::from_millis(row.integer()?);
            loaded.compared = Some((shown, shown));
        }
        for mut row in rows(ran.next()) {
            let (environment, api_key, name) = (row.integer()?, row.integer()?, row.text()?);
            loaded.kept.insert(KeptKey { environment, api_key, name }, sql::idempotency::read(&mut row)?);
        }
        if self.agents.iter().any(|agent| !loaded.agents.contains_key(agent)) {
            return Err(Fault::new("database: an agent key's agent is not there"));
        }
        Ok(loaded)
    }

    fn usage_step(&self, month: Month) -> Result<Step, Fault> {
        let keys = self.currencies.iter();
        let keys = keys.map(|(key, currency)| {
            [key.environment.into(), key.agent.as_str().into(), currency.as_str().into()]
        });
        let mut parameters = columns("itt", keys)?;
        parameters.push(super::super::tx::Value::from(month.to_string()).into());
        Ok(Step::Run(USAGE, parameters))
    }

    /// The metering asked for: where there is no row, everything is 0.
    fn usage(&self, found: Option<Ran>, month: Month) -> Result<BTreeMap<UsageKey, UsageRecord>, Fault> {
        let asked = self.currencies.iter().cloned();
        let mut usage: BTreeMap<_, _> = asked
            .map(|(agent, currency)| (UsageKey { agent, month, currency }, UsageRecord::default()))
            .collect();
        for mut row in rows(found) {
            let agent = read_agent(&mut row)?;
            let currency = Currency::parse(&row.text()?)?;
            usage.insert(UsageKey { agent, month, currency }, sql::usage::read(&mut row)?);
        }
        Ok(usage)
    }
}

fn rows(ran: Option<Ran>) -> impl Iterator<Item = Row> {
    ran.into_iter().flat_map(|ran| ran.rows)
}

fn read_agent(row: &mut Row) -> Result<AgentKey, Fault> {
    Ok(AgentKey { environment: row.integer()?, agent: AgentId::parse(&row.text()?)? })
}
