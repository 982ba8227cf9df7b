//! JSON by paths of member names, for columns and `--json=fields`. Values stay as written: an amount keeps
//! its digits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The value at `path`, names separated by full stops. `null` counts as absent.
pub(crate) fn at<'a>(json: &'a str, path: &str) -> Option<&'a str> {
    let found = path.split('.').try_fold(json, |json, name| {
        let members: Members<'_> = serde_json::from_str(json).ok()?;
        members.get(name).map(|value| value.get())
    });
    found.filter(|value| *value != "null")
}

/// The text at `path`: a string's own, anything else as JSON, several strings separated by commas.
pub(crate) fn text(json: &str, path: &str) -> Option<String> {
    let value = at(json, path)?;
    if let Ok(text) = serde_json::from_str::<String>(value) {
        return Some(text);
    }
    Some(
        serde_json::from_str::<Vec<String>>(value)
            .map_or_else(|_| value.to_owned(), |texts| texts.join(", ")),
    )
}

/// The elements of the array at `path`.
pub(crate) fn items<'a>(json: &'a str, path: &str) -> Option<Vec<&'a str>> {
    let items: Vec<&RawValue> = serde_json::from_str(at(json, path)?).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

/// The members, by the first name of their paths, that some objects of the service have and others lack.
const OPTIONAL: [&str; 30] = [
    "agent",
    "arbiter",
    "data",
    "decision",
    "deliveries",
    "denials",
    "escrow",
    "governed_until",
    "incomplete_since",
    "issuer",
    "limits",
    "mandate",
    "mode",
    "name",
    "next_cursor",
    "per_month",
    "reason",
    "remaining",
    "replaced_by",
    "review",
    "review_above",
    "revoked_after",
    "revoked_at",
    "rows",
    "settlement",
    "sha256",
    "status",
    "supersedes",
    "verdict_token",
    "webhook",
];

/// The first of `paths` that is in none of `objects`, and is not optional.
pub(crate) fn unknown<'a>(objects: &[&str], paths: &'a [String]) -> Option<&'a str> {
    let is_there = |path: &str| objects.iter().any(|json| has(json, path));
    let is_optional = |path: &str| OPTIONAL.iter().any(|name| path.split('.').next() == Some(name));
    paths.iter().map(String::as_str).find(|path| !is_there(path) && !is_optional(path))
}

/// Whether there is a member at `path`, `null` or not.
fn has(json: &str, path: &str) -> bool {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = if parent.is_empty() { Some(json) } else { at(json, parent) };
    parent.is_some_and(|parent| names(parent).iter().any(|there| there == name))
}

/// The names of the members of an object.
pub(crate) fn names(json: &str) -> Vec<String> {
    let members: Members<'_> = serde_json::from_str(json).unwrap_or_default();
    members.into_keys().map(Cow::into_owned).collect()
}

/// An object with the values at `paths`, named by their paths, and `null` for absent ones. For an array, one
/// for each element.
pub(crate) fn select(json: &str, paths: &[String]) -> String {
    if let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(json) {
        let elements: Vec<String> =
            elements.into_iter().map(|element| select(element.get(), paths)).collect();
        return format!("[{}]", elements.join(","));
    }
    let members: Vec<String> = paths
        .iter()
        .map(|path| {
            format!("{}:{}", serde_json::Value::from(path.as_str()), at(json, path).unwrap_or("null"))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECISION: &str =
        r#"{"jti":"dec_1","request":{"amount":40.50,"agent":"agt_\u0061"},"denials":["a","b"],"none":null}"#;

    #[test]
    fn values_are_found_as_they_were_written() {
        assert_eq!(at(DECISION, "request.amount"), Some("40.50"));
        assert_eq!(text(DECISION, "request.agent").as_deref(), Some("agt_a"));
        assert_eq!(text(DECISION, "denials").as_deref(), Some("a, b"));
        for absent in ["none", "nothing", "jti.more", ""] {
            assert_eq!(at(DECISION, absent), None, "{absent}");
        }
    }

    #[test]
    fn a_name_is_known_if_an_object_has_it_or_may_have_it() {
        let named = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
            unknown(&["{}", DECISION], &paths).map(str::to_owned)
        };
        assert_eq!(named(&["jti", "request.amount", "none", "review.id", "verdict_token"]), None);
        assert_eq!(named(&["jti", "nosuch"]).as_deref(), Some("nosuch"));
        assert_eq!(named(&["request.nosuch"]).as_deref(), Some("request.nosuch"));
    }

    #[test]
    fn selection_keeps_order_and_shows_what_is_absent() {
        let paths = ["request.amount".to_owned(), "jti".to_owned(), "no\"such".to_owned()];
        let selected = r#"{"request.amount":40.50,"jti":"dec_1","no\"such":null}"#;
        assert_eq!(select(DECISION, &paths), selected);
        assert_eq!(select(&format!("[{DECISION}]"), &paths), format!("[{selected}]"));
    }
}
