//! JSON by paths of member names, for columns and `--json=fields`. Values stay as written: an amount keeps
//! its digits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::exit::{Exit, Failure};
use crate::members;

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

/// Refuses the name of a field that is not among those that a document may have, or below them.
pub(crate) fn must_be_among(paths: &[String], known: &[&str]) -> Result<(), Failure> {
    let Some(path) = paths.iter().find(|path| !path.is_empty() && !is_known(path, known)) else {
        return Ok(());
    };
    let parent = path.rsplit_once('.').filter(|(parent, _)| is_known(parent, known));
    let fields = match parent.and_then(|(parent, _)| Some((parent, members::within(parent)?))) {
        Some((parent, names)) => {
            names.iter().map(|name| format!("{parent}.{name}")).collect::<Vec<_>>().join(", ")
        }
        None => known.join(", "),
    };
    Err(no_field(path).note("fields", fields))
}

/// Whether a path begins with one of the `known` members, and goes on with members of the objects within them.
pub(crate) fn is_known(path: &str, known: &[&str]) -> bool {
    match path.rsplit_once('.') {
        None => known.contains(&path),
        Some((parent, name)) => {
            members::within(parent).is_some_and(|names| names.contains(&name)) && is_known(parent, known)
        }
    }
}

/// The failure for the name of a field that is nowhere.
pub(crate) fn no_field(path: &str) -> Failure {
    Failure::new(Exit::Usage, format!("there is no field `{path}`"))
}

/// The failure for the name of a field that is not in an object: with those beside it, or the way into a list.
pub(crate) fn not_in(json: &str, path: &str) -> Failure {
    let failure = no_field(path);
    let mut above = path;
    while let Some((parent, _)) = above.rsplit_once('.') {
        if items(json, parent).is_some() {
            return failure
                .next(format_args!("`{parent}` is a list: --jq '.{parent}[]' reads what is in it"));
        }
        let beside = names(at(json, parent).unwrap_or_default());
        if !beside.is_empty() {
            let beside: Vec<_> = beside.into_iter().map(|name| format!("{parent}.{name}")).collect();
            return failure.note("fields", beside.join(", "));
        }
        above = parent;
    }
    failure.note("fields", names(json).join(", "))
}

/// The first of `paths` that is below a member of `objects`, and that none of them has or may have there.
pub(crate) fn unknown<'a>(objects: &[&str], paths: &'a [String]) -> Option<&'a str> {
    paths.iter().map(String::as_str).find(|path| !may_have(objects, path))
}

/// Whether one of `objects` has a member at `path`, or may have one there. The names of their own members are known.
fn may_have(objects: &[&str], path: &str) -> bool {
    let Some((parent, name)) = path.rsplit_once('.') else { return true };
    if objects.iter().any(|json| has(json, path)) {
        return true;
    }
    may_have(objects, parent)
        && match members::within(parent) {
            Some(names) => names.contains(&name),
            // What is absent from all may be an object with this member.
            None => objects.iter().all(|json| at(json, parent).is_none()),
        }
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
    fn a_name_within_is_known_if_an_object_has_it_or_may_have_it() {
        let named = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
            unknown(&["{}", DECISION], &paths).map(str::to_owned)
        };
        assert_eq!(named(&["jti", "request.amount", "none", "review.id"]), None);
        assert_eq!(named(&["request.nosuch"]).as_deref(), Some("request.nosuch"));
        // Below what is absent from these, and below what is no object.
        for path in ["review.nosuch", "limits.amount", "denials.nosuch", "jti.more"] {
            assert_eq!(named(&[path]).as_deref(), Some(path));
        }
        assert_eq!(named(&["limits.per_month", "summary.findings"]), None);
    }

    #[test]
    fn names_are_told_where_they_were_looked_for() {
        let told = |path| not_in(DECISION, path).render();
        for path in ["no.such", "jti.more", "jti.more.still"] {
            assert!(told(path).ends_with("denials, jti, none, request\n"), "{path}");
        }
        for path in ["request.nosuch", "request.agent.more"] {
            assert!(told(path).ends_with("request.agent, request.amount\n"), "{path}");
        }
        for path in ["denials.nosuch", "denials.a.b"] {
            let way = "`denials` is a list: --jq '.denials[]' reads what is in it";
            assert!(told(path).contains(way), "{path}");
        }
        let refused = |path: &str| {
            let found = must_be_among(&[path.to_owned()], &members::MANDATE);
            found.err().map(|failure| failure.render()).unwrap_or_default()
        };
        assert!(refused("nosuch").contains("there is no field `nosuch`"));
        assert!(refused("nosuch").contains("review_above"));
        assert!(refused("limits.nosuch").contains("limits.per_month"));
        assert!(refused("id.nosuch").contains("there is no field `id.nosuch`"));
        assert_eq!(refused("limits.per_month"), "");
    }

    #[test]
    fn selection_keeps_order_and_shows_what_is_absent() {
        let paths = ["request.amount".to_owned(), "jti".to_owned(), "no\"such".to_owned()];
        let selected = r#"{"request.amount":40.50,"jti":"dec_1","no\"such":null}"#;
        assert_eq!(select(DECISION, &paths), selected);
        assert_eq!(select(&format!("[{DECISION}]"), &paths), format!("[{selected}]"));
    }
}
