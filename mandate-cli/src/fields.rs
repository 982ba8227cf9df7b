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
    fn selection_keeps_order_and_shows_what_is_absent() {
        let paths = ["request.amount".to_owned(), "jti".to_owned(), "no\"such".to_owned()];
        let selected = r#"{"request.amount":40.50,"jti":"dec_1","no\"such":null}"#;
        assert_eq!(select(DECISION, &paths), selected);
        assert_eq!(select(&format!("[{DECISION}]"), &paths), format!("[{selected}]"));
    }
}
