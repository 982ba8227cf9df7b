//! Ranges of amounts, and how two mandates decide on a payment in each.

use mandate_core::{Terms, Total};

/// The verdict on a payment that is the first of its month, in the mandate's currency and an allowed
/// category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Reviewed,
    Denied,
}

/// The amounts above `low` and up to `high`, on which the verdict changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) low: Total,
    pub(super) high: Total,
    pub(super) was: Outcome,
    pub(super) is: Outcome,
}

/// How a mandate's amounts divide payments.
struct Division {
    /// The largest payment: an empty month must have room for it, too.
    most: Total,
    /// Payments above this amount need a review.
    above: Option<Total>,
}

impl Division {
    fn of(terms: &Terms) -> Self {
        let limits = &terms.limits;
        let most = limits.per_month.map_or(limits.per_transaction, |month| month.min(limits.per_transaction));
        Self { most: most.into(), above: terms.review_above }
    }

    /// The verdict on amounts up to `high`, with no bound below it in the range.
    fn outcome(&self, high: Total) -> Outcome {
        if high > self.most {
            Outcome::Denied
        } else if self.above.is_some_and(|above| high > above) {
            Outcome::Reviewed
        } else {
            Outcome::Allowed
        }
    }

    fn bounds(&self) -> impl Iterator<Item = Total> {
        [Some(self.most), self.above].into_iter().flatten()
    }
}

/// Every payment, in one currency, that `after` decides differently from `before`.
pub(super) fn bands(before: &Terms, after: &Terms) -> Vec<Band> {
    let (before, after) = (Division::of(before), Division::of(after));
    let bounds = before.bounds().chain(after.bounds());
    between(bounds, |high| (before.outcome(high), after.outcome(high)))
}

/// Every payment that a mandate does not deny, if all were denied before.
pub(super) fn openings(after: &Terms) -> Vec<Band> {
    let after = Division::of(after);
    between(after.bounds(), |high| (Outcome::Denied, after.outcome(high)))
}

/// The ranges between the bounds in which the two verdicts differ. Adjacent ranges with the same verdicts are
/// merged. Above the highest bound everything is denied.
fn between(bounds: impl Iterator<Item = Total>, outcomes: impl Fn(Total) -> (Outcome, Outcome)) -> Vec<Band> {
    let mut bounds: Vec<Total> = bounds.filter(|bound| *bound > Total::ZERO).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let (mut bands, mut low): (Vec<Band>, _) = (Vec::new(), Total::ZERO);
    for high in bounds {
        let (was, is) = outcomes(high);
        match bands.last_mut() {
            Some(last) if last.high == low && (last.was, last.is) == (was, is) => last.high = high,
            _ if was != is => bands.push(Band { low, high, was, is }),
            _ => {}
        }
        low = high;
    }
    bands
}

impl Band {
    /// Whether the difference is only whether a review is needed.
    pub(super) fn is_about_reviews(&self) -> bool {
        self.was != Outcome::Denied && self.is != Outcome::Denied
    }

    /// The text of the output. `unit` follows each amount.
    pub(super) fn text(&self, unit: &str) -> String {
        let becomes = match (self.was, self.is) {
            (Outcome::Denied, Outcome::Reviewed) => "reviewed, no longer denied",
            (Outcome::Denied, _) => "no longer denied",
            (Outcome::Reviewed, Outcome::Denied) => "denied, no longer reviewed",
            (Outcome::Reviewed, _) => "allowed without a review",
            (Outcome::Allowed, Outcome::Reviewed) => "reviewed",
            (Outcome::Allowed, _) => "denied",
        };
        let (low, high) = (self.low, self.high);
        if low == Total::ZERO {
            format!("{becomes}: payments up to {high}{unit}")
        } else {
            format!("{becomes}: payments above {low}{unit}, up to {high}{unit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use mandate_core::json::Object;
    use mandate_core::{
        AgentId, Amount, Basis, Evaluation, Mandate, MandateId, Request, Timestamp, Verdict, evaluate,
    };
    use proptest::prelude::*;

    use super::*;

    /// Terms with a limit, a monthly cap (0: none) and a threshold. Amounts are in halves.
    fn terms(limit: u32, month: u32, review: Option<u32>, currency: &str) -> Terms {
        let halves = |n: u32| format!("{}.{}", n / 2, 5 * (n % 2));
        let month = if month == 0 { String::new() } else { format!(r#""per_month":{},"#, halves(month)) };
        let review = review.map_or(String::new(), |n| match n.min(limit) {
            0 => r#""review_above":0,"#.to_owned(),
            n => format!(r#""review_above":{},"#, halves(n)),
        });
        let text = format!(
            r#"{{"principal":"role:a","agent":"agt_a","limits":{{"per_transaction":{},{month}"currency":"{currency}"}},"categories":["a"],{review}"expires":"2027-01-01"}}"#,
            halves(limit)
        );
        Terms::read(Object::parse(text.as_bytes()).unwrap()).unwrap()
    }

    /// The engine's verdict on the first payment of a month.
    fn decided(terms: &Terms, amount: Total, currency: &str) -> Outcome {
        let now = Timestamp::parse("2026-06-01T12:00:00Z").unwrap();
        let id = MandateId::from_bytes([0; 16]);
        let mandate = Mandate::new(id, terms.clone(), now);
        let body =
            format!(r#"{{"amount":{amount},"currency":"{currency}","recipient":"vendor:v","category":"a"}}"#);
        let request =
            Request::read(AgentId::parse("agt_a").unwrap(), Object::parse(body.as_bytes()).unwrap()).unwrap();
        let basis = Basis { spent: Total::ZERO, recent_requests: 0 };
        match evaluate(Some(&mandate), &basis, &request, now, Evaluation::Request).verdict {
            Verdict::Allow => Outcome::Allowed,
            Verdict::Review => Outcome::Reviewed,
            _ => Outcome::Denied,
        }
    }

    /// Amounts at and around every bound of both, and far from them.
    fn amounts(sides: [&Terms; 2]) -> Vec<Total> {
        let least = Amount::parse("0.00000001").unwrap();
        let divisions = sides.map(Division::of);
        let mut amounts = vec![Total::from(least), Total::parse("1000000").unwrap()];
        for bound in divisions.iter().flat_map(Division::bounds) {
            amounts.push(bound.plus(least));
            if let Ok(at) = Amount::parse(&bound.to_string()) {
                amounts.push(bound);
                amounts.extend(at.minus(least).map(Total::from));
            }
        }
        amounts
    }

    /// The verdicts that the bands give for an amount.
    fn outcomes_of(bands: &[Band], amount: Total) -> Option<(Outcome, Outcome)> {
        let mut holding = bands.iter().filter(|band| band.low < amount && amount <= band.high);
        let found = holding.next().map(|band| (band.was, band.is));
        assert!(holding.next().is_none(), "{bands:?}");
        found
    }

    proptest! {
        #[test]
        fn bands_agree_with_the_engine(
            before in (1_u32..12, 0_u32..14, prop::option::of(0_u32..12)),
            after in (1_u32..12, 0_u32..14, prop::option::of(0_u32..12)),
        ) {
            let side = |(limit, month, review), currency| terms(limit, month, review, currency);
            let (was, is, other) = (side(before, "USD"), side(after, "USD"), side(after, "JPY"));
            let (changes, opened) = (bands(&was, &is), openings(&other));
            for amount in amounts([&was, &is]) {
                let outcomes = (decided(&was, amount, "USD"), decided(&is, amount, "USD"));
                prop_assert_eq!(outcomes_of(&changes, amount), (outcomes.0 != outcomes.1).then_some(outcomes), "{}", amount);
                // In another currency, everything was denied that is not denied now, and the other way round.
                let outcomes = (decided(&was, amount, "JPY"), decided(&other, amount, "JPY"));
                prop_assert_eq!(outcomes_of(&opened, amount), (outcomes.0 != outcomes.1).then_some(outcomes), "{}", amount);
                prop_assert_eq!(decided(&other, amount, "USD"), Outcome::Denied);
            }
        }
    }
}
