//! The arguments of the tools. Every argument is text, amounts too, so that no digit passes through a float.

use mandate_core::{Amount, Category, Currency, DecisionId, Month, Recipient};
use rmcp::model::JsonObject;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::trouble::Trouble;

/// The longest id of a purchase: with its prefix it is an idempotency key.
const MAX_PURCHASE: usize = 200;
/// How much of a refused value a message repeats.
const SHOWN: usize = 80;

/// The arguments of `authorize_spend`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Spend {
    /// Your own id of what is bought: an order number, a cart, a task. The same id is the same purchase and is decided once,
    /// also if you call again. Another id is another purchase and counts again.
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[!-~]([ -~]*[!-~])?$"))]
    pub(super) purchase: String,
    /// The amount as an exact decimal in quotes, such as "40.50".
    #[schemars(regex(pattern = r"^[0-9]{1,15}(\.[0-9]{1,8})?$"))]
    pub(super) amount: String,
    /// The currency, such as "USD".
    #[schemars(regex(pattern = r"^[A-Z][A-Z0-9]{2,7}$"))]
    pub(super) currency: String,
    /// Who is paid: "vendor:" and the vendor's name, such as "vendor:acme".
    #[schemars(regex(pattern = r"^vendor:[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"))]
    pub(super) recipient: String,
    /// What the money is for, as the mandate names it, such as "software". See list_my_mandates.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_.-]{0,63}$"))]
    pub(super) category: String,
}

/// The arguments of `get_decision`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Which {
    /// The decision's id, as authorize_spend has answered it.
    #[schemars(regex(pattern = r"^dec_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub(super) decision: String,
}

/// The arguments of `my_usage`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct When {
    /// The calendar month, UTC, as YYYY-MM. Without it, the current one.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}$"))]
    pub(super) month: Option<String>,
}

/// No arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Nothing {}

/// Reads the arguments of a call.
pub(super) fn read<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, Trouble> {
    let arguments = arguments.unwrap_or_default();
    if let Some((name, value)) = arguments.iter().find(|(_, value)| !value.is_string()) {
        let quoted = if value.is_number() { format!(", such as \"{value}\"") } else { String::new() };
        return Err(Trouble::arguments(format_args!(
            "{} must be text in quotes{quoted}; got {}",
            shown(name),
            shown(&value.to_string())
        )));
    }
    serde_json::from_value(Value::Object(arguments)).map_err(|e| Trouble::arguments(shown(&e.to_string())))
}

impl Spend {
    /// The body of the request, and its idempotency key: the purchase, and nothing of the other arguments.
    pub(super) fn request(&self) -> Result<(String, String), Trouble> {
        let purchase = &self.purchase;
        let is_printable = purchase.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if purchase.trim() != purchase
            || purchase.is_empty()
            || purchase.len() > MAX_PURCHASE
            || !is_printable
        {
            return Err(Trouble::arguments(format_args!(
                "purchase must be 1 to {MAX_PURCHASE} printable ASCII characters, without spaces around; got `{}`",
                shown(purchase)
            )));
        }
        let checked = Amount::parse(&self.amount).map(|_| ());
        let checked = checked.and_then(|()| Currency::parse(&self.currency).map(|_| ()));
        let checked = checked.and_then(|()| Recipient::parse(&self.recipient).map(|_| ()));
        let checked = checked.and_then(|()| Category::parse(&self.category).map(|_| ()));
        checked.map_err(|e| Trouble::arguments(shown(&e.to_string())))?;
        let quoted = |text: &str| Value::from(text).to_string();
        let (currency, recipient) = (quoted(&self.currency), quoted(&self.recipient));
        let body = format!(
            r#"{{"amount":{},"currency":{currency},"recipient":{recipient},"category":{}}}"#,
            self.amount,
            quoted(&self.category)
        );
        Ok((body, format!("purchase:{purchase}")))
    }
}

impl Which {
    pub(super) fn id(&self) -> Result<DecisionId, Trouble> {
        DecisionId::parse(&self.decision).map_err(|e| Trouble::arguments(shown(&e.to_string())))
    }
}

impl When {
    pub(super) fn query(&self) -> Result<Vec<(&'static str, String)>, Trouble> {
        let Some(text) = &self.month else { return Ok(Vec::new()) };
        let month = Month::parse(text).map_err(|e| Trouble::arguments(shown(&e.to_string())))?;
        Ok(vec![("month", month.to_string())])
    }
}

/// The text, cut where it is too long to be repeated, and with what looks like an API key masked.
fn shown(text: &str) -> String {
    let text = mandate_core::api_key::masked(text);
    match text.char_indices().nth(SHOWN.saturating_mul(3)) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(change: (&str, Value)) -> Result<(String, String), Trouble> {
        let mut json = serde_json::json!({
            "purchase": "order 7", "amount": "40.50", "currency": "USD", "recipient": "vendor:acme", "category": "software",
        });
        match change {
            (name, Value::Null) => drop(json.as_object_mut().unwrap().remove(name)),
            (name, value) => json[name] = value,
        }
        read::<Spend>(json.as_object().cloned())?.request()
    }

    #[test]
    fn the_idempotency_key_is_made_of_the_purchase_alone() {
        let (body, key) = spend(("purchase", "order 7".into())).unwrap();
        assert_eq!(
            body,
            r#"{"amount":40.50,"currency":"USD","recipient":"vendor:acme","category":"software"}"#
        );
        assert_eq!(key, "purchase:order 7");
        assert_eq!(spend(("amount", "41".into())).unwrap().1, key);
        assert_ne!(spend(("purchase", "order 8".into())).unwrap().1, key);
    }

    #[test]
    fn a_refusal_names_the_argument_and_what_is_accepted() {
        for (name, value, says) in [
            ("amount", 40.5.into(), r#"amount must be text in quotes, such as \"40.5\"; got 40.5"#),
            ("amount", "40,50".into(), "amount must be a number; got `40,50`"),
            ("amount", "0".into(), "amount must be greater than 0"),
            ("currency", "usd".into(), "currency must be 3 to 8 characters"),
            ("recipient", "acme".into(), "recipient must be `vendor:`"),
            ("category", "Software".into(), "category must match"),
            ("purchase", "".into(), "purchase must be 1 to 200 printable ASCII characters"),
            ("purchase", " a".into(), "purchase must be 1 to 200"),
            ("purchase", "ä".into(), "purchase must be 1 to 200"),
            ("purchase", "x".repeat(201).into(), "purchase must be 1 to 200"),
            ("purchase", Value::Null, "missing field `purchase`"),
            ("agent", "agt_other".into(), "unknown field `agent`"),
        ] {
            let said = spend((name, value)).unwrap_err().text();
            assert!(said.contains(says), "{name}: {said}");
        }
        let long = spend(("category", "x".repeat(1_000_000).into())).unwrap_err().text();
        assert!(long.len() < 1000, "{}", long.len());
    }
}
