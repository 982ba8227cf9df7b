//! Free text that people read: any Unicode, but nothing that changes how it is shown, or that a database cannot store.

use std::ops::RangeInclusive;

use mandate_core::Invalid;
use mandate_core::json::Field;

use crate::model::text::is_bidirectional_control;

/// What free text matches, apart from its length.
pub(super) const PATTERN: &str = "^(?:[^\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]|\\r\\n)*$";

/// The text of a field, of so many characters.
pub(super) fn free_text(field: &Field<'_>, length: RangeInclusive<usize>) -> Result<String, Invalid> {
    let text = field.string()?;
    if !length.contains(&text.chars().count()) {
        let (least, most) = length.into_inner();
        let wanted = if least == 0 { format!("at most {most}") } else { format!("{least} to {most}") };
        return Err(Invalid::new(field.path(), format!("must be {wanted} characters long")));
    }
    match refused(&text) {
        None => Ok(text.into_owned()),
        Some((place, found, accepted)) => {
            let code = u32::from(found);
            Err(Invalid::new(
                field.path(),
                format!("must hold no {accepted}; character {place} is U+{code:04X}"),
            ))
        }
    }
}

/// The first character that is not accepted: its place, counted from 1, and what it is one of.
fn refused(text: &str) -> Option<(usize, char, &'static str)> {
    let mut characters = (1..).zip(text.chars()).peekable();
    while let Some((place, found)) = characters.next() {
        let accepted = match found {
            '\n' | '\t' => true,
            '\r' => characters.peek().is_some_and(|(_, next)| *next == '\n'),
            found if is_bidirectional_control(found) => {
                return Some((
                    place,
                    found,
                    "bidirectional controls: they change the order in which text is shown",
                ));
            }
            found => !found.is_control(),
        };
        if !accepted {
            return Some((
                place,
                found,
                "control characters but line feed, carriage return before it, and tab",
            ));
        }
    }
    None
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
