//! The life of a signing key, and how its windows are chosen.
//!
//! A key is *incoming* (published, not yet signing), *signing*, *outgoing* (published, no longer signing),
//! and at last *retired*: kept, unpublished, to verify exports. Of the keys of one kind that are not revoked,
//! exactly one signs at any instant: each window begins where the one before it ends, and the first has no
//! beginning. So a server whose clock steps back still signs.
//!
//! No client that keeps the key set for [`CACHE_SECONDS`] ever meets a token that it cannot verify. One clock
//! writes the instants and others read them; any two may differ by [`CLOCK_MARGIN_SECONDS`].

use mandate_core::es256::SecretKey;
use mandate_core::jwks::Kid;
use mandate_core::log::KeyChange;
use mandate_core::verify::MAX_LEEWAY_SECONDS;
use mandate_core::{EnvironmentKind, Timestamp, VERDICT_LIFETIME_SECONDS};
use serde::Serialize;
use serde_json::{Value, json};

use super::open;
use crate::clock::Entropy;
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::master_key::{MasterKey, NONCE};
use crate::service::audit::{self, AuditEntry, Operator};
use crate::service::public_log;
use crate::store::sql;
use crate::store::sql::signing_keys::SigningKeyRecord;
use crate::store::tx::Tx;

/// How long clients may keep the key set, in seconds: its `max-age`.
pub const CACHE_SECONDS: i64 = 300;
/// How far any two clocks may differ, in seconds: those of servers, operators' machines and clients.
pub const CLOCK_MARGIN_SECONDS: i64 = 60;
/// How soon every server has read a change, in seconds. A server whose keys are older has caches revalidate
/// its key set before each use.
pub const PROPAGATION_SECONDS: i64 = 5;
/// How long a key is published before it signs, in seconds: until every server publishes it, and every client
/// that has fetched the key set before has fetched it again.
pub const INCOMING_SECONDS: i64 = CACHE_SECONDS + PROPAGATION_SECONDS + CLOCK_MARGIN_SECONDS;
/// How long a key is published after it has signed, in seconds: until its last token has expired for every
/// client, and one cache time more, for those who look at a token after its use.
pub const OUTGOING_SECONDS: i64 =
    VERDICT_LIFETIME_SECONDS + MAX_LEEWAY_SECONDS + CLOCK_MARGIN_SECONDS + CACHE_SECONDS;

/// How many times a secret is drawn before the source of randomness counts as broken. One draw in 2³² fails.
const DRAWS: usize = 4;

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Published, not yet signing.
    Incoming,
    /// Signing.
    Signing,
    /// Published, no longer signing.
    Outgoing,
    /// Neither; kept to verify exports.
    Retired,
    /// Neither; its signatures must not be trusted.
    Revoked,
}

impl KeyState {
    /// The state of a key at `now`.
    #[must_use]
    pub fn of(key: &SigningKeyRecord, now: Timestamp) -> Self {
        if key.revoked_at.is_some() {
            Self::Revoked
        } else if now < key.sign_from {
            Self::Incoming
        } else if key.signs(now) {
            Self::Signing
        } else if key.is_published(now) {
            Self::Outgoing
        } else {
            Self::Retired
        }
    }

    /// The state as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incoming => "incoming",
            Self::Signing => "signing",
            Self::Outgoing => "outgoing",
            Self::Retired => "retired",
            Self::Revoked => "revoked",
        }
    }
}

/// What new keys need.
#[derive(Clone, Copy)]
pub struct Maker<'a> {
    /// The key that encrypts their private parts.
    pub master: &'a MasterKey,
    /// Where they are drawn from.
    pub entropy: &'a dyn Entropy,
}

impl Maker<'_> {
    /// Encrypts a secret. It opens only under the same `name`.
    ///
    /// # Errors
    /// It cannot be encrypted.
    pub fn seal(&self, secret: &[u8], name: &str) -> Result<Vec<u8>, Fault> {
        self.master.seal(secret, name, nonce(self.entropy))
    }
}

impl std::fmt::Debug for Maker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Maker")
    }
}

/// Makes the signing keys that are missing, one for each kind of environment, and the public logs of `issuer`.
///
/// # Errors
/// The database fails, or the source of randomness is broken.
pub fn ensure(
    tx: &mut Tx<'_>,
    Maker { master, entropy }: Maker<'_>,
    issuer: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    sql::signing_keys::revision(tx)?;
    for kind in EnvironmentKind::ALL {
        if of_kind(tx, kind)?.is_empty() {
            make(tx, Maker { master, entropy }, kind, now, Timestamp::from_millis(0))?;
        }
    }
    public_log::keys::ensure(tx, Maker { master, entropy }, issuer, now)
}

/// All signing keys that ever existed, oldest first.
///
/// # Errors
/// The database fails.
pub fn list(tx: &mut Tx<'_>) -> Result<Vec<SigningKeyRecord>, Fault> {
    sql::signing_keys::all(tx)
}

/// Publishes a new key of each of these kinds. It signs from a stored instant on, in place of the current
/// key.
///
/// # Errors
/// One is incoming already, or the current keys are encrypted under another master key.
pub fn rotate(
    tx: &mut Tx<'_>,
    maker: Maker<'_>,
    kinds: &[EnvironmentKind],
    by: &Operator,
) -> Result<Vec<SigningKeyRecord>, ScriptError> {
    sql::signing_keys::revision(tx)?;
    let mut present = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let last = last(tx, *kind)?;
        if KeyState::of(&last, by.at) == KeyState::Incoming {
            let (kid, switch) = (&last.kid, last.sign_from);
            let message = format!("{kid} is incoming: it signs from {switch} on; rotate after that");
            return Err(Refusal::invalid(message).into());
        }
        check_master(&last, maker.master)?;
        present.push(last);
    }
    let switch = by.at.plus_seconds(INCOMING_SECONDS);
    let mut made = Vec::with_capacity(kinds.len());
    for mut last in present {
        last.sign_until = Some(switch);
        last.publish_until = Some(switch.plus_seconds(OUTGOING_SECONDS));
        sql::signing_keys::update(tx, &last)?;
        public_log::keys::say(tx, KeyChange::Retired, &last, (switch, by.at))?;
        let new = make(tx, maker, last.kind, by.at, switch)?;
        record(tx, by, "signing-key.rotate", &new, json!({ "replaces": last.kid, "sign_from": switch }))?;
        made.push(new);
    }
    Ok(made)
}

/// Rotates the keys that have signed for `every_seconds`. Safe to run twice, and on several servers. Returns
/// the new keys.
///
/// # Errors
/// As for [`rotate`].
pub fn rotate_due(
    tx: &mut Tx<'_>,
    maker: Maker<'_>,
    every_seconds: i64,
    by: &Operator,
) -> Result<Vec<SigningKeyRecord>, ScriptError> {
    let mut due = Vec::new();
    for kind in EnvironmentKind::ALL {
        if last(tx, kind)?.signing_since().plus_seconds(every_seconds) <= by.at {
            due.push(kind);
        }
    }
    rotate(tx, maker, &due, by)
}

/// When the next key will have signed for `every_seconds`.
///
/// # Errors
/// The database fails, or there is no key.
pub fn next_due(tx: &mut Tx<'_>, every_seconds: i64) -> Result<Timestamp, Fault> {
    let keys = sql::signing_keys::all(tx)?.into_iter();
    let last = keys.filter(|key| key.revoked_at.is_none() && key.sign_until.is_none());
    let next = last.map(|key| key.signing_since().plus_seconds(every_seconds)).min();
    next.ok_or_else(|| Fault::NoSigningKey("database: there is no signing key".to_owned()))
}

/// The result of a revocation.
#[derive(Debug)]
pub struct Revoked {
    /// The key.
    pub key: SigningKeyRecord,
    /// The key that takes over at once; none if another signs anyway.
    pub successor: Option<SigningKeyRecord>,
}

/// Unpublishes a key at once. If it is signing, the incoming key takes over at once, or a new one if there is
/// none. Clients with a cached key set refuse tokens of a new key, and accept those of the revoked one, until
/// they fetch the key set again.
///
/// # Errors
/// There is no such key, it is revoked already, or the current keys are encrypted under another master key.
pub fn revoke(tx: &mut Tx<'_>, maker: Maker<'_>, kid: &str, by: &Operator) -> Result<Revoked, ScriptError> {
    sql::signing_keys::revision(tx)?;
    let key = find(tx, kid, by.at)?;
    let state = KeyState::of(&key, by.at);
    check_master(&key, maker.master)?;
    let key = SigningKeyRecord { revoked_at: Some(by.at), ..key };
    sql::signing_keys::update(tx, &key)?;
    public_log::keys::say(tx, KeyChange::Revoked, &key, (by.at, by.at))?;
    let mut others = of_kind(tx, key.kind)?;
    let successor = match others.iter_mut().find(|other| Some(other.sign_from) == key.sign_until) {
        Some(next) => {
            next.sign_from = key.sign_from;
            sql::signing_keys::update(tx, next)?;
            Some(next.clone())
        }
        None => match others.iter_mut().find(|other| other.sign_until == Some(key.sign_from)) {
            Some(before) if state == KeyState::Incoming => {
                (before.sign_until, before.publish_until) = (None, None);
                sql::signing_keys::update(tx, before)?;
                // Its end was announced, and does not come.
                public_log::keys::say(tx, KeyChange::Published, before, (by.at, by.at))?;
                None
            }
            _ => Some(make(tx, maker, key.kind, by.at, key.sign_from)?),
        },
    };
    let successor = successor.filter(|_| state == KeyState::Signing);
    let details = json!({ "state": state, "successor": successor.as_ref().map(|key| key.kid.as_str()) });
    record(tx, by, "signing-key.revoke", &key, details)?;
    Ok(Revoked { key, successor })
}

/// The key of that name, which can be revoked.
///
/// # Errors
/// There is none, or it is revoked already.
pub fn find(tx: &mut Tx<'_>, kid: &str, now: Timestamp) -> Result<SigningKeyRecord, ScriptError> {
    let found = sql::signing_keys::all(tx)?.into_iter().find(|key| key.kid == kid);
    let unknown = || {
        Refusal::new(
            Code::NotFound,
            "there is no signing key of that name; `signing-key list --all` shows them",
        )
    };
    let key = found.ok_or_else(unknown)?;
    match KeyState::of(&key, now) {
        KeyState::Revoked => Err(Refusal::invalid(format!("{kid} is revoked")).into()),
        _ => Ok(key),
    }
}

/// Encrypts every private part again, under `new`. Returns how many there are.
///
/// # Errors
/// A key is not encrypted under `old`. Then nothing is changed.
pub fn reseal(tx: &mut Tx<'_>, old: &MasterKey, new: Maker<'_>, by: &Operator) -> Result<usize, ScriptError> {
    sql::signing_keys::revision(tx)?;
    let keys = sql::signing_keys::all(tx)?;
    for key in &keys {
        let kid = Kid::parse(&key.kid)?;
        let secret = old.open_key(&key.sealed, &kid)?;
        let sealed = new.master.seal_key(&secret, &kid, nonce(new.entropy))?;
        sql::signing_keys::update(tx, &SigningKeyRecord { sealed, ..key.clone() })?;
    }
    public_log::keys::reseal(tx, old, new)?;
    let entry = AuditEntry {
        action: "master-key.rotate",
        organization: None,
        environment: None,
        subject: "master key",
        details: json!({ "signing_keys": keys.len() }),
    };
    audit::write(tx, by, &entry)?;
    Ok(keys.len())
}

impl SigningKeyRecord {
    /// Whether it signs at `now`, unless it is revoked.
    #[must_use]
    pub fn signs(&self, now: Timestamp) -> bool {
        self.sign_from <= now && self.sign_until.is_none_or(|end| now < end)
    }

    /// Whether it is published at `now`, unless it is revoked.
    #[must_use]
    pub fn is_published(&self, now: Timestamp) -> bool {
        self.publish_until.is_none_or(|end| now < end)
    }

    /// When it begins to sign and when it ends, exclusive, as far as that is known; a revocation ends it.
    /// None for a key that was revoked before it signed.
    #[must_use]
    pub fn window(&self) -> Option<(Timestamp, Option<Timestamp>)> {
        let from = self.signing_since();
        let until = [self.sign_until, self.revoked_at].into_iter().flatten().min();
        (self.revoked_at.is_none() || until > Some(from)).then_some((from, until))
    }

    /// When it begins or began to sign: a window can begin before the key was made.
    #[must_use]
    pub fn signing_since(&self) -> Timestamp {
        self.sign_from.max(self.created_at)
    }
}

/// The keys of a kind that are not revoked, oldest first.
fn of_kind(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<Vec<SigningKeyRecord>, Fault> {
    let mut keys = sql::signing_keys::all(tx)?;
    keys.retain(|key| key.kind == kind && key.revoked_at.is_none());
    Ok(keys)
}

/// The key of a kind that no other follows yet.
fn last(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<SigningKeyRecord, ScriptError> {
    let last = of_kind(tx, kind)?.into_iter().find(|key| key.sign_until.is_none());
    Ok(last
        .ok_or_else(|| Refusal::invalid("there is no signing key yet; start the server once to make them"))?)
}

fn check_master(key: &SigningKeyRecord, master: &MasterKey) -> Result<(), ScriptError> {
    open(key, master).map(drop).map_err(|fault| Refusal::invalid(fault.to_string()).into())
}

fn make(
    tx: &mut Tx<'_>,
    maker: Maker<'_>,
    kind: EnvironmentKind,
    now: Timestamp,
    sign_from: Timestamp,
) -> Result<SigningKeyRecord, Fault> {
    let secret = draw(maker.entropy)?;
    let name = Kid::for_key(secret.public_key(), kind);
    let mut public_key = [0; 64];
    let coordinates = secret.public_key().x().iter().chain(secret.public_key().y());
    public_key.iter_mut().zip(coordinates).for_each(|(to, from)| *to = *from);
    let key = SigningKeyRecord {
        id: 0,
        kind,
        kid: name.as_str().to_owned(),
        public_key,
        sealed: maker.master.seal_key(&secret, &name, nonce(maker.entropy))?,
        created_at: now,
        sign_from,
        sign_until: None,
        publish_until: None,
        revoked_at: None,
    };
    sql::signing_keys::insert(tx, &key)?;
    public_log::keys::say(tx, KeyChange::Published, &key, (now, now))?;
    Ok(key)
}

fn nonce(entropy: &dyn Entropy) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    entropy.fill(&mut nonce);
    nonce
}

fn draw(entropy: &dyn Entropy) -> Result<SecretKey, Fault> {
    for _ in 0..DRAWS {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes);
        if let Ok(secret) = SecretKey::from_bytes(bytes) {
            return Ok(secret);
        }
    }
    Err(Fault::new("the source of randomness gives no usable key"))
}

/// Writes an audit record of what was done to a key.
fn record(
    tx: &mut Tx<'_>,
    by: &Operator,
    action: &'static str,
    key: &SigningKeyRecord,
    details: Value,
) -> Result<(), Fault> {
    let entry =
        AuditEntry { action, organization: None, environment: Some(key.kind), subject: &key.kid, details };
    audit::write(tx, by, &entry)
}
