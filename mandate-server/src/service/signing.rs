//! Signing keys: made once, sealed under the master key, opened when the server starts.

use std::fmt;
use std::sync::Arc;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use hmac::{Hmac, Mac};
use mandate_core::cursor::CursorKey;
use mandate_core::es256::{self, PublicKey, SecretKey, Signer};
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::{EnvironmentKind, Timestamp};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::clock::Entropy;
use crate::error::Fault;
use crate::store::sql;
use crate::store::sql::keys::SigningKeyRecord;
use crate::store::tx::Tx;

/// Bytes of the nonce that stands before a sealed key.
const NONCE: usize = 12;
/// How often a secret is drawn before the source of randomness is held to be broken. One draw in 2³² fails.
const DRAWS: usize = 4;

/// The key that seals the signing keys. It is never in the database, nor on a command line.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

impl MasterKey {
    /// The key of these bytes, which must be secret and random.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads 64 hexadecimal characters.
    ///
    /// # Errors
    /// The text has another length or other characters. The message does not repeat it.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut bytes = Zeroizing::new([0; 32]);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(Fault::new("the master key must be 64 hexadecimal characters, that is 32 bytes"));
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digits = std::str::from_utf8(pair).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = digits
                .and_then(|d| u8::from_str_radix(d, 16).ok())
                .ok_or_else(|| Fault::new("the master key must be 64 hexadecimal characters"))?;
        }
        Ok(Self(bytes))
    }

    /// The key that list cursors are signed under: the same for every server with this master key.
    ///
    /// # Errors
    /// Never, with a key of 32 bytes.
    pub fn cursor_key(&self) -> Result<CursorKey, Fault> {
        let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(self.0.as_slice())
            .map_err(|_| Fault::new("the master key is not of 32 bytes"))?;
        mac.update(b"mandate cursor key 1");
        Ok(CursorKey::new(mac.finalize().into_bytes().into()))
    }

    fn cipher(&self) -> Result<Aes256Gcm, Fault> {
        Aes256Gcm::new_from_slice(self.0.as_slice())
            .map_err(|_| Fault::new("the master key is not of 32 bytes"))
    }

    /// Encrypts a signing key; it opens only under the name `kid`.
    fn seal(&self, secret: &SecretKey, kid: &Kid, nonce: [u8; NONCE]) -> Result<Vec<u8>, Fault> {
        let payload = Payload { msg: secret.expose(), aad: kid.as_str().as_bytes() };
        let sealed = self.cipher()?.encrypt(&Nonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| Fault::new("a signing key could not be sealed"))?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// Whether this is the master key that the signing key of that name is sealed under.
    #[must_use]
    pub fn opens(&self, kid: &str, sealed: &[u8]) -> bool {
        Kid::parse(kid).is_ok_and(|kid| self.open(sealed, &kid).is_ok())
    }

    fn open(&self, sealed: &[u8], kid: &Kid) -> Result<SecretKey, Fault> {
        let wrong = || {
            Fault::new(format!(
                "signing key {kid} does not open: this is not the master key it was sealed under"
            ))
        };
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or_else(wrong)?;
        let payload = Payload { msg: sealed, aad: kid.as_str().as_bytes() };
        let opened = self.cipher()?.decrypt(&Nonce::from(*nonce), payload).map_err(|_| wrong())?;
        let opened: [u8; 32] = Zeroizing::new(opened).as_slice().try_into().map_err(|_| wrong())?;
        SecretKey::from_bytes(opened).map_err(|e| Fault::new(format!("signing key {kid}: {e}")))
    }
}

/// A key that signs, and its number in the store.
#[derive(Debug, Clone)]
pub struct SigningKey {
    /// Its number.
    pub id: i64,
    /// What signs.
    pub signer: Arc<dyn Signer>,
}

/// The keys in use, opened, and the name they sign under. Clones share them.
#[derive(Debug, Clone)]
pub struct Keyring(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    issuer: String,
    issuer_id: i64,
    sandbox: SigningKey,
    production: SigningKey,
    published: String,
}

/// Makes the signing keys that are missing: one for each kind of environment.
///
/// # Errors
/// The database fails, or the source of randomness is broken.
pub fn ensure(
    tx: &mut Tx<'_>,
    master: &MasterKey,
    entropy: &dyn Entropy,
    now: Timestamp,
) -> Result<(), Fault> {
    let there = sql::keys::signing(tx)?;
    for kind in EnvironmentKind::ALL {
        if there.iter().any(|key| key.kind == kind) {
            continue;
        }
        let secret = draw(entropy)?;
        let kid = Kid::for_key(secret.public_key(), kind);
        let mut nonce = [0; NONCE];
        entropy.fill(&mut nonce);
        let sealed = master.seal(&secret, &kid, nonce)?;
        let mut public_key = [0; 64];
        let coordinates = secret.public_key().x().iter().chain(secret.public_key().y());
        public_key.iter_mut().zip(coordinates).for_each(|(to, from)| *to = *from);
        let key = SigningKeyRecord { id: 0, kind, kid: kid.as_str().to_owned(), public_key, sealed };
        sql::keys::insert_signing(tx, &key, now)?;
    }
    Ok(())
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

impl Keyring {
    /// Opens the signing keys, to sign in the name of `issuer`.
    ///
    /// # Errors
    /// A key is missing, does not open under `master`, or is not the one published.
    pub fn load(tx: &mut Tx<'_>, master: &MasterKey, issuer: &str) -> Result<Self, Fault> {
        let issuer_id = sql::keys::issuer(tx, issuer)?;
        let mut published = Vec::new();
        let (mut sandbox, mut production) = (None, None);
        for record in sql::keys::signing(tx)? {
            let key = open(&record, master)?;
            let kid = key.signer.kid().clone();
            let public = VerificationKey::new(kid, *key.signer.public_key());
            published.push(public.map_err(|e| Fault::new(format!("signing key {}: {e}", record.kid)))?);
            match record.kind {
                EnvironmentKind::Sandbox => sandbox = Some(key),
                EnvironmentKind::Production => production = Some(key),
            }
        }
        let missing = || Fault::new("there is no signing key; start the server once to make them");
        Ok(Self(Arc::new(Opened {
            issuer: issuer.to_owned(),
            issuer_id,
            sandbox: sandbox.ok_or_else(missing)?,
            production: production.ok_or_else(missing)?,
            published: KeySet::new(published)?.to_json(),
        })))
    }

    /// The key that signs for environments of this kind.
    #[must_use]
    pub fn signing(&self, kind: EnvironmentKind) -> &SigningKey {
        match kind {
            EnvironmentKind::Sandbox => &self.0.sandbox,
            EnvironmentKind::Production => &self.0.production,
        }
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

    /// The JWK Set (RFC 7517) that verifies what these keys sign.
    #[must_use]
    pub fn public_key_set(&self) -> &str {
        &self.0.published
    }
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

fn stored_public_key(record: &SigningKeyRecord) -> Result<PublicKey, Fault> {
    let (mut x, mut y) = ([0; 32], [0; 32]);
    x.iter_mut().chain(&mut y).zip(record.public_key).for_each(|(to, from)| *to = from);
    PublicKey::from_coordinates(x, y).map_err(|e| Fault::new(format!("signing key {}: {e}", record.kid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemEntropy;

    #[test]
    fn a_master_key_is_64_hexadecimal_characters() {
        assert!(MasterKey::parse(&"0f".repeat(32)).is_ok() && MasterKey::parse(&"0F".repeat(32)).is_ok());
        for text in ["", "0f", &"0g".repeat(32), &"+f".repeat(32), &"0f".repeat(33), &"é".repeat(32)] {
            let refused = MasterKey::parse(text).unwrap_err().to_string();
            assert!(refused.contains("64 hexadecimal characters"));
        }
    }

    #[test]
    fn a_sealed_key_opens_under_its_master_key_and_name_only() {
        let secret = draw(&SystemEntropy).unwrap();
        let kid = Kid::for_key(secret.public_key(), EnvironmentKind::Sandbox);
        let other = Kid::for_key(secret.public_key(), EnvironmentKind::Production);
        let master = MasterKey::from_bytes([1; 32]);
        let sealed = master.seal(&secret, &kid, [9; NONCE]).unwrap();
        assert_eq!(master.open(&sealed, &kid).unwrap().expose(), secret.expose());
        assert!(master.open(&sealed, &other).is_err());
        assert!(MasterKey::from_bytes([2; 32]).open(&sealed, &kid).is_err());
        assert!(master.open(&sealed[..11], &kid).is_err());
        assert_eq!(format!("{master:?}"), "MasterKey(…)");
    }
}
