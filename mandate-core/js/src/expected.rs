//! What a caller expects of a token, as JSON:
//! `{"issuer", "now", "environment", "leeway_seconds"?, "amount"?, "currency"?, "recipient"?, "mandate"?}`. `now` is in milliseconds;
//! `environment` is `production`, `sandbox` or `any`. Amounts are strings: a number of JavaScript is not exact.

use std::borrow::Cow;

use mandate_core::json::Object;
use mandate_core::verify::{Expected, Leeway};
use mandate_core::{Amount, Currency, EnvironmentKind, Invalid, MandateId, Recipient, Timestamp};

/// Reads the expectations, and passes them on.
pub(crate) fn with<T>(json: &str, verify: impl FnOnce(&Expected<'_>) -> T) -> Result<T, Invalid> {
    let mut options = Object::parse_as("options", json.as_bytes())?;
    let issuer = options.require("issuer")?.string()?;
    let now = Timestamp::from_millis(options.require("now")?.integer()?);
    let environment = environment(&options.require("environment")?.string()?)?;
    let leeway = options.take("leeway_seconds").map(|field| field.integer()).transpose()?;
    let mut text = |name| options.take(name).map(|field| field.string().map(Cow::into_owned)).transpose();
    let expected = Expected {
        environment,
        leeway: Leeway::from_seconds(leeway.unwrap_or(0)).map_err(|refused| refused.at("leewaySeconds"))?,
        amount: text("amount")?.map(|text| Amount::parse(&text)).transpose()?,
        currency: text("currency")?.map(|text| Currency::parse(&text)).transpose()?,
        recipient: text("recipient")?.map(|text| Recipient::parse(&text)).transpose()?,
        mandate: text("mandate")?
            .map(|text| MandateId::parse(&text))
            .transpose()
            .map_err(|refused| refused.at("mandate"))?,
        // The package has an error of its own for what was not compared, behind all checks.
        signature_only: true,
        ..Expected::new(&issuer, now)
    };
    options.finish()?;
    Ok(verify(&expected))
}

pub(crate) fn environment(text: &str) -> Result<Option<EnvironmentKind>, Invalid> {
    match text {
        "production" => Ok(Some(EnvironmentKind::Production)),
        "sandbox" => Ok(Some(EnvironmentKind::Sandbox)),
        "any" => Ok(None),
        other => Err(Invalid::value("environment", "must be production, sandbox or any", other)),
    }
}
