//! The request of an agent.

use serde::Serialize;

use crate::amount::Amount;
use crate::error::Invalid;
use crate::json::Object;
use crate::name::{AgentId, Category, Currency, Recipient};

/// One agent's request to spend: the `request` claim of a verdict.
///
/// ```
/// use mandate_core::{AgentId, Request, json::Object};
/// let body = br#"{"amount": 40.50, "currency": "USD", "recipient": "vendor:acme", "category": "software"}"#;
/// let request = Request::read(AgentId::parse("agt_buyer")?, Object::parse(body)?)?;
/// assert_eq!(request.amount.to_string(), "40.5");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The agent that asks.
    pub agent: AgentId,
    /// The amount to spend.
    pub amount: Amount,
    /// The currency of the amount.
    pub currency: Currency,
    /// The payee.
    pub recipient: Recipient,
    /// What the money is for.
    pub category: Category,
}

impl Request {
    /// Reads the body of POST /v1/authorizations. The agent comes from the API key, never from the body.
    ///
    /// ```
    /// use mandate_core::{AgentId, Request, json::Object};
    /// let body = Object::parse(br#"{"amount": "40.50", "currency": "USD"}"#)?;
    /// let refused = Request::read(AgentId::parse("agt_buyer")?, body).unwrap_err();
    /// assert_eq!(refused.to_string(), "amount must be a number; got a string");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// A field is missing or unknown, or its type or value is invalid.
    pub fn read(agent: AgentId, mut body: Object<'_>) -> Result<Self, Invalid> {
        let amount = body.require("amount")?.amount()?;
        let currency = Currency::parse(&body.require("currency")?.string()?)?;
        let recipient = Recipient::parse(&body.require("recipient")?.string()?)?;
        let category = Category::parse(&body.require("category")?.string()?)?;
        body.finish()?;
        Ok(Self { agent, amount, currency, recipient, category })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, message: &str) {
        let agent = AgentId::parse("agt_a").unwrap();
        let refused = Object::parse(body.as_bytes()).and_then(|o| Request::read(agent, o)).unwrap_err();
        assert_eq!(refused.to_string(), message);
    }

    #[test]
    fn refusals_name_the_field() {
        check("{}", "amount is required");
        check(r#"{"amount":"40"}"#, "amount must be a number; got a string");
        check(r#"{"amount":0}"#, "amount must be greater than 0; got `0`");
        check(r#"{"amount":4}"#, "currency is required");
        check(
            r#"{"amount":4,"currency":"USD","recipient":"acme"}"#,
            "recipient must be `vendor:` and a name that matches [A-Za-z0-9][A-Za-z0-9_.-]{0,127}; got `acme`",
        );
        check(
            r#"{"amount":4,"currency":"USD","recipient":"vendor:a","category":null}"#,
            "category must be a string; got null",
        );
        check(
            r#"{"amount":4,"currency":"USD","recipient":"vendor:a","category":"c","agent":"agt_b"}"#,
            "agent is not a known field; known are amount, currency, recipient, category",
        );
    }
}
