//! What is to be settled: from the options, from a file, or from the line of a token.

use mandate_core::json::Object;
use mandate_core::{Amount, Currency, Invalid, MandateId, Recipient};

use super::Verify;
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::mistake;

/// The longest order, in bytes.
const MAX_ORDER_BYTES: usize = 64 * 1024;

/// What a token is expected to be for.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) amount: Option<Amount>,
    pub(super) currency: Option<Currency>,
    pub(super) recipient: Option<Recipient>,
    pub(super) mandate: Option<MandateId>,
}

impl Wanted {
    /// The expectations from the options, or from the file that they name.
    pub(super) fn of(args: &Verify) -> Result<Self, Failure> {
        let Verify { amount, currency, recipient, mandate, order, .. } = args;
        match order {
            Some(order) => from_file(order),
            None => Ok(Self {
                amount: *amount,
                currency: currency.clone(),
                recipient: recipient.clone(),
                mandate: *mandate,
            }),
        }
    }

    /// Takes what `order` says. What it does not name stays as it is.
    pub(super) fn take(&mut self, order: &mut Object<'_>) -> Result<(), Invalid> {
        if let Some(field) = order.take("amount") {
            // An amount as text is as exact as a number.
            let text = if field.raw().starts_with('"') { field.string()? } else { field.number()?.into() };
            self.amount = Some(Amount::parse(&text)?);
        }
        if let Some(field) = order.take("currency") {
            self.currency = Some(Currency::parse(&field.string()?)?);
        }
        if let Some(field) = order.take("recipient") {
            self.recipient = Some(Recipient::parse(&field.string()?)?);
        }
        if let Some(field) = order.take("mandate") {
            self.mandate = Some(MandateId::parse(&field.string()?)?);
        }
        Ok(())
    }
}

fn from_file(source: &Source) -> Result<Wanted, Failure> {
    let text = source.read("the order", MAX_ORDER_BYTES, Exit::Usage)?;
    read(&text).map_err(|e| {
        mistake::refused("the order", source, &text, &e, Exit::Usage)
            .next("write {\"amount\": 40.50, \"currency\": \"USD\", \"recipient\": \"vendor:acme\"}; `id` and `mandate` may be added")
    })
}

fn read(text: &str) -> Result<Wanted, Invalid> {
    let mut order = Object::parse_as("order", text.as_bytes())?;
    let mut wanted = Wanted::default();
    wanted.take(&mut order)?;
    order.take("id");
    order.finish()?;
    let needed = [
        ("amount", wanted.amount.is_some()),
        ("currency", wanted.currency.is_some()),
        ("recipient", wanted.recipient.is_some()),
    ];
    match needed.iter().find(|(_, is_there)| !is_there) {
        Some((name, _)) => Err(Invalid::new(*name, "is required")),
        None => Ok(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_all_of_the_payment_and_nothing_unknown() {
        let all = r#""amount":40.50,"currency":"USD","recipient":"vendor:acme""#;
        let mandate = r#""mandate":"mnd_01kjmr9s000000000000000002""#;
        for text in [format!("{{{all}}}"), format!("{{\"id\":7,{all},{mandate}}}\n")] {
            let wanted = read(&text).unwrap();
            assert_eq!(wanted.amount.unwrap().to_string(), "40.5");
            assert_eq!(wanted.mandate.is_some(), text.contains("mnd_"));
        }
        let text = read(&format!("{{{}}}", all.replace("40.50", "\"40.50\""))).unwrap();
        assert_eq!(text.amount.unwrap().to_string(), "40.5");
        for (text, why) in [
            (format!("{{{}}}", all.replace("recipient", "reciever")), "reciever"),
            (all.replace("\"amount\":40.50,", "{") + "}", "amount is required"),
            ("{\"amount\":1,\"currency\":\"USD\"}".to_owned(), "recipient is required"),
            (format!("[{{{all}}}]"), "must be a JSON object"),
            (String::new(), "must be"),
        ] {
            assert!(
                read(&text).unwrap_err().to_string().contains(why),
                "{text}: {}",
                read(&text).unwrap_err()
            );
        }
    }
}
