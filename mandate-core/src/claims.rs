//! The claims of a verdict and of an event, in a fixed order.
//!
//! The two kinds cannot be confused: a verdict has `verdict` and no `type`, an event has `type` and `data`
//! and no `verdict`, and each reader accepts only its own kind.

use std::fmt::Write as _;

use serde::Serialize;

use crate::error::Invalid;
use crate::id::{DecisionId, EventId, MandateId, Nonce};
use crate::json::Object;
use crate::name::{AgentId, Category, Currency, PolicyVersion, Recipient};
use crate::request::Request;
use crate::time::Timestamp;
use crate::verdict::Verdict;

/// How long a verdict's token is valid, in seconds: `exp` = `iat` + 300.
pub const VERDICT_LIFETIME_SECONDS: i64 = 300;

/// More than most verdicts' claims take as JSON, in bytes.
const TYPICAL_BYTES: usize = 512;

/// The claims of a verdict (RFC 7519 for `iss`, `jti`, `iat`, `exp`), in the order in which they are written.
///
/// ```
/// use mandate_core::{DecisionId, Nonce, PolicyVersion, Timestamp, VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims};
/// # use mandate_core::{AgentId, Request, json::Object};
/// # let body = br#"{"amount": 40.50, "currency": "USD", "recipient": "vendor:acme", "category": "software"}"#;
/// # let request = Request::read(AgentId::parse("agt_buyer")?, Object::parse(body)?)?;
/// let now = Timestamp::parse("2026-03-01T12:00:00Z")?;
/// let claims = VerdictClaims {
///     iss: "https://verdicts.example".to_owned(),
///     jti: DecisionId::new(now, 1),
///     iat: now.seconds(),
///     exp: now.seconds() + VERDICT_LIFETIME_SECONDS,
///     verdict: Verdict::DenyNoMandate,
///     mandate: None,
///     policy_version: PolicyVersion::parse("pol_2026-03-01.1")?,
///     nonce: Nonce::new(now, 2),
///     request,
/// };
/// assert_eq!(VerdictClaims::read(claims.to_json().as_bytes())?, claims);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerdictClaims {
    /// The issuer: the address under which the key set is published.
    pub iss: String,
    /// The decision's id.
    pub jti: DecisionId,
    /// When the decision was made, seconds since the Unix epoch.
    pub iat: i64,
    /// When the token expires, seconds since the Unix epoch: [`VERDICT_LIFETIME_SECONDS`] after `iat`.
    pub exp: i64,
    /// The verdict.
    pub verdict: Verdict,
    /// The governing mandate; absent on `deny_no_mandate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mandate: Option<MandateId>,
    /// The organization's policy set.
    pub policy_version: PolicyVersion,
    /// A single-use value. One that was seen before marks a replay.
    pub nonce: Nonce,
    /// The request that was decided.
    pub request: Request,
}

/// The claims of an event, as a webhook receives it (RFC 7519 for `iss`, `jti`, `iat`).
///
/// ```
/// use mandate_core::{EventClaims, EventId, EventKind, Timestamp};
/// let now = Timestamp::parse("2026-03-01T12:00:00Z")?;
/// let claims = EventClaims {
///     iss: "https://verdicts.example".to_owned(),
///     jti: EventId::new(now, 1),
///     iat: now.seconds(),
///     kind: EventKind::Ping.as_str().to_owned(),
///     data: std::collections::BTreeMap::from([("hello", "world")]),
/// };
/// assert_eq!(EventClaims::read(claims.to_json()?.as_bytes())?.data, r#"{"hello":"world"}"#);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventClaims<D> {
    /// The issuer.
    pub iss: String,
    /// The event's id. It stays the same across retries, so that receivers can recognise duplicates.
    pub jti: EventId,
    /// The time of the event, seconds since the Unix epoch.
    pub iat: i64,
    /// The type of event, for example `mandate.revoked`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The object that the event is about, as the API returns it.
    pub data: D,
}

impl VerdictClaims {
    /// The claims as JSON, always byte for byte the same.
    ///
    /// ```
    /// use mandate_core::{VerdictClaims, es256, jwks::Kid, jwt};
    /// # let text = include_str!("../vectors/verdicts.json");
    /// # let vectors: serde_json::Value = serde_json::from_str(text)?;
    /// # let token = jwt::Unverified::parse(vectors["vectors"][0]["token"].as_str().unwrap())?;
    /// # let claims = VerdictClaims::read(token.unverified_claims())?;
    /// let signer = es256::signer(&es256::SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
    /// let token = jwt::sign(&*signer, &claims.to_json())?;
    /// assert_eq!(jwt::Unverified::parse(&token)?.unverified_claims(), claims.to_json().as_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self { iss, jti, iat, exp, verdict, mandate, policy_version, nonce, request } = self;
        let Request { agent, amount, currency, recipient, category } = request;
        let iss = serde_json::to_string(iss).unwrap_or_default();
        // The same as serde writes, in half the time: only the issuer can contain characters that need
        // escaping.
        let mut json = String::with_capacity(TYPICAL_BYTES);
        let _ = write!(json, r#"{{"iss":{iss},"jti":"{jti}","iat":{iat},"exp":{exp},"verdict":"{verdict}""#);
        if let Some(mandate) = mandate {
            let _ = write!(json, r#","mandate":"{mandate}""#);
        }
        let _ = write!(
            json,
            r#","policy_version":"{policy_version}","nonce":"{nonce}","request":{{"agent":"{agent}","amount":{amount},"currency":"{currency}","recipient":"{recipient}","category":"{category}"}}}}"#
        );
        json
    }

    /// Reads claims from JSON. Unknown names are ignored, since fields may be added within a version. But nothing in
    /// them, at any depth, may be read in two ways: no name twice, no unpaired surrogate.
    ///
    /// ```
    /// use mandate_core::VerdictClaims;
    /// let refused = VerdictClaims::read(br#"{"type":"ping","data":{}}"#).unwrap_err();
    /// assert_eq!(refused.to_string(), "type must not be there: these are the claims of an event");
    /// ```
    ///
    /// # Errors
    /// The bytes are not strict JSON; a claim is missing, appears twice, or has the wrong type or form; `exp`
    /// does not follow from `iat`; or the claims are those of an event.
    pub fn read(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut claims = Object::parse_as("claims", bytes)?;
        claims.strict()?;
        if claims.take("type").is_some() {
            return Err(Invalid::new("type", "must not be there: these are the claims of an event"));
        }
        let read = Self {
            iss: claims.require("iss")?.string()?.into_owned(),
            jti: DecisionId::parse(&claims.require("jti")?.string()?).map_err(|e| e.at("jti"))?,
            iat: instant(&mut claims, "iat")?,
            exp: instant(&mut claims, "exp")?,
            verdict: Verdict::parse(&claims.require("verdict")?.string()?)?,
            mandate: match claims.take("mandate") {
                None => None,
                Some(field) => Some(MandateId::parse(&field.string()?).map_err(|e| e.at("mandate"))?),
            },
            policy_version: PolicyVersion::parse(&claims.require("policy_version")?.string()?)?,
            nonce: Nonce::parse(&claims.require("nonce")?.string()?).map_err(|e| e.at("nonce"))?,
            request: read_request(claims.require("request")?.object()?)?,
        };
        if read.iat.checked_add(VERDICT_LIFETIME_SECONDS) != Some(read.exp) {
            let problem = format!("must be iat + {VERDICT_LIFETIME_SECONDS}; got `{}`", read.exp);
            return Err(Invalid::new("exp", problem));
        }
        if read.mandate.is_none() != (read.verdict == Verdict::DenyNoMandate) {
            let problem = "must be there, except on deny_no_mandate, where there is none";
            return Err(Invalid::new("mandate", problem));
        }
        Ok(read)
    }
}

impl<D: Serialize> EventClaims<D> {
    /// The claims as JSON.
    ///
    /// ```
    /// use mandate_core::{EventClaims, EventId};
    /// let claims = EventClaims {
    ///     iss: "https://verdicts.example".to_owned(),
    ///     jti: EventId::from_bytes([0; 16]),
    ///     iat: 0,
    ///     kind: "ping".to_owned(),
    ///     data: [0; 0],
    /// };
    /// assert!(claims.to_json()?.ends_with(r#""iat":0,"type":"ping","data":[]}"#));
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// `data` cannot be written as JSON.
    pub fn to_json(&self) -> Result<String, Invalid> {
        serde_json::to_string(self).map_err(|e| Invalid::new("data", e.to_string()))
    }
}

impl EventClaims<String> {
    /// Reads claims from JSON. `data` is kept as its JSON text, an object.
    ///
    /// ```
    /// use mandate_core::EventClaims;
    /// let refused = EventClaims::read(br#"{"verdict":"allow"}"#).unwrap_err();
    /// assert_eq!(refused.to_string(), "verdict must not be there: these are the claims of a verdict");
    /// ```
    ///
    /// # Errors
    /// The bytes are not strict JSON; a claim is missing, appears twice, or has the wrong type; or the claims
    /// are those of a verdict.
    pub fn read(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut claims = Object::parse_as("claims", bytes)?;
        claims.strict()?;
        if claims.take("verdict").is_some() {
            return Err(Invalid::new("verdict", "must not be there: these are the claims of a verdict"));
        }
        let data = claims.require("data")?;
        data.object()?;
        Ok(Self {
            iss: claims.require("iss")?.string()?.into_owned(),
            jti: EventId::parse(&claims.require("jti")?.string()?).map_err(|e| e.at("jti"))?,
            iat: instant(&mut claims, "iat")?,
            kind: claims.require("type")?.string()?.into_owned(),
            data: data.raw().to_owned(),
        })
    }
}

/// The `request` claim. Unknown names are ignored.
fn read_request(mut request: Object<'_>) -> Result<Request, Invalid> {
    let mut text = |name: &'static str| request.require(name)?.string();
    let agent = AgentId::parse(&text("agent")?).map_err(|e| e.at("request.agent"))?;
    let currency = Currency::parse(&text("currency")?).map_err(|e| e.at("request.currency"))?;
    let recipient = Recipient::parse(&text("recipient")?).map_err(|e| e.at("request.recipient"))?;
    let category = Category::parse(&text("category")?).map_err(|e| e.at("request.category"))?;
    let amount = request.require("amount")?.amount()?;
    Ok(Request { agent, amount, currency, recipient, category })
}

/// Seconds since the Unix epoch, within the range of [`Timestamp`].
fn instant(claims: &mut Object<'_>, name: &'static str) -> Result<i64, Invalid> {
    let field = claims.require(name)?;
    let seconds = field.integer()?;
    if Timestamp::from_seconds(seconds).seconds() == seconds {
        Ok(seconds)
    } else {
        Err(Invalid::value(name, "must be seconds since the Unix epoch, before the year 10000", field.raw()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VERDICT: &str = concat!(
        r#"{"iss":"https://v.example","jti":"dec_00000000000000000000000001","iat":1000,"exp":1300,"#,
        r#""verdict":"allow","mandate":"mnd_00000000000000000000000002","policy_version":"pol_2026-01-01.1","#,
        r#""nonce":"n_00000000000000000000000003","request":{"agent":"agt_a","amount":40.5,"currency":"USD","#,
        r#""recipient":"vendor:v","category":"c"}}"#
    );

    #[test]
    fn verdict_claims_come_back_byte_for_byte() {
        assert_eq!(VerdictClaims::read(VERDICT.as_bytes()).unwrap().to_json(), VERDICT);
        let longer = VERDICT.replacen('{', r#"{"later":[1],"#, 1);
        assert_eq!(VerdictClaims::read(longer.as_bytes()).unwrap().to_json(), VERDICT);
    }

    proptest! {
        #[test]
        fn verdict_claims_are_what_serde_writes(
            iss in any::<String>(),
            names in ("agt_[a-z0-9][a-z0-9_-]{0,63}", "[A-Z][A-Z0-9]{2,7}", "vendor:[A-Za-z0-9][A-Za-z0-9_.-]{0,127}",
                "[a-z0-9][a-z0-9_.-]{0,63}", "pol_[0-9][0-9.-]{0,59}"),
            amount in (0..1_000_000_u32, 1..100_000_000_u32),
            ids in any::<[[u8; 16]; 3]>(),
            (iat, verdict) in (any::<i64>(), 0..8_usize),
        ) {
            let (agent, currency, recipient, category, policy_version) = names;
            let ((whole, fraction), [jti, mandate, nonce], verdict) = (amount, ids, Verdict::ALL[verdict]);
            let claims = VerdictClaims {
                iss,
                jti: DecisionId::from_bytes(jti),
                iat,
                exp: iat.saturating_add(VERDICT_LIFETIME_SECONDS),
                verdict,
                mandate: (verdict != Verdict::DenyNoMandate).then_some(MandateId::from_bytes(mandate)),
                policy_version: PolicyVersion::parse(&policy_version).unwrap(),
                nonce: Nonce::from_bytes(nonce),
                request: Request {
                    agent: AgentId::parse(&agent).unwrap(),
                    amount: crate::Amount::parse(&format!("{whole}.{fraction:08}")).unwrap(),
                    currency: Currency::parse(&currency).unwrap(),
                    recipient: Recipient::parse(&recipient).unwrap(),
                    category: Category::parse(&category).unwrap(),
                },
            };
            prop_assert_eq!(claims.to_json(), serde_json::to_string(&claims).unwrap());
        }
    }

    #[test]
    fn verdict_claims_that_are_refused() {
        for (from, to, message) in [
            ("1300", "1301", "exp must be iat + 300; got `1301`"),
            ("\"iat\":1000", "\"iat\":1000.0", "iat must be an integer"),
            ("1300", "\"1300\"", "exp must be a number; got a string"),
            ("1300", "1e400", "exp must be an integer"),
            ("1300", "1300,\"exp\":1300", "exp appears twice"),
            ("1300", "1300,\"type\":\"ping\"", "type must not be there"),
            ("40.5", "\"40.5\"", "request.amount must be a number; got a string"),
            ("\"currency\":\"USD\",", "", "request.currency is required"),
            (r#""mandate":"mnd_00000000000000000000000002","#, "", "mandate must be there"),
            ("\"allow\"", "\"deny_no_mandate\"", "mandate must be there, except"),
            ("\"allow\"", "\"allowed\"", "verdict must be allow, review"),
            (
                "{\"iss\"",
                r#"{"later":{"a":[{"b":1,"b":2}]},"iss""#,
                "later.a[0].b appears twice in the object",
            ),
            ("{\"iss\"", r#"{"later":["\ud800"],"iss""#, "later[0] must be a string of valid Unicode"),
            (
                r#""agent":"#,
                r#""later":{"\udc00":1},"agent":"#,
                "request.later must have names of valid Unicode",
            ),
        ] {
            assert!(VERDICT.contains(from), "{from}");
            let refused = VerdictClaims::read(VERDICT.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(refused.to_string().starts_with(message), "{refused} / {message}");
        }
    }

    #[test]
    fn event_claims_come_back_and_no_kind_passes_for_the_other() {
        let event =
            r#"{"iss":"i","jti":"evt_00000000000000000000000001","iat":1,"type":"ping","data":{"a":1}}"#;
        let read = EventClaims::read(event.as_bytes()).unwrap();
        assert_eq!((read.kind.as_str(), read.data.as_str()), ("ping", r#"{"a":1}"#));
        assert!(VerdictClaims::read(event.as_bytes()).is_err());
        assert!(EventClaims::read(VERDICT.as_bytes()).is_err());
        let deep = event.replace(r#"{"a":1}"#, r#"{"a":{"b":[{"c":1,"c":2}]}}"#);
        let refused = EventClaims::read(deep.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "data.a.b[0].c appears twice in the object");
        let later = event.replacen('{', r#"{"later":[{"a":1,"a":2}],"#, 1);
        let refused = EventClaims::read(later.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "later[0].a appears twice in the object");
        let both = event.replacen('{', r#"{"verdict":"allow","#, 1);
        assert!(EventClaims::read(both.as_bytes()).is_err());
        let data = serde_json::value::RawValue::from_string(read.data.clone()).unwrap();
        let again = EventClaims { iss: read.iss, jti: read.jti, iat: read.iat, kind: read.kind, data };
        assert_eq!(again.to_json().unwrap(), event);
    }
}
