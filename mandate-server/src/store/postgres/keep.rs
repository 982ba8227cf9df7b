//! Writes what a batch made and changed. A few statements write whole sets of rows, and all are sent with COMMIT. A
//! decision that a script has made is written as that of a batch of one: there is no other way.
//!
//! Rows that always come together are written by one statement: a statement of its own costs as much as two rows.
//! Arrays become rows in the select list (`SELECT unnest(…), unnest(…)`): in FROM, PostgreSQL would first copy each
//! array into memory that it allocates and frees every time.
//!
//! COMMIT is sent before the counts of changed rows are known. So a condition that does not hold makes its
//! statement fail: metering that differs from what was read writes NULL into a column that forbids it.
//!
//! An agent's row holds its metering for one month and currency (`sql::metered`), the first that were used. Before
//! a new month takes their place, they go back to `usage`. Metering in another currency of the same month is
//! written to `usage`.

use std::collections::{BTreeMap, BTreeSet};

use super::super::decider::Made;
use super::super::sql::metered::Metered;
use super::super::tx::{Tally, Tx, Value};
use super::super::{AgentContext, Decider, DecisionAndReview, Loaded, sql};
use super::columns::columns;
use super::connection::Step;
use super::hot::{LockedRows, StoredMetering};
use super::session::PostgresSession;
use crate::error::Fault;
use crate::model::records::{AgentKey, EventRecord, UsageKey, UsageRecord};

/// Writes what every batch with decisions has: decisions, agents' rows, and the transaction's number. One statement
/// costs less than three, and none of the three parts reads what another writes.
const KEEP: &str = "/* keep.keep */
    WITH made AS (INSERT INTO decisions (environment, decision, sequence, decided_at, verdict, mandate, nonce,
        agent, amount, currency, recipient, category, mode, reason, denials, spent, recent_requests, supersedes,
        review, issuer, signing_key, signature, checksum)
    SELECT unnest($1::bigint[]), unnest($2::bytea[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::text[]),
        unnest($6::bytea[]), unnest($7::bytea[]), unnest($8::text[]), unnest($9::text[]), unnest($10::text[]),
        unnest($11::text[]), unnest($12::text[]), unnest($13::text[]), unnest($14::text[]), unnest($15::text[]),
        unnest($16::text[]), unnest($17::bigint[]), unnest($18::bytea[]), unnest($19::bytea[]),
        unnest($20::bigint[]), unnest($21::bigint[]), unnest($22::bytea[]), unnest($23::bigint[])),
    changed AS (UPDATE agents a
    SET recent = k.recent, sequence = k.sequence, last_decision = k.last_decision,
        metered = CASE WHEN a.metered = k.was THEN k.metered END
    FROM (SELECT unnest($24::bigint[]) AS environment, unnest($25::text[]) AS agent, unnest($26::bytea[]) AS recent,
        unnest($27::bigint[]) AS sequence, unnest($28::bytea[]) AS last_decision, unnest($29::text[]) AS metered,
        unnest($30::text[]) AS was) AS k
    WHERE a.environment = k.environment AND a.agent = k.agent)
    INSERT INTO commits (commit, asked) VALUES ($31, 0)";
/// The same with reviews and events.
const KEEP_WITH_EVENTS: &str = "/* keep.keep_with_events */
    WITH made AS (INSERT INTO decisions (environment, decision, sequence, decided_at, verdict, mandate,
        nonce, agent, amount, currency, recipient, category, mode, reason, denials, spent, recent_requests,
        supersedes, review, issuer, signing_key, signature, checksum)
    SELECT unnest($1::bigint[]), unnest($2::bytea[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::text[]),
        unnest($6::bytea[]), unnest($7::bytea[]), unnest($8::text[]), unnest($9::text[]), unnest($10::text[]),
        unnest($11::text[]), unnest($12::text[]), unnest($13::text[]), unnest($14::text[]), unnest($15::text[]),
        unnest($16::text[]), unnest($17::bigint[]), unnest($18::bytea[]), unnest($19::bytea[]),
        unnest($20::bigint[]), unnest($21::bigint[]), unnest($22::bytea[]), unnest($23::bigint[])),
    changed AS (UPDATE agents a
    SET recent = k.recent, sequence = k.sequence, last_decision = k.last_decision,
        metered = CASE WHEN a.metered = k.was THEN k.metered END
    FROM (SELECT unnest($24::bigint[]) AS environment, unnest($25::text[]) AS agent, unnest($26::bytea[]) AS recent,
        unnest($27::bigint[]) AS sequence, unnest($28::bytea[]) AS last_decision, unnest($29::text[]) AS metered,
        unnest($30::text[]) AS was) AS k
    WHERE a.environment = k.environment AND a.agent = k.agent),
    reviewed AS (INSERT INTO reviews (environment, review, decision, status, waits_for, expires_at, checksum)
    SELECT unnest($32::bigint[]), unnest($33::bytea[]), unnest($34::bytea[]), unnest($35::text[]),
        unnest($36::text[]), unnest($37::bigint[]), unnest($38::bigint[])),
    announced AS (INSERT INTO events (environment, event, type, created_at, data, checksum)
    SELECT unnest($39::bigint[]), unnest($40::bytea[]), unnest($41::text[]), unnest($42::bigint[]),
        unnest($43::text[]), unnest($44::bigint[]))
    INSERT INTO commits (commit, asked) VALUES ($31, 0)";
/// Makes the deliveries of events, and puts the subscribed webhooks into the due queue. It locks these webhooks
/// itself, in the order in which every transaction locks webhooks, and queues no other. A webhook that is deleted
/// while the statement waits is left out, and so is one that subscribes meanwhile. A webhook's place in the due
/// queue is read when it is locked. The rest of the statement sees the state at its begin.
const FAN_OUT: &str = "/* keep.fan_out */
    WITH held AS MATERIALIZED (SELECT environment, webhook, due_at FROM webhooks
        WHERE (environment, webhook) IN
            (SELECT s.environment, s.webhook
            FROM (SELECT unnest($1::bigint[]) AS environment, unnest($3::text[]) AS type) AS e
            JOIN subscriptions s ON s.environment = e.environment AND s.type = e.type)
        ORDER BY environment, webhook FOR NO KEY UPDATE),
    queued AS (UPDATE webhooks w SET due_at = q.at
        FROM (SELECT h.environment, h.webhook, min(e.at) AS at
            FROM (SELECT unnest($1::bigint[]) AS environment, unnest($3::text[]) AS type, unnest($4::bigint[]) AS at) AS e
            JOIN subscriptions s ON s.environment = e.environment AND s.type = e.type
            JOIN held h ON h.environment = s.environment AND h.webhook = s.webhook
            GROUP BY h.environment, h.webhook, h.due_at
            HAVING h.due_at IS NULL OR h.due_at > min(e.at)) q
        WHERE w.environment = q.environment AND w.webhook = q.webhook)
    INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    SELECT h.environment, e.event, h.webhook, 'pending', e.at, 0
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::bytea[]) AS event, unnest($3::text[]) AS type,
            unnest($4::bigint[]) AS at) AS e
    JOIN subscriptions s ON s.environment = e.environment AND s.type = e.type
    JOIN held h ON h.environment = s.environment AND h.webhook = s.webhook";

const NEW_USAGE: &str = "/* keep.new_usage */
    INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review,
        deny_no_mandate, deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    SELECT unnest($1::bigint[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[]),
        unnest($5::text[]), unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]),
        unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]), unnest($12::bigint[]),
        unnest($13::bigint[]), unnest($14::bigint[])";
const USAGE: &str = "/* keep.usage */ UPDATE usage u SET
        spent = CASE WHEN u.spent = k.was AND u.requests = k.were THEN k.spent END,
        requests = k.requests, allow = k.allow, review = k.review, deny_no_mandate = k.deny_no_mandate,
        deny_revoked = k.deny_revoked, deny_expired = k.deny_expired, deny_limit = k.deny_limit,
        deny_category = k.deny_category, deny_velocity = k.deny_velocity
    FROM (SELECT unnest($1::bigint[]) AS environment, unnest($2::text[]) AS month,
            unnest($3::text[]) AS agent, unnest($4::text[]) AS currency, unnest($5::text[]) AS spent,
            unnest($6::bigint[]) AS requests, unnest($7::bigint[]) AS allow, unnest($8::bigint[]) AS review,
            unnest($9::bigint[]) AS deny_no_mandate, unnest($10::bigint[]) AS deny_revoked,
            unnest($11::bigint[]) AS deny_expired, unnest($12::bigint[]) AS deny_limit,
            unnest($13::bigint[]) AS deny_category, unnest($14::bigint[]) AS deny_velocity,
            unnest($15::text[]) AS was, unnest($16::bigint[]) AS were) AS k
    WHERE u.environment = k.environment AND u.month = k.month AND u.agent = k.agent AND u.currency = k.currency";
/// Metering from an agent's row is newer than any that is stored here.
const PUT_BACK: &str = "/* keep.put_back */
    INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review,
        deny_no_mandate, deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    SELECT unnest($1::bigint[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[]),
        unnest($5::text[]), unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]),
        unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]), unnest($12::bigint[]),
        unnest($13::bigint[]), unnest($14::bigint[])
    ON CONFLICT (environment, month, agent, currency) DO UPDATE SET
        spent = excluded.spent, requests = excluded.requests, allow = excluded.allow, review = excluded.review,
        deny_no_mandate = excluded.deny_no_mandate, deny_revoked = excluded.deny_revoked,
        deny_expired = excluded.deny_expired, deny_limit = excluded.deny_limit,
        deny_category = excluded.deny_category, deny_velocity = excluded.deny_velocity";
const KEPT: &str =
    "/* keep.kept */
    INSERT INTO idempotency (environment, api_key, name, fingerprint, status, body, sealed, created_at, checksum)
    SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::text[]), unnest($4::bytea[]),
        unnest($5::bigint[]), unnest($6::bytea[]), unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[])
    ON CONFLICT (environment, api_key, name) DO UPDATE SET kept = DEFAULT, fingerprint = excluded.fingerprint,
        status = excluded.status, body = excluded.body, sealed = excluded.sealed, created_at = excluded.created_at,
        checksum = excluded.checksum";

/// What is to be appended to the public logs, a row for each kind.
const LOG: &str = "/* keep.log */
    INSERT INTO log_pending (kind, at, entries) SELECT unnest($1::text[]), unnest($2::bigint[]), unnest($3::bytea[])";

/// Draws the ids of the batch's events again, unless they are greater than those that are stored. Another server may have
/// drawn those by a clock that was set back since, and what follows the list of events is to see these.
pub(super) fn draw_events(
    session: &mut PostgresSession<'_>,
    decider: &dyn Decider,
    events: &mut [EventRecord],
) -> Result<(), Fault> {
    if events.is_empty() {
        return Ok(());
    }
    let environments: BTreeSet<i64> = events.iter().map(|event| event.environment).collect();
    let environments = columns("i", environments.into_iter().map(|number| [number.into()]))?;
    let ran = session.send(vec![Step::Run(sql::events::NEWEST_OF_EACH, environments)])?;
    let mut newest = None;
    for mut row in ran.into_iter().flat_map(|ran| ran.rows) {
        newest = newest.max(row.maybe_bytes()?);
    }
    if events.iter().any(|event| Some(event.id.to_bytes()) <= newest) {
        for event in events {
            event.id = decider.event(newest, event);
        }
    }
    Ok(())
}

/// Has the statements of a script that decides planned when they are run, for one row and for the present size of the tables.
/// A batch worker keeps its plans (`hot`), but a person's approvals are too few for that.
const PLAN_EACH: &str = "SET LOCAL plan_cache_mode = force_custom_plan";

/// Sends a decision that a script has made on `context` along with the next statement, or with COMMIT. The script has
/// locked the agent, and has thereby put the metering of the agent's row back (`sql::metered`): this metering takes its place.
pub(super) fn keep_one(
    session: &mut PostgresSession<'_>,
    decided: DecisionAndReview,
    context: AgentContext<'_>,
) -> Result<Tally, Fault> {
    let mark = sql::clock::mark(&mut Tx::new(session))?;
    let (mut loaded, mut locked) = (Loaded { mark: Some(mark), ..Loaded::default() }, LockedRows::default());
    let decision = &decided.decision;
    let key = UsageKey::of(decision.environment, &decision.request, decision.decided_at);
    locked.agents.insert(key.agent.clone(), StoredMetering { text: String::new(), metered: None });
    loaded.agents.insert(key.agent.clone(), context.state.clone());
    loaded.usage.insert(key, context.usage.clone());
    loaded.count(decision, decision.decided_at)?;
    loaded.made.add(decided);
    session.later(Step::plain(PLAN_EACH));
    keep(session, &mut loaded, &locked)
}

/// Sends what the batch made and changed along with COMMIT. Returns what is reported after the commit.
pub(super) fn keep(
    session: &mut PostgresSession<'_>,
    loaded: &mut Loaded,
    locked: &LockedRows,
) -> Result<Tally, Fault> {
    let entries: Vec<[Value; 3]> = loaded
        .made
        .entries
        .take()
        .map(|(kind, at, entries)| [kind.as_str().into(), at.millis().into(), entries.into()])
        .collect();
    if !entries.is_empty() {
        session.write_later(LOG, columns("tib", entries.into_iter())?);
    }
    let made = &loaded.made;
    let mut tally = Tally::default();
    let Metering { agents, back, fresh, stored } = meter(loaded, locked)?;
    let has_events = !made.reviews.is_empty() || !made.events.is_empty();
    if has_events || !made.decisions.is_empty() || !agents.is_empty() {
        let mut parameters =
            columns("ibiitbbtttttttttibbiibi", made.decisions.iter().map(sql::decisions::values))?;
        parameters.extend(columns("itbibtt", agents.into_iter())?);
        parameters.push(Value::from(session.leave()).into());
        if has_events {
            let reviews = made.reviews.iter();
            let reviews = reviews.map(|(environment, review)| sql::reviews::values(*environment, review));
            parameters.extend(columns("ibbttii", reviews)?);
            parameters.extend(columns("ibtiti", made.events.iter().map(sql::events::values))?);
        }
        session.write_later(if has_events { KEEP_WITH_EVENTS } else { KEEP }, parameters);
        tally.decided.extend(made.decisions.iter().map(|decision| (decision.verdict, decision.mode)));
    }
    // After the agents' rows: `usage` takes nothing that is in one.
    for (sql, kinds, rows) in [
        (PUT_BACK, "ittttiiiiiiiii", back),
        (NEW_USAGE, "ittttiiiiiiiii", fresh),
        (USAGE, "ittttiiiiiiiiiti", stored),
    ] {
        if !rows.is_empty() {
            session.write_later(sql, columns(kinds, rows.into_iter())?);
        }
    }
    let kept =
        made.kept.iter().map(|key| Ok(sql::idempotency::values(key, loaded.kept.get(key).ok_or_else(lost)?)));
    let kept: Vec<Vec<Value>> = kept.collect::<Result<_, Fault>>()?;
    if !kept.is_empty() {
        session.write_later(KEPT, columns("iitbibiii", kept.into_iter())?);
    }
    tally.announced = deliver(session, made, &locked.subscribed)?;
    // The mark is the last lock that a transaction takes: many wait for it, and none for long.
    let newest = made.decisions.iter().map(|decision| decision.decided_at).max();
    if let Some((mark, newest)) = loaded.mark.zip(newest)
        && let Some(to) = sql::clock::raised(mark, newest)
    {
        let row = [to, newest].into_iter().map(|at| Value::from(at.millis()).into());
        session.write_later(sql::clock::RAISE_PAST, row.collect());
    }
    Ok(tally)
}

fn lost() -> Fault {
    Fault::new("a batch noted a change to a row that it did not load")
}

/// The changed metering, as rows of `agents` and of `usage`.
struct Metering {
    agents: Vec<[Value; 7]>,
    /// Metering from agents' rows that has to go back to `usage`.
    back: Vec<Vec<Value>>,
    /// New rows of `usage`.
    fresh: Vec<Vec<Value>>,
    /// Changed rows of `usage`.
    stored: Vec<Vec<Value>>,
}

fn meter(loaded: &Loaded, locked: &LockedRows) -> Result<Metering, Fault> {
    let made = &loaded.made;
    let mut metered: BTreeMap<&AgentKey, String> = BTreeMap::new();
    let (mut back, mut fresh, mut stored) = (Vec::new(), Vec::new(), Vec::new());
    let mut placed = BTreeSet::new();
    for key in &made.usage {
        let usage: &UsageRecord = loaded.usage.get(key).ok_or_else(lost)?;
        let before = locked.agents.get(&key.agent).ok_or_else(lost)?.metered.as_ref();
        let is_in_row = before.is_some_and(|before| before.is_of(key.month, &key.currency));
        let has_room = before.is_none_or(|before| before.month < key.month) && placed.insert(&key.agent);
        if is_in_row || has_room {
            let newest = Metered { month: key.month, currency: key.currency.clone(), usage: usage.clone() };
            metered.insert(&key.agent, newest.to_string());
        }
        if has_room && let Some(before) = before {
            back.push(sql::usage::values(&before.key(&key.agent), &before.usage));
        }
        if is_in_row || (has_room && usage.stored.is_some()) {
            continue;
        }
        // Metering in an agent's row needs a row here too: lists read this table to find it.
        let mut row = sql::usage::values(key, usage);
        match usage.stored {
            None => fresh.push(row),
            Some((spent, requests)) => {
                row.extend([spent.to_string().into(), requests.into()]);
                stored.push(row);
            }
        }
    }
    let agents = made.agents.iter().map(|key| {
        let state = loaded.agents.get(key).ok_or_else(lost)?;
        let last = state.last.map_or_else(Vec::new, |id| id.to_bytes().to_vec());
        let was = &locked.agents.get(key).ok_or_else(lost)?.text;
        let newest = metered.remove(key).unwrap_or_else(|| was.clone());
        let (environment, agent) = (key.environment.into(), key.agent.as_str().into());
        let recent = state.recent.to_bytes().into();
        Ok([
            environment,
            agent,
            recent,
            state.sequence.into(),
            last.into(),
            newest.into(),
            was.as_str().into(),
        ])
    });
    let agents: Vec<[Value; 7]> = agents.collect::<Result<_, Fault>>()?;
    if metered.is_empty() { Ok(Metering { agents, back, fresh, stored }) } else { Err(lost()) }
}

/// Makes the deliveries of the events. Returns false if no event is in an environment with subscriptions. A webhook
/// that subscribed after these environments were read misses the events of this batch: its subscription was not yet
/// answered when the authorizations came.
fn deliver(
    session: &mut PostgresSession<'_>,
    made: &Made,
    subscribed: &BTreeSet<i64>,
) -> Result<bool, Fault> {
    let events = || made.events.iter().filter(|event| subscribed.contains(&event.environment));
    if events().next().is_none() {
        return Ok(false);
    }
    let events = events().map(|event| -> [Value; 4] {
        let kind = event.kind.as_str().into();
        [event.environment.into(), event.id.to_bytes().into(), kind, event.at.millis().into()]
    });
    session.later_counted(Step::Run(FAN_OUT, columns("ibti", events)?));
    Ok(true)
}
