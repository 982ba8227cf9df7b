//! Checks of a whole document, at any depth, before its members are taken out one by one.

use super::{MAX_MEMBERS, Members, Object, Text, elements, nested};
use crate::api_key::holds_key;
use crate::error::{Invalid, echo};

/// What must not be in a name or text, as the end of a sentence.
type Refuse = fn(&str) -> Option<&'static str>;

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
        self.each(|_| None)
    }

    /// The same, and no name or text holds an API key: later readers of the document would have it. No message repeats
    /// the key.
    ///
    /// ```
    /// use mandate_core::json::Object;
    /// let body = br#"{"note": "ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye"}"#;
    /// let refused = Object::parse(body)?.strict_without_keys().unwrap_err();
    /// assert_eq!(refused.to_string(), "note must not hold an API key");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Object::strict`]; or a name or text holds an API key.
    pub fn strict_without_keys(&self) -> Result<(), Invalid> {
        self.each(|text| holds_key(text).then_some("must not hold an API key"))
    }

    fn each(&self, refuse: Refuse) -> Result<(), Invalid> {
        self.members.iter().try_for_each(|(name, raw)| {
            let of_name = refuse(name).map_or(Ok(()), |problem| Err(Invalid::new("", problem)));
            let of_value = || raw.map_or(Ok(()), |raw| value(raw.get(), refuse));
            of_name.and_then(|()| of_value()).map_err(|e| below(&echo(name), e))
        })
    }
}

/// Checks one value. Its depth is bounded: [`Object::parse`] has checked that of the whole document. The field of an
/// error is the path from this value.
fn value(raw: &str, refuse: Refuse) -> Result<(), Invalid> {
    match raw.as_bytes().first() {
        Some(b'{') => {
            let members = serde_json::from_str::<Members<'_>>(raw).map_err(|e| nested("", &e))?;
            Object { path: "".into(), members: members.0, known: Vec::new() }.each(refuse)
        }
        Some(b'[') => {
            let mut elements = elements(raw, MAX_MEMBERS, "")?.into_iter().enumerate();
            elements
                .try_for_each(|(i, raw)| value(raw.get(), refuse).map_err(|e| below(&format!("[{i}]"), e)))
        }
        Some(b'"') => match serde_json::from_str::<Text<'_>>(raw) {
            Ok(Text(text)) => refuse(&text).map_or(Ok(()), |problem| Err(Invalid::new("", problem))),
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
