//! Each check, refused by its name.

use super::*;

#[test]
fn assertions_of_another_ceremony_site_or_user_are_refused() {
    let asked = [6; 32];
    let data = |flags: u8, rest: &[u8]| authenticator_data(flags, rest);
    let get = |challenge: &[u8], origin: &str| client_data("webauthn.get", challenge, origin);
    let good = || get(&asked, ORIGIN);
    let framed = String::from_utf8(good()).unwrap().replace("false", "true").into_bytes();
    let twice =
        String::from_utf8(good()).unwrap().replacen('{', r#"{"type":"webauthn.get","#, 1).into_bytes();
    let elsewhere = [Sha256::digest("evil.example").as_slice(), &[VERIFIED, 0, 0, 0, 1]].concat();
    for (name, data, client) in [
        ("type", data(VERIFIED, &[]), client_data("webauthn.create", &asked, ORIGIN)),
        ("challenge", data(VERIFIED, &[]), get(&[7; 32], ORIGIN)),
        ("challenge", data(VERIFIED, &[]), get(&[], ORIGIN)),
        ("origin", data(VERIFIED, &[]), get(&asked, "https://console.example.evil.example")),
        ("origin", data(VERIFIED, &[]), get(&asked, "https://console.example:8443")),
        ("origin", data(VERIFIED, &[]), get(&asked, "http://console.example")),
        ("cross_origin", data(VERIFIED, &[]), framed),
        ("client_data", data(VERIFIED, &[]), twice),
        ("client_data", data(VERIFIED, &[]), b"{}".to_vec()),
        ("client_data", data(VERIFIED, &[]), [b"\xef\xbb\xbf", good().as_slice()].concat()),
        ("size", data(VERIFIED, &[]), vec![b' '; MAX_CLIENT_DATA_BYTES + 1]),
        ("size", vec![0; MAX_AUTHENTICATOR_DATA_BYTES + 1], good()),
        ("relying_party", elsewhere, good()),
        ("user_presence", data(0b100, &[]), good()),
        ("user_verification", data(0b001, &[]), good()),
        ("authenticator_data", data(VERIFIED | 0b1_0000, &[]), good()),
        ("authenticator_data", data(WITH_KEY, &[]), good()),
        ("authenticator_data", data(VERIFIED, &[0]), good()),
        ("authenticator_data", data(VERIFIED | 0x80, &[]), good()),
        ("authenticator_data", data(VERIFIED | 0x80, &[0x80]), good()),
        ("authenticator_data", data(VERIFIED, &[])[..36].to_vec(), good()),
        ("authenticator_data", Vec::new(), good()),
    ] {
        let refused = assertion_of(data, client).verify(&asked, &party(), &key()).unwrap_err();
        assert_eq!(refused.name(), name, "{refused}");
    }
    let extended = assertion_of(data(VERIFIED | 0x80, &[0xa0]), good());
    assert_eq!(extended.verify(&asked, &party(), &key()), Ok(()));
    let other = PersonKey::from(*SecretKey::from_bytes([8; 32]).unwrap().public_key());
    assert_eq!(assertion(&asked).verify(&asked, &party(), &other), Err(AssertionError::Signature));
}

#[test]
fn signatures_have_one_spelling() {
    // One that is short, so that longer spellings are still read.
    let signed =
        (0..=255).map(|byte| [byte; 32]).find(|asked| assertion(asked).signature.len() <= 70).unwrap();
    let sound = assertion(&signed);
    let longer = |at: usize, more: &[u8]| {
        let mut bytes = sound.signature.clone();
        bytes.splice(at..at, more.iter().copied());
        bytes[1] += u8::try_from(more.len()).unwrap();
        bytes
    };
    let mut padded = longer(4, &[0]);
    padded[3] += 1;
    let behind = [sound.signature.as_slice(), &[0]].concat();
    let long_form = [&[0x30, 0x81], &sound.signature[1..]].concat();
    for (name, signature) in [
        ("signature", padded),
        ("signature", behind),
        ("signature", long_form),
        ("signature", longer(sound.signature.len(), &[5, 0])),
        ("signature", vec![0x30, 6, 2, 1, 0, 2, 1, 1]),
        ("signature", Vec::new()),
        ("signature", vec![1; 64]),
        ("size", vec![0; MAX_SIGNATURE_BYTES + 1]),
    ] {
        let odd = Assertion { signature, ..sound.clone() };
        assert_eq!(odd.verify(&signed, &party(), &key()).unwrap_err().name(), name, "{odd:?}");
    }
}

#[test]
fn registrations_of_other_algorithms_are_refused_in_words() {
    let point = [7; 32];
    for (name, said, key) in [
        ("algorithm", "RS256", vec![0xa4, 1, 3, 3, 0x39, 1, 0, 0x20, 0x59, 1, 0]),
        ("algorithm", "EdDSA", [&[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 0x20][..], &point].concat()),
        ("algorithm", "ES384", vec![0xa5, 1, 2, 3, 0x38, 0x22, 0x20, 2, 0x21, 0x58, 0x30]),
        ("algorithm", "another encoding", vec![0xa5; 77]),
        (
            "algorithm",
            "another encoding",
            own_cose().into_iter().map(|b| if b == 0x22 { 0x23 } else { b }).collect(),
        ),
        ("key", "P-256", cose(&point, &point)),
        ("authenticator_data", "cut off", own_cose()[..76].to_vec()),
        ("authenticator_data", "flags say", [own_cose(), vec![0xa0]].concat()),
    ] {
        let refused =
            registration(WITH_KEY, &attested(&[7; 20], &key)).verify(&[6; 32], &party()).unwrap_err();
        assert_eq!(refused.name(), name, "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
    }
    for (name, flags, id) in [
        ("credential", WITH_KEY, vec![]),
        ("credential", WITH_KEY, vec![1; MAX_CREDENTIAL_BYTES + 1]),
        ("authenticator_data", VERIFIED, vec![1]),
        ("user_verification", WITH_KEY & !0b100, vec![1]),
    ] {
        let refused =
            registration(flags, &attested(&id, &own_cose())).verify(&[6; 32], &party()).unwrap_err();
        assert_eq!(refused.name(), name, "{refused}");
    }
}

#[test]
fn statements_have_one_spelling() {
    let sound = statement(Subject::Approve).to_json();
    for (from, to, said) in [
        (r#""version":1"#, r#""version":2"#, "version must be 1; got `2`"),
        (r#""version":1,"#, r#""version":1, "#, "statement must be in its one spelling"),
        ("40.5,", "40.50,", "statement must be in its one spelling"),
        ("acme\",\"answer", "ac\\u006de\",\"answer", "statement must be in its one spelling"),
        (r#""answer":"approve","#, r#""answer":"approve","answer":"deny","#, "answer appears twice"),
        (r#""answer":"approve""#, r#""answer":"stop""#, "review is not a known field"),
        (r#""answer":"approve""#, r#""answer":"yes""#, "answer must be approve, deny or stop; got `yes`"),
        (r#""person""#, r#""reason":"r","person""#, "reason is not a known field"),
        (r#""kind":"production""#, r#""kind":"live""#, "kind must be sandbox or production; got `live`"),
        (r#""organization":"acme""#, r#""organization":"A""#, "organization must match"),
        (r#""nonce":"BQ"#, r#""nonce":""#, "nonce must be base64url of 32 bytes"),
    ] {
        assert!(sound.contains(from), "{from}");
        let refused = Statement::parse(&sound.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(refused.starts_with(said), "{refused} / {said}");
    }
    let long = Statement::parse(&" ".repeat(MAX_STATEMENT_BYTES + 1)).unwrap_err();
    assert_eq!(long.to_string(), "statement must have at most 8192 bytes; it has 8193");
}

#[test]
fn origins_are_those_of_browsers() {
    for origin in ["https://a", "https://a-1.example:8443", "http://localhost", "http://localhost:8444"] {
        assert_eq!(RelyingParty::of_origin(origin).unwrap().origin(), origin);
    }
    for origin in [
        "",
        "console.example",
        "https://",
        "https://:8443",
        "https://a:443",
        "https://a:0",
        "https://a:08443",
        "https://a:+1",
        "https://a:65536",
        "https://a:",
        "https://a/",
        "https://a?b",
        "https://u@a",
        "https://A",
        "https://é.example",
        "https://a..b",
        "https://a.",
        "https://-a",
        "https://a_b",
        "https://127.0.0.1",
        "https://a.0x7f",
        "https://[::1]",
        "http://a",
        "http://localhost:80",
        "HTTPS://a",
    ] {
        assert!(RelyingParty::of_origin(origin).is_err(), "{origin}");
    }
}
