//! The master key, under which the private parts of the signing keys are encrypted.

use std::fmt;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use hmac::Mac as _;
use mandate_core::cursor::CursorKey;
use mandate_core::es256::SecretKey;
use mandate_core::jwks::Kid;
use zeroize::Zeroizing;

use super::mac;
use crate::error::Fault;

/// Bytes of the nonce before a sealed key.
pub(crate) const NONCE: usize = 12;

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

    /// Whether `other` is the same key. The comparison takes longer the more bytes agree, so it is only for the
    /// operator, who has both keys.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The key that list cursors are signed under: the same for every server with this master key.
    #[must_use]
    pub fn cursor_key(&self) -> CursorKey {
        CursorKey::new(self.derive(b"mandate cursor key 1"))
    }

    /// The key that the console's challenges are made with: the same for every server with this master key.
    #[must_use]
    pub fn challenge_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.derive(b"mandate console challenges 1"))
    }

    fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        mac::under(&self.0).chain_update(purpose).finalize().into_bytes().into()
    }

    fn cipher(&self) -> Result<Aes256Gcm, Fault> {
        Aes256Gcm::new_from_slice(self.0.as_slice())
            .map_err(|_| Fault::new("the master key is not of 32 bytes"))
    }

    /// Encrypts a secret. It opens only under the same `name`.
    pub(crate) fn seal(&self, secret: &[u8], name: &str, nonce: [u8; NONCE]) -> Result<Vec<u8>, Fault> {
        let payload = Payload { msg: secret, aad: name.as_bytes() };
        let sealed = self.cipher()?.encrypt(&Nonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| Fault::new("a secret could not be sealed"))?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// Decrypts a secret of 32 bytes that was encrypted under this `name`; `what` it is, for the fault.
    pub(crate) fn open(&self, sealed: &[u8], name: &str, what: &str) -> Result<Zeroizing<[u8; 32]>, Fault> {
        let opened = self.open_any(sealed, name, what)?;
        opened.as_slice().try_into().map(Zeroizing::new).map_err(|_| wrong(what))
    }

    /// Decrypts a secret of any length that was encrypted under this `name`; `what` it is, for the fault.
    pub(crate) fn open_any(
        &self,
        sealed: &[u8],
        name: &str,
        what: &str,
    ) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or_else(|| wrong(what))?;
        let payload = Payload { msg: sealed, aad: name.as_bytes() };
        let opened = self.cipher()?.decrypt(&Nonce::from(*nonce), payload);
        opened.map(Zeroizing::new).map_err(|_| wrong(what))
    }

    /// Encrypts a signing key. It opens only under the name `kid`.
    pub(crate) fn seal_key(
        &self,
        secret: &SecretKey,
        kid: &Kid,
        nonce: [u8; NONCE],
    ) -> Result<Vec<u8>, Fault> {
        self.seal(secret.expose(), kid.as_str(), nonce)
    }

    /// Whether the signing key with this name is sealed under this master key.
    #[must_use]
    pub fn opens(&self, kid: &str, sealed: &[u8]) -> bool {
        Kid::parse(kid).is_ok_and(|kid| self.open_key(sealed, &kid).is_ok())
    }

    pub(crate) fn open_key(&self, sealed: &[u8], kid: &Kid) -> Result<SecretKey, Fault> {
        let opened = self.open(sealed, kid.as_str(), &format!("signing key {kid}"))?;
        SecretKey::from_bytes(*opened).map_err(|e| Fault::corrupt(format!("signing key {kid}: {e}")))
    }
}

fn wrong(what: &str) -> Fault {
    Fault::NoSigningKey(format!("{what} does not open: this is not the master key it was sealed under"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::EnvironmentKind;

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
        let secret = SecretKey::from_bytes([7; 32]).unwrap();
        let kid = Kid::for_key(secret.public_key(), EnvironmentKind::Sandbox);
        let other = Kid::for_key(secret.public_key(), EnvironmentKind::Production);
        let master = MasterKey::from_bytes([1; 32]);
        let sealed = master.seal_key(&secret, &kid, [9; NONCE]).unwrap();
        assert_eq!(master.open_key(&sealed, &kid).unwrap().expose(), secret.expose());
        assert!(master.open_key(&sealed, &other).is_err());
        assert_eq!(
            MasterKey::from_bytes([2; 32]).open_key(&sealed, &kid).unwrap_err().kind(),
            "no_signing_key"
        );
        assert!(master.open_key(&sealed[..11], &kid).is_err());
        assert_eq!(format!("{master:?}"), "MasterKey(…)");
    }
}
