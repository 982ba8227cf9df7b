//! `--verbose`: each request and its answer on standard error, with keys masked.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use mandate_core::api_key::masked;
use reqwest::header::HeaderMap;
use reqwest::{Request, StatusCode};

use crate::style::{DIM, printable};

/// The most characters of a body that are shown.
const SHOWN_CHARS: usize = 4_000;

/// Whether requests are shown.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Shows each request and answer from now on.
pub(crate) fn be_verbose() {
    IS_ON.store(true, Ordering::Relaxed);
}

fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Shows a request that is about to be sent.
pub(super) fn request(request: &Request) {
    if !is_on() {
        return;
    }
    let mut lines = format!("{} {}\n", request.method(), request.url());
    headers(request.headers(), &mut lines);
    let body = request.body().and_then(reqwest::Body::as_bytes);
    lines.extend(body.map(String::from_utf8_lossy));
    show('>', &lines);
}

/// Shows the head of an answer.
pub(super) fn head(status: StatusCode, head: &HeaderMap) {
    if is_on() {
        let mut lines = format!("HTTP {status}\n");
        headers(head, &mut lines);
        show('<', &lines);
    }
}

/// Shows the body of an answer.
pub(super) fn body(body: &str) {
    if is_on() {
        show('<', body);
    }
}

/// The headers. What is marked as sensitive, which `Authorization` is, has no value.
fn headers(headers: &HeaderMap, lines: &mut String) {
    for (name, value) in headers {
        let value =
            if value.is_sensitive() { "***".into() } else { String::from_utf8_lossy(value.as_bytes()) };
        let _ = writeln!(lines, "{name}: {value}");
    }
}

/// The text with a mask over the signature of each token: what is shown is no verdict that others could use.
fn without_signatures(text: &str) -> String {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| !is_of_token(c)) {
        let word = piece.trim_end_matches(|c: char| !is_of_token(c));
        match word.rsplit_once('.') {
            Some((signed, _)) if word.starts_with("eyJ") && signed.contains('.') => {
                let behind = piece.strip_prefix(word).unwrap_or_default();
                shown.extend([signed, ".***", behind]);
            }
            _ => shown.push_str(piece),
        }
    }
    shown
}

/// Shows lines with a mark before each, without any API key or usable token in them.
fn show(mark: char, lines: &str) {
    let lines = without_signatures(&masked(lines));
    let mut shown: String = lines.chars().take(SHOWN_CHARS).collect();
    if lines.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    let text = shown.lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{DIM}{mark} {}{DIM:#}", printable(line));
        text
    });
    // A failure to do so cannot be reported.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_shown_has_no_signature() {
        let text = r#"{"verdict_token":"eyJh.eyJp.c2ln-_","jti":"dec_1.2.3","x":"eyJh"} eyJh.eyJp.c2ln"#;
        let shown = r#"{"verdict_token":"eyJh.eyJp.***","jti":"dec_1.2.3","x":"eyJh"} eyJh.eyJp.***"#;
        assert_eq!(without_signatures(text), shown);
    }
}
