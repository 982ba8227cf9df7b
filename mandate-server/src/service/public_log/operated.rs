//! What an operator does with the public logs. Each change leaves an audit record.

use mandate_core::log::{Entry, MAX_SIGNATURES, SignedCheckpoint, VerifierKey};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde_json::json;

use super::{Remembered, append, cut, keys, publish};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::master_key::MasterKey;
use crate::service::audit::{self, AuditEntry, Operator};
use crate::service::organizations;
use crate::service::signing::{self, rotation::Maker};
use crate::store::sql::public_log::{self, PublicLog};
use crate::store::sql::witnesses::{self, Witness};
use crate::store::tx::Tx;

/// How many witnesses can be asked: a checkpoint has the log's own signature besides.
pub const MAX_WITNESSES: usize = MAX_SIGNATURES - 1;

/// The logs, the newest of each kind first, and when the oldest entry was made that waits.
///
/// # Errors
/// The database fails.
pub fn overview(tx: &mut Tx<'_>) -> Result<(Vec<PublicLog>, Option<Timestamp>), ScriptError> {
    let mut logs = Vec::new();
    for kind in EnvironmentKind::ALL {
        logs.extend(public_log::of_kind(tx, kind)?);
    }
    Ok((logs, append::waits_since(tx)?))
}

/// The secret that finds the entries of an organization's environment.
///
/// # Errors
/// There is no such organization, or the secret does not open under this master key.
pub fn watch_key(
    tx: &mut Tx<'_>,
    master: &MasterKey,
    (organization, kind): (&AgentName, EnvironmentKind),
    by: &Operator,
) -> Result<String, ScriptError> {
    let found = organizations::list(tx, Some(organization))?;
    let found = found.into_iter().find(|environment| environment.kind == kind);
    let found = found.ok_or_else(|| Fault::corrupt("database: an organization without its environment"))?;
    let entry = AuditEntry {
        action: "log.watch-key",
        organization: Some(organization.as_str()),
        environment: Some(kind),
        subject: "watch key",
        details: json!({}),
    };
    audit::write(tx, by, &entry)?;
    Ok(keys::secrets(tx, master)?.environment(found.environment).watch.reveal())
}

/// Has another witness asked.
///
/// # Errors
/// Its key or its URL is there already, or there are as many as can be asked.
pub fn add_witness(tx: &mut Tx<'_>, witness: &Witness, by: &Operator) -> Result<(), ScriptError> {
    let asked = witnesses::all(tx)?.len();
    if asked >= MAX_WITNESSES {
        let name = witness.key.name();
        let message = format!(
            "the witness `{name}` cannot be added: {asked} are asked, and at most {MAX_WITNESSES} can be; `log witness remove` takes \
             one out"
        );
        return Err(Refusal::invalid(message).into());
    }
    if !witnesses::insert(tx, witness)? {
        let message =
            "a witness of this key, or of this URL, is asked already; `log witness list` shows them";
        return Err(Refusal::new(Code::NameTaken, message).into());
    }
    record(tx, by, "log.witness-add", None, (witness.key.name(), json!({ "url": witness.url })))
}

/// Has a witness asked no more. It is found by its name or its key.
///
/// # Errors
/// There is none, or several of that name.
pub fn remove_witness(tx: &mut Tx<'_>, name: &str, by: &Operator) -> Result<VerifierKey, ScriptError> {
    let mut found = witnesses::all(tx)?;
    found.retain(|witness| witness.key.name() == name || witness.key.to_string() == name);
    let [witness] = found.as_slice() else {
        let message =
            format!("{} witnesses have the name or key `{name}`; `log witness list` shows them", found.len());
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    witnesses::remove(tx, &witness.key.to_string())?;
    record(tx, by, "log.witness-remove", None, (witness.key.name(), json!({ "url": witness.url })))?;
    Ok(witness.key.clone())
}

/// Begins another log of a kind in place of the newest one. Gives both.
///
/// Its first entry is the last published checkpoint of the older log. What the older one has behind that was never
/// published, and moves to the new one. It has the name of `issuer`, or of the one that a server was started with last for the
/// first time.
///
/// # Errors
/// There is no log yet, no server was started with this issuer, or the keys do not open under this master key.
pub fn new_origin(
    tx: &mut Tx<'_>,
    maker: Maker<'_>,
    (kind, issuer): (EnvironmentKind, Option<&str>),
    remembered: &Remembered,
    by: &Operator,
) -> Result<(PublicLog, PublicLog), ScriptError> {
    let issuer = issuer_of_log(signing::issuers(tx)?, issuer)?;
    let newest = public_log::newest(tx, kind)?.id;
    public_log::hold(tx, newest)?;
    let mut before = public_log::newest(tx, kind)?;
    keys::open(&before, maker.master)?;
    // A log that this database does not know of any more keeps its number, and is the one that goes on.
    let later = remembered.newest(kind)?.filter(|(number, _)| *number > keys::number(&before.origin));
    let number = later.as_ref().map_or(keys::number(&before.origin), |(number, _)| *number) + 1;
    let known = remembered.last(&before)?;
    let ended = publish::end(tx, &mut before, known)?;
    let older = match (later, ended) {
        (Some((_, checkpoint)), _) | (None, Some(checkpoint)) => Some(checkpoint),
        (None, None) => publish::last_of_kind(tx, kind)?,
    };
    let mut entries: Vec<_> = older.map(|last| Entry::OlderLog(last).to_bytes()).into_iter().collect();
    entries.extend(cut::cut(tx, &mut before)?);
    let begun = keys::begin_again(tx, maker, (&issuer, kind, number), &entries, by.at)?;
    let reason = format!("another log has begun in its place: {}", begun.origin);
    public_log::stop(tx, before.id, Some(&reason))?;
    record(tx, by, "log.new-origin", Some(kind), (&begun.origin, json!({ "replaces": before.origin })))?;
    Ok((before, begun))
}

/// The issuer whose name a log gets, of those that servers were started with.
fn issuer_of_log(mut known: Vec<String>, wanted: Option<&str>) -> Result<String, Refusal> {
    let Some(wanted) = wanted else {
        return known
            .pop()
            .ok_or_else(|| Refusal::invalid("there is no public log yet; start the server once"));
    };
    let found = known.iter().position(|issuer| issuer == wanted);
    found.map(|place| known.swap_remove(place)).ok_or_else(|| {
        let known = known.join(", ");
        Refusal::invalid(format!(
            "verdicts_url is `{wanted}`, and no server was started with it; start one, or set one of {known}"
        ))
    })
}

/// Has a stopped log go on.
///
/// # Errors
/// It is not stopped, does not have what was signed last, or another log was published in its place.
pub fn go_on(
    tx: &mut Tx<'_>,
    kind: EnvironmentKind,
    remembered: &Remembered,
    by: &Operator,
) -> Result<PublicLog, ScriptError> {
    let log = public_log::newest(tx, kind)?;
    public_log::hold(tx, log.id)?;
    let Some(stopped) = &log.stopped else {
        return Err(Refusal::invalid(format!("the log {} is not stopped", log.origin)).into());
    };
    if let Some(why) = remembered.contradicts(tx, &log)? {
        let message = format!("{why}; begin another with `log new-origin {kind}`");
        return Err(Refusal::invalid(message).into());
    }
    public_log::stop(tx, log.id, None)?;
    record(tx, by, "log.continue", Some(kind), (&log.origin, json!({ "stopped": stopped })))?;
    Ok(log)
}

/// Has every log wait for an operator, since what was published after a backup is not in the copy.
///
/// # Errors
/// The database fails.
pub fn stop_after_restore(tx: &mut Tx<'_>) -> Result<(), ScriptError> {
    let reason = "the database was restored: `mandate-server log continue`, or `log new-origin` if checkpoints were published \
                  after the backup";
    Ok(public_log::stop_all(tx, reason)?)
}

fn record(
    tx: &mut Tx<'_>,
    by: &Operator,
    action: &'static str,
    environment: Option<EnvironmentKind>,
    (subject, details): (&str, serde_json::Value),
) -> Result<(), ScriptError> {
    Ok(audit::write(tx, by, &AuditEntry { action, organization: None, environment, subject, details })?)
}

/// A log of a kind, the newest or the one of this number, and its published checkpoint.
///
/// # Errors
/// The database fails, or there is no such log.
pub fn published(
    tx: &mut Tx<'_>,
    kind: EnvironmentKind,
    number: Option<u64>,
) -> Result<(PublicLog, Option<SignedCheckpoint>), Fault> {
    let of_number = |log: &PublicLog| number.is_none_or(|number| keys::number(&log.origin) == number);
    let log = public_log::of_kind(tx, kind)?.into_iter().find(of_number);
    let log = log.ok_or_else(|| {
        let number = number.map_or_else(String::new, |number| format!(" with the number {number}"));
        Fault::new(format!("there is no {kind} log{number}; `log show` lists those that there are"))
    })?;
    let checkpoint = publish::published(&log)?;
    Ok((log, checkpoint))
}
