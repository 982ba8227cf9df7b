//! `mandate inspect`: shows, believes nothing.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::harness::{mandate, run, run_with_stdin};

fn token(header: &str, claims: &str) -> String {
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", encode(header), encode(claims), BASE64_URL_SAFE_NO_PAD.encode([1; 64]))
}

#[test]
fn text_is_labelled_in_every_part() {
    let token = token(
        r#"{"alg":"ES256","kid":"sandbox-1"}"#,
        r#"{"iat":1772362800,"exp":1772363100,"amount":40.50}"#,
    );
    let ran = run(&["inspect", &token]).code(0);
    assert_eq!(
        ran.out,
        "\
UNVERIFIED: anyone can have written this

header, unverified
{
  \"alg\": \"ES256\",
  \"kid\": \"sandbox-1\"
}

claims, unverified
{
  \"iat\": 1772362800,
  \"exp\": 1772363100,
  \"amount\": 40.50
}

times and signature, unverified
issued       2026-03-01T11:00:00.000Z
expires      2026-03-01T11:05:00.000Z
signature    64 bytes, not checked; `mandate verify` does that
"
    );
    assert_eq!(ran.err, "");
}

#[test]
fn json_is_labelled_and_keeps_what_is_odd() {
    let token = token(r#"{"alg":"none"}"#, "{\"a\" : 1e400,\n\"a\":\"\u{9b}2J\"}");
    let out = run(&["inspect", "--json", &token]).code(0).out;
    assert_eq!(
        out,
        "{\"verified\":false,\"header\":{\"alg\":\"none\"},\"claims\":{\"a\":1e400,\"a\":\"\\u009b2J\"},\"signature_bytes\":64}\n"
    );
}

#[test]
fn standard_input_may_end_in_one_line_break() {
    let token = token("{}", "{}");
    for (text, code) in [
        (token.clone(), 0),
        (format!("{token}\n"), 0),
        (format!("{token}\r\n"), 0),
        (format!("{token}\n\n"), 10),
        (format!(" {token}"), 10),
    ] {
        run_with_stdin(&mut mandate(&["inspect", "-"]), text.as_bytes()).code(code);
    }
}

#[test]
fn what_is_no_token_is_malformed() {
    for (text, message) in [
        (String::new(), "the token is empty"),
        ("a.b".to_owned(), "this has 2"),
        ("a.b.c.d.e".to_owned(), "this has 5"),
        ("!.e30.AA".to_owned(), "the header is not base64url"),
        ("e30.bm8.AA".to_owned(), "the claims is not JSON"),
        ("e30._w.AA".to_owned(), "the claims: invalid utf-8"),
        (format!("e30.e30.{}", "A".repeat(16_400)), "longer than 16384 bytes"),
    ] {
        let ran = run(&["inspect", &text]).code(10).says(message);
        assert_eq!(ran.out, "");
    }
    run_with_stdin(&mut mandate(&["inspect", "-"]), "a".repeat(100_000).as_bytes())
        .code(10)
        .says("longer than");
    run_with_stdin(&mut mandate(&["inspect", "-"]), b"\xff").code(10).says("UTF-8");
}
