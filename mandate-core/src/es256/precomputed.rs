//! Verifying many signatures under one key: several times faster, from tables of the key's multiples.
//!
//! A signature (r, s) of a message with the hash e holds when the point u₁·G + u₂·Q has x ≡ r modulo n, with u₁ = e/s and
//! u₂ = r/s (FIPS 186-5, section 6.4.2). With the multiples d · 2⁸ⁱ of G and Q at hand, for d from 1 to 128, it is a sum
//! of 66 points, without any doubling. A table takes 270 KB and about 2 ms to make; that of G is shared.
//!
//! Everything here is public: key, message, signature. How long it takes may depend on them, and does; nothing secret may
//! ever come this way.

#![expect(clippy::arithmetic_side_effects, reason = "arithmetic of the field wraps by definition")]

mod field;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crypto_bigint::{Odd, U256};
use sha2::{Digest, Sha256};

use self::field::Element;
use super::{FIELD_BYTES, InvalidKey, PublicKey, SIGNATURE_BYTES, fastest};

/// Signatures that are verified without a table before one is made: about as many as it takes for the table to be paid
/// back, so that whoever verifies a few never waits for it.
const WITHOUT_TABLE: u32 = 64;

/// Bits of a digit of u₁ and u₂. More of them mean fewer points to add, and tables that no cache holds.
const DIGIT_BITS: usize = 8;
/// The largest digit. Digits are −127 to 128: a negative one subtracts the point.
const LARGEST: usize = 1 << (DIGIT_BITS - 1);
/// Digits of a number of 256 bits. The last is for what the one before it carries.
const DIGITS: usize = 256 / DIGIT_BITS + 1;

/// The order n of the base point (NIST SP 800-186, section 3.2.1.3).
const N: Odd<U256> =
    Odd::<U256>::from_be_hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551");
/// p − n.
const BETWEEN: U256 = U256::from_be_hex("000000000000000000000000000000004319055358e8617b0c46353d039cdaae");

/// The base point of P-256 (NIST SP 800-186, section 3.2.1.3).
const BASE: [[u8; FIELD_BYTES]; 2] = [
    [
        0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2, 0x77,
        0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96,
    ],
    [
        0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b,
        0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
    ],
];

/// Verifies with the fastest backend at first, and from a table once it is clear that the key is used a lot.
pub struct Verifier {
    key: PublicKey,
    plain: fastest::Verifier,
    verified: AtomicU32,
    table: OnceLock<Table>,
}

impl Verifier {
    /// A verifier under `key`, without a table yet.
    ///
    /// # Errors
    /// [`InvalidKey::Backend`], when memory is exhausted.
    pub fn new(key: &PublicKey) -> Result<Self, InvalidKey> {
        let plain = fastest::Verifier::new(key)?;
        Ok(Self { key: *key, plain, verified: AtomicU32::new(0), table: OnceLock::new() })
    }

    /// Makes the table now, for those who know that there is much to verify.
    ///
    /// ```
    /// use mandate_core::es256::{self, SecretKey, Verifier as _, precomputed::Verifier};
    /// let signer = es256::signer(&SecretKey::from_bytes([7; 32])?, mandate_core::jwks::Kid::parse("key-1")?)?;
    /// let verifier = Verifier::new(signer.public_key())?;
    /// verifier.prepare();
    /// assert!(verifier.verify(b"message", &signer.sign(b"message")?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare(&self) {
        self.table.get_or_init(|| Table::new(&self.key));
    }
}

impl super::Verifier for Verifier {
    fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        if let Some(table) = self.table.get() {
            return table.verify(message, signature);
        }
        // One thread makes the table; the others go on without it until it is there.
        if self.verified.fetch_add(1, Ordering::Relaxed) == WITHOUT_TABLE {
            self.prepare();
        }
        super::Verifier::verify(&self.plain, message, signature)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("precomputed::Verifier").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A point that is not infinite.
#[derive(Debug, Clone, Copy)]
struct Affine {
    x: Element,
    y: Element,
}

/// The point (x/z², y/z³); infinite where z is 0.
#[derive(Debug, Clone, Copy)]
struct Point {
    x: Element,
    y: Element,
    z: Element,
}

/// The multiples d · 2⁸ⁱ of one point, `LARGEST` for each i.
struct Table(Vec<Affine>);

impl Table {
    fn new(key: &PublicKey) -> Self {
        let mut base = Point { x: element(key.x()), y: element(key.y()), z: Element::ONE };
        let mut multiples = Vec::with_capacity(DIGITS * LARGEST);
        for _ in 0..DIGITS {
            let mut multiple = base;
            multiples.push(multiple);
            for _ in 1..LARGEST {
                multiple = multiple.plus(&base);
                multiples.push(multiple);
            }
            base = multiple.doubled();
        }
        Self(affine(&multiples))
    }

    /// The table of the base point.
    fn base() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        let [x, y] = BASE;
        TABLE.get_or_init(|| Self::new(&PublicKey { x, y }))
    }

    fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        let (r, s) = signature.split_at(FIELD_BYTES);
        let (r, s) = (U256::from_be_slice(r), U256::from_be_slice(s));
        let in_range = |number: &U256| *number != U256::ZERO && *number < *N;
        if !in_range(&r) || !in_range(&s) {
            return false;
        }
        let Some(inverse) = s.invert_odd_mod_vartime(&N).into_option() else { return false };
        // Below 2n, for n is nearly 2²⁵⁶.
        let hash = U256::from_be_slice(&Sha256::digest(message));
        let hash = if hash < *N { hash } else { hash.wrapping_sub(&N) };
        let u1 = hash.mul_mod_vartime(&inverse, N.as_nz_ref());
        let u2 = r.mul_mod_vartime(&inverse, N.as_nz_ref());
        let sum = self.add(Self::base().add(Point::INFINITY, &u1), &u2);
        // x lies below p, the larger modulus: where r is small enough, x may also be r + n.
        let larger = (r < BETWEEN).then(|| r.wrapping_add(&N));
        sum.has_x(&r) || larger.is_some_and(|x| sum.has_x(&x))
    }

    /// `sum` and `factor` times the point of this table.
    fn add(&self, mut sum: Point, factor: &U256) -> Point {
        let mut carry = 0;
        let bytes = factor.to_le_bytes();
        let digits = bytes.as_ref().iter().chain(&[0]);
        for (byte, multiples) in digits.zip(self.0.chunks_exact(LARGEST)) {
            let digit = usize::from(*byte) + carry;
            let negative = digit > LARGEST;
            carry = usize::from(negative);
            let distance = if negative { (LARGEST << 1) - digit } else { digit };
            // There is no multiple for 0, which adds nothing.
            if let Some(multiple) = distance.checked_sub(1).and_then(|index| multiples.get(index)) {
                sum = sum.plus_affine(if negative { multiple.negated() } else { *multiple });
            }
        }
        sum
    }
}

impl Affine {
    fn negated(self) -> Self {
        Self { x: self.x, y: -self.y }
    }
}

impl Point {
    const INFINITY: Self = Self { x: Element::ONE, y: Element::ONE, z: Element::ZERO };

    /// Twice the point ("dbl-2001-b" of the Explicit-Formulas Database: it uses that P-256 has a = −3).
    fn doubled(self) -> Self {
        let delta = self.z.square();
        let gamma = self.y.square();
        let beta = self.x * gamma;
        let third = (self.x - delta) * (self.x + delta);
        let alpha = third + third + third;
        let beta2 = beta + beta;
        let beta4 = beta2 + beta2;
        let gamma2 = gamma + gamma;
        let gamma4 = gamma2.square();
        let x = alpha.square() - beta4 - beta4;
        let y = alpha * (beta4 - x) - gamma4 - gamma4;
        let z = (self.y + self.z).square() - gamma - delta;
        Self { x, y, z }
    }

    fn plus_affine(self, other: Affine) -> Self {
        if self.z.is_zero() {
            return Self { x: other.x, y: other.y, z: Element::ONE };
        }
        let square = self.z.square();
        let (x, y) = (other.x * square, other.y * self.z * square);
        self.plus_over(self.x, self.y, self.z, x, y)
    }

    /// The sum of two points that are not infinite.
    fn plus(self, other: &Self) -> Self {
        let (square, other_square) = (self.z.square(), other.z.square());
        let (x1, y1) = (self.x * other_square, self.y * other.z * other_square);
        let (x2, y2) = (other.x * square, other.y * self.z * square);
        self.plus_over(x1, y1, self.z * other.z, x2, y2)
    }

    /// The sum of this point, which is (x1/z², y1/z³), and (x2/z², y2/z³).
    #[expect(clippy::many_single_char_names, reason = "they are those of the formula")]
    fn plus_over(self, x1: Element, y1: Element, z: Element, x2: Element, y2: Element) -> Self {
        let (h, slope) = (x2 - x1, y2 - y1);
        if h.is_zero() {
            // They are one point, or one is the other's negative.
            return if slope.is_zero() { self.doubled() } else { Self::INFINITY };
        }
        let h2 = h.square();
        let h3 = h * h2;
        let v = x1 * h2;
        let x = slope.square() - h3 - v - v;
        let y = slope * (v - x) - y1 * h3;
        Self { x, y, z: z * h }
    }

    /// Whether the point is not infinite and its x is this number, which is below p.
    fn has_x(&self, x: &U256) -> bool {
        !self.z.is_zero() && element(&x.to_be_bytes().into()) * self.z.square() == self.x
    }
}

/// The same points without their z, by one inversion for all of them. None is infinite.
fn affine(points: &[Point]) -> Vec<Affine> {
    // The product of all z before each point.
    let mut product = Element::ONE;
    let before: Vec<_> = points
        .iter()
        .map(|point| {
            let before = product;
            product = product * point.z;
            before
        })
        .collect();
    let mut inverse = product.invert();
    let mut found: Vec<_> = points
        .iter()
        .zip(before)
        .rev()
        .map(|(point, before)| {
            let z = inverse * before;
            inverse = inverse * point.z;
            let square = z.square();
            Affine { x: point.x * square, y: point.y * square * z }
        })
        .collect();
    found.reverse();
    found
}

/// The number that these bytes are, highest first.
fn element(bytes: &[u8; FIELD_BYTES]) -> Element {
    let (limbs, _) = bytes.as_chunks();
    let mut limbs = limbs.iter().rev().copied().map(u64::from_be_bytes);
    Element::new(std::array::from_fn(|_| limbs.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests;
