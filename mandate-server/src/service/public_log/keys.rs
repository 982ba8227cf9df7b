//! The keys of the public logs, and the entries about the keys that sign verdicts.

use mandate_core::jwks::Kid;
use mandate_core::log::{Entry, KeyChange, KeyEvent, KeyKind, SigningKey, write_entry};
use mandate_core::{EnvironmentKind, Timestamp};
use zeroize::Zeroizing;

use super::{LogSecrets, append};
use crate::clock::Entropy;
use crate::error::Fault;
use crate::model::master_key::MasterKey;
use crate::service::signing::{self, rotation::Maker};
use crate::store::sql;
use crate::store::sql::public_log::PublicLog;
use crate::store::sql::signing_keys::SigningKeyRecord;
use crate::store::tx::Tx;

/// The name under which the secret of the environments' secrets is sealed.
const SECRET: &str = "public log secret";

/// Makes what is missing: the secret, and a log of each kind for `issuer`.
///
/// # Errors
/// The database fails, the secret is lost, or the issuer has no name that a log can have.
pub fn ensure(tx: &mut Tx<'_>, maker: Maker<'_>, issuer: &str, now: Timestamp) -> Result<(), Fault> {
    if sql::public_log::lacks_secret(tx)? {
        return Err(lost());
    }
    if sql::public_log::secret(tx)?.is_none() {
        let secret = draw(maker.entropy);
        sql::public_log::put_secret(tx, maker.seal(&*secret, SECRET)?, true)?;
    }
    for kind in EnvironmentKind::ALL {
        if sql::public_log::of_kind(tx, kind)?.is_empty() {
            begin(tx, maker, kind, &origin(issuer, kind, 1), now)?;
        }
    }
    Ok(())
}

/// The newest log of each kind that does not have the name of this issuer: it was begun under another.
///
/// # Errors
/// The database fails.
pub fn of_another_issuer(tx: &mut Tx<'_>, issuer: &str) -> Result<Vec<PublicLog>, Fault> {
    let mut others = Vec::new();
    for kind in EnvironmentKind::ALL {
        let log = sql::public_log::newest(tx, kind)?;
        if log.origin != origin(issuer, kind, number(&log.origin)) {
            others.push(log);
        }
    }
    Ok(others)
}

/// Begins another log of a kind, with these entries, as its number `number`. The signing keys that are published follow.
///
/// # Errors
/// The database fails.
pub(super) fn begin_again(
    tx: &mut Tx<'_>,
    maker: Maker<'_>,
    (issuer, kind, number): (&str, EnvironmentKind, u64),
    entries: &[Vec<u8>],
    now: Timestamp,
) -> Result<PublicLog, Fault> {
    begin(tx, maker, kind, &origin(issuer, kind, number), now)?;
    let mut log = sql::public_log::newest(tx, kind)?;
    append::begin(tx, &mut log, entries)?;
    // Evidence wants the key in the log that has the token.
    let keys = sql::signing_keys::all(tx)?.into_iter();
    for key in keys.filter(|key| key.kind == kind && key.revoked_at.is_none() && key.is_published(now)) {
        say(tx, KeyChange::Published, &key, (key.created_at, now))?;
    }
    Ok(log)
}

fn begin(
    tx: &mut Tx<'_>,
    maker: Maker<'_>,
    kind: EnvironmentKind,
    origin: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let seed = draw(maker.entropy);
    let key = signing_key(origin, &seed)?;
    let sealed = maker.seal(&*seed, origin)?;
    sql::public_log::insert(tx, kind, (origin, &key.verifier().to_string()), sealed, now)
}

/// The name of an issuer's log number `number` of a kind: the URL without its scheme.
fn origin(issuer: &str, kind: EnvironmentKind, number: u64) -> String {
    let host = issuer.split_once("://").map_or(issuer, |(_, host)| host);
    let number = if number == 1 { String::new() } else { format!("/{number}") };
    format!("{host}/log/{kind}{number}")
}

/// The number of the log of this name among those of its kind: 1 for the first.
#[must_use]
pub fn number(origin: &str) -> u64 {
    origin.rsplit_once('/').and_then(|(_, last)| last.parse().ok()).unwrap_or(1)
}

/// The key that signs a log's checkpoints.
///
/// # Errors
/// It does not open under this master key.
pub fn open(log: &PublicLog, master: &MasterKey) -> Result<SigningKey, Fault> {
    let what = format!("the key of the public log {}", log.origin);
    let key = signing_key(&log.origin, &*master.open(&log.sealed, &log.origin, &what)?)?;
    if key.verifier().to_string() == log.verifier_key {
        Ok(key)
    } else {
        Err(Fault::corrupt(format!("{what}: its two halves do not belong together")))
    }
}

fn signing_key(origin: &str, seed: &[u8; 32]) -> Result<SigningKey, Fault> {
    SigningKey::new(origin, KeyKind::Note, seed)
        .map_err(|e| Fault::new(format!("the public log cannot be named `{origin}`: {e}")))
}

/// The secrets of the environments.
///
/// # Errors
/// There are none, or they do not open under this master key.
pub fn secrets(tx: &mut Tx<'_>, master: &MasterKey) -> Result<LogSecrets, Fault> {
    match sql::public_log::secret(tx)? {
        Some(sealed) => open_secret(&sealed, master),
        None if sql::public_log::lacks_secret(tx)? => Err(lost()),
        None => {
            Err(Fault::NoSigningKey("there is no public log; start the server once to make it".to_owned()))
        }
    }
}

/// The secrets that come from the one that is sealed.
///
/// # Errors
/// It does not open under this master key.
pub fn open_secret(sealed: &[u8], master: &MasterKey) -> Result<LogSecrets, Fault> {
    master.open(sealed, SECRET, "the secret of the public logs").map(LogSecrets::new)
}

/// Refuses a database of which a server with this master key could make no entries. A new one has no log, and gets its secret at
/// the first start.
///
/// # Errors
/// The secret is lost or does not open.
pub fn must_open(tx: &mut Tx<'_>, master: &MasterKey) -> Result<(), Fault> {
    match sql::public_log::secret(tx)? {
        Some(sealed) => open_secret(&sealed, master).map(drop),
        None if sql::public_log::lacks_secret(tx)? => Err(lost()),
        None => Ok(()),
    }
}

/// The fault that the logs have lost their secret. Another one would make other entries of the same rows.
fn lost() -> Fault {
    Fault::corrupt(
        "database: log_secret has no row, and the entries of the public logs were made with it; restore a backup that has it",
    )
}

/// Encrypts everything again, under `new`.
///
/// # Errors
/// Something is not encrypted under `old`.
pub fn reseal(tx: &mut Tx<'_>, old: &MasterKey, new: Maker<'_>) -> Result<(), Fault> {
    if let Some(sealed) = sql::public_log::secret(tx)? {
        let secret = old.open(&sealed, SECRET, "the secret of the public logs")?;
        sql::public_log::put_secret(tx, new.seal(&*secret, SECRET)?, false)?;
    }
    for kind in EnvironmentKind::ALL {
        for log in sql::public_log::of_kind(tx, kind)? {
            let what = format!("the key of the public log {}", log.origin);
            let seed = old.open(&log.sealed, &log.origin, &what)?;
            let sealed = new.seal(&*seed, &log.origin)?;
            sql::public_log::seal(tx, log.id, sealed)?;
        }
    }
    Ok(())
}

/// Has the log say what happened to a signing key, `at` that instant, which may be to come.
///
/// # Errors
/// The database fails.
pub fn say(
    tx: &mut Tx<'_>,
    change: KeyChange,
    key: &SigningKeyRecord,
    (at, now): (Timestamp, Timestamp),
) -> Result<(), Fault> {
    let event = KeyEvent { change, at, kid: Kid::parse(&key.kid)?, public: signing::stored_public_key(key)? };
    add(tx, key.kind, now, &Entry::Key(event))
}

/// Has one entry appended, once the transaction has been committed.
fn add(tx: &mut Tx<'_>, kind: EnvironmentKind, at: Timestamp, entry: &Entry) -> Result<(), Fault> {
    let mut entries = Vec::new();
    write_entry(&mut entries, &entry.to_bytes()).map_err(|e| Fault::new(format!("a log entry: {e}")))?;
    sql::public_log::add(tx, kind, at, entries)
}

fn draw(entropy: &dyn Entropy) -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 32]);
    entropy.fill(&mut *bytes);
    bytes
}
