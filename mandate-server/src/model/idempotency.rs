//! The claim behind an `Idempotency-Key`: which request a name belongs to, and the answer that is kept for it.

use std::fmt;

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use hmac::{Hmac, Mac};
use mandate_core::api_key::{ApiKey, holds_key};
use mandate_core::{Timestamp, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::call::{Answer, Caller};
use super::records::{KeptKey, KeptRecord};
use crate::error::{Code, Fault, Refusal};

/// How long an answer is kept, in seconds: 24 hours.
pub const KEPT_SECONDS: i64 = 24 * 60 * 60;
/// The longest idempotency key, in characters.
pub const MAX_NAME: usize = 255;
/// The purpose of the key that is derived from an API key.
const SEAL: &[u8] = b"mandate kept answer 1";

/// What a caller claims with an `Idempotency-Key` header: this name belongs to this request.
#[derive(Clone)]
pub struct Claim {
    name: String,
    fingerprint: [u8; 32],
    seal: Zeroizing<[u8; 32]>,
    /// The instant by which kept answers expire.
    expiring: Timestamp,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What to do with a claim.
#[derive(Debug)]
pub enum Judgement {
    /// Nothing is kept under the name: carry the request out.
    Fresh,
    /// The same request was answered before: answer the same.
    Replay(Answer),
    /// Another request was made under the name.
    Conflict(Refusal),
}

impl Claim {
    /// The claim of a request under `name`, the header's value.
    ///
    /// Answers that have been kept for [`KEPT_SECONDS`] at the instant `expiring` no longer count. Bodies that are
    /// equal as JSON are the same request. A body that is not JSON is compared by its bytes.
    ///
    /// # Errors
    /// The name is not 1 to [`MAX_NAME`] printable ASCII characters, or holds an API key.
    pub fn new(
        name: &str,
        method: &str,
        path: &str,
        body: &[u8],
        presented: &ApiKey,
        expiring: Timestamp,
    ) -> Result<Self, Refusal> {
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(|b| matches!(b, b' '..=b'~')) {
            let message = format!("Idempotency-Key must be 1 to {MAX_NAME} printable ASCII characters");
            return Err(Refusal::invalid(message));
        }
        // It would be kept, and repeated in a refusal.
        if holds_key(name) {
            return Err(Refusal::invalid("Idempotency-Key must not hold an API key"));
        }
        let mut hash = Sha256::new();
        hash.update(method);
        hash.update([0]);
        hash.update(path);
        hash.update([0]);
        // An absent body means the same as an empty object.
        match json::canonical(if body.is_empty() { b"{}" } else { body }) {
            Ok(canonical) => hash.update(canonical),
            Err(_) => hash.update(body),
        }
        let mut seal = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(presented.expose().as_bytes())
            .map_err(|_| Refusal::invalid("Idempotency-Key cannot be used with this API key"))?;
        seal.update(SEAL);
        let seal = Zeroizing::new(seal.finalize().into_bytes().into());
        Ok(Self { name: name.to_owned(), fingerprint: hash.finalize().into(), seal, expiring })
    }

    /// The key under which the answer is kept. Its scope is the API key of the request.
    #[must_use]
    pub fn key(&self, caller: &Caller) -> KeptKey {
        KeptKey { environment: caller.environment.id, api_key: caller.key, name: self.name.clone() }
    }

    /// What to do, given the answer that is kept under the name.
    ///
    /// # Errors
    /// A sealed answer does not open.
    pub fn judge(&self, kept: Option<&KeptRecord>) -> Result<Judgement, Fault> {
        let Some(kept) = kept.filter(|kept| self.expiring < kept.created_at.plus_seconds(KEPT_SECONDS))
        else {
            return Ok(Judgement::Fresh);
        };
        if kept.fingerprint != self.fingerprint {
            let message = format!(
                "Idempotency-Key `{}` was used with another request less than 24 hours ago; use a new key",
                self.name
            );
            return Ok(Judgement::Conflict(Refusal::new(Code::IdempotencyConflict, message)));
        }
        let body = if kept.sealed { self.open(kept)? } else { kept.body.clone() };
        let (status, secret) = (kept.status, kept.sealed);
        Ok(Judgement::Replay(Answer { status, body, secret, replayed: true, decided: None }))
    }

    /// The answer as it is to be kept.
    ///
    /// # Errors
    /// An answer that holds a secret cannot be sealed.
    pub fn keep(&self, answer: &Answer, at: Timestamp) -> Result<KeptRecord, Fault> {
        let body = if answer.secret {
            let sealed = self.cipher()?.encrypt(&self.nonce(at), answer.body.as_slice());
            sealed.map_err(|_| Fault::new("an answer could not be sealed"))?
        } else {
            answer.body.clone()
        };
        let fingerprint = self.fingerprint;
        Ok(KeptRecord { fingerprint, status: answer.status, body, sealed: answer.secret, created_at: at })
    }

    fn open(&self, kept: &KeptRecord) -> Result<Vec<u8>, Fault> {
        let opened = self.cipher()?.decrypt(&self.nonce(kept.created_at), kept.body.as_slice());
        opened.map_err(|_| Fault::corrupt("a kept answer does not open under the key that it was kept for"))
    }

    fn cipher(&self) -> Result<Aes256Gcm, Fault> {
        Aes256Gcm::new_from_slice(self.seal.as_slice())
            .map_err(|_| Fault::new("a sealing key is not of 32 bytes"))
    }

    /// A nonce. No two answers under one API key share it: a name is used again only 24 hours later.
    fn nonce(&self, at: Timestamp) -> Nonce<aes_gcm::aead::consts::U12> {
        let mut hash = Sha256::new();
        hash.update(at.millis().to_be_bytes());
        hash.update(self.fingerprint);
        hash.update(&self.name);
        let digest: [u8; 32] = hash.finalize().into();
        let mut nonce = Nonce::default();
        nonce.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::EnvironmentKind;
    use mandate_core::api_key::KeyClass;

    fn noon() -> Timestamp {
        Timestamp::from_seconds(1_000)
    }

    fn key(seed: u8) -> ApiKey {
        ApiKey::from_random(KeyClass::Organization, EnvironmentKind::Sandbox, &[seed; 32])
    }

    fn claim(name: &str, body: &str, seed: u8) -> Claim {
        Claim::new(name, "POST", "/v1/agents", body.as_bytes(), &key(seed), noon()).unwrap()
    }

    fn answer(secret: bool) -> Answer {
        Answer {
            status: 201,
            body: b"{\"agent_key\":\"x\"}".to_vec(),
            secret,
            replayed: false,
            decided: None,
        }
    }

    #[test]
    fn names_are_printable_and_bounded() {
        let long = "a".repeat(256);
        for name in ["", "a\n", "é", long.as_str()] {
            assert!(Claim::new(name, "POST", "/", b"", &key(1), noon()).is_err(), "{name:?}");
        }
        assert!(Claim::new(&"~ ".repeat(127), "POST", "/", b"", &key(1), noon()).is_ok());
    }

    #[test]
    fn the_same_request_is_replayed_for_a_day_and_another_conflicts() {
        let at = Timestamp::from_seconds(1_000);
        let first = claim("k", r#"{"a":1,"b":2}"#, 1);
        let kept = first.keep(&answer(false), at).unwrap();
        let judge = |claim: &Claim, seconds| {
            let claim = Claim { expiring: at.plus_seconds(seconds), ..claim.clone() };
            claim.judge(Some(&kept)).unwrap()
        };
        assert!(
            matches!(judge(&claim("k", r#"{ "b":2, "a":1.0 }"#, 1), KEPT_SECONDS - 1), Judgement::Replay(a) if a.replayed)
        );
        assert!(matches!(judge(&claim("k", r#"{"a":1,"b":3}"#, 1), 5), Judgement::Conflict(_)));
        assert!(matches!(judge(&first, KEPT_SECONDS), Judgement::Fresh));
    }

    #[test]
    fn a_secret_is_sealed_and_opens_only_under_the_key_presented() {
        let at = Timestamp::from_seconds(1_000);
        let kept = claim("k", "{}", 1).keep(&answer(true), at).unwrap();
        assert!(kept.sealed && !kept.body.windows(9).any(|w| w == b"agent_key"));
        let Judgement::Replay(replayed) = claim("k", "{}", 1).judge(Some(&kept)).unwrap() else { panic!() };
        assert_eq!(replayed.body, answer(true).body);
        assert!(claim("k", "{}", 2).judge(Some(&kept)).is_err());
    }
}
