//! Free text in a body.

use std::ops::RangeInclusive;

use mandate_core::Invalid;
use mandate_core::json::Field;

use crate::model::text;

/// What free text matches, apart from its length.
pub(super) const PATTERN: &str = "^(?:[^\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]|\\r\\n)*$";

/// The text of a field, of so many characters.
pub(super) fn free_text(field: &Field<'_>, length: RangeInclusive<usize>) -> Result<String, Invalid> {
    let text = field.string()?;
    text::free(&text, length).map_err(|problem| Invalid::new(field.path(), problem))?;
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::json::Object;

    fn read(json: &str) -> Result<String, String> {
        let body = format!("{{\"note\":{json}}}");
        let field = Object::parse(body.as_bytes()).unwrap().require("note").unwrap();
        free_text(&field, 1..=5).map_err(|e| e.to_string())
    }

    #[test]
    fn a_text_is_bounded_in_characters_and_holds_nothing_that_is_not_text() {
        for json in [
            r#""\u00e9\n\r\n\t""#,
            r#""\u2028\u2029\ufeff\uffff""#,
            r#""\ud83d\udc68\u200d\ud83d\udcbb""#,
            "\"e\u{301}\u{301}\u{301}\u{301}\"",
        ] {
            assert!(read(json).is_ok(), "{json}");
        }
        let length = Err("note must be 1 to 5 characters long".to_owned());
        assert_eq!((read(r#""""#), read(r#""123456""#)), (length.clone(), length));
        let controls = "control characters but line feed, carriage return before it, and tab";
        let bidirectional = "bidirectional controls: they change the order in which text is shown";
        for (json, accepted, place, code) in [
            (r#""\u0000""#, controls, 1, "0000"),
            (r#""ab\u001b""#, controls, 3, "001B"),
            (r#""a\r""#, controls, 2, "000D"),
            (r#""\r\r\n""#, controls, 1, "000D"),
            (r#""\u007f""#, controls, 1, "007F"),
            (r#""a\u0085""#, controls, 2, "0085"),
            (r#""a\u202eb""#, bidirectional, 2, "202E"),
            (r#""\u2069""#, bidirectional, 1, "2069"),
            (r#""\u061c""#, bidirectional, 1, "061C"),
        ] {
            let message = format!("note must hold no {accepted}; character {place} is U+{code}");
            assert_eq!(read(json), Err(message), "{json}");
        }
        assert_eq!(read(r#""\ud800""#), Err("note must be a string of valid Unicode".to_owned()));
    }
}
