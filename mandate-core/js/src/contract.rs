//! The signed contract of an escrow.

use mandate_core::json::Object;
use mandate_core::jwks::KeySet;
use mandate_core::jwt::Unverified;
use mandate_core::verify::VerifyError;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::expected;
use crate::keys::Keys;
use crate::report::Refusal;

/// A contract as its issuer has signed it.
#[derive(Debug, Serialize)]
pub(crate) struct Signed {
    kid: String,
    is_sandbox: bool,
    claims: Box<RawValue>,
}

pub(crate) fn verify(
    token: &str,
    keys: &Keys,
    (issuer, environment): (&str, &str),
    signed: Option<bool>,
) -> Result<Signed, Refusal> {
    let wanted = expected::environment(environment).map_err(|refused| Refusal::usage(&refused))?;
    let keys: KeySet = keys.with(signed);
    let refused = |refused| Refusal::of(&VerifyError::Token(refused));
    let verified = Unverified::parse(token).map_err(refused)?.verify(&keys).map_err(refused)?;
    let is_sandbox = verified.kid().is_sandbox();
    let claims = read(verified.claims(), issuer)?;
    if wanted.is_some_and(|wanted| wanted.is_sandbox() != is_sandbox) {
        let message = format!(
            "the contract must be of the {environment} environment; it is of the {}",
            if is_sandbox { "sandbox" } else { "production environment" }
        );
        return Err(Refusal { check: Some("environment"), message, exit: "Sandbox" });
    }
    Ok(Signed { kid: verified.kid().to_string(), is_sandbox, claims })
}

/// The claims, if they are the issuer's, and those of a contract.
fn read(claims: &[u8], issuer: &str) -> Result<Box<RawValue>, Refusal> {
    let malformed = |why: &dyn ToString| Refusal {
        check: Some("claims"),
        message: why.to_string(),
        exit: "MalformedToken",
    };
    let mut object = Object::parse_as("claims", claims).map_err(|refused| malformed(&refused))?;
    object.strict().map_err(|refused| malformed(&refused))?;
    let iss =
        object.require("iss").and_then(|field| field.string()).map_err(|refused| malformed(&refused))?;
    if iss != issuer {
        let message = format!("the issuer must be {issuer}; the contract is signed by {iss}");
        return Err(Refusal { check: Some("issuer"), message, exit: "Issuer" });
    }
    if object.take("contract").is_none() || object.take("verdict").is_some() || object.take("type").is_some()
    {
        let message = "the token is no contract of an escrow".to_owned();
        return Err(Refusal { check: Some("kind"), message, exit: "WrongKind" });
    }
    let text = std::str::from_utf8(claims).map_err(|e| malformed(&e))?;
    RawValue::from_string(text.to_owned()).map_err(|e| malformed(&e))
}
