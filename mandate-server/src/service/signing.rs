//! Signing keys: encrypted under the master key, decrypted by every server; each is published, then signs,
//! then is retired.
//!
//! The stored windows and the time decide which key signs and which are published. Every server switches at
//! the stored instant, and nothing needs to be done at the switch. [`rotation`] says how the windows are
//! chosen.

pub mod rotation;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use mandate_core::es256::{self, PublicKey, Signer};
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::{EnvironmentKind, Timestamp};

use crate::error::Fault;
use crate::model::master_key::MasterKey;
use crate::service::public_log::{self, LogSecrets};
use crate::store::sql;
use crate::store::sql::signing_keys::SigningKeyRecord;
use crate::store::tx::Tx;
use rotation::PROPAGATION_SECONDS;

pub use rotation::ensure;

/// A key that signs, with its number in the store.
#[derive(Debug, Clone)]
pub struct SigningKey {
    /// Its number.
    pub id: i64,
    /// Its private part.
    pub signer: Arc<dyn Signer>,
}

/// The keys that are not revoked, decrypted, the issuer they sign for, and the secrets of the public logs. Clones share them
/// and their changes.
#[derive(Debug, Clone)]
pub struct Keyring(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    issuer: String,
    issuer_id: i64,
    master: MasterKey,
    log_secrets: LogSecrets,
    opened: RwLock<Opened>,
}

/// The keys as of one revision.
#[derive(Debug)]
struct Opened {
    revision: i64,
    /// When the store was last confirmed to be at that revision.
    confirmed: Instant,
    keys: Vec<OpenedKey>,
}

#[derive(Debug, Clone)]
struct OpenedKey {
    record: SigningKeyRecord,
    public: VerificationKey,
    /// None if it cannot be decrypted: it is published, but cannot sign.
    signing: Option<SigningKey>,
}

impl Keyring {
    /// Decrypts the signing keys, to sign as `issuer`.
    ///
    /// # Errors
    /// A key is missing, cannot be decrypted with `master`, or does not match its published part.
    pub fn load(tx: &mut Tx<'_>, master: &MasterKey, issuer: &str) -> Result<Self, Fault> {
        let issuer_id = sql::signing_keys::issuer(tx, issuer)?;
        let began = Instant::now();
        let revision = sql::signing_keys::revision(tx)?;
        let mut keys = Vec::new();
        for record in sql::signing_keys::all(tx)?.into_iter().filter(|record| record.revoked_at.is_none()) {
            let signing = Some(open(&record, master)?);
            keys.push(OpenedKey { public: public(&record)?, signing, record });
        }
        if EnvironmentKind::ALL.iter().any(|kind| keys.iter().all(|key| key.record.kind != *kind)) {
            return Err(Fault::NoSigningKey(
                "there is no signing key; start the server once to make them".to_owned(),
            ));
        }
        let opened = RwLock::new(Opened { revision, confirmed: began, keys });
        let (log_secrets, issuer) = (public_log::keys::secrets(tx, master)?, issuer.to_owned());
        Ok(Self(Arc::new(Shared { issuer, issuer_id, master: master.clone(), log_secrets, opened })))
    }

    /// Reads the keys again if any has changed.
    ///
    /// # Errors
    /// They cannot be read; or a new one cannot be decrypted with this server's master key. It is published
    /// like the others, but signing fails when its time comes.
    pub fn refresh(&self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        let began = Instant::now();
        let revision = sql::signing_keys::revision(tx)?;
        if self.read(|opened| opened.revision) >= revision {
            self.change(|opened| opened.confirmed = opened.confirmed.max(began));
            return Ok(());
        }
        let known = self.read(|opened| opened.keys.clone());
        let (mut keys, mut ended) = (Vec::new(), Ok(()));
        for record in sql::signing_keys::all(tx)?.into_iter().filter(|record| record.revoked_at.is_none()) {
            let mut signing =
                known.iter().find(|key| key.record.id == record.id).and_then(|key| key.signing.clone());
            if signing.is_none() {
                match open(&record, &self.0.master) {
                    Ok(opened) => signing = Some(opened),
                    Err(fault) => ended = Err(fault),
                }
            }
            keys.push(OpenedKey { public: public(&record)?, signing, record });
        }
        self.change(|opened| {
            if opened.revision < revision {
                *opened = Opened { revision, confirmed: began, keys };
            }
        });
        ended
    }

    /// The key that signs for environments of this kind at `now`.
    ///
    /// # Errors
    /// It cannot be decrypted with this server's master key.
    pub fn signing(&self, kind: EnvironmentKind, now: Timestamp) -> Result<SigningKey, Fault> {
        self.read(|opened| {
            let signs = |key: &&OpenedKey| key.record.kind == kind && key.record.signs(now);
            let key = opened
                .keys
                .iter()
                .find(signs)
                .ok_or_else(|| Fault::NoSigningKey(format!("no {kind} key signs now")))?;
            let sealed = || {
                Fault::NoSigningKey(format!(
                    "signing key {} does not open under the master key of this server; start it anew",
                    key.record.kid
                ))
            };
            key.signing.clone().ok_or_else(sealed)
        })
    }

    /// The JWK Set (RFC 7517) that is published at `now`.
    ///
    /// # Errors
    /// Never, with the keys that rotations make.
    pub fn public_key_set(&self, now: Timestamp) -> Result<String, Fault> {
        let published = |key: &&OpenedKey| key.record.is_published(now);
        let keys =
            self.read(|opened| opened.keys.iter().filter(published).map(|key| key.public.clone()).collect());
        Ok(KeySet::new(keys)?.to_json())
    }

    /// Whether the keys were read recently enough, at `now`, for clients to cache the key set.
    #[must_use]
    pub fn is_current(&self, now: Instant) -> bool {
        let age = self.read(|opened| now.saturating_duration_since(opened.confirmed));
        age <= Duration::from_secs(PROPAGATION_SECONDS.unsigned_abs())
    }

    /// The `iss` of tokens.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// The issuer's number in the store.
    #[must_use]
    pub fn issuer_id(&self) -> i64 {
        self.0.issuer_id
    }

    /// The secrets of the environments' entries in the public logs.
    #[must_use]
    pub fn log_secrets(&self) -> &LogSecrets {
        &self.0.log_secrets
    }

    /// The key that encrypts new signing keys.
    #[must_use]
    pub fn master(&self) -> &MasterKey {
        &self.0.master
    }

    fn read<T>(&self, look: impl FnOnce(&Opened) -> T) -> T {
        look(&self.0.opened.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Opened)) {
        change(&mut self.0.opened.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Every public key that ever existed and was not revoked, as a JWK Set (RFC 7517), newest first. It verifies
/// exports and contracts whose key is no longer published.
///
/// # Errors
/// The database fails.
pub fn archive(tx: &mut Tx<'_>) -> Result<String, Fault> {
    let records = sql::signing_keys::all(tx)?.into_iter().rev().filter(|record| record.revoked_at.is_none());
    Ok(KeySet::archive(records.map(|record| public(&record)).collect::<Result<_, _>>()?)?.to_json())
}

/// Every public key that ever existed, revoked ones too: what the log was signed with.
///
/// # Errors
/// The database fails.
pub fn all(tx: &mut Tx<'_>) -> Result<KeySet, Fault> {
    let records = sql::signing_keys::all(tx)?;
    Ok(KeySet::archive(records.iter().map(public).collect::<Result<_, _>>()?)?)
}

/// The issuers that tokens have named, the newest last.
///
/// # Errors
/// The database fails.
pub fn issuers(tx: &mut Tx<'_>) -> Result<Vec<String>, Fault> {
    sql::signing_keys::issuers(tx)
}

fn open(record: &SigningKeyRecord, master: &MasterKey) -> Result<SigningKey, Fault> {
    let kid = Kid::parse(&record.kid)?;
    let secret = master.open_key(&record.sealed, &kid)?;
    if stored_public_key(record)? != *secret.public_key() {
        return Err(Fault::corrupt(format!("signing key {kid}: its two halves do not belong together")));
    }
    let signer = es256::signer(&secret, kid).map_err(|e| Fault::new(e.to_string()))?;
    Ok(SigningKey { id: record.id, signer })
}

fn public(record: &SigningKeyRecord) -> Result<VerificationKey, Fault> {
    let public = VerificationKey::new(Kid::parse(&record.kid)?, stored_public_key(record)?);
    public.map_err(|e| Fault::corrupt(format!("signing key {}: {e}", record.kid)))
}

pub(super) fn stored_public_key(record: &SigningKeyRecord) -> Result<PublicKey, Fault> {
    let (mut x, mut y) = ([0; 32], [0; 32]);
    x.iter_mut().chain(&mut y).zip(record.public_key).for_each(|(to, from)| *to = from);
    PublicKey::from_coordinates(x, y).map_err(|e| Fault::corrupt(format!("signing key {}: {e}", record.kid)))
}
