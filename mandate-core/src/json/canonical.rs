//! One spelling for all documents with the same meaning, so that they can be compared.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Field, Object, join_owned};
use crate::amount::Amount;
use crate::error::Invalid;

/// The document in the one spelling for its meaning: members sorted by name, no white space, amounts
/// normalised.
///
/// ```
/// use mandate_core::json::canonical;
/// let one = canonical(br#"{"b": [1.0, "x"], "a": {}}"#)?;
/// assert_eq!(one, r#"{"a":{},"b":[1,"x"]}"#);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
///
/// # Errors
/// As for [`Object::parse`]; and a name appears twice, at any depth.
pub fn canonical(bytes: &[u8]) -> Result<String, Invalid> {
    let mut out = String::with_capacity(bytes.len());
    write_object(Object::parse(bytes)?, &mut out)?;
    Ok(out)
}

fn write_object(mut object: Object<'_>, out: &mut String) -> Result<(), Invalid> {
    object.members.sort_by(|(a, _), (b, _)| a.cmp(b));
    out.push('{');
    for (place, (name, raw)) in object.members.iter().enumerate() {
        let path = Cow::Owned(join_owned(&object.path, name));
        out.push_str(if place == 0 { "" } else { "," });
        write_string(name, out)?;
        out.push(':');
        write_value(&Field { path, raw: raw.map_or("null", RawValue::get) }, out)?;
    }
    out.push('}');
    Ok(())
}

/// The depth is bounded by [`MAX_DEPTH`], which [`Object::parse`] has checked for the whole document.
fn write_value(field: &Field<'_>, out: &mut String) -> Result<(), Invalid> {
    match field.raw.as_bytes().first() {
        Some(b'{') => return write_object(field.object()?, out),
        Some(b'[') => {
            out.push('[');
            for (place, element) in field.array()?.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                write_value(element, out)?;
            }
            out.push(']');
        }
        Some(b'"') => write_string(&field.string()?, out)?,
        _ => match Amount::parse(field.raw) {
            Ok(amount) => out.push_str(&amount.to_string()),
            Err(_) => out.push_str(field.raw),
        },
    }
    Ok(())
}

fn write_string(text: &str, out: &mut String) -> Result<(), Invalid> {
    out.push_str(&serde_json::to_string(text).map_err(|e| Invalid::new("body", e.to_string()))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_mean_the_same_have_one_spelling() {
        let one = r#"{"amount":40,"list":[{"a":null,"b":true},-1.50],"text":"\u00e9\n"}"#;
        let other = r#" { "text" : "é\u000a", "list":[ {"b":true,"a":null}, -1.50 ] ,"amount":4.0e1 } "#;
        assert_eq!(canonical(one.as_bytes()).unwrap(), canonical(other.as_bytes()).unwrap());
        assert_ne!(canonical(br#"{"a":1}"#).unwrap(), canonical(br#"{"a":"1"}"#).unwrap());
        assert!(canonical(br#"{"a":{"b":1,"b":1}}"#).is_err() && canonical(b"[]").is_err());
    }
}
