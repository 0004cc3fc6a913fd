//! The Diffie-Hellman groups of DH-HMAC-CHAP: those of RFC 7919 over finite fields.
//!
//! Always true: exponents are random and used once; operations on them take a time that does not
//! depend on their value. Must not know messages.

use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};

/// A group: the prime is p = 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1, and the generator
/// is 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvme) struct DhGroup {
    /// The identifier in messages.
    pub(super) number: u8,
    /// The length b of the prime in bits.
    bits: u32,
    /// The number X, with which p and (p - 1) / 2 are primes.
    shift: u64,
    /// The length of exponents in bits: not less than RFC 7919 (appendix A) asks for.
    exponent_bits: u32,
}

/// A group from the table of RFC 7919.
const fn group(number: u8, bits: u32, shift: u64, exponent_bits: u32) -> DhGroup {
    DhGroup { number, bits, shift, exponent_bits }
}

/// A secret exponent, and the value for the other side.
pub(in crate::nvme) struct DhKeyPair {
    group: DhGroup,
    exponent: BoxedUint,
    /// The public value, as long as the prime.
    pub(super) value: Vec<u8>,
}

impl DhGroup {
    /// The groups, best first: the smallest ones with the strength of SHA-256 and more precede.
    pub(super) const ALL: [Self; 5] = [
        group(2, 3072, 2_625_351, 320),
        group(3, 4096, 5_736_041, 384),
        group(4, 6144, 15_705_020, 384),
        group(5, 8192, 10_965_728, 448),
        group(1, 2048, 560_316, 256),
    ];

    /// Draws a key pair. `None` if the system has no random numbers.
    pub(in crate::nvme) fn generate(self) -> Option<DhKeyPair> {
        let mut bytes = vec![0; self.exponent_bits as usize / 8];
        getrandom::fill(&mut bytes).ok()?;
        let exponent = BoxedUint::from_be_slice(&bytes, self.exponent_bits).ok()?;
        let value = self.raise(BoxedUint::from(2u8).resize(self.bits), &exponent);
        Some(DhKeyPair { group: self, exponent, value })
    }

    fn raise(self, base: BoxedUint, exponent: &BoxedUint) -> Vec<u8> {
        let base = BoxedMontyForm::new(base, self.parameters());
        base.pow_bounded_exp(exponent, self.exponent_bits).retrieve().to_be_bytes().to_vec()
    }

    /// The parameters of the arithmetic modulo the prime, which are computed once.
    fn parameters(self) -> &'static BoxedMontyParams {
        static ALL: [OnceLock<BoxedMontyParams>; 6] = [const { OnceLock::new() }; 6];
        let Some(own) = ALL.get(usize::from(self.number)) else {
            unreachable!("identifiers of groups are small");
        };
        own.get_or_init(|| {
            let prime = Odd::new(self.prime()).into_option();
            let Some(prime) = prime else { unreachable!("the prime ends with one bits") };
            BoxedMontyParams::new_vartime(prime)
        })
    }

    fn prime(self) -> BoxedUint {
        let bits = self.bits;
        let word = |value: u64| BoxedUint::from(value).resize(bits);
        let top = word(u64::MAX).shl(bits - 64);
        let middle = euler(bits).wrapping_add(word(self.shift)).shl(64);
        top.wrapping_add(middle).wrapping_sub(word(1))
    }
}

/// Computes floor(2^(bits - 130) e), as a number of `bits` bits.
fn euler(bits: u32) -> BoxedUint {
    /// Bits after the needed ones, for the errors of the divisions.
    const GUARD: u32 = 64;
    let fraction = bits - 130 + GUARD;
    let mut term = BoxedUint::one_with_precision(bits).shl(fraction);
    let mut sum = BoxedUint::zero_with_precision(bits);
    // The sum of 1 / k!.
    for divisor in 1u64.. {
        if bool::from(term.is_zero()) {
            break;
        }
        sum = sum.wrapping_add(&term);
        term = divided(&term, divisor);
    }
    sum.shr(GUARD)
}

/// Divides by a small number, from the highest word on.
fn divided(number: &BoxedUint, divisor: u64) -> BoxedUint {
    let bytes = number.to_be_bytes();
    let mut remainder = 0;
    let mut quotient = Vec::with_capacity(bytes.len());
    for byte in bytes.iter() {
        let part = remainder << 8 | u64::from(*byte);
        quotient.push((part / divisor) as u8);
        remainder = part % divisor;
    }
    BoxedUint::from_be_slice_truncated(&quotient, number.bits_precision())
}

impl DhKeyPair {
    pub(super) fn group(&self) -> DhGroup {
        self.group
    }

    /// The secret that both sides share, as long as the prime. `None` for a value that is not one
    /// of 2 to p - 2, or has another length than the prime.
    pub(in crate::nvme) fn shared_secret(&self, other: &[u8]) -> Option<Vec<u8>> {
        let bits = self.group.bits;
        if other.len() != bits as usize / 8 {
            return None;
        }
        let other = BoxedUint::from_be_slice(other, bits).ok()?;
        let one = BoxedUint::one_with_precision(bits);
        let last = self.group.parameters().modulus().as_ref().wrapping_sub(&one);
        if other <= one || other >= last {
            return None;
        }
        Some(self.group.raise(other, &self.exponent))
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
