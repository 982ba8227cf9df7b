//! Numbers modulo p, the prime of P-256: four 64-bit limbs, lowest first, in Montgomery form (a number a stands as
//! a · 2²⁵⁶ mod p). How long an operation takes depends on what it works on: for public data only.

#![expect(clippy::arithmetic_side_effects, reason = "shifts by constants; everything else names its carries")]

use std::ops::{Add, Mul, Neg, Sub};

/// Limbs of a number.
pub(super) type Limbs = [u64; 4];

/// p = 2²⁵⁶ − 2²²⁴ + 2¹⁹² + 2⁹⁶ − 1 (NIST SP 800-186, section 3.2.1.3).
pub(super) const P: Limbs = [0xffff_ffff_ffff_ffff, 0x0000_0000_ffff_ffff, 0, 0xffff_ffff_0000_0001];

/// 2⁵¹² mod p, which a number is multiplied with to come into Montgomery form.
const R_SQUARED: Element = Element([3, 0xffff_fffb_ffff_ffff, 0xffff_ffff_ffff_fffe, 0x0000_0004_ffff_fffd]);

/// A number modulo p, always below p.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element(Limbs);

impl Element {
    pub(super) const ZERO: Self = Self([0; 4]);
    /// 2²⁵⁶ mod p.
    pub(super) const ONE: Self =
        Self([1, 0xffff_ffff_0000_0000, 0xffff_ffff_ffff_ffff, 0x0000_0000_ffff_fffe]);

    /// The number, which may be any of 256 bits.
    pub(super) fn new(number: Limbs) -> Self {
        // The product of a number below 2²⁵⁶ and one below p is small enough to be reduced.
        Self(number) * R_SQUARED
    }

    pub(super) fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// The square. Each product of two different limbs is made once and doubled.
    pub(super) fn square(self) -> Self {
        let [a0, a1, a2, a3] = self.0;
        let (t1, carry) = a0.carrying_mul(a1, 0);
        let (t2, carry) = a0.carrying_mul(a2, carry);
        let (t3, t4) = a0.carrying_mul(a3, carry);
        let (t3, carry) = a1.carrying_mul_add(a2, t3, 0);
        let (t4, t5) = a1.carrying_mul_add(a3, t4, carry);
        let (t5, t6) = a2.carrying_mul_add(a3, t5, 0);

        let (t7, t6, t5) = (t6 >> 63, t6 << 1 | t5 >> 63, t5 << 1 | t4 >> 63);
        let (t4, t3, t2, t1) = (t4 << 1 | t3 >> 63, t3 << 1 | t2 >> 63, t2 << 1 | t1 >> 63, t1 << 1);

        let (t0, high) = a0.carrying_mul(a0, 0);
        let (t1, carry) = t1.overflowing_add(high);
        let (low, high) = a1.carrying_mul(a1, 0);
        let (t2, carry) = t2.carrying_add(low, carry);
        let (t3, carry) = t3.carrying_add(high, carry);
        let (low, high) = a2.carrying_mul(a2, 0);
        let (t4, carry) = t4.carrying_add(low, carry);
        let (t5, carry) = t5.carrying_add(high, carry);
        let (low, high) = a3.carrying_mul(a3, 0);
        let (t6, carry) = t6.carrying_add(low, carry);
        // The square has 512 bits: nothing is carried out of it.
        let (t7, _) = t7.carrying_add(high, carry);

        let lower = fold(fold(fold(fold([t0, t1, t2, t3]))));
        let (sum, carry) = add([t4, t5, t6, t7], lower);
        below_p(sum, carry)
    }

    /// 1/a, by Fermat: a to the power of p − 2. Of 0 it is 0.
    pub(super) fn invert(self) -> Self {
        let [lowest, p1, p2, p3] = P;
        let exponent = [p3, p2, p1, lowest - 2];
        let bits = exponent.iter().flat_map(|limb| (0..64).rev().map(move |bit| limb >> bit & 1 == 1));
        bits.fold(Self::ONE, |power, set| {
            let square = power.square();
            if set { square * self } else { square }
        })
    }
}

impl Mul for Element {
    type Output = Self;

    #[inline]
    fn mul(self, other: Self) -> Self {
        let [a0, a1, a2, a3] = self.0;
        let (t, top) = round([0; 4], false, a0, other.0);
        let (t, top) = round(t, top, a1, other.0);
        let (t, top) = round(t, top, a2, other.0);
        let (t, top) = round(t, top, a3, other.0);
        below_p(t, top)
    }
}

impl Add for Element {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (sum, carry) = add(self.0, other.0);
        below_p(sum, carry)
    }
}

impl Sub for Element {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let (difference, borrow) = subtract(self.0, other.0);
        // p is added where the difference is negative: a mask, for a branch would be foretold wrongly half the time.
        let mask = u64::from(borrow).wrapping_neg();
        let (sum, _) = add(difference, P.map(|limb| limb & mask));
        Self(sum)
    }
}

impl Neg for Element {
    type Output = Self;

    fn neg(self) -> Self {
        Self::ZERO - self
    }
}

/// (t + a · b + m · p) / 2⁶⁴, with the m that makes the lowest limb 0. `top` is the one bit that t has beyond its limbs:
/// what comes out is below 2p, as p is below 2²⁵⁶ and b below p.
#[inline]
fn round([t0, t1, t2, t3]: Limbs, top: bool, a: u64, [b0, b1, b2, b3]: Limbs) -> (Limbs, bool) {
    let (t0, carry) = a.carrying_mul_add(b0, t0, 0);
    let (t1, carry) = a.carrying_mul_add(b1, t1, carry);
    let (t2, carry) = a.carrying_mul_add(b2, t2, carry);
    let (t3, carry) = a.carrying_mul_add(b3, t3, carry);
    let (t4, over) = carry.overflowing_add(u64::from(top));
    let [f0, f1, f2, f3] = fold([t0, t1, t2, t3]);
    let (f3, above) = f3.overflowing_add(t4);
    ([f0, f1, f2, f3], over || above)
}

/// (t + t₀ · p) / 2⁶⁴, t₀ being the lowest limb. As p ends in 2⁹⁶ − 1, most of it is shifts.
#[inline]
fn fold([t0, t1, t2, t3]: Limbs) -> Limbs {
    let [.., p3] = P;
    let (f0, carry) = t1.overflowing_add(t0 << 32);
    let (f1, carry) = t2.carrying_add(t0 >> 32, carry);
    let (f2, f3) = t0.carrying_mul_add(p3, t3, u64::from(carry));
    [f0, f1, f2, f3]
}

#[inline]
fn add([a0, a1, a2, a3]: Limbs, [b0, b1, b2, b3]: Limbs) -> (Limbs, bool) {
    let (s0, carry) = a0.overflowing_add(b0);
    let (s1, carry) = a1.carrying_add(b1, carry);
    let (s2, carry) = a2.carrying_add(b2, carry);
    let (s3, carry) = a3.carrying_add(b3, carry);
    ([s0, s1, s2, s3], carry)
}

#[inline]
fn subtract([a0, a1, a2, a3]: Limbs, [b0, b1, b2, b3]: Limbs) -> (Limbs, bool) {
    let (d0, borrow) = a0.overflowing_sub(b0);
    let (d1, borrow) = a1.borrowing_sub(b1, borrow);
    let (d2, borrow) = a2.borrowing_sub(b2, borrow);
    let (d3, borrow) = a3.borrowing_sub(b3, borrow);
    ([d0, d1, d2, d3], borrow)
}

/// The number `carry` · 2²⁵⁶ + `number`, which is below 2p, modulo p.
#[inline]
fn below_p(number: Limbs, carry: bool) -> Element {
    let (reduced, borrow) = subtract(number, P);
    Element(if borrow && !carry { number } else { reduced })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto_bigint::{NonZero, U256};
    use proptest::prelude::*;

    fn prime() -> NonZero<U256> {
        NonZero::new(U256::from_words(P)).unwrap()
    }

    /// What the element stands for.
    fn number(element: Element) -> U256 {
        U256::from_words((element * Element([1, 0, 0, 0])).0)
    }

    /// Limbs at which carries are lost, and any others.
    fn limbs() -> impl Strategy<Value = Limbs> {
        let edge = prop::sample::select(vec![
            0,
            1,
            2,
            0xffff_fffe,
            0xffff_ffff,
            0x1_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0xffff_ffff_0000_0000,
            0xffff_ffff_0000_0001,
            0xffff_ffff_ffff_fffe,
            0xffff_ffff_ffff_ffff,
        ]);
        let limb = prop_oneof![3 => edge, 1 => any::<u64>()];
        prop::array::uniform4(limb)
    }

    #[expect(clippy::many_single_char_names, reason = "numbers and what stands for them")]
    fn agrees(a: Limbs, b: Limbs) {
        let p = prime();
        let (x, y) = (Element::new(a), Element::new(b));
        let (m, n) = (U256::from_words(a).rem_vartime(&p), U256::from_words(b).rem_vartime(&p));
        assert_eq!(number(x), m);
        assert_eq!(number(x + y), m.add_mod(&n, &p));
        assert_eq!(number(x - y), m.sub_mod(&n, &p));
        assert_eq!(number(-x), m.neg_mod(&p));
        assert_eq!(number(x * y), m.mul_mod_vartime(&n, &p));
        assert_eq!(number(x.square()), m.mul_mod_vartime(&m, &p));
        assert!(x.is_zero() == (m == U256::ZERO));
        // As they are, too: any four limbs below p are the Montgomery form of some number.
        let raw = |limbs: Limbs| Element(U256::from_words(limbs).rem_vartime(&p).to_words());
        let (x, y) = (raw(a), raw(b));
        let (m, n) = (number(x), number(y));
        assert_eq!(number(x * y), m.mul_mod_vartime(&n, &p));
        assert_eq!(number(x.square()), m.mul_mod_vartime(&m, &p));
        assert_eq!(number(x + y), m.add_mod(&n, &p));
        assert_eq!(number(x - y), m.sub_mod(&n, &p));
    }

    #[test]
    fn around_p_and_2_to_the_256_arithmetic_is_that_of_numbers() {
        let near =
            |base: Limbs| (0..3_u64).map(move |less| U256::from_words(base).wrapping_sub(&U256::from(less)));
        let all: Vec<_> = near(P).chain(near([u64::MAX; 4])).chain(near([2, 0, 0, 0])).collect();
        for a in &all {
            for b in &all {
                agrees(a.to_words(), b.to_words());
            }
        }
    }

    #[test]
    fn one_over_a_times_a_is_one() {
        for a in [[1, 0, 0, 0], [2, 0, 0, 0], [u64::MAX; 4], [7, 8, 9, 10], P.map(|limb| limb / 3)] {
            assert_eq!(Element::new(a).invert() * Element::new(a), Element::ONE);
        }
        assert_eq!(Element::ZERO.invert(), Element::ZERO);
        assert_eq!(Element::new([1, 0, 0, 0]), Element::ONE);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn arithmetic_is_that_of_numbers(a in limbs(), b in limbs()) {
            agrees(a, b);
        }
    }
}
