//! Compares the mandates of an export with the governing records of them.

use mandate_core::{Mandate, Terms};

use super::Finding;
use crate::export::{Header, Listed, Mandates, People};

/// What is found of the mandates of each export, by its governing records. Each has a header, and the number of its newest one.
pub(super) fn of_parts(
    parts: &[Mandates],
    headers: &[(Option<Header>, u64)],
    people: &People,
) -> Vec<(usize, Finding)> {
    let mut findings = Vec::new();
    for (part, (mandates, (header, newest))) in parts.iter().zip(headers).enumerate() {
        if header.as_ref().is_none_or(Header::has_all_records) {
            let found = mandates.iter().flat_map(|listed| of_mandate(listed, people, *newest));
            findings.extend(found.map(|finding| (part, finding)));
        }
    }
    findings
}

fn of_mandate(Listed { line, mandate, .. }: &Listed, people: &People, newest: u64) -> Vec<Finding> {
    let finding = |found: String, expected: String| {
        let finding = Finding::new(*line, Some(&mandate.id), "mandate_record", found, expected);
        finding.of(&mandate.terms.agent, mandate.governs_from)
    };
    let Some(recorded) = people.grants.mandate(mandate.id, newest) else {
        let expected = "the record of the mandate".to_owned();
        return vec![finding("a mandate without a governing record".to_owned(), expected)];
    };
    let pairs = fields(mandate).into_iter().zip(fields(&recorded));
    let differ = pairs.filter(|((_, shown), (_, recorded))| shown != recorded);
    let found = |((name, shown), (_, recorded)): ((&str, String), (&str, String))| {
        finding(format!("{name} {shown}"), format!("{recorded}, as the governing records have it"))
    };
    differ.map(found).collect()
}

/// What records say of a mandate.
fn fields(mandate: &Mandate) -> [(&'static str, String); 7] {
    fn shown(value: Option<impl ToString>) -> String {
        value.map_or_else(|| "none".to_owned(), |value| value.to_string())
    }
    let terms = |terms: &Terms| serde_json::to_string(terms).unwrap_or_default();
    [
        ("terms", terms(&mandate.terms)),
        ("created_at", mandate.created_at.to_string()),
        ("governs_from", mandate.governs_from.to_string()),
        ("governed_until", shown(mandate.governed_until)),
        ("replaced_by", shown(mandate.replaced_by)),
        ("revoked_at", shown(mandate.revoked_at)),
        ("revoked_after", shown(mandate.revoked_after)),
    ]
}
