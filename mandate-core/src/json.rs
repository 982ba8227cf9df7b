//! Strict JSON reading: ambiguous input is refused, and the message names the field.
//!
//! RFC 8259 leaves duplicate names, very deep nesting and the precision of numbers to the implementation.
//! Money and signatures cannot. [`Object::parse`] refuses duplicate names, trailing bytes, byte order marks,
//! invalid UTF-8 and nesting beyond [`MAX_DEPTH`]. [`Object::finish`] refuses unknown names. Numbers are
//! returned as they were written, never as a float.
//!
//! ```
//! use mandate_core::json::Object;
//! # fn main() -> Result<(), mandate_core::Invalid> {
//! let mut body = Object::parse(br#"{"amount": 40.50, "currency": "USD"}"#)?;
//! let amount = body.require("amount")?.amount()?;
//! let currency = body.require("currency")?.string()?;
//! body.finish()?;
//! assert_eq!((amount.to_string().as_str(), currency.as_ref()), ("40.5", "USD"));
//! # Ok(())
//! # }
//! ```

mod canonical;
mod line;
mod strict;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::amount::{Amount, Total};
use crate::error::{Invalid, echo};

pub use canonical::canonical;
pub use line::one_line;

/// How many objects and arrays may be nested.
pub const MAX_DEPTH: usize = 32;

/// How many members one object, or elements one array, may have.
pub const MAX_MEMBERS: usize = 1024;

/// A JSON object whose members are taken out one by one.
#[derive(Debug)]
pub struct Object<'a> {
    path: Cow<'static, str>,
    members: Vec<(Cow<'a, str>, Option<&'a RawValue>)>,
    known: Vec<&'static str>,
}

/// One member of an object or element of an array: its path, and its text.
///
/// ```
/// use mandate_core::json::Object;
/// let limits = Object::parse(br#"{"limits": {"per_month": 2000.00}}"#)?.require("limits")?;
/// let field = limits.object()?.require("per_month")?;
/// assert_eq!((field.path().as_ref(), field.raw()), ("limits.per_month", "2000.00"));
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct Field<'a> {
    path: Cow<'static, str>,
    raw: &'a str,
}

impl<'a> Object<'a> {
    /// Reads a whole document that must be one JSON object.
    ///
    /// # Errors
    /// The bytes are not UTF-8 (the message gives the position) or not JSON; there is a byte order mark, or
    /// anything after the object; the nesting exceeds [`MAX_DEPTH`]; a name appears twice; or the document is
    /// not an object.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Invalid> {
        Self::parse_as("body", bytes)
    }

    /// Like [`Object::parse`], with messages that call the document `whole` (for example `header`).
    ///
    /// # Errors
    /// As for [`Object::parse`].
    pub fn parse_as(whole: &'static str, bytes: &'a [u8]) -> Result<Self, Invalid> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            Invalid::new(whole, format!("must be UTF-8; the byte at position {} is not", e.valid_up_to()))
        })?;
        if text.starts_with('\u{feff}') {
            return Err(Invalid::new(whole, "must not begin with a byte order mark"));
        }
        if let Some(position) = too_deep(bytes) {
            return Err(Invalid::new(
                whole,
                format!("must be at most {MAX_DEPTH} levels deep; the limit is passed at byte {position}"),
            ));
        }
        let members = match serde_json::from_str::<Members<'a>>(text) {
            Ok(Members(members)) => members,
            Err(e) => return Err(explain(whole, text, &e)),
        };
        Ok(Self { path: Cow::Borrowed(""), members, known: Vec::new() })
    }

    /// Takes the member `name` out, if it is there.
    ///
    /// ```
    /// let mut body = mandate_core::json::Object::parse(br#"{"review_above": 200}"#)?;
    /// assert!(body.take("review_above").is_some());
    /// assert!(body.take("escrow").is_none());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    pub fn take(&mut self, name: &'static str) -> Option<Field<'a>> {
        self.known.push(name);
        let raw = self.members.iter_mut().find(|(n, raw)| n == name && raw.is_some())?.1.take()?;
        Some(Field { path: join(&self.path, name), raw: raw.get() })
    }

    /// Takes the member `name` out.
    ///
    /// ```
    /// let mut body = mandate_core::json::Object::parse(b"{}")?;
    /// assert_eq!(body.require("amount").unwrap_err().to_string(), "amount is required");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// There is no such member.
    pub fn require(&mut self, name: &'static str) -> Result<Field<'a>, Invalid> {
        self.take(name).ok_or_else(|| Invalid::new(join(&self.path, name), "is required"))
    }

    /// Ends reading.
    ///
    /// ```
    /// let body = mandate_core::json::Object::parse(br#"{"agent": "agt_buyer"}"#)?;
    /// assert_eq!(body.finish().unwrap_err().field(), "agent");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// A member was not taken: its name is unknown.
    pub fn finish(self) -> Result<(), Invalid> {
        match self.members.iter().find(|(_, raw)| raw.is_some()) {
            None => Ok(()),
            Some((name, _)) => {
                let known = match self.known.as_slice() {
                    [] => "is not a known field; none is known here".to_owned(),
                    known => format!("is not a known field; known are {}", known.join(", ")),
                };
                Err(Invalid::new(join_owned(&self.path, name), known))
            }
        }
    }

    /// The names of the members that were not taken, in document order.
    pub fn remaining(&self) -> impl Iterator<Item = &str> {
        self.members.iter().filter(|(_, raw)| raw.is_some()).map(|(name, _)| name.as_ref())
    }
}

impl<'a> Field<'a> {
    /// The path of the value, for example `limits.currency`.
    #[must_use]
    pub fn path(&self) -> Cow<'static, str> {
        self.path.clone()
    }

    /// The JSON text of the value as it was written.
    #[must_use]
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether the value is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.raw == "null"
    }

    /// The value as a string.
    ///
    /// # Errors
    /// It has another type, or holds an unpaired surrogate.
    pub fn string(&self) -> Result<Cow<'a, str>, Invalid> {
        if !self.raw.starts_with('"') {
            return Err(self.wrong_type("a string"));
        }
        match serde_json::from_str::<Text<'a>>(self.raw) {
            Ok(Text(text)) => Ok(text),
            Err(_) => Err(Invalid::new(self.path(), "must be a string of valid Unicode")),
        }
    }

    /// The value as the text of a number, as written.
    ///
    /// # Errors
    /// It has another type.
    pub fn number(&self) -> Result<&'a str, Invalid> {
        match self.raw.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => Ok(self.raw),
            _ => Err(self.wrong_type("a number")),
        }
    }

    /// The value as an amount of money.
    ///
    /// ```
    /// let amount = mandate_core::json::Object::parse(br#"{"amount": 40.50}"#)?.require("amount")?;
    /// assert_eq!(amount.amount()?.to_string(), "40.5");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// It is not a number, or not an [`Amount`].
    pub fn amount(&self) -> Result<Amount, Invalid> {
        Amount::parse(self.number()?).map_err(|e| e.at(self.path()))
    }

    /// The value as a total of amounts, which may be 0.
    ///
    /// # Errors
    /// It is not a number, or not a [`Total`].
    pub fn total(&self) -> Result<Total, Invalid> {
        Total::parse(self.number()?).map_err(|e| e.at(self.path()))
    }

    /// The value as an integer: digits with an optional minus sign. `1.0`, `1e3` and `1e400` are refused.
    ///
    /// ```
    /// let limit = mandate_core::json::Object::parse(br#"{"limit": 50}"#)?.require("limit")?;
    /// assert_eq!(limit.integer()?, 50);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// It is not a number, not an integer, or does not fit 64 bits.
    pub fn integer(&self) -> Result<i64, Invalid> {
        let text = self.number()?;
        text.parse().map_err(|_| {
            Invalid::value(
                self.path(),
                "must be an integer of at most 64 bits, without point or exponent",
                text,
            )
        })
    }

    /// The value as `true` or `false`.
    ///
    /// # Errors
    /// It has another type.
    pub fn boolean(&self) -> Result<bool, Invalid> {
        match self.raw {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.wrong_type("true or false")),
        }
    }

    /// The value as an object.
    ///
    /// # Errors
    /// It has another type, or a name in it appears twice or is not valid Unicode.
    pub fn object(&self) -> Result<Object<'a>, Invalid> {
        if !self.raw.starts_with('{') {
            return Err(self.wrong_type("an object"));
        }
        match serde_json::from_str::<Members<'a>>(self.raw) {
            Ok(Members(members)) => Ok(Object { path: self.path(), members, known: Vec::new() }),
            Err(e) => Err(nested(&self.path, &e)),
        }
    }

    /// The elements of the value, an array.
    ///
    /// # Errors
    /// It has another type, or more than [`MAX_MEMBERS`] elements.
    pub fn array(&self) -> Result<Vec<Field<'a>>, Invalid> {
        self.elements(MAX_MEMBERS)
    }

    /// The elements of the value, an array of at most so many.
    pub(crate) fn elements(&self, most: usize) -> Result<Vec<Field<'a>>, Invalid> {
        if !self.raw.starts_with('[') {
            return Err(self.wrong_type("an array"));
        }
        let elements = elements(self.raw, most, &self.path)?.into_iter().enumerate();
        let path = |i| Cow::Owned(format!("{}[{i}]", self.path));
        Ok(elements.map(|(i, raw)| Field { path: path(i), raw: raw.get() }).collect())
    }

    fn wrong_type(&self, wanted: &str) -> Invalid {
        let got = match self.raw.as_bytes().first() {
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        };
        Invalid::new(self.path(), format!("must be {wanted}; got {got}"))
    }
}

struct Members<'a>(Vec<(Cow<'a, str>, Option<&'a RawValue>)>);
struct Text<'a>(Cow<'a, str>);

const DUPLICATE: &str = "duplicate name ";
const NOT_AN_OBJECT: &str = "not an object";

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(NOT_AN_OBJECT)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(Cow<'de, str>, Option<&'de RawValue>)> = Vec::with_capacity(8);
                while let Some(Text(name)) = map.next_key()? {
                    if members.iter().any(|(n, _)| *n == name) {
                        return Err(serde::de::Error::custom(format_args!("{DUPLICATE}{name}")));
                    }
                    if members.len() == MAX_MEMBERS {
                        return Err(serde::de::Error::custom("more members than are accepted"));
                    }
                    members.push((name, Some(map.next_value()?)));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(v.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// The position of the first bracket that exceeds [`MAX_DEPTH`], if there is one.
fn too_deep(bytes: &[u8]) -> Option<usize> {
    // Few documents have so many brackets, and counting them is cheap.
    if bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() <= MAX_DEPTH {
        return None;
    }
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (position, byte) in bytes.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth = depth.saturating_add(1);
                if depth > MAX_DEPTH {
                    return Some(position);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn explain(whole: &'static str, text: &str, error: &serde_json::Error) -> Invalid {
    let said = error.to_string();
    if let Some(name) = duplicate(&said) {
        return Invalid::new(echo(name), "appears twice in the object");
    }
    if error.is_data() {
        let message = if said.contains(NOT_AN_OBJECT) { "must be a JSON object" } else { "is too large" };
        return Invalid::new(whole, message);
    }
    // Strings are not read here: what is JSON nevertheless has an unpaired surrogate in a name.
    if serde_json::from_str::<&RawValue>(text).is_ok() {
        return Invalid::new(whole, "must have names of valid Unicode");
    }
    let position =
        if error.is_eof() { text.len() } else { byte_position(text, error.line(), error.column()) };
    Invalid::new(whole, format!("must be JSON and nothing else; it is not at byte {position}"))
}

/// The elements of an array, whose text is known to be one.
fn elements<'a>(array: &'a str, most: usize, path: &str) -> Result<Vec<&'a RawValue>, Invalid> {
    let elements: Vec<_> = serde_json::from_str(array).map_err(|e| nested(path, &e))?;
    if elements.len() > most { Err(too_many(path, most)) } else { Ok(elements) }
}

fn nested(path: &str, error: &serde_json::Error) -> Invalid {
    match duplicate(&error.to_string()) {
        Some(name) => Invalid::new(join_owned(path, name), "appears twice in the object"),
        None if error.is_data() => too_many(path, MAX_MEMBERS),
        None => Invalid::new(path.to_owned(), "must have names of valid Unicode"),
    }
}

fn too_many(path: &str, most: usize) -> Invalid {
    Invalid::new(path.to_owned(), format!("has more than {most} elements"))
}

/// The name in the message about a duplicate, which ends in ` at line L column C`.
fn duplicate(message: &str) -> Option<&str> {
    let name = message.strip_prefix(DUPLICATE)?;
    Some(name.rfind(" at line ").and_then(|end| name.get(..end)).unwrap_or(name))
}

fn byte_position(text: &str, line: usize, column: usize) -> usize {
    let before: usize =
        text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).fold(0, usize::saturating_add);
    before.saturating_add(column.saturating_sub(1)).min(text.len())
}

fn join(path: &str, name: &'static str) -> Cow<'static, str> {
    if path.is_empty() { Cow::Borrowed(name) } else { Cow::Owned(format!("{path}.{name}")) }
}

fn join_owned(path: &str, name: &str) -> String {
    if path.is_empty() { echo(name) } else { format!("{path}.{}", echo(name)) }
}

#[cfg(test)]
mod tests;
