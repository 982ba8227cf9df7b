//! How amounts are read and written, and that sums are exact.

use super::*;
use proptest::prelude::*;

#[test]
fn reads_exactly_and_renders_normalised() {
    for (text, rendered) in [
        ("40", "40"),
        ("40.50", "40.5"),
        ("40.00000000000000000000", "40"),
        ("0.00000001", "0.00000001"),
        ("1e2", "100"),
        ("1E+2", "100"),
        ("1.5e1", "15"),
        ("1500e-2", "15"),
        ("0.001e3", "1"),
        ("100e-10", "0.00000001"),
        ("999999999999999", "999999999999999"),
        ("9999999.99999999", "9999999.99999999"),
    ] {
        assert_eq!(Amount::parse(text).unwrap().to_string(), rendered, "{text}");
    }
}

#[test]
fn refuses_what_it_cannot_hold() {
    for (text, message) in [
        ("0", "must be greater than 0"),
        ("0e9", "must be greater than 0"),
        ("-0", "must be greater than 0"),
        ("-5", "must be greater than 0"),
        ("100.00000000000000000000000000000001", "at most 15 digits"),
        ("0.000000001", "at most 15 digits"),
        ("1e-9", "at most 15 digits"),
        ("1e15", "at most 15 digits"),
        ("1e400", "at most 15 digits"),
        ("1e99999999999999999999", "at most 15 digits"),
        ("9999999999999999", "at most 15 digits"),
        ("99999999.99999999", "at most 15 digits"),
        ("", "must be a number"),
        ("1.", "must be a number"),
        (".5", "must be a number"),
        ("+1", "must be a number"),
        ("01", "must be a number"),
        ("1e", "must be a number"),
        ("1_000", "must be a number"),
        ("0x10", "must be a number"),
        ("\u{0661}", "must be a number"),
        ("Infinity", "must be a number"),
    ] {
        let refused = Amount::parse(text).unwrap_err().to_string();
        assert!(refused.contains(message), "{text}: {refused}");
    }
}

#[test]
fn a_total_has_no_exponent_and_no_sign() {
    for text in ["1e2", "1E2", "1e0", "1.5e1", "10e-1", "0e0", "0e5", "-0", "-1", "1.000000001"] {
        let refused = Total::parse(text).unwrap_err().to_string();
        assert!(
            refused.contains("without exponent") && refused.ends_with(&format!("got `{text}`")),
            "{refused}"
        );
    }
    for (text, rendered) in [("0", "0"), ("0.0", "0"), ("1.00000001", "1.00000001"), ("100", "100")] {
        assert_eq!(Total::parse(text).unwrap().to_string(), rendered, "{text}");
    }
}

/// The text of a number of units of the last decimal place.
fn rendered(units: i128) -> String {
    let plain = format!("{}.{:08}", units / 100_000_000, units % 100_000_000);
    plain.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[test]
fn totals_stop_at_their_maximum() {
    assert_eq!(Total::MAX.to_string(), "100000000000000000000");
    let least = Amount::parse("0.00000001").unwrap();
    let most = Amount::parse("999999999999999").unwrap();
    let below = Total::parse("99999999999999999999.99999998").unwrap();
    assert_eq!(below.plus(least).to_string(), "99999999999999999999.99999999");
    for stopped in [below.plus(least).plus(least), below.plus(most), Total::MAX.plus(least)] {
        assert_eq!(stopped, Total::MAX);
    }
    assert_eq!([Total::MAX, Total::MAX].into_iter().sum::<Total>(), Total::MAX);
    assert_eq!(Total::MAX.remaining(most), Total::ZERO);
    assert_eq!(Total::parse(&Total::MAX.to_string()), Ok(Total::MAX));
    let refused = Total::parse("100000000000000000000.00000001").unwrap_err().to_string();
    assert!(refused.contains("from 0 to 100000000000000000000"), "{refused}");
}

#[test]
fn totals_outgrow_amounts() {
    let most = Amount::parse("999999999999999").unwrap();
    let total = (0..2000).fold(Total::ZERO, |t, _| t.plus(most));
    assert_eq!(total.to_string(), "1999999999999998000");
    assert_eq!(Total::parse(&total.to_string()).unwrap(), total);
    assert_eq!(total.plus(Amount::parse("0.05").unwrap()).to_string(), "1999999999999998000.05");
    assert!(Total::parse("-1").is_err() && Total::parse("0.123456789").is_err());
}

#[test]
fn is_written_as_a_number() {
    assert_eq!(serde_json::to_string(&Amount::parse("0.10").unwrap()).unwrap(), "0.1");
    assert_eq!(serde_json::to_string(&Total::ZERO).unwrap(), "0");
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(whole in 0_u64..10_000_000, fraction in 1_u32..100_000_000) {
        let text = format!("{whole}.{fraction:08}");
        let amount = Amount::parse(&text).unwrap();
        prop_assert_eq!(Amount::parse(&amount.to_string()).unwrap(), amount);
        prop_assert_eq!(Total::parse(&amount.to_string()).unwrap(), Total::from(amount));
        prop_assert_eq!(Amount::parse(&format!("{whole}{fraction:08}e-8")).unwrap(), amount);
        prop_assert_eq!(Amount::try_from(Decimal::from(amount)).unwrap(), amount);
        // Two different amounts are different as doubles, too.
        if let Ok(next) = Amount::try_from(amount.0 + Decimal::new(1, 8)) {
            let float = |a: Amount| a.to_string().parse::<f64>().unwrap();
            prop_assert_ne!(float(amount).to_bits(), float(next).to_bits());
        }
    }

    /// Amounts as (digits, fractional digits), added to a total from anywhere below the maximum.
    #[test]
    fn additions_are_exact(
        start in prop_oneof![0..10_i128.pow(28), 10_i128.pow(28) - 10_i128.pow(24)..10_i128.pow(28), Just(0)],
        amounts in prop::collection::vec((1..1_000_000_000_000_000_i64, 0..=8_u32), 1..40),
        limit in (1..1_000_000_000_000_000_i64, 0..=8_u32),
    ) {
        let read = |(digits, scale): (i64, u32)| {
            let units = i128::from(digits) * 10_i128.pow(8 - scale);
            (Amount::try_from(Decimal::new(digits, scale)).unwrap(), units)
        };
        let mut total = Total::parse(&rendered(start)).unwrap();
        let (mut units, mut alone) = (start, Total::ZERO);
        let (limit, limit_units) = read(limit);
        for (amount, more) in amounts.into_iter().map(read) {
            prop_assert_eq!(amount.to_string(), rendered(more));
            (total, alone) = (total.plus(amount), alone.plus(amount));
            units = (units + more).min(10_i128.pow(28));
            prop_assert_eq!(total.to_string(), rendered(units));
            prop_assert_eq!(total.exceeds(limit), units > limit_units);
            prop_assert_eq!(total.remaining(limit).to_string(), rendered((limit_units - units).max(0)));
        }
        let started = Total::parse(&rendered(start)).unwrap();
        prop_assert_eq!([started, alone].into_iter().sum::<Total>(), total);
    }

    #[test]
    fn numbers_are_taken_as_their_text_is(mantissa in -(1_i128 << 96) + 1..1_i128 << 96, scale in 0..=28_u32, small in any::<bool>()) {
        let mantissa = if small { mantissa >> 46 } else { mantissa };
        let number = Decimal::try_from_i128_with_scale(mantissa, scale).unwrap();
        let read = Amount::parse(&number.to_string());
        prop_assert_eq!(Amount::try_from(number).ok(), read.ok());
    }

    #[test]
    fn never_panics(text in "[-+0-9.eE]{0,40}") {
        let _ = Amount::parse(&text);
        let _ = Total::parse(&text);
    }
}
