//! `mandate inspect`: decodes a token without verifying it.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::fmt::Write as _;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use mandate_core::Timestamp;
use mandate_core::json::{MAX_DEPTH, Object};
use mandate_core::jwt::MAX_TOKEN_BYTES;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::style::{BOLD, CAUTION, is_deceptive};

/// Decode a token without verifying it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate inspect \"$TOKEN\"
  mandate inspect - --json < token.txt

The output is not verified and must not be trusted: use `mandate verify`.")]
pub(crate) struct Inspect {
    /// The token, or `-` to read it from standard input
    #[arg(value_name = "TOKEN|-")]
    pub(crate) token: String,
}

/// Accepts what `verify` refuses: malformed tokens are the ones that need inspecting.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Serialize)]
struct Report {
    verified: bool,
    header: Box<RawValue>,
    claims: Box<RawValue>,
    signature_bytes: usize,
}

pub(super) fn run(args: &Inspect, output: &mut Output) -> Result<Exit, Failure> {
    let token = super::token(&args.token)?;
    if token.len() > MAX_TOKEN_BYTES {
        return Err(malformed(format!("it is longer than {MAX_TOKEN_BYTES} bytes")));
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts.as_slice() else {
        return Err(malformed(format!(
            "a token has 3 parts, separated by full stops; this has {}",
            parts.len()
        )));
    };
    let (header, claims) = (json("header", header)?, json("claims", claims)?);
    let signature_bytes = decode("signature", signature)?.len();
    if output.is_json() {
        let [header, claims] = [raw(&header)?, raw(&claims)?];
        output.json(&Report { verified: false, header, claims, signature_bytes })?;
        return Ok(Exit::Success);
    }
    output.text(&format!("{CAUTION}UNVERIFIED{CAUTION:#}: anyone can have written this\n"));
    output.text(&format!("\n{BOLD}header, unverified{BOLD:#}\n{}\n", laid_out(&header, Layout::Lines)));
    output.text(&format!("\n{BOLD}claims, unverified{BOLD:#}\n{}\n", laid_out(&claims, Layout::Lines)));
    output.text(&format!("\n{BOLD}times and signature, unverified{BOLD:#}\n"));
    for (label, name) in [("issued", "iat"), ("expires", "exp")] {
        if let Some(at) = instant(&claims, name) {
            output.line(label, at);
        }
    }
    output
        .line("signature", format_args!("{signature_bytes} bytes, not checked; `mandate verify` does that"));
    Ok(Exit::Success)
}

fn malformed(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::MalformedToken, format!("the token cannot be shown: {why}"))
}

fn decode(part: &str, text: &str) -> Result<Vec<u8>, Failure> {
    LENIENT.decode(text).map_err(|e| malformed(format!("the {part} is not base64url: {e}")))
}

/// The JSON text of a part.
fn json(part: &str, text: &str) -> Result<String, Failure> {
    let text = String::from_utf8(decode(part, text)?).map_err(|e| malformed(format!("the {part}: {e}")))?;
    let checked = serde_json::from_str::<&RawValue>(&text).map(|_| ());
    checked.map_err(|e| malformed(format!("the {part} is not JSON: {e}")))?;
    Ok(text)
}

fn raw(json: &str) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(laid_out(json, Layout::OneLine)).map_err(malformed)
}

/// The claim `name`, if it is the seconds of an instant.
fn instant(claims: &str, name: &'static str) -> Option<Timestamp> {
    let seconds = Object::parse(claims.as_bytes()).ok()?.take(name)?.integer().ok()?;
    Some(Timestamp::from_seconds(seconds)).filter(|at| at.seconds() == seconds)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Lines,
    OneLine,
}

/// JSON text with other whitespace. Numbers, order and duplicate names stay as they are, since a tidied copy
/// would hide what is wrong. Characters that could deceive a terminal are escaped.
fn laid_out(json: &str, layout: Layout) -> String {
    let mut out = String::with_capacity(json.len().saturating_mul(2));
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let line = |out: &mut String, depth: usize| {
        if layout == Layout::Lines {
            let _ = write!(out, "\n{:width$}", "", width = depth.min(MAX_DEPTH).saturating_mul(2));
        }
    };
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            push_safely(&mut out, c);
            continue;
        }
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                out.push(c);
                depth = depth.saturating_add(1);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if !matches!(chars.peek(), Some('}' | ']')) {
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !out.ends_with(['{', '[']) {
                    line(&mut out, depth);
                }
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' if layout == Layout::Lines => out.push_str(": "),
            _ => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// Appends `c` of a JSON string, escaped if it could deceive.
fn push_safely(out: &mut String, c: char) {
    if is_deceptive(c) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    } else {
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_keeps_what_is_odd() {
        let odd = r#" {"a":1e400, "a" : [ ],"b":{ },"s":"x{,:}\"\\","n":[1.0,{"k":null}]} "#;
        assert_eq!(
            laid_out(odd, Layout::OneLine),
            r#"{"a":1e400,"a":[],"b":{},"s":"x{,:}\"\\","n":[1.0,{"k":null}]}"#
        );
        assert_eq!(
            laid_out(odd, Layout::Lines),
            "{\n  \"a\": 1e400,\n  \"a\": [],\n  \"b\": {},\n  \"s\": \"x{,:}\\\"\\\\\",\n  \"n\": [\n    1.0,\n    {\n      \"k\": null\n    }\n  ]\n}"
        );
    }

    #[test]
    fn layout_disarms_the_terminal() {
        assert_eq!(laid_out("\"a\u{9b}2J\u{202e}\"", Layout::OneLine), r#""a\u009b2J\u202e""#);
    }

    #[test]
    fn deep_nesting_stays_small() {
        let deep = "[".repeat(8000) + &"]".repeat(8000);
        assert!(laid_out(&deep, Layout::Lines).len() < 8000 * 2 * (2 * MAX_DEPTH + 2));
    }
}
