//! JSON by paths of member names, for columns and `--json=fields`. Values stay as written: an amount keeps
//! its digits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::exit::{Exit, Failure};

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

/// The members, by the first name of their paths, that some objects have and others of the same kind lack.
const OPTIONAL: [&str; 54] = [
    "agent",
    "arbiter",
    "before",
    "change",
    "claims",
    "compared",
    "continues",
    "current",
    "data",
    "decision",
    "deliveries",
    "denials",
    "environment",
    "error",
    "escrow",
    "event",
    "file",
    "finding",
    "first",
    "governed_until",
    "governing",
    "id",
    "incomplete_since",
    "inconsistent",
    "issuer",
    "last_30_days",
    "limits",
    "line",
    "mandate",
    "mode",
    "month",
    "name",
    "next",
    "next_cursor",
    "not_compared",
    "per_month",
    "pinned_at",
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
    "summary",
    "supersedes",
    "terms",
    "type",
    "verdict_token",
    "webhook",
];

/// The members of the service's objects.
const OF_SERVICE: [&str; 98] = [
    "action",
    "agent",
    "agent_key",
    "allow",
    "amount",
    "arbiter",
    "at",
    "attempts",
    "basis",
    "buyer",
    "categories",
    "category",
    "code",
    "condition",
    "contract",
    "created_at",
    "currency",
    "data",
    "decided_at",
    "decision",
    "deliveries",
    "denials",
    "deny_category",
    "deny_expired",
    "deny_limit",
    "deny_no_mandate",
    "deny_revoked",
    "deny_velocity",
    "disputed",
    "error",
    "escrow",
    "event",
    "events",
    "exp",
    "expires",
    "expires_at",
    "export",
    "format",
    "governed_until",
    "governs_from",
    "has_more",
    "history",
    "iat",
    "id",
    "incomplete_since",
    "instruction",
    "iss",
    "jti",
    "keys",
    "limits",
    "mandate",
    "message",
    "mode",
    "month",
    "name",
    "next_attempt_at",
    "next_cursor",
    "nonce",
    "note",
    "per_month",
    "per_transaction",
    "policy_version",
    "principal",
    "reason",
    "recent_requests",
    "recipient",
    "refund_after",
    "remaining",
    "replaced_by",
    "request",
    "request_id",
    "requests",
    "required_above",
    "resolved_after",
    "resolved_at",
    "review",
    "review_above",
    "revoked_after",
    "revoked_at",
    "rows",
    "seller",
    "sequence",
    "settlement",
    "sha256",
    "since",
    "spent",
    "state",
    "status",
    "supersedes",
    "to",
    "type",
    "until",
    "url",
    "verdict",
    "verdict_token",
    "verdicts",
    "waits_for",
    "webhook",
];

/// Refuses the name of a field that no object of the service has: before anything is sent that changes something.
pub(crate) fn must_be_of_service(paths: &[String]) -> Result<(), Failure> {
    must_be_among(paths, &OF_SERVICE)
}

/// Refuses the name of a field that is not among those that a document may have.
pub(crate) fn must_be_among(paths: &[String], known: &[&str]) -> Result<(), Failure> {
    let head = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    let unknown = paths.iter().find(|path| !path.is_empty() && !known.contains(&head(path).as_str()));
    match unknown {
        None => Ok(()),
        Some(path) => Err(no_field(path).note("fields", known.join(", "))),
    }
}

/// The failure for the name of a field that is nowhere.
pub(crate) fn no_field(path: &str) -> Failure {
    Failure::new(Exit::Usage, format!("there is no field `{path}`"))
}

/// The names beside which `path` was looked for in an object, as they are given: `request.amount`.
pub(crate) fn siblings(json: &str, path: &str) -> Vec<String> {
    let parent = path.rsplit_once('.').and_then(|(parent, _)| Some((parent, at(json, parent)?)));
    match parent {
        Some((parent, object)) => names(object).into_iter().map(|name| format!("{parent}.{name}")).collect(),
        None => names(json),
    }
}

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
    fn the_service_s_fields_are_those_of_its_reference() {
        let reference = include_str!("../../docs/openapi.yaml");
        let mut named = std::collections::BTreeSet::new();
        let mut depth = None;
        for line in reference.lines() {
            let indent = line.chars().take_while(|c| *c == ' ').count();
            if depth.is_some_and(|depth| indent <= depth) {
                depth = None;
            }
            match (depth, line.trim_end().strip_suffix(':')) {
                (None, Some(name)) if name.trim() == "properties" => depth = Some(indent),
                (Some(depth), Some(name)) if indent == depth + 2 => {
                    named.insert(name.trim());
                }
                _ => {}
            }
        }
        assert_eq!(named.into_iter().collect::<Vec<_>>(), OF_SERVICE);
    }

    #[test]
    fn names_are_told_where_they_were_looked_for() {
        assert_eq!(siblings(DECISION, "request.nosuch"), ["request.agent", "request.amount"]);
        assert_eq!(siblings(DECISION, "no.such").len(), 4);
        assert!(must_be_of_service(&["request.nosuch".to_owned()]).is_ok());
        let refused = must_be_of_service(&["nosuch".to_owned()]).unwrap_err();
        assert!(refused.render().contains("there is no field `nosuch`"));
    }

    #[test]
    fn selection_keeps_order_and_shows_what_is_absent() {
        let paths = ["request.amount".to_owned(), "jti".to_owned(), "no\"such".to_owned()];
        let selected = r#"{"request.amount":40.50,"jti":"dec_1","no\"such":null}"#;
        assert_eq!(select(DECISION, &paths), selected);
        assert_eq!(select(&format!("[{DECISION}]"), &paths), format!("[{selected}]"));
    }
}
