//! Loads what a batch of authorizations needs, in one round trip, and has the batch decided and written.
//!
//! The agents' rows are locked first, in the order of their keys, until the transaction ends. Rows that another
//! transaction holds are left out: their requests wait in a transaction of their own. Every transaction that decides for
//! an agent, or changes what its decisions depend on, locks the agent's row. An API key of an agent is used for that
//! agent alone, so the row guards the idempotency keys too. Everything that changes with a decision is in these rows. The
//! statement that locks a row also reads it, and so reads its newest version. Other tables are read by statements that
//! begin after the rows are locked. The terms of mandates are cached, since they never change. Which mandate governs, and
//! whether it is revoked, is read each time.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use mandate_core::{AgentId, Currency, DecisionId, Mandate, MandateId, Month, RecentRequests, Timestamp};

use super::super::sql::metered::Metered;
use super::super::tx::{Row, Tally, Value};
use super::super::{Authorization, Decider, Loaded, sql};
use super::columns::columns;
use super::connection::{StatementResult, Step};
use super::keep;
use super::session::PostgresSession;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::model::records::{AgentKey, AgentState, KeptKey, Mode, UsageKey, UsageRecord};

/// Every row that a batch reads or changes is found by its key. A plan may be made while a table is empty or not yet
/// analyzed, and must use the index all the same. Plans are not made again for each batch. A table of one row has no
/// index: its plan looks so dear then that PostgreSQL would compile it, for half a second, each time that it is run.
const PLAN: &str = "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; \
     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off";
const TAKE: &str = "/* postgres_hot.take */
    SELECT a.environment, a.agent, a.recent, a.metered, a.governing, a.revoked_at, a.sequence, a.last_decision
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::text[]) AS agent) AS k
    JOIN agents a ON a.environment = k.environment AND a.agent = k.agent
    ORDER BY a.environment, a.agent FOR NO KEY UPDATE OF a SKIP LOCKED";
/// The same, behind all others that wait for these rows.
const TAKE_IN_TURN: &str = "/* postgres_hot.take_in_turn */
    SELECT a.environment, a.agent, a.recent, a.metered, a.governing, a.revoked_at, a.sequence, a.last_decision
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::text[]) AS agent) AS k
    JOIN agents a ON a.environment = k.environment AND a.agent = k.agent
    ORDER BY a.environment, a.agent FOR NO KEY UPDATE OF a";
/// Which of the rows that were not locked are there.
const THERE: &str = "/* postgres_hot.there */ SELECT a.environment, a.agent
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::text[]) AS agent) AS k
    JOIN agents a ON a.environment = k.environment AND a.agent = k.agent";
/// The limits for what follows a wait for a row.
const USUALLY: &str = "SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = '5s'";
/// Makes the connection's plans again, for the present size of the tables.
const PLAN_AGAIN: &str = "DISCARD PLANS";
/// How long plans are used. Making them takes a few milliseconds.
const PLANNED: Duration = Duration::from_secs(1);
// OFFSET forces one index lookup for each key.
const MANDATES: &str = "/* postgres_hot.mandates */ SELECT k.environment, m.*
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::bytea[]) AS mandate) AS k
    CROSS JOIN LATERAL (SELECT mandate, agent, terms, created_at, NULL::bigint, NULL::bytea,
            governs_from, NULL::bigint, NULL::bigint
        FROM mandates WHERE environment = k.environment AND mandate = k.mandate OFFSET 0) m";
const USAGE: &str = "/* postgres_hot.usage */ SELECT k.environment, k.agent, k.currency, u.*
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::text[]) AS agent, unnest($3::text[]) AS currency) AS k
    CROSS JOIN LATERAL (SELECT spent, requests, allow, review, deny_no_mandate, deny_revoked, deny_expired, deny_limit,
            deny_category, deny_velocity
        FROM usage WHERE environment = k.environment AND month = $4 AND agent = k.agent AND currency = k.currency
        OFFSET 0) u";
/// Each environment's mode, the database's time, the clock's mark, whether the environment has subscriptions, and the first id
/// after all closed months (`sql::retention::behind`). The statement that locks the rows comes first, so this time is after the
/// wait for the locks.
const MODES: &str = "/* postgres_hot.modes */
    SELECT e.environment, e.mode, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        (SELECT mark FROM clock), (SELECT 1 FROM subscriptions s WHERE s.environment = e.environment LIMIT 1),
        (SELECT c.behind FROM closings c WHERE c.step <> 'writing' ORDER BY c.month DESC LIMIT 1)
    FROM environments e WHERE e.environment = ANY ($1::bigint[])";
const KEPT: &str =
    "/* postgres_hot.kept */
    SELECT i.environment, i.api_key, i.name, i.fingerprint, i.status, i.body, i.sealed, i.created_at,
        i.checksum
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::bigint[]) AS api_key, unnest($3::text[]) AS name) AS k
    JOIN idempotency i ON i.environment = k.environment AND i.api_key = k.api_key AND i.name = k.name";

/// How many mandates a batch worker remembers. One takes about half a kilobyte.
const MAX_MANDATES: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// What a batch does about agents' rows that other transactions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    /// It leaves them out, and waits so long for each other lock. It makes no event that would meet one that is known.
    Skip(Duration),
    /// The same, but that it waits for the known lock: what is in it waits for that anyway.
    Meet(Duration),
    /// It waits for them in the database's queue until its time is over. Such a batch is of one agent: nothing else is
    /// locked meanwhile.
    InTurn,
}

/// The answers of a batch in its order, and what it has counted. None where the agent's row is held.
pub(super) type Decided = (Vec<Option<Result<Answer, Fault>>>, Tally);

/// What a batch worker keeps from one batch to the next.
pub(super) struct Known {
    /// The mandates that were used lately, each as it was written.
    mandates: LruCache<(i64, MandateId), Arc<Mandate>>,
    /// When plans were last made again.
    planned: Option<Instant>,
    /// The environments of the last batch that has made events for their webhooks.
    pub(super) announced: BTreeSet<i64>,
}

/// The metering in an agent's row: its text as it was read, and the parsed value.
pub(super) struct StoredMetering {
    pub(super) text: String,
    pub(super) metered: Option<Metered>,
}

/// The locked rows, and what was read with them.
#[derive(Default)]
pub(super) struct LockedRows {
    pub(super) agents: BTreeMap<AgentKey, StoredMetering>,
    /// The environments with subscriptions of webhooks.
    pub(super) subscribed: BTreeSet<i64>,
    /// The database's time, read after the rows were locked.
    shown: Option<Timestamp>,
    /// The first id after all closed months.
    behind: Option<DecisionId>,
}

/// An agent's row.
struct LockedAgent {
    recent: RecentRequests,
    governing: Option<MandateId>,
    revoked_at: Option<Timestamp>,
    sequence: i64,
    last: Option<DecisionId>,
}

impl Default for Known {
    fn default() -> Self {
        Self { mandates: LruCache::sparse(MAX_MANDATES), planned: None, announced: BTreeSet::new() }
    }
}

/// Decides on a batch inside an open transaction. What the batch made is sent with COMMIT. After `until` no row is waited
/// for. Agents for which it makes events of the environments in `met` are left out as if their rows were held.
pub(super) fn run(
    session: &mut PostgresSession<'_>,
    decider: &dyn Decider,
    known: &mut Known,
    batch: &[Authorization],
    met: &BTreeSet<i64>,
    (take, until): (Take, Instant),
) -> Result<Decided, Fault> {
    known.announced.clear();
    let mut asked = BatchKeys::of(batch)?;
    let mut loaded = Loaded::default();
    if known.planned.is_none_or(|at| at.elapsed() >= PLANNED) {
        session.later(Step::plain(PLAN_AGAIN));
        known.planned = Some(Instant::now());
    }
    let waiting = limit_waits(session, take, until);
    let (locked, mut taken) = asked.take(session, (take, waiting), &mut loaded)?;
    // A kept answer is sent again only when COMMIT has waited for the standby, as at first.
    session.wrote |= !loaded.kept.is_empty();
    loop {
        let free = asked.narrow(batch, &taken);
        if !free.contains(&true) {
            return Ok((batch.iter().map(|_| None).collect(), Tally::default()));
        }
        let shown =
            locked.shown.ok_or_else(|| Fault::corrupt("database: an agent's environment is not there"))?;
        let now = decider.database(shown);
        decider.leave_closed(locked.behind);
        let kept = if met.is_empty() { BTreeMap::new() } else { loaded.kept.clone() };
        // The first call reads what is missing, and the second finds it.
        while !asked.look_up(session, known, &locked, &taken, now.month(), &mut loaded)? {}
        let free_ones: Vec<&Authorization> = batch
            .iter()
            .zip(&free)
            .filter_map(|(authorization, free)| free.then_some(authorization))
            .collect();
        let answers = decider.decide(&free_ones, now, &mut loaded);
        let announcing = loaded.made.announcing(met);
        if !announcing.is_empty() {
            taken.retain(|agent, _| !announcing.contains(agent));
            loaded = Loaded { modes: loaded.modes, mark: loaded.mark, kept, ..Loaded::default() };
            continue;
        }
        known.announced = loaded.made.events.iter().map(|event| event.environment).collect();
        keep::draw_events(session, decider, &mut loaded.made.events)?;
        let tally = keep::keep(session, &mut loaded, &locked)?;
        let mut answers = answers.into_iter();
        let unanswered = || Err(Fault::new("a batch was decided without an answer"));
        let answers = free.into_iter().map(|free| free.then(|| answers.next().unwrap_or_else(unanswered)));
        return Ok((answers.collect(), tally));
    }
}

/// Limits the waits for locks. Returns how long the rows are waited for.
fn limit_waits(session: &mut PostgresSession<'_>, take: Take, until: Instant) -> Duration {
    match take {
        Take::Skip(limit) | Take::Meet(limit) => {
            let millis = limit.as_millis().max(1);
            session.later(Step::Plain(format!("SET LOCAL lock_timeout = {millis}").into()));
            Duration::ZERO
        }
        Take::InTurn => {
            let waiting = until.saturating_duration_since(Instant::now());
            // No limit is written as 0.
            let millis = waiting.as_millis().max(1);
            let limits = format!("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = {millis}");
            session.later(Step::Plain(limits.into()));
            waiting
        }
    }
}

/// The keys of what a batch reads.
#[derive(Debug, Default)]
struct BatchKeys {
    /// The agents of all callers. Their rows are locked.
    agents: BTreeSet<AgentKey>,
    /// The agents and the currencies of the requests.
    currencies: BTreeSet<(AgentKey, Currency)>,
    kept: BTreeSet<KeptKey>,
}

impl BatchKeys {
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

    /// Locks and reads the agents' rows, and reads the modes and the kept answers.
    fn take(
        &self,
        session: &mut PostgresSession<'_>,
        (take, waiting): (Take, Duration),
        loaded: &mut Loaded,
    ) -> Result<(LockedRows, BTreeMap<AgentKey, LockedAgent>), Fault> {
        let agents = self.agents.iter().map(|key| [key.environment.into(), key.agent.as_str().into()]);
        let environments: BTreeSet<i64> = self.agents.iter().map(|key| key.environment).collect();
        session.later(Step::plain(PLAN));
        let lock = if take == Take::InTurn { TAKE_IN_TURN } else { TAKE };
        let mut steps = vec![
            Step::Run(lock, columns("it", agents)?),
            Step::Run(MODES, columns("i", environments.into_iter().map(|number| [number.into()]))?),
        ];
        if !self.kept.is_empty() {
            let keys = self.kept.iter();
            let keys = keys.map(|key| [key.environment.into(), key.api_key.into(), key.name.as_str().into()]);
            steps.push(Step::Run(KEPT, columns("iit", keys)?));
        }
        let mut ran = session.send_locking(waiting, steps)?.into_iter();
        if take == Take::InTurn {
            session.later(Step::plain(USUALLY));
        }
        let (mut locked, mut taken) = (LockedRows::default(), BTreeMap::new());
        for mut row in rows(ran.next()) {
            let agent = read_agent(&mut row)?;
            let recent = RecentRequests::from_bytes(&row.blob()?)?;
            let text = row.text()?;
            let governing = row.maybe_bytes()?.map(MandateId::from_bytes);
            let revoked_at = row.maybe_integer()?.map(Timestamp::from_millis);
            let (sequence, last) = sql::agents::read_last(&mut row)?;
            locked.agents.insert(agent.clone(), StoredMetering { metered: Metered::read(&text)?, text });
            taken.insert(agent, LockedAgent { recent, governing, revoked_at, sequence, last });
        }
        for mut row in rows(ran.next()) {
            let environment = row.integer()?;
            loaded.modes.insert(environment, Mode::parse(&row.text()?)?);
            locked.shown = locked.shown.max(Some(Timestamp::from_millis(row.integer()?)));
            loaded.mark = Some(Timestamp::from_millis(row.integer()?));
            locked.subscribed.extend(row.maybe_integer()?.map(|_| environment));
            locked.behind = row.maybe_bytes()?.map(DecisionId::from_bytes);
        }
        for mut row in rows(ran.next()) {
            let (environment, api_key, name) = (row.integer()?, row.integer()?, row.text()?);
            let place = [environment.into(), api_key.into(), name.as_str().into()];
            let kept = sql::idempotency::read(&mut row, &place)?;
            loaded.kept.insert(KeptKey { environment, api_key, name }, kept);
        }
        self.must_be_there(session, &taken)?;
        Ok((locked, taken))
    }

    /// Refuses agents whose rows are absent. The others that were not taken are held.
    fn must_be_there(
        &self,
        session: &mut PostgresSession<'_>,
        taken: &BTreeMap<AgentKey, LockedAgent>,
    ) -> Result<(), Fault> {
        let left: Vec<_> = self.agents.iter().filter(|agent| !taken.contains_key(*agent)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let agents = left.iter().map(|key| [key.environment.into(), key.agent.as_str().into()]);
        let ran = session.send(vec![Step::Run(THERE, columns("it", agents)?)])?;
        if rows(ran.into_iter().next()).count() < left.len() {
            return Err(Fault::corrupt("database: an agent key's agent is not there"));
        }
        Ok(())
    }

    /// Forgets the agents that were not taken. Returns for each request whether its agent was.
    fn narrow(&mut self, batch: &[Authorization], taken: &BTreeMap<AgentKey, LockedAgent>) -> Vec<bool> {
        if taken.len() == self.agents.len() {
            return vec![true; batch.len()];
        }
        self.currencies.retain(|(agent, _)| taken.contains_key(agent));
        let is_free = |authorization: &Authorization| {
            let caller = &authorization.call.caller;
            let agent = caller.agent.clone();
            agent.is_some_and(|agent| {
                taken.contains_key(&AgentKey { environment: caller.environment.id, agent })
            })
        };
        batch.iter().map(is_free).collect()
    }

    /// Fills in the agents' states and their metering of this month. Returns false if it had to read something:
    /// then call it again.
    fn look_up(
        &self,
        session: &mut PostgresSession<'_>,
        known: &mut Known,
        locked: &LockedRows,
        taken: &BTreeMap<AgentKey, LockedAgent>,
        month: Month,
        loaded: &mut Loaded,
    ) -> Result<bool, Fault> {
        let mut missing: BTreeSet<(i64, MandateId)> = BTreeSet::new();
        for (agent, LockedAgent { recent, governing, revoked_at, sequence, last }) in taken {
            let mandate = match governing.map(|id| (agent.environment, id)) {
                None => None,
                Some(place) => match known.mandates.get(&place) {
                    Some(written) if revoked_at.is_none() => Some(Arc::clone(written)),
                    Some(written) => {
                        Some(Arc::new(Mandate { revoked_at: *revoked_at, ..Mandate::clone(written) }))
                    }
                    None => {
                        missing.insert(place);
                        None
                    }
                },
            };
            loaded.agents.insert(
                agent.clone(),
                AgentState { mandate, recent: recent.clone(), sequence: *sequence, last: *last },
            );
        }
        let mut unmetered = Vec::new();
        for (agent, currency) in &self.currencies {
            let usage = UsageKey { agent: agent.clone(), month, currency: currency.clone() };
            let stored = locked.agents.get(agent).and_then(|stored| stored.metered.as_ref());
            if let Some(metered) = stored.filter(|metered| metered.is_of(month, currency)) {
                loaded.usage.insert(usage, metered.usage.clone());
            } else if !loaded.usage.contains_key(&usage) {
                unmetered.push(usage);
            }
        }
        if missing.is_empty() && unmetered.is_empty() {
            return Ok(true);
        }
        let usage = unmetered.iter().map(|key| {
            let UsageKey { agent, currency, .. } = key;
            [agent.environment.into(), agent.agent.as_str().into(), currency.as_str().into()]
        });
        let mut usage = columns("itt", usage)?;
        usage.push(Value::from(month.to_string()).into());
        let mandates = missing.iter().map(|(environment, id)| [(*environment).into(), id.to_bytes().into()]);
        let steps = vec![Step::Run(USAGE, usage), Step::Run(MANDATES, columns("ib", mandates)?)];
        let mut ran = session.send(steps)?.into_iter();
        // A missing row counts as 0.
        loaded.usage.extend(unmetered.into_iter().map(|key| (key, UsageRecord::default())));
        for mut row in rows(ran.next()) {
            let agent = read_agent(&mut row)?;
            let currency = Currency::parse(&row.text()?)?;
            loaded.usage.insert(UsageKey { agent, month, currency }, sql::usage::read(&mut row)?);
        }
        for mut row in rows(ran.next()) {
            let environment = row.integer()?;
            let mandate = sql::mandates::read_joined(&mut row)?;
            let mandate = mandate.ok_or_else(|| Fault::corrupt("database: a mandate without an id"))?;
            missing.remove(&(environment, mandate.id));
            known.mandates.put((environment, mandate.id), Arc::new(mandate));
        }
        if missing.is_empty() {
            Ok(false)
        } else {
            Err(Fault::corrupt("database: a mandate that governs is not there"))
        }
    }
}

fn rows(ran: Option<StatementResult>) -> impl Iterator<Item = Row> {
    ran.into_iter().flat_map(|ran| ran.rows)
}

fn read_agent(row: &mut Row) -> Result<AgentKey, Fault> {
    Ok(AgentKey { environment: row.integer()?, agent: AgentId::parse(&row.text()?)? })
}
