//! Signatures whose sums meet the special cases of adding points.

use super::*;
use crate::es256::{SecretKey, Verifier as _};

fn number(text: &str) -> U256 {
    U256::from_be_hex(&format!("{text:0>64}"))
}

/// The multiples of the base point, by adding it again and again.
#[test]
fn a_table_holds_the_multiples_of_its_point() {
    let [x, y] = BASE;
    let base = Point { x: element(&x), y: element(&y), z: Element::ONE };
    let mut sum = base;
    for factor in 1..=1000_u64 {
        let found = affine(&[Table::base().add(Point::INFINITY, &U256::from(factor))])[0];
        let wanted = affine(&[sum])[0];
        assert!(found.x == wanted.x && found.y == wanted.y, "{factor}");
        sum = sum.plus(&base);
    }
}

#[test]
fn a_point_and_its_negative_are_infinite_and_a_point_twice_is_doubled() {
    let times = |sum, factor: &U256| Table::base().add(sum, factor);
    let minus = |factor: u64| N.wrapping_sub(&U256::from(factor));
    for factor in [1, 2, 127, 128, 129, 255, 256, 65_535, u64::MAX] {
        let point = times(Point::INFINITY, &U256::from(factor));
        assert!(times(point, &minus(factor)).z.is_zero(), "{factor}");
        let (twice, doubled) = (times(point, &U256::from(factor)), point.doubled());
        assert!(twice.x * doubled.z.square() == doubled.x * twice.z.square(), "{factor}");
    }
    assert!(times(Point::INFINITY, &U256::ZERO).z.is_zero());
    assert!(times(Point::INFINITY, &N).z.is_zero(), "n times the base point is infinite");
    assert!(!Point::INFINITY.has_x(&U256::ONE));
}

/// With the key that is the base point itself, and its negative, u₁·G and u₂·Q meet.
#[test]
fn keys_that_are_multiples_of_the_base_point_verify_as_every_other() {
    let one = number("1").to_be_bytes().into();
    let minus_one = N.wrapping_sub(&U256::ONE).to_be_bytes().into();
    for secret in [one, minus_one, number("2").to_be_bytes().into()] {
        let secret = SecretKey::from_bytes(secret).unwrap();
        let signer = fastest::Signer::new(&secret, crate::jwks::Kid::parse("k").unwrap()).unwrap();
        let verifier = Verifier::new(secret.public_key()).unwrap();
        verifier.prepare();
        for message in 0..50_u8 {
            let signature = crate::es256::Signer::sign(&signer, &[message]).unwrap();
            assert!(verifier.verify(&[message], &signature));
            assert!(!verifier.verify(&[message, 0], &signature));
        }
    }
}

#[test]
fn what_lies_between_p_and_n_is_p_minus_n() {
    let p = number("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
    assert_eq!(p.wrapping_sub(&N), BETWEEN);
    assert_eq!(N.to_be_bytes().as_ref(), crate::es256::ORDER);
}

/// Before the table, while it is made, and after, by many threads.
#[test]
fn a_verifier_gives_one_answer_before_and_after_it_has_a_table() {
    let secret = SecretKey::from_bytes([9; 32]).unwrap();
    let signer = fastest::Signer::new(&secret, crate::jwks::Kid::parse("k").unwrap()).unwrap();
    let signature = crate::es256::Signer::sign(&signer, b"message").unwrap();
    let verifier = Verifier::new(secret.public_key()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..WITHOUT_TABLE {
                    assert!(verifier.verify(b"message", &signature));
                    assert!(!verifier.verify(b"massage", &signature));
                }
            });
        }
    });
    assert!(verifier.table.get().is_some());
}
