//! What a mandate is read from, how it is shown, and what it governs.

use super::*;

const WHOLE: &str = r#"{"principal":"role:cfo","agent":"agt_a","limits":{"per_transaction":500,"per_month":2e3,
    "currency":"USD"},"categories":["b","a"],"review_above":200.50,"expires":"2026-12-31",
    "escrow":{"required_above":0}}"#;

fn read(body: &str) -> Result<Terms, Invalid> {
    Terms::read(Object::parse(body.as_bytes())?)
}

#[test]
fn a_whole_mandate_is_read_and_shown() {
    let created_at = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
    let id = MandateId::from_bytes([0; 16]);
    let mandate = Mandate::new(id, read(WHOLE).unwrap(), created_at);
    assert_eq!(
        serde_json::to_string(&mandate.view(created_at)).unwrap(),
        concat!(
            r#"{"id":"mnd_00000000000000000000000000","principal":"role:cfo","agent":"agt_a","#,
            r#""limits":{"per_transaction":500,"per_month":2000,"currency":"USD"},"categories":["b","a"],"#,
            r#""review_above":200.5,"expires":"2026-12-31","escrow":{"required_above":0},"#,
            r#""status":"active","created_at":"2026-01-01T00:00:00.000Z","governs_from":1}"#
        )
    );
    let (revoked_after, governed_until) = (Some(0), Some(4));
    let replaced = Mandate { governs_from: 5, revoked_after, governed_until, ..mandate.clone() };
    assert!(
        serde_json::to_string(&replaced.view(created_at))
            .unwrap()
            .ends_with(r#","governs_from":5,"revoked_after":0,"governed_until":4}"#)
    );
    let last = Timestamp::parse("2026-12-31T23:59:59.999Z").unwrap();
    assert_eq!(mandate.status(last), MandateStatus::Active);
    assert_eq!(mandate.status(Timestamp::from_millis(last.millis() + 1)), MandateStatus::Expired);
    assert!(mandate.terms.must_hold_at(last).is_ok());
    assert_eq!(
        mandate.terms.must_hold_at(last.plus_seconds(1)).unwrap_err().to_string(),
        "expires must not be in the past; got `2026-12-31`, today is 2027-01-01 (UTC)"
    );
}

#[test]
fn each_status_has_one_word() {
    for status in MandateStatus::ALL {
        assert_eq!(MandateStatus::parse(status.as_str()), Ok(status));
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        assert!(MandateStatus::parse(&status.as_str().to_uppercase()).is_err());
    }
}

#[test]
fn what_a_mandate_governs_and_when_it_was_revoked_needs_no_clock() {
    let created_at = Timestamp::from_seconds(0);
    let mandate = Mandate::new(MandateId::from_bytes([0; 16]), read(WHOLE).unwrap(), created_at);
    assert!([1, u64::MAX].into_iter().all(|sequence| mandate.governs(sequence)));
    assert!(!mandate.is_revoked_for(u64::MAX));
    let (revoked_after, governed_until) = (Some(0), Some(4));
    let mandate = Mandate { governs_from: 5, revoked_after, governed_until, ..mandate };
    assert!(!(0..10).any(|sequence| mandate.governs(sequence)), "it was replaced before it decided");
    assert!(!mandate.is_revoked_for(0) && mandate.is_revoked_for(1));
}

#[test]
fn up_to_64_categories_are_read_in_their_order() {
    let with = |count: usize, last: &str| {
        let names: Vec<_> = (1..count).map(|n| format!("\"c{n}\"")).chain([format!("\"{last}\"")]).collect();
        read(&WHOLE.replace(r#""b","a""#, &names.join(",")))
    };
    let terms = with(MAX_CATEGORIES, "last").unwrap();
    let named: Vec<_> = terms.categories.iter().map(Category::as_str).collect();
    assert_eq!((named.len(), named[0], named[1], named[63]), (64, "c1", "c2", "last"));
    let many = with(MAX_CATEGORIES + 1, "last").unwrap_err().to_string();
    assert_eq!(many, "categories must hold 1 to 64 categories; got 65");
    let twice = with(3, "c2").unwrap_err().to_string();
    assert_eq!(twice, "categories[2] must not appear twice; got `c2`");
}

#[test]
fn a_threshold_may_be_zero_in_any_spelling() {
    for zero in ["0", "0.0", "0.00", "0e0", "0E+9", "0.0e-7", "-0", "-0.0"] {
        let terms = read(
            &WHOLE
                .replace("200.50", zero)
                .replace(r#""required_above":0"#, &format!(r#""required_above":{zero}"#)),
        );
        let terms = terms.unwrap_or_else(|refused| panic!("{zero}: {refused}"));
        assert_eq!(terms.review_above, Some(Total::ZERO), "{zero}");
        assert_eq!(terms.escrow.map(|escrow| escrow.required_above), Some(Total::ZERO), "{zero}");
    }
    for (above, message) in [
        ("-0.01", "review_above must be 0 or greater; got `-0.01`"),
        ("0.000000001", "review_above must have at most 15 digits, of which at most 8 are fractional"),
        ("00", "body must be JSON"),
        ("\"0\"", "review_above must be a number; got a string"),
    ] {
        let refused = read(&WHOLE.replace("200.50", above)).unwrap_err().to_string();
        assert!(refused.starts_with(message), "{refused}");
    }
}

#[test]
fn refusals_name_the_field() {
    for (from, to, message) in [
        (r#""currency":"USD""#, r#""x":1"#, "limits.currency is required"),
        (r#""limits":{"#, r#""terms":{"#, "limits.currency is required"),
        (r#""limits":{"#, r#""limits":null,"terms":{"#, "limits must be an object; got null"),
        (r#""currency":"USD""#, r#""currency":"usd""#, "limits.currency must be 3 to 8 characters"),
        (r#""per_transaction":500,"#, "", "limits.per_transaction is required"),
        (
            r#""per_transaction":500"#,
            r#""per_transaction":0"#,
            "limits.per_transaction must be greater than 0",
        ),
        (r#""per_transaction":500"#, r#""per_transaction":"500""#, "limits.per_transaction must be a number"),
        ("2e3", r#"2e3,"per_day":1"#, "limits.per_day is not a known field"),
        (r#"["b","a"]"#, "[]", "categories must hold 1 to 64 categories; got 0"),
        (r#"["b","a"]"#, r#"["a","a"]"#, "categories[1] must not appear twice; got `a`"),
        (r#"["b","a"]"#, r#"["a","A"]"#, "categories[1] must match"),
        ("200.50", "500.01", "review_above must not be above limits.per_transaction, 500; got `500.01`"),
        ("200.50", "null", "review_above must be a number; got null"),
        ("2026-12-31", "2026-02-30", "expires must be a calendar date"),
        ("role:cfo", "cfo", "principal must be `role:`"),
        (
            r#""required_above":0"#,
            r#""required_above":-1"#,
            "escrow.required_above must be 0 or greater; got `-1`",
        ),
        (r#""agent":"agt_a","#, "", "agent is required"),
    ] {
        assert!(WHOLE.contains(from));
        let refused = read(&WHOLE.replace(from, to)).unwrap_err().to_string();
        assert!(refused.starts_with(message), "{refused} / {message}");
    }
}
