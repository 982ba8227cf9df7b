//! The whole of a document whose unknown members are ignored: two readers must not see two different objects in it.

use super::{MAX_MEMBERS, Members, Object, Text, elements, nested};
use crate::error::{Invalid, echo};

impl Object<'_> {
    /// Checks all members that were not taken out yet, known or unknown, at any depth: no name appears twice in an
    /// object, and every name and text is valid Unicode, without an unpaired surrogate.
    ///
    /// For documents whose unknown members are ignored. Where they are refused, [`Object::finish`] suffices.
    ///
    /// ```
    /// use mandate_core::json::Object;
    /// let claims = Object::parse(br#"{"iss": "i", "later": [{"a": 1, "a": 2}]}"#)?;
    /// assert_eq!(claims.strict().unwrap_err().to_string(), "later[0].a appears twice in the object");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// A name appears twice, a name or a text is not valid Unicode, or an object or array has more than
    /// [`MAX_MEMBERS`].
    pub fn strict(&self) -> Result<(), Invalid> {
        self.members.iter().try_for_each(|(name, raw)| match raw {
            Some(raw) => value(raw.get()).map_err(|e| below(&echo(name), e)),
            None => Ok(()),
        })
    }
}

/// Checks one value. Its depth is bounded: [`Object::parse`] has checked that of the whole document. The field of an
/// error is the path from this value.
fn value(raw: &str) -> Result<(), Invalid> {
    match raw.as_bytes().first() {
        Some(b'{') => {
            let members = serde_json::from_str::<Members<'_>>(raw).map_err(|e| nested("", &e))?;
            Object { path: "".into(), members: members.0, known: Vec::new() }.strict()
        }
        Some(b'[') => {
            let mut elements = elements(raw, MAX_MEMBERS, "")?.into_iter().enumerate();
            elements
                .try_for_each(|(i, raw)| value(raw.get()).map_err(|e| below(&format!("[{i}]"), e)))
        }
        Some(b'"') => match serde_json::from_str::<Text<'_>>(raw) {
            Ok(_) => Ok(()),
            Err(_) => Err(Invalid::new("", "must be a string of valid Unicode")),
        },
        _ => Ok(()),
    }
}

/// The same refusal, its field one step further up.
fn below(step: &str, refused: Invalid) -> Invalid {
    let point = if refused.field().is_empty() || refused.field().starts_with('[') { "" } else { "." };
    let path = format!("{step}{point}{}", refused.field());
    refused.at(path)
}
