//! `tokens.json`: form, header and signature. The claims do not matter.

use super::*;
use crate::jwt::Unverified;

const FILE: &str = include_str!("../../vectors/tokens.json");
const CLAIMS: &str = r#"{"iss":"https://verdicts.example","text":"£ and €!"}"#;

fn kid() -> String {
    sandbox().kid().to_string()
}

fn good() -> String {
    jwt::sign(&sandbox(), CLAIMS).unwrap()
}

/// A token whose header has `members` after `alg` and `kid`.
fn with_members(members: &str) -> String {
    signed(format!(r#"{{"alg":"ES256","kid":"{}",{members}}}"#, kid()), CLAIMS)
}

fn with_algorithm(alg: &str) -> String {
    signed(format!(r#"{{"alg":{alg},"kid":"{}"}}"#, kid()), CLAIMS)
}

fn with_kid(kid: &str) -> String {
    signed(format!(r#"{{"alg":"ES256","kid":{kid}}}"#), CLAIMS)
}

/// The valid token with a changed signature.
fn with_signature(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let token = good();
    let (input, signature) = token.rsplit_once('.').unwrap();
    let mut signature = base64url::decode(signature).unwrap();
    change(&mut signature);
    format!("{input}.{}", base64url::encode(&signature))
}

/// The valid token with one of its parts changed as text.
fn with_part(place: usize, change: impl FnOnce(&str) -> String) -> String {
    with_part_of(&good(), place, change)
}

fn with_part_of(token: &str, place: usize, change: impl FnOnce(&str) -> String) -> String {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[place] = change(&parts[place]);
    parts.join(".")
}

/// The text with the lowest bit of its last character flipped: a lenient decoder reads the same bytes.
fn trailing_bit(text: &str) -> String {
    assert_ne!(text.len() % 4, 0, "the part has no spare bits");
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (before, last) = text.split_at(text.len() - 1);
    let value = alphabet.iter().position(|c| *c == last.as_bytes()[0]).unwrap();
    format!("{before}{}", char::from(alphabet[value + 1]))
}

/// The DER form of `r ‖ s`.
fn der(signature: &[u8]) -> Vec<u8> {
    let integer = |half: &[u8]| {
        let digits: Vec<u8> = half.iter().copied().skip_while(|b| *b == 0).collect();
        let sign = if digits[0] > 127 { vec![0] } else { vec![] };
        let content = [sign, digits].concat();
        [vec![2, u8::try_from(content.len()).unwrap()], content].concat()
    };
    let content = [integer(&signature[..32]), integer(&signature[32..])].concat();
    [vec![0x30, u8::try_from(content.len()).unwrap()], content].concat()
}

fn order() -> Vec<u8> {
    let text = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
    (0..32).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn accepted() -> Vec<(&'static str, String)> {
    let order_minus = |s: &[u8]| {
        let mut borrow = 0_i16;
        let mut difference: Vec<u8> = order()
            .iter()
            .zip(s)
            .rev()
            .map(|(n, s)| {
                let value = i16::from(*n) - i16::from(*s) - borrow;
                borrow = i16::from(value < 0);
                u8::try_from(value.rem_euclid(256)).unwrap()
            })
            .collect();
        difference.reverse();
        difference
    };
    vec![
        ("as this service writes it", good()),
        ("signed with the other key", jwt::sign(&production(), CLAIMS).unwrap()),
        ("without typ", signed(format!(r#"{{"alg":"ES256","kid":"{}"}}"#, kid()), CLAIMS)),
        ("typ in lower case", with_members(r#""typ":"jwt""#)),
        (
            "header names in another order",
            signed(format!(r#"{{"typ":"JWT","kid":"{}","alg":"ES256"}}"#, kid()), CLAIMS),
        ),
        ("spaces in the header", signed(format!(r#"{{ "alg" : "ES256", "kid" : "{}" }}"#, kid()), CLAIMS)),
        ("an escape in the header", with_algorithm(r#""\u0045S256""#)),
        (
            "the other s (ECDSA is malleable)",
            with_signature(|s| {
                let other = order_minus(&s[32..]);
                s.splice(32.., other);
            }),
        ),
    ]
}

fn refused_form() -> Vec<(&'static str, String, &'static str)> {
    let spaced = signed(format!(r#"{{ "alg":"ES256","kid":"{}"}}"#, kid()), CLAIMS);
    vec![
        (
            "longer than 16 KiB",
            signed(format!(r#"{{"alg":"ES256","kid":"{}"}}"#, kid()), "x".repeat(12_500)),
            "size",
        ),
        ("empty", String::new(), "parts"),
        ("without a signature part", good().rsplit_once('.').unwrap().0.to_owned(), "parts"),
        ("with a fourth part", format!("{}.", good()), "parts"),
        ("five parts, as a JWE has", format!("{}.AA.AA", good()), "parts"),
        ("padding behind the header", with_part(0, |p| format!("{p}=")), "encoding"),
        ("padding behind the signature", with_part(2, |p| format!("{p}==")), "encoding"),
        ("a bit behind the last byte of the header", with_part_of(&spaced, 0, trailing_bit), "encoding"),
        ("a bit behind the last byte of the claims", with_part(1, trailing_bit), "encoding"),
        ("a bit behind the last byte of the signature", with_part(2, trailing_bit), "encoding"),
        ("a space before it", format!(" {}", good()), "encoding"),
        ("a line break behind it", format!("{}\n", good()), "encoding"),
        ("a line break within", with_part(1, |p| format!("{}\r\n{}", &p[..8], &p[8..])), "encoding"),
        ("a byte order mark before it", format!("\u{feff}{}", good()), "encoding"),
        ("the alphabet of plain base64", with_part(2, |p| format!("{}+/{}", &p[..4], &p[6..])), "encoding"),
        ("percent-encoding", with_part(1, |p| format!("%65{}", &p[1..])), "encoding"),
        (
            "a length that base64 cannot have",
            with_part(1, |p| format!("{p}AAA")[..=p.len() / 4 * 4].to_owned()),
            "encoding",
        ),
        ("an empty signature", with_part(2, |_| String::new()), "signature_form"),
        ("a signature in DER", with_signature(|s| *s = der(s)), "signature_form"),
        ("a signature of 63 bytes", with_signature(|s| s.truncate(63)), "signature_form"),
        ("a signature of 65 bytes", with_signature(|s| s.push(0)), "signature_form"),
        ("a signature of 96 bytes, as ES384 has", with_signature(|s| s.extend([0; 32])), "signature_form"),
    ]
}

fn refused_header() -> Vec<(&'static str, String, &'static str)> {
    let kid = kid();
    let header = |text: String| signed(text, CLAIMS);
    vec![
        ("an empty header", with_part(0, |_| String::new()), "header"),
        ("a header that is not JSON", header("alg=ES256".to_owned()), "header"),
        ("a header that is an array", header(r#"["ES256"]"#.to_owned()), "header"),
        (
            "a header that is not UTF-8",
            signed([&b"{\"alg\":\"ES256\",\"kid\":\"\xff\"}"[..]].concat(), CLAIMS),
            "header",
        ),
        (
            "a byte order mark in the header",
            header(format!("\u{feff}{{\"alg\":\"ES256\",\"kid\":\"{kid}\"}}")),
            "header",
        ),
        (
            "bytes behind the header's object",
            header(format!(r#"{{"alg":"ES256","kid":"{kid}"}}{{}}"#)),
            "header",
        ),
        ("alg twice", header(format!(r#"{{"alg":"ES256","kid":"{kid}","alg":"ES256"}}"#)), "header"),
        (
            "alg twice, once with an escape",
            header(format!(r#"{{"alg":"ES256","kid":"{kid}","\u0061lg":"none"}}"#)),
            "header",
        ),
        ("no alg", header(format!(r#"{{"kid":"{kid}"}}"#)), "algorithm"),
        ("alg none", with_algorithm(r#""none""#), "algorithm"),
        (
            "alg none without a signature",
            with_algorithm(r#""none""#).rsplit_once('.').unwrap().0.to_owned() + ".",
            "algorithm",
        ),
        ("alg nOnE", with_algorithm(r#""nOnE""#), "algorithm"),
        ("alg HS256", with_algorithm(r#""HS256""#), "algorithm"),
        ("alg ES384", with_algorithm(r#""ES384""#), "algorithm"),
        ("alg ES256K", with_algorithm(r#""ES256K""#), "algorithm"),
        ("alg in lower case", with_algorithm(r#""es256""#), "algorithm"),
        ("alg with a space", with_algorithm(r#""ES256 ""#), "algorithm"),
        ("alg that is null", with_algorithm("null"), "algorithm"),
        ("alg that is an array", with_algorithm(r#"["ES256"]"#), "algorithm"),
        ("no kid", header(r#"{"alg":"ES256"}"#.to_owned()), "key_id"),
        ("an empty kid", with_kid(r#""""#), "key_id"),
        ("a kid that is a number", with_kid("7"), "key_id"),
        ("a kid that is null", with_kid("null"), "key_id"),
        ("a kid with a space", with_kid(&format!("\"{kid} \"")), "key_id"),
        ("a kid of 129 characters", with_kid(&format!("\"{}\"", "k".repeat(129))), "key_id"),
        ("typ of another token", with_members(r#""typ":"at+jwt""#), "type"),
        ("typ that is empty", with_members(r#""typ":"""#), "type"),
        ("typ that is null", with_members(r#""typ":null"#), "type"),
        ("crit", with_members(r#""crit":["exp"]"#), "header_name"),
        ("an empty crit", with_members(r#""crit":[]"#), "header_name"),
        ("b64 false", with_members(r#""b64":false,"crit":["b64"]"#), "header_name"),
        ("b64 true", with_members(r#""b64":true"#), "header_name"),
        ("jku", with_members(r#""jku":"https://attacker.example/jwks.json""#), "header_name"),
        ("jwk", with_members(r#""jwk":{"kty":"EC"}"#), "header_name"),
        ("x5u", with_members(r#""x5u":"https://attacker.example/""#), "header_name"),
        ("x5c", with_members(r#""x5c":[]"#), "header_name"),
        ("x5t", with_members(r#""x5t":"AA""#), "header_name"),
        ("x5t#S256", with_members(r#""x5t#S256":"AA""#), "header_name"),
        ("zip", with_members(r#""zip":"DEF""#), "header_name"),
        ("enc", with_members(r#""enc":"A128GCM""#), "header_name"),
        ("cty", with_members(r#""cty":"JWT""#), "header_name"),
        ("an unknown name", with_members(r#""later":1"#), "header_name"),
    ]
}

fn refused_key_or_signature() -> Vec<(&'static str, String, &'static str)> {
    let half = |start: usize, with: Vec<u8>| with_signature(|s| _ = s.splice(start..start + 32, with));
    let borrowed = jwt::sign(&production(), CLAIMS).unwrap();
    let (_, other_signature) = borrowed.rsplit_once('.').unwrap();
    let other_claims = CLAIMS.replace("and", "or");
    vec![
        ("a kid that the set does not have", with_kid(r#""sandbox-unknown""#), "unknown_key"),
        ("the sandbox's kid without its prefix", with_kid(&format!("\"{}\"", &kid()[8..])), "unknown_key"),
        ("the kid in another case", with_kid(&format!("\"{}\"", kid().to_uppercase())), "unknown_key"),
        ("the kid of a key for another algorithm", with_kid(r#""foreign""#), "unknown_key"),
        ("the kid of another key than signed", with_kid(&format!("\"{}\"", production().kid())), "signature"),
        ("the signature of another key", with_part(2, |_| other_signature.to_owned()), "signature"),
        ("other claims", with_part(1, |_| base64url::encode(other_claims.as_bytes())), "signature"),
        (
            "the same header spelled otherwise",
            with_part(0, |_| {
                base64url::encode(format!(r#"{{"alg":"ES256","kid":"{}","typ":"jwt"}}"#, kid()).as_bytes())
            }),
            "signature",
        ),
        ("one bit of r flipped", with_signature(|s| s[0] ^= 1), "signature"),
        ("one bit of s flipped", with_signature(|s| s[63] ^= 1), "signature"),
        ("r and s exchanged", with_signature(|s| s.rotate_left(32)), "signature"),
        ("r that is 0", half(0, vec![0; 32]), "signature"),
        ("s that is 0", half(32, vec![0; 32]), "signature"),
        ("r that is n", half(0, order()), "signature"),
        ("s that is n", half(32, order()), "signature"),
        ("all zeros", with_signature(|s| s.fill(0)), "signature"),
    ]
}

#[test]
fn the_file_is_what_the_tables_say() {
    let good =
        accepted().into_iter().map(|(name, token)| json!({"name": name, "token": token, "check": null}));
    let bad = [refused_form(), refused_header(), refused_key_or_signature()].concat();
    let bad =
        bad.into_iter().map(|(name, token, check)| json!({"name": name, "token": token, "check": check}));
    let description =
        "Compact JWS signed with ES256. `check` is the check that refuses the token; null: it is accepted.";
    let vectors: Vec<_> = good.chain(bad).collect();
    check_file("tokens.json", FILE, &json!({"description": description, "jwks": jwks(), "vectors": vectors}));
}

#[test]
fn every_token_passes_or_fails_its_check_and_no_message_repeats_it() {
    let file: Value = serde_json::from_str(FILE).unwrap();
    let keys = KeySet::parse(file["jwks"].to_string().as_bytes()).unwrap();
    for vector in file["vectors"].as_array().unwrap() {
        let token = vector["token"].as_str().unwrap();
        match Unverified::parse(token).and_then(|t| t.verify(&keys)) {
            Ok(verified) => {
                assert!(vector["check"].is_null(), "{} is accepted", vector["name"]);
                assert_eq!(verified.claims(), CLAIMS.as_bytes());
            }
            Err(refused) => {
                assert_eq!(vector["check"], refused.name(), "{}", vector["name"]);
                let said = format!("{refused} {refused:?}");
                let mut pieces = token.split('.').filter_map(|part| part.get(..16));
                assert!(pieces.all(|piece| !said.contains(piece)), "{said}");
            }
        }
    }
}
