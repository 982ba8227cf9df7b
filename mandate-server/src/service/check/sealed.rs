//! What is sealed under the master key: the keys that sign verdicts, those of the public logs, the logs' secret, and the URLs of
//! notices.

use mandate_core::EnvironmentKind;

use super::{Finding, Listener};
use crate::error::Fault;
use crate::model::master_key::MasterKey;
use crate::service::notices;
use crate::service::public_log::{LogSecrets, keys};
use crate::store::sql;
use crate::store::sql::check as rows;
use crate::store::sql::public_log;
use crate::store::tx::Tx;

const SECRET: &str = "log_secret";
/// What is not done without the secret.
const NOT_COMPARED: &str = "what the rows say was not compared with the public log, only their tokens were";

/// Reports that the logs' secret is not there, and logs are.
pub(super) fn lost(tx: &mut Tx<'_>, listener: &mut dyn Listener) -> Result<(), Fault> {
    if public_log::lacks_secret(tx)? {
        listener.finding(Finding::whole(SECRET, "no row", "the secret that the entries were made with"));
    }
    Ok(())
}

/// Reports what does not open under a master key that opens other things, and returns the secrets of the logs' entries. Where it
/// opens nothing it is another one, which says nothing about the database.
pub(super) fn open(
    tx: &mut Tx<'_>,
    master: Option<&MasterKey>,
    listener: &mut dyn Listener,
) -> Result<Option<LogSecrets>, Fault> {
    let Some(master) = master else {
        listener.note(&format!("no master key is set: {NOT_COMPARED}"));
        return Ok(None);
    };
    let (mut opened, mut closed) = opened_keys(tx, master)?;
    let sealed = public_log::secret(tx)?;
    let is_there = sealed.is_some();
    let secrets = sealed.and_then(|sealed| keys::open_secret(&sealed, master).ok());
    if secrets.is_some() {
        opened += 1;
    } else if is_there {
        let found = "a secret that does not open under the master key";
        closed.push(Finding::whole(SECRET, found, "the secret that was sealed"));
    }
    if opened == 0 && !closed.is_empty() {
        listener.note(&format!(
            "the master key that is set opens none of the keys: it is not the one that they were sealed under; {NOT_COMPARED}"
        ));
        return Ok(None);
    }
    for finding in closed {
        listener.finding(finding);
    }
    if secrets.is_none() {
        let why = if is_there { "does not open, though other keys do" } else { "is not there" };
        listener.note(&format!("the secret of the public logs {why}: {NOT_COMPARED}"));
    }
    Ok(secrets)
}

/// How many keys open, and a finding for each that does not.
fn opened_keys(tx: &mut Tx<'_>, master: &MasterKey) -> Result<(usize, Vec<Finding>), Fault> {
    let (mut opened, mut closed) = (0, Vec::new());
    for key in rows::signing_keys(tx)? {
        if master.opens(&key.kid, &key.sealed) {
            opened += 1;
        } else {
            let found = "a private part that does not open under the master key";
            let finding = Finding::whole("signing_keys", found, "the key that was sealed");
            closed.push(Finding { id: Some(key.kid), ..finding });
        }
    }
    for kind in EnvironmentKind::ALL {
        for log in public_log::of_kind(tx, kind)? {
            match keys::open(&log, master) {
                Ok(_) => opened += 1,
                Err(fault) => {
                    let found = match fault {
                        Fault::NoSigningKey(_) => "a key that does not open under the master key".to_owned(),
                        other => other.to_string(),
                    };
                    let finding = Finding::whole("logs", found, "the log's key");
                    closed.push(Finding { id: Some(log.origin), ..finding });
                }
            }
        }
    }
    for environment in sql::environments::all(tx)? {
        let of = environment.environment;
        let Some(notice) = sql::notices::find(tx, of)? else { continue };
        if notices::open(&notice, master).is_ok() {
            opened += 1;
        } else {
            let found = "a URL that does not open under the master key";
            closed.push(Finding::row(
                "notices",
                of,
                notice.webhook.to_string(),
                found,
                "the URL that was sealed",
            ));
        }
    }
    Ok((opened, closed))
}
