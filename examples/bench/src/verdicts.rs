//! The tokens of verdicts, as our library and `jsonwebtoken` sign and verify them: what `tests/bench core` and `verify` and
//! `benches/tokens.rs` measure.
//!
//! Each library is given its key once, as a service or a counterparty would. Verifying is the whole procedure: signature,
//! algorithm, issuer, expiry, and then the verdict, the amount, the currency and the recipient. `jsonwebtoken` checks the
//! first four and deserializes the claims, with the amount as a double; the comparisons are made by hand.

use std::error::Error;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use mandate_core::es256::{SecretKey, Signer};
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::verify::{Expected, verify_verdict};
use mandate_core::{
    AgentId, Amount, Currency, DecisionId, EnvironmentKind, MandateId, Nonce, PolicyVersion, Recipient,
    Request, Timestamp, VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims, jwt,
};
use p256::pkcs8::EncodePrivateKey as _;
use serde::Deserialize;

/// What went wrong, for a person.
type Failure = Box<dyn Error + Send + Sync>;

const ISSUER: &str = "https://verdicts.example";
/// Nothing depends on what it signs.
const SECRET: [u8; 32] = [7; 32];

/// The claims as a user of `jsonwebtoken` would write them down.
#[derive(Deserialize)]
struct Claims {
    verdict: String,
    request: ClaimedRequest,
}

#[derive(Deserialize)]
struct ClaimedRequest {
    amount: f64,
    currency: String,
    recipient: String,
}

/// One key, in the forms that the libraries take it in, and what is expected of the tokens that it has signed.
pub(crate) struct Keys {
    pub(crate) secret: SecretKey,
    pub(crate) kid: Kid,
    pub(crate) set: KeySet,
    encoding: EncodingKey,
    decoding: DecodingKey,
    header: Header,
    validation: Validation,
    amount: Amount,
    currency: Currency,
    recipient: Recipient,
}

impl Keys {
    pub(crate) fn new() -> Result<Self, Failure> {
        let secret = SecretKey::from_bytes(SECRET)?;
        let public = *secret.public_key();
        let kid = Kid::for_key(&public, EnvironmentKind::Sandbox);
        let pkcs8 = p256::SecretKey::from_slice(&SECRET)?.to_pkcs8_der()?;
        let point = [&[4], public.x().as_slice(), public.y()].concat();
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[ISSUER]);
        Ok(Self {
            set: KeySet::new(vec![VerificationKey::new(kid.clone(), public)?])?,
            encoding: EncodingKey::from_ec_der(pkcs8.as_bytes()),
            decoding: DecodingKey::from_ec_der(&point),
            header: Header { kid: Some(kid.to_string()), ..Header::new(Algorithm::ES256) },
            validation,
            amount: Amount::parse("40.5")?,
            currency: Currency::parse("USD")?,
            recipient: Recipient::parse("vendor:acme")?,
            secret,
            kid,
        })
    }

    pub(crate) fn sign_with_jsonwebtoken(&self, claims: &VerdictClaims) -> Result<String, Failure> {
        Ok(jsonwebtoken::encode(&self.header, claims, &self.encoding)?)
    }

    /// What our library expects of the tokens, at that time.
    pub(crate) fn expected(&self, now: Timestamp) -> Expected<'static> {
        Expected {
            environment: Some(EnvironmentKind::Sandbox),
            amount: Some(self.amount),
            currency: Some(self.currency.clone()),
            recipient: Some(self.recipient.clone()),
            ..Expected::new(ISSUER, now)
        }
    }

    pub(crate) fn verify(&self, token: &str, expected: &Expected<'_>) -> Result<(), Failure> {
        Ok(verify_verdict(token, &self.set, expected).map(drop)?)
    }

    /// The same by `jsonwebtoken`, which asks the clock.
    pub(crate) fn verify_with_jsonwebtoken(&self, token: &str) -> Result<(), Failure> {
        let Claims { verdict, request } =
            jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation)?.claims;
        let is_asked_for = verdict == "allow"
            && request.amount.to_bits() == 40.5_f64.to_bits()
            && request.currency == "USD"
            && request.recipient == "vendor:acme";
        if is_asked_for { Ok(()) } else { Err("not what was asked for".into()) }
    }
}

/// The claims of an allow of that time; id and nonce follow the number.
pub(crate) fn claims(now: Timestamp, number: u32) -> Result<VerdictClaims, Failure> {
    let body = br#"{"amount":40.5,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
    Ok(VerdictClaims {
        iss: ISSUER.to_owned(),
        jti: DecisionId::new(now, number.into()),
        iat: now.seconds(),
        exp: now.seconds() + VERDICT_LIFETIME_SECONDS,
        verdict: Verdict::Allow,
        mandate: Some(MandateId::new(now, 0)),
        policy_version: PolicyVersion::parse("pol_2026-01-01.1")?,
        nonce: Nonce::new(now, number.into()),
        request: Request::read(AgentId::parse("agt_buyer")?, Object::parse(body)?)?,
    })
}

/// Signs claims as the service does.
pub(crate) fn sign(signer: &dyn Signer, claims: &VerdictClaims) -> Result<String, Failure> {
    Ok(jwt::sign(signer, &claims.to_json())?)
}

/// The claims of one token under the signature of another: every verifier must refuse it.
pub(crate) fn forged(one: &str, other: &str) -> Result<String, Failure> {
    let (claims, _) = one.rsplit_once('.').ok_or("a token has no signature")?;
    let (_, signature) = other.rsplit_once('.').ok_or("a token has no signature")?;
    Ok(format!("{claims}.{signature}"))
}
