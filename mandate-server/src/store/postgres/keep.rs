//! What a batch made and changed, written set-wise: a statement a table, all of them on their way with COMMIT.
//!
//! Nobody looks at how many rows these changed before COMMIT is sent. So what must hold fails by itself where it does not:
//! metering that is not what was read gives a null where none may be.
//!
//! The metering stands in the agent's row (`sql::metered`), for the month and currency that were there first. That of another
//! month has to go back to `usage` before; that of another currency in the same month is written there.

use std::collections::{BTreeMap, BTreeSet};

use super::super::records::{AgentKey, EventRecord, UsageRecord};
use super::super::sql::metered::Metered;
use super::super::tx::{Tally, Value};
use super::super::{Loaded, sql};
use super::columns::columns;
use super::ground::Ground;
use super::hot::Holding;
use super::link::Step;
use crate::error::Fault;

const DECISIONS: &str = "INSERT INTO decisions (environment, decision, iat, verdict, mandate, nonce, agent, amount,
        currency, recipient, category, mode, reason, denials, spent, recent_requests, supersedes, review, issuer,
        signing_key, signature)
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
        $16::bigint[], $17::bytea[], $18::bytea[], $19::bigint[], $20::bigint[], $21::bytea[])";
const REVIEWS: &str = "INSERT INTO reviews (environment, review, decision, status, waits_for, expires_at)
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::bigint[])";
const EVENTS: &str = "INSERT INTO events (environment, event, type, created_at, data)
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::bigint[], $5::text[])";

/// The webhooks that hear of events, in the one order in which they are taken.
const HOLD_SUBSCRIBED: &str = "SELECT 1 FROM webhooks WHERE (environment, webhook) IN
        (SELECT s.environment, s.webhook FROM unnest($1::bigint[], $2::text[]) AS e (environment, type)
        JOIN subscriptions s ON s.environment = e.environment AND s.type = e.type)
    ORDER BY environment, webhook FOR NO KEY UPDATE";
const FAN_OUT: &str = "INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    SELECT s.environment, e.event, s.webhook, 'pending', e.at, 0
    FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::bigint[]) AS e (environment, event, type, at)
    JOIN subscriptions s ON s.environment = e.environment AND s.type = e.type";
const QUEUE: &str = "UPDATE webhooks w SET due_at = q.at
    FROM (SELECT s.environment, s.webhook, min(e.at) AS at
        FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS e (environment, type, at)
        JOIN subscriptions s ON s.environment = e.environment AND s.type = e.type
        GROUP BY s.environment, s.webhook) q
    WHERE w.environment = q.environment AND w.webhook = q.webhook AND (w.due_at IS NULL OR w.due_at > q.at)";

const AGENTS: &str =
    "UPDATE agents a SET recent = k.recent, metered = CASE WHEN a.metered = k.was THEN k.metered END
    FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::text[], $5::text[])
        AS k (environment, agent, recent, metered, was)
    WHERE a.environment = k.environment AND a.agent = k.agent";
const NEW_USAGE: &str = "INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review,
        deny_no_mandate, deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])";
const USAGE: &str = "UPDATE usage u SET
        spent = CASE WHEN u.spent = k.was AND u.requests = k.were THEN k.spent END,
        requests = k.requests, allow = k.allow, review = k.review, deny_no_mandate = k.deny_no_mandate,
        deny_revoked = k.deny_revoked, deny_expired = k.deny_expired, deny_limit = k.deny_limit,
        deny_category = k.deny_category, deny_velocity = k.deny_velocity
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
        $15::text[], $16::bigint[])
        AS k (environment, month, agent, currency, spent, requests, allow, review, deny_no_mandate, deny_revoked,
            deny_expired, deny_limit, deny_category, deny_velocity, was, were)
    WHERE u.environment = k.environment AND u.month = k.month AND u.agent = k.agent AND u.currency = k.currency";
/// What stood in agents' rows is newer, whatever is there.
const PUT_BACK: &str = "INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review,
        deny_no_mandate, deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
    ON CONFLICT (environment, month, agent, currency) DO UPDATE SET
        spent = excluded.spent, requests = excluded.requests, allow = excluded.allow, review = excluded.review,
        deny_no_mandate = excluded.deny_no_mandate, deny_revoked = excluded.deny_revoked,
        deny_expired = excluded.deny_expired, deny_limit = excluded.deny_limit,
        deny_category = excluded.deny_category, deny_velocity = excluded.deny_velocity";
const KEPT: &str =
    "INSERT INTO idempotency (environment, api_key, name, fingerprint, status, body, sealed, created_at)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[], $5::bigint[], $6::bytea[],
        $7::bigint[], $8::bigint[])
    ON CONFLICT (environment, api_key, name) DO UPDATE SET kept = DEFAULT, fingerprint = excluded.fingerprint,
        status = excluded.status, body = excluded.body, sealed = excluded.sealed, created_at = excluded.created_at";

/// Has what the batch made and changed written with COMMIT; says what there is to hear of.
pub(super) fn keep(ground: &mut Ground<'_>, loaded: &Loaded, holding: &Holding) -> Result<Tally, Fault> {
    let made = &loaded.made;
    let mut tally = Tally::default();
    if !made.decisions.is_empty() {
        let rows = made.decisions.iter().map(sql::decisions::values);
        put(ground, DECISIONS, "ibitbbtttttttttibbiib", rows)?;
        tally.decided.extend(made.decisions.iter().map(|decision| (decision.verdict, decision.mode)));
    }
    if !made.reviews.is_empty() {
        let rows =
            made.reviews.iter().map(|(environment, review)| sql::reviews::values(*environment, review));
        put(ground, REVIEWS, "ibbtti", rows)?;
    }
    meter(ground, loaded, holding)?;
    let kept =
        made.kept.iter().map(|key| Ok(sql::idempotency::values(key, loaded.kept.get(key).ok_or_else(lost)?)));
    let kept: Vec<[Value; 8]> = kept.collect::<Result<_, Fault>>()?;
    if !kept.is_empty() {
        put(ground, KEPT, "iitbibii", kept.into_iter())?;
    }
    if !made.events.is_empty() {
        tell(ground, &made.events)?;
        tally.announced = true;
    }
    Ok(tally)
}

fn lost() -> Fault {
    Fault::new("a batch noted a change to a row that it did not load")
}

/// Writes what has changed of the agents: their rows first, since `usage` takes nothing that stands in one.
fn meter(ground: &mut Ground<'_>, loaded: &Loaded, holding: &Holding) -> Result<(), Fault> {
    let made = &loaded.made;
    let mut metered: BTreeMap<&AgentKey, String> = BTreeMap::new();
    let (mut back, mut fresh, mut stored) = (Vec::new(), Vec::new(), Vec::new());
    let mut placed = BTreeSet::new();
    for key in &made.usage {
        let usage: &UsageRecord = loaded.usage.get(key).ok_or_else(lost)?;
        let before = holding.get(&key.agent).ok_or_else(lost)?.metered.as_ref();
        let stands = before.is_some_and(|before| before.is_of(key.month, &key.currency));
        let has_room = before.is_none_or(|before| before.month < key.month) && placed.insert(&key.agent);
        if stands || has_room {
            let newest = Metered { month: key.month, currency: key.currency.clone(), usage: usage.clone() };
            metered.insert(&key.agent, newest.to_string());
        }
        if has_room && let Some(before) = before {
            back.push(sql::usage::values(&before.key(&key.agent), &before.usage));
        }
        if stands || (has_room && usage.stored.is_some()) {
            continue;
        }
        // Whatever stands in an agent's row has a row here, in which it is found.
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
        let recent = loaded.agents.get(key).ok_or_else(lost)?.recent.to_bytes();
        let was = &holding.get(key).ok_or_else(lost)?.text;
        let newest = metered.remove(key).unwrap_or_else(|| was.clone());
        let (environment, agent) = (key.environment.into(), key.agent.as_str().into());
        Ok([environment, agent, recent.into(), newest.into(), was.as_str().into()])
    });
    let agents: Vec<[Value; 5]> = agents.collect::<Result<_, Fault>>()?;
    if !agents.is_empty() {
        put(ground, AGENTS, "itbtt", agents.into_iter())?;
    }
    if !metered.is_empty() {
        return Err(lost());
    }
    if !back.is_empty() {
        put(ground, PUT_BACK, "ittttiiiiiiiii", back.into_iter())?;
    }
    if !fresh.is_empty() {
        put(ground, NEW_USAGE, "ittttiiiiiiiii", fresh.into_iter())?;
    }
    if !stored.is_empty() {
        put(ground, USAGE, "ittttiiiiiiiiiti", stored.into_iter())?;
    }
    Ok(())
}

/// Writes events with their deliveries, and puts the webhooks that hear of them into the line.
fn tell(ground: &mut Ground<'_>, events: &[EventRecord]) -> Result<(), Fault> {
    let about = |event: &EventRecord| -> (Value, Value, Value) {
        (event.environment.into(), event.kind.as_str().into(), event.at.millis().into())
    };
    put(ground, EVENTS, "ibtit", events.iter().map(sql::events::values))?;
    let types = events.iter().map(|event| {
        let (environment, kind, _) = about(event);
        [environment, kind]
    });
    put(ground, HOLD_SUBSCRIBED, "it", types)?;
    let rows = events.iter().map(|event| {
        let (environment, kind, at) = about(event);
        [environment, event.id.to_bytes().into(), kind, at]
    });
    ground.later_counted(Step::Run(FAN_OUT, columns("ibti", rows)?));
    let rows = events.iter().map(|event| {
        let (environment, kind, at) = about(event);
        [environment, kind, at]
    });
    put(ground, QUEUE, "iti", rows)
}

/// Has a statement over the columns of `rows` sent with COMMIT.
fn put<R: IntoIterator<Item = Value>>(
    ground: &mut Ground<'_>,
    sql: &'static str,
    kinds: &str,
    rows: impl Iterator<Item = R>,
) -> Result<(), Fault> {
    ground.wrote = true;
    ground.later(Step::Run(sql, columns(kinds, rows)?));
    Ok(())
}
