//! Element types as CPU code sees them: how they widen to the accumulator and round back.

use bytemuck::{AnyBitPattern, NoUninit};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kmark_device::cpu::matmul::Scalar;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// A tensor element.
pub trait Elem: Copy + Send + Sync + AnyBitPattern + NoUninit + 'static {
    type Acc: Real;
    fn up(self) -> Self::Acc;
    fn down(a: Self::Acc) -> Self;
    /// The slice itself, if elements and accumulators are one type.
    fn same(src: &[Self]) -> Option<&[Self::Acc]>;
    fn same_mut(src: &mut [Self]) -> Option<&mut [Self::Acc]>;
    fn widen(src: &[Self], dst: &mut [Self::Acc]);
    fn narrow(src: &[Self::Acc], dst: &mut [Self]);
}

/// An accumulator: f32, or f64 for f64 tensors.
pub trait Real:
    Elem<Acc = Self>
    + Scalar
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
{
    const ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;
    fn from_f64(v: f64) -> Self;
    fn to_f64(self) -> f64;
    fn sqrt(self) -> Self;
    fn ln(self) -> Self;
    fn larger(self, other: Self) -> Self;
    /// e^x by a polynomial that vectorises, for arguments that are not large: accurate to about a unit in the last place.
    fn exp_poly(self) -> Self;
}

macro_rules! real {
    ($T:ident, $exp:ident) => {
        impl Elem for $T {
            type Acc = $T;
            #[inline(always)]
            fn up(self) -> $T {
                self
            }
            #[inline(always)]
            fn down(a: $T) -> $T {
                a
            }
            #[inline(always)]
            fn same(src: &[$T]) -> Option<&[$T]> {
                Some(src)
            }
            #[inline(always)]
            fn same_mut(src: &mut [$T]) -> Option<&mut [$T]> {
                Some(src)
            }
            fn widen(src: &[$T], dst: &mut [$T]) {
                dst.copy_from_slice(src);
            }
            fn narrow(src: &[$T], dst: &mut [$T]) {
                dst.copy_from_slice(src);
            }
        }
        impl Real for $T {
            const ZERO: $T = 0.0;
            const ONE: $T = 1.0;
            const LOWEST: $T = $T::NEG_INFINITY;
            #[inline(always)]
            fn from_f64(v: f64) -> $T {
                v as $T
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn sqrt(self) -> $T {
                self.sqrt()
            }
            #[inline(always)]
            fn ln(self) -> $T {
                self.ln()
            }
            #[inline(always)]
            fn larger(self, other: $T) -> $T {
                if self > other { self } else { other }
            }
            #[inline(always)]
            fn exp_poly(self) -> $T {
                $exp(self)
            }
        }
    };
}
real!(f32, exp_f32);
real!(f64, exp_f64);

macro_rules! half {
    ($T:ident, $widen:item, $narrow:item) => {
        impl Elem for $T {
            type Acc = f32;
            #[inline(always)]
            fn up(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn down(a: f32) -> $T {
                $T::from_f32(a)
            }
            #[inline(always)]
            fn same(_: &[$T]) -> Option<&[f32]> {
                None
            }
            #[inline(always)]
            fn same_mut(_: &mut [$T]) -> Option<&mut [f32]> {
                None
            }
            #[inline(always)]
            $widen
            #[inline(always)]
            $narrow
        }
    };
}
half!(
    f16,
    fn widen(src: &[f16], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    },
    fn narrow(src: &[f32], dst: &mut [f16]) {
        dst.convert_from_f32_slice(src);
    }
);
half!(
    bf16,
    fn widen(src: &[bf16], dst: &mut [f32]) {
        for (d, s) in dst.iter_mut().zip(src) {
            *d = f32::from_bits((s.to_bits() as u32) << 16);
        }
    },
    // Round to nearest even in integers, which vectorises; NaN keeps a set fraction bit.
    fn narrow(src: &[f32], dst: &mut [bf16]) {
        for (d, s) in dst.iter_mut().zip(src) {
            let bits = s.to_bits();
            let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
            let nan = (bits >> 16) | 0x40;
            *d = bf16::from_bits(if s.is_nan() { nan } else { rounded } as u16);
        }
    }
);

/// 2^k * e^r with k = round(x / ln 2) and |r| <= ln2 / 2. ln 2 is split in two so that r is exact. The polynomial is
/// Taylor's of degree 7 with its last term spread over the others (Chebyshev), 2e-9 off at the most.
/// Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits: `round` and `as` do not always vectorise.
/// Results below the smallest normal number are 0; arguments above 88 (f64: 709) are the caller's mistake.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let k = shifted - SHIFT;
    let r = k.mul_add(-1.428_606_8e-6, k.mul_add(-0.693_145_75, x));
    let p = (1.0f32 / 720.0).mul_add(r, 8.375_04e-3);
    let p = p.mul_add(r, 1.0 / 24.0);
    let p = p.mul_add(r, 0.166_664_16);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r, 1.0);
    let p = p.mul_add(r, 1.0);
    // p is in [0.7, 1.42]: its exponent has room for k. The low bits of `shifted` are k, those above fall out.
    let scaled = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x < -87.336_54 { 0.0 } else { scaled }
}

#[inline(always)]
fn exp_f64(x: f64) -> f64 {
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let shifted = x.mul_add(std::f64::consts::LOG2_E, SHIFT);
    let k = shifted - SHIFT;
    let r = k.mul_add(-1.908_214_929_270_587_7e-10, k.mul_add(-6.931_471_803_691_238e-1, x));
    let mut p = 1.0 / 6_227_020_800.0;
    for d in [479_001_600.0, 39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0] {
        p = r.mul_add(p, 1.0 / d);
    }
    let p = p.mul_add(r, 1.0);
    let p = p.mul_add(r, 1.0);
    let scaled = f64::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 52));
    if x < -708.396_4 { 0.0 } else { scaled }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_over_its_range() {
        for i in -24_000..18_000 {
            let x = i as f32 * 0.0049;
            let (got, want) = (exp_f32(x) as f64, (x as f64).exp());
            let tiny = f32::MIN_POSITIVE as f64;
            assert!((got - want).abs() <= 2.0 * 2f64.powi(-24) * want + tiny, "{x}: {got} {want}");
        }
        for i in -14_800..14_000 {
            let x = i as f64 * 0.05;
            let (got, want) = (exp_f64(x), x.exp());
            assert!((got - want).abs() <= 4.0 * 2f64.powi(-53) * want + f64::MIN_POSITIVE, "{x}: {got} {want}");
        }
        assert!(exp_f32(f32::NAN).is_nan() && exp_f64(f64::NAN).is_nan());
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f64(f64::NEG_INFINITY), 0.0);
        assert_eq!((exp_f32(0.0), exp_f64(0.0)), (1.0, 1.0));
    }

    #[test]
    fn bf16_rounds_as_the_crate_does() {
        let values: Vec<f32> = (0..100_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
        let mut got = vec![bf16::ZERO; values.len()];
        bf16::narrow(&values, &mut got);
        for (v, g) in values.iter().zip(&got) {
            let want = bf16::from_f32(*v);
            assert!(want.to_bits() == g.to_bits() || (want.is_nan() && g.is_nan()), "{v}");
        }
    }
}
