//! Element types: their names, sizes, precision and exact conversion from and to f64.
//! Knows numbers only, no tensors.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    F64,
    F32,
    F16,
    Bf16,
    F8e4m3,
    F8e5m2,
    I32,
    I64,
}

/// A binary floating-point format: significand bits (with the hidden one), smallest normal exponent, largest finite value.
struct Format {
    precision: i32,
    min_exp: i32,
    max: f64,
}

impl DType {
    pub const ALL: [DType; 8] =
        [Self::F64, Self::F32, Self::F16, Self::Bf16, Self::F8e4m3, Self::F8e5m2, Self::I32, Self::I64];

    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F8e4m3 => "f8e4m3",
            Self::F8e5m2 => "f8e5m2",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    pub fn parse(word: &str) -> Option<DType> {
        Self::ALL.into_iter().find(|d| d.name() == word)
    }

    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::F8e4m3 | Self::F8e5m2 => 1,
        }
    }

    pub fn is_float(self) -> bool {
        !matches!(self, Self::I32 | Self::I64)
    }

    /// The type in which a kernel over this dtype accumulates, and in which it saves statistics (rstd, mean, lse).
    pub fn accumulator(self) -> DType {
        if self == Self::F64 { Self::F64 } else { Self::F32 }
    }

    /// Unit roundoff: half the spacing just above 1.
    pub fn unit(self) -> f64 {
        pow2(-self.format().precision)
    }

    fn format(self) -> Format {
        match self {
            Self::F64 | Self::I64 => Format { precision: 53, min_exp: -1022, max: f64::MAX },
            Self::F32 | Self::I32 => Format { precision: 24, min_exp: -126, max: f32::MAX as f64 },
            Self::F16 => Format { precision: 11, min_exp: -14, max: 65504.0 },
            Self::Bf16 => Format { precision: 8, min_exp: -126, max: 3.389_531_389_251_535_5e38 },
            Self::F8e4m3 => Format { precision: 4, min_exp: -6, max: 448.0 },
            Self::F8e5m2 => Format { precision: 3, min_exp: -14, max: 57344.0 },
        }
    }

    /// The distance between neighbouring values of this type around `x` (subnormals included).
    pub fn spacing(self, x: f64) -> f64 {
        let f = self.format();
        let exp = if x == 0.0 || !x.is_finite() { f.min_exp } else { exponent(x).max(f.min_exp) };
        pow2(exp - f.precision + 1)
    }

    /// `x` rounded to the nearest value of this type, ties to even; beyond the largest finite value it becomes
    /// infinite (NaN for e4m3, which has no infinity). One rounding from f64, which the `half` crate does not promise.
    pub fn round(self, x: f64) -> f64 {
        if self == Self::F64 || !x.is_finite() {
            return x;
        }
        if self == Self::F32 {
            return x as f32 as f64;
        }
        // Added to this, x is rounded to a multiple of its spacing.
        let shift = 1.5 * pow2(52) * self.spacing(x);
        let r = ((x + shift) - shift).copysign(x);
        if r.abs() > self.format().max {
            return if self == Self::F8e4m3 { f64::NAN } else { f64::INFINITY.copysign(x) };
        }
        r
    }

    /// Reads little-endian elements as f64. `bytes` holds exactly `out.len()` elements.
    pub fn decode(self, bytes: &[u8], out: &mut [f64]) {
        assert_eq!(bytes.len(), out.len() * self.size());
        fn each<const N: usize>(bytes: &[u8], out: &mut [f64], f: impl Fn([u8; N]) -> f64) {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
                *o = f(*b);
            }
        }
        match self {
            Self::F64 => each(bytes, out, f64::from_le_bytes),
            Self::F32 => each(bytes, out, |b| f32::from_le_bytes(b) as f64),
            Self::F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f64()),
            Self::Bf16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32() as f64),
            Self::F8e4m3 | Self::F8e5m2 => each(bytes, out, |[b]| self.decode_f8(b)),
            Self::I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f64),
            Self::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f64),
        }
    }

    /// Rounds each value to this type and writes it little-endian.
    pub fn encode(self, values: &[f64], bytes: &mut [u8]) {
        assert_eq!(bytes.len(), values.len() * self.size());
        fn each<const N: usize>(values: &[f64], bytes: &mut [u8], f: impl Fn(f64) -> [u8; N]) {
            for (v, b) in values.iter().zip(bytes.as_chunks_mut::<N>().0) {
                *b = f(*v);
            }
        }
        match self {
            Self::F64 => each(values, bytes, f64::to_le_bytes),
            Self::F32 => each(values, bytes, |v| (v as f32).to_le_bytes()),
            Self::F16 => each(values, bytes, |v| f16::from_f64(self.round(v)).to_le_bytes()),
            Self::Bf16 => each(values, bytes, |v| bf16::from_f64(self.round(v)).to_le_bytes()),
            Self::F8e4m3 | Self::F8e5m2 => each(values, bytes, |v| [self.encode_f8(v)]),
            Self::I32 => each(values, bytes, |v| (v as i32).to_le_bytes()),
            Self::I64 => each(values, bytes, |v| (v as i64).to_le_bytes()),
        }
    }

    fn decode_f8(self, byte: u8) -> f64 {
        let f = self.format();
        let fraction_bits = f.precision - 1;
        let sign = if byte & 0x80 != 0 { -1.0 } else { 1.0 };
        let exp = (byte & 0x7f) >> fraction_bits;
        let fraction = (byte & ((1 << fraction_bits) - 1)) as f64;
        let top = 0x7f >> fraction_bits;
        if self == Self::F8e5m2 && exp == top {
            return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
        }
        if self == Self::F8e4m3 && byte & 0x7f == 0x7f {
            return f64::NAN;
        }
        let unit = pow2(f.min_exp - fraction_bits);
        if exp == 0 {
            sign * fraction * unit
        } else {
            sign * (fraction + pow2(fraction_bits)) * unit * pow2(exp as i32 - 1)
        }
    }

    fn encode_f8(self, v: f64) -> u8 {
        let f = self.format();
        let fraction_bits = f.precision - 1;
        let sign = if v.is_sign_negative() { 0x80 } else { 0 };
        let r = self.round(v).abs();
        if r.is_nan() || (r.is_infinite() && self == Self::F8e4m3) {
            return sign | 0x7f; // e4m3 has no infinity
        }
        if r.is_infinite() {
            return sign | 0x7c;
        }
        let exp = if r == 0.0 { f.min_exp } else { exponent(r).max(f.min_exp) };
        let units = (r / pow2(exp - fraction_bits)) as u8;
        let biased = (exp - f.min_exp) as u8;
        // A subnormal has no hidden bit, so its units stand as they are.
        sign | if units >> fraction_bits == 0 { units } else { (biased << fraction_bits) + units }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The exponent `e` with `2^e <= |x| < 2^(e+1)`, for finite non-zero `x`.
fn exponent(x: f64) -> i32 {
    let bits = (x.to_bits() >> 52) & 0x7ff;
    if bits == 0 { exponent(x * pow2(64)) - 64 } else { bits as i32 - 1023 }
}

fn pow2(e: i32) -> f64 {
    if e >= -1022 { f64::from_bits(((e + 1023) as u64) << 52) } else { f64::from_bits(1 << (e + 1074)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f8_value_survives_the_round_trip() {
        for dtype in [DType::F8e4m3, DType::F8e5m2] {
            for byte in 0..=255u8 {
                let v = dtype.decode_f8(byte);
                if v.is_nan() {
                    assert!(dtype.decode_f8(dtype.encode_f8(v)).is_nan());
                } else {
                    assert_eq!(dtype.encode_f8(v), byte, "{dtype} {byte:#x} = {v}");
                }
            }
        }
        assert_eq!(DType::F8e4m3.encode_f8(f64::INFINITY), 0x7f);
        assert_eq!(DType::F8e5m2.encode_f8(f64::NEG_INFINITY), 0xfc);
        assert_eq!(DType::F8e4m3.decode_f8(0x7e), 448.0);
        assert_eq!(DType::F8e5m2.decode_f8(0x7b), 57344.0);
    }

    #[test]
    fn every_half_value_survives_the_round_trip() {
        for dtype in [DType::F16, DType::Bf16] {
            for bits in 0..=u16::MAX {
                let mut v = [0.0];
                dtype.decode(&bits.to_le_bytes(), &mut v);
                let mut back = [0u8; 2];
                dtype.encode(&v, &mut back);
                if !v[0].is_nan() {
                    assert_eq!(u16::from_le_bytes(back), bits, "{dtype} {bits:#x}");
                }
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_once() {
        assert_eq!(DType::Bf16.round(1.0 + 2f64.powi(-8)), 1.0); // a tie goes to the even neighbour
        assert_eq!(DType::Bf16.round(1.0 + 3.0 * 2f64.powi(-8)), 1.0 + 2f64.powi(-6));
        assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
        // Just above a tie: rounding through f32 first would lose the excess and go down.
        assert_eq!(DType::F16.round(1.0 + 2f64.powi(-11) + 2f64.powi(-40)), 1.0 + 2f64.powi(-10));
        assert_eq!(DType::F16.round(2f64.powi(-25) * 1.5), 2f64.powi(-24)); // subnormal
        assert_eq!(DType::F32.round(0.1), 0.1f32 as f64);
    }

    #[test]
    fn spacing_covers_subnormals() {
        assert_eq!(DType::F16.spacing(0.0), 2f64.powi(-24));
        assert_eq!(DType::F32.spacing(1.5), 2f64.powi(-23));
        assert_eq!(DType::F64.spacing(0.0), f64::from_bits(1));
    }
}
