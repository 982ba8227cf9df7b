//! `--explain`: for each check what it is, which document defines it, and what was compared.

use mandate_core::Timestamp;
use serde::Serialize;

use super::Verify;
use super::order::Wanted;

/// An explained check.
#[derive(Serialize)]
pub(super) struct Explained {
    /// What the check is.
    pub(super) what: &'static str,
    /// The document that defines it.
    pub(super) source: &'static str,
    /// What was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compared: Option<String>,
}

/// The checks by name, each with what it is and the document that defines it.
const CHECKS: [(&str, &str, &str); 29] = [
    ("size", "a token is at most 16,384 bytes long", "RFC 8725, section 2.4"),
    ("parts", "a compact JWS has three parts, separated by full stops", "RFC 7515, section 7.1"),
    (
        "encoding",
        "each part is canonical base64url, without padding",
        "RFC 7515, section 2; RFC 4648, section 3.5",
    ),
    ("header", "the header is JSON in which no name is repeated", "RFC 7515, section 4"),
    (
        "algorithm",
        "the header's `alg` is ES256: no other algorithm, and never none",
        "RFC 8725, section 3.1; RFC 7518, section 3.4",
    ),
    ("key_id", "the header's `kid` names the key", "RFC 7515, section 4.1.4"),
    ("type", "the header's `typ`, if it is there, is JWT", "RFC 7519, section 5.1"),
    (
        "header_name",
        "the header has no name that would change what the token means, such as crit, jku or x5u",
        "RFC 8725, section 3.10",
    ),
    ("signature_form", "an ES256 signature is 64 bytes, r and s", "RFC 7518, section 3.4"),
    ("unknown_key", "the issuer's key set has the key that the token names", "RFC 7517, section 4.5"),
    ("signature", "the issuer's key signed the header and the claims", "RFC 7515, section 5.2"),
    (
        "kind",
        "the claims are of the expected kind: a verdict is never accepted as an event",
        "RFC 8725, section 3.12",
    ),
    ("claims", "every claim is present once, with its type and form", "RFC 7519, section 4"),
    (
        "issuer",
        "the token's issuer equals the expected issuer, character by character",
        "RFC 7519, section 4.1.1; RFC 8725, section 3.8",
    ),
    (
        "environment",
        "the key is not one of a sandbox, where no money is real",
        "the key id begins with sandbox-",
    ),
    ("issued_at", "the token was not issued in the future", "RFC 7519, section 4.1.6"),
    ("expiry", "the token has not expired: a verdict is valid for 300 seconds", "RFC 7519, section 4.1.4"),
    ("verdict", "the request was allowed", "the claim `verdict`"),
    (
        "amount",
        "the allowed amount is the expected amount, compared as exact decimals",
        "the claim `request.amount`",
    ),
    ("currency", "the currency is the expected currency", "the claim `request.currency`"),
    ("recipient", "the recipient is the expected recipient", "the claim `request.recipient`"),
    ("mandate", "the mandate is the expected mandate", "the claim `mandate`"),
    (
        "replay",
        "the token was not presented before: its nonce, or the event's id, is accepted once",
        "RFC 7519, section 4.1.7; the claim `nonce`",
    ),
    ("data", "the object that the event is about, as the API shows it", "the claim `data`"),
    ("log", "the decision is an entry of the issuer's public log", "RFC 6962, section 2.1; C2SP tlog-proof"),
    (
        "witnesses",
        "the witnesses that the policy asks for have cosigned the log's checkpoint",
        "C2SP tlog-cosignature and tlog-policy",
    ),
    ("input", "a line is a token, or an object with a token", "the help of `mandate verify`"),
    ("key_set", "the issuer's key set can be fetched or read", "RFC 7517, section 5"),
    ("nonce_store", "the store shows whether a nonce was used", "the help of `mandate verify`"),
];

/// The explanation of `check`.
pub(super) fn explained(
    check: &str,
    issuer: &str,
    args: &Verify,
    wanted: &Wanted,
    now: Timestamp,
) -> Explained {
    let known = CHECKS.iter().find(|(name, ..)| *name == check);
    let (what, source) = known.map_or(("", ""), |(_, what, source)| (*what, *source));
    let (what, source) = if args.event && check == "type" {
        ("what has happened", "the claim `type`")
    } else {
        (what, source)
    };
    Explained { what, source, compared: compared(check, issuer, args, wanted, now) }
}

fn compared(check: &str, issuer: &str, args: &Verify, wanted: &Wanted, now: Timestamp) -> Option<String> {
    let given = |option: &str, value: Option<&dyn std::fmt::Display>| {
        Some(match value {
            Some(value) => format!("the signed value with --{option} {value}"),
            None => format!("with nothing; pass --{option}, or an --order"),
        })
    };
    let leeway = args.leeway.seconds();
    match check {
        "issuer" => Some(format!("iss with {issuer}")),
        "environment" if args.allow_sandbox => Some("with nothing: --allow-sandbox was given".to_owned()),
        "environment" => Some("the key id's beginning with `sandbox-`".to_owned()),
        "issued_at" => Some(format!("iat with {now}, and a leeway of {leeway} s")),
        "expiry" => Some(format!("exp with {now}, and a leeway of {leeway} s")),
        "amount" => given("amount", wanted.amount.as_ref().map(|v| v as _)),
        "currency" => given("currency", wanted.currency.as_ref().map(|v| v as _)),
        "recipient" => given("recipient", wanted.recipient.as_ref().map(|v| v as _)),
        "mandate" => given("mandate", wanted.mandate.as_ref().map(|v| v as _)),
        "replay" => match &args.nonce_store {
            Some(path) => Some(format!("the nonce with those in {}", path.display())),
            None if args.nonce_elsewhere => Some("with nothing: --nonce-elsewhere was given".to_owned()),
            None => Some("with nothing; pass --nonce-store, or --nonce-elsewhere".to_owned()),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_check_goes_unexplained() {
        for (name, what, source) in CHECKS {
            assert!(!what.is_empty() && !source.is_empty(), "{name}");
        }
    }
}
