//! Signing keys: sealed under the master key, opened by every server, and in turn published, signing and retired.
//!
//! Which key signs and which are published is a matter of the stored windows and of the time: every server switches at
//! the stored instant, with nothing to be done at the switch. [`rotation`] says how the windows are chosen.

pub mod rotation;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use mandate_core::es256::{self, PublicKey, Signer};
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::{EnvironmentKind, Timestamp};

use crate::error::Fault;
use crate::model::master_key::MasterKey;
use crate::store::sql;
use crate::store::sql::signing_keys::SigningKeyRecord;
use crate::store::tx::Tx;
use rotation::HEAR_SECONDS;

pub use rotation::ensure;

/// A key that signs, and its number in the store.
#[derive(Debug, Clone)]
pub struct SigningKey {
    /// Its number.
    pub id: i64,
    /// What signs.
    pub signer: Arc<dyn Signer>,
}

/// The keys that are not revoked, opened, and the name they sign under. Clones share them, and what is read anew.
#[derive(Debug, Clone)]
pub struct Keyring(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    issuer: String,
    issuer_id: i64,
    master: MasterKey,
    opened: RwLock<Opened>,
}

/// The keys as of one revision.
#[derive(Debug)]
struct Opened {
    revision: i64,
    /// When it was last known that the store is at that revision.
    confirmed: Instant,
    keys: Vec<OpenedKey>,
}

#[derive(Debug, Clone)]
struct OpenedKey {
    record: SigningKeyRecord,
    public: VerificationKey,
    /// None when it does not open: it is published, and cannot sign.
    signing: Option<SigningKey>,
}

impl Keyring {
    /// Opens the signing keys, to sign in the name of `issuer`.
    ///
    /// # Errors
    /// A key is missing, does not open under `master`, or is not the one published.
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
            return Err(Fault::new("there is no signing key; start the server once to make them"));
        }
        let opened = RwLock::new(Opened { revision, confirmed: began, keys });
        Ok(Self(Arc::new(Shared { issuer: issuer.to_owned(), issuer_id, master: master.clone(), opened })))
    }

    /// Reads the keys anew, if any has changed since they were read.
    ///
    /// # Errors
    /// They cannot be read; or a new one does not open under this server's master key: it is published like the others,
    /// and nothing is signed when its time has come.
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
    /// It does not open under this server's master key.
    pub fn signing(&self, kind: EnvironmentKind, now: Timestamp) -> Result<SigningKey, Fault> {
        self.read(|opened| {
            let signs = |key: &&OpenedKey| key.record.kind == kind && key.record.signs(now);
            let key = opened
                .keys
                .iter()
                .find(signs)
                .ok_or_else(|| Fault::new(format!("no {kind} key signs now")))?;
            let sealed = || {
                Fault::new(format!(
                    "signing key {} does not open under the master key of this server; start it anew",
                    key.record.kid
                ))
            };
            key.signing.clone().ok_or_else(sealed)
        })
    }

    /// The JWK Set (RFC 7517) that verifies what these keys sign, as it is published at `now`.
    ///
    /// # Errors
    /// Never, with the keys that rotations make.
    pub fn public_key_set(&self, now: Timestamp) -> Result<String, Fault> {
        let published = |key: &&OpenedKey| key.record.is_published(now);
        let keys =
            self.read(|opened| opened.keys.iter().filter(published).map(|key| key.public.clone()).collect());
        Ok(KeySet::new(keys)?.to_json())
    }

    /// Whether the keys were read lately enough, at `now`, to promise that what is published holds for the time that
    /// clients may keep it.
    #[must_use]
    pub fn is_current(&self, now: Instant) -> bool {
        let age = self.read(|opened| now.saturating_duration_since(opened.confirmed));
        age <= Duration::from_secs(HEAR_SECONDS.unsigned_abs())
    }

    /// What tokens name as `iss`.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// The issuer's number in the store.
    #[must_use]
    pub fn issuer_id(&self) -> i64 {
        self.0.issuer_id
    }

    /// What new keys are sealed under.
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

/// Every public key that there ever was and that was not revoked, as a JWK Set (RFC 7517), newest first: what verifies
/// exports and contracts whose key is no longer published.
///
/// # Errors
/// The database fails, or there were more keys than a set holds.
pub fn archive(tx: &mut Tx<'_>) -> Result<String, Fault> {
    let records = sql::signing_keys::all(tx)?.into_iter().rev().filter(|record| record.revoked_at.is_none());
    Ok(KeySet::new(records.map(|record| public(&record)).collect::<Result<_, _>>()?)?.to_json())
}

fn open(record: &SigningKeyRecord, master: &MasterKey) -> Result<SigningKey, Fault> {
    let kid = Kid::parse(&record.kid)?;
    let secret = master.open(&record.sealed, &kid)?;
    if stored_public_key(record)? != *secret.public_key() {
        return Err(Fault::new(format!("signing key {kid}: its two halves do not belong together")));
    }
    let signer = es256::signer(&secret, kid).map_err(|e| Fault::new(e.to_string()))?;
    Ok(SigningKey { id: record.id, signer })
}

fn public(record: &SigningKeyRecord) -> Result<VerificationKey, Fault> {
    let public = VerificationKey::new(Kid::parse(&record.kid)?, stored_public_key(record)?);
    public.map_err(|e| Fault::new(format!("signing key {}: {e}", record.kid)))
}

fn stored_public_key(record: &SigningKeyRecord) -> Result<PublicKey, Fault> {
    let (mut x, mut y) = ([0; 32], [0; 32]);
    x.iter_mut().chain(&mut y).zip(record.public_key).for_each(|(to, from)| *to = from);
    PublicKey::from_coordinates(x, y).map_err(|e| Fault::new(format!("signing key {}: {e}", record.kid)))
}
