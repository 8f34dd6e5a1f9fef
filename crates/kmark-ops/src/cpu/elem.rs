//! Accumulators, and elements as CPU code sees them: every dtype is widened to an accumulator before anything is
//! computed and rounded afterwards, so that what lies between is compiled for two types only.

use super::short::{E4M3, E5M2, F16, round_bf16, values, widen_bf16, widen_f16};
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use kmark_core::dtype::DType;
use kmark_device::buffer::Buffer;
use kmark_device::cpu::matmul::Scalar;
use std::borrow::Cow;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use std::sync::OnceLock;

/// Runs `f` compiled for the best instruction set of this processor. The closure must be `#[inline(always)]`: one that
/// is merely called from here keeps the instructions of the baseline, and is ten times slower.
#[inline(always)]
pub fn simd<R>(f: impl FnOnce() -> R) -> R {
    // Asking the processor for all its features takes 100 ns.
    static ARCH: OnceLock<pulp::Arch> = OnceLock::new();
    ARCH.get_or_init(pulp::Arch::new).dispatch(f)
}

/// An accumulator: f32, or f64 for f64 tensors.
pub trait Real:
    Pod
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
    const DTYPE: DType;
    fn from_f64(v: f64) -> Self;
    fn to_f64(self) -> f64;
    fn sqrt(self) -> Self;
    fn ln(self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// e^x by a polynomial that vectorises, for arguments that are not large: accurate to about a unit in the last place.
    fn exp_poly(self) -> Self;
}

macro_rules! real {
    ($T:ident, $dtype:ident, $exp:ident) => {
        impl Real for $T {
            const ZERO: $T = 0.0;
            const ONE: $T = 1.0;
            const LOWEST: $T = $T::NEG_INFINITY;
            const DTYPE: DType = DType::$dtype;
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
            fn mul_add(self, a: $T, b: $T) -> $T {
                self.mul_add(a, b)
            }
            #[inline(always)]
            fn exp_poly(self) -> $T {
                $exp(self)
            }
        }
    };
}
real!(f32, F32, exp_f32);
real!(f64, F64, exp_f64);

/// Runs `$body` with `$A` standing for the accumulator of a float dtype.
macro_rules! by_acc {
    ($dtype:expr, $A:ident => $body:expr) => {
        match $dtype {
            kmark_core::dtype::DType::F64 => {
                type $A = f64;
                $body
            }
            _ => {
                type $A = f32;
                $body
            }
        }
    };
}
pub(crate) use by_acc;

/// Accumulators of the elements in `bytes`.
pub fn widen<A: Real>(dtype: DType, bytes: &[u8], dst: &mut [A]) {
    if dtype == A::DTYPE {
        return dst.copy_from_slice(cast_slice(bytes));
    }
    match A::DTYPE {
        DType::F32 => widen_f32(dtype, bytes, cast_slice_mut(dst)),
        _ => dtype.decode(bytes, cast_slice_mut(dst)),
    }
}

fn widen_f32(dtype: DType, bytes: &[u8], dst: &mut [f32]) {
    simd(
        #[inline(always)]
        || match dtype {
            DType::F16 => each(dst, cast_slice(bytes), widen_f16),
            DType::Bf16 => each(dst, cast_slice(bytes), widen_bf16),
            DType::F64 => each(dst, cast_slice(bytes), |v: f64| v as f32),
            _ => {
                let table = values(dtype);
                each(dst, bytes, |code: u8| table[code as usize]);
            }
        },
    )
}

/// The same inside of a vectorised loop over rows: for bf16, which takes next to nothing, without the call, which would
/// take longer than a short row.
#[inline(always)]
pub fn widen_here<A: Real>(dtype: DType, bytes: &[u8], dst: &mut [A]) {
    if dtype == DType::Bf16 && A::DTYPE == DType::F32 {
        each(cast_slice_mut(dst), cast_slice(bytes), widen_bf16);
    } else {
        widen(dtype, bytes, dst);
    }
}

#[inline(always)]
fn each<S: Copy, D>(dst: &mut [D], src: &[S], f: impl Fn(S) -> D) {
    dst.iter_mut().zip(src).for_each(|(d, s)| *d = f(*s));
}

/// Rounds accumulators, once.
pub fn narrow<A: Real>(dtype: DType, src: &[A], bytes: &mut [u8]) {
    if dtype == A::DTYPE {
        return bytes.copy_from_slice(cast_slice(src));
    }
    match A::DTYPE {
        DType::F32 => narrow_f32(dtype, cast_slice(src), bytes),
        _ => dtype.encode(cast_slice(src), bytes),
    }
}

/// The same inside of a vectorised loop over rows.
#[inline(always)]
pub fn narrow_here<A: Real>(dtype: DType, src: &[A], bytes: &mut [u8]) {
    if dtype == DType::Bf16 && A::DTYPE == DType::F32 {
        each(cast_slice_mut(bytes), cast_slice(src), round_bf16);
    } else {
        narrow(dtype, src, bytes);
    }
}

fn narrow_f32(dtype: DType, src: &[f32], bytes: &mut [u8]) {
    simd(
        #[inline(always)]
        || match dtype {
            DType::F16 => each(cast_slice_mut(bytes), src, |v| F16.round(v) as u16),
            DType::Bf16 => each(cast_slice_mut(bytes), src, round_bf16),
            DType::F64 => each(cast_slice_mut(bytes), src, |v| v as f64),
            DType::F8e4m3 => each(bytes, src, |v| E4M3.round(v) as u8),
            DType::F8e5m2 => each(bytes, src, |v| E5M2.round(v) as u8),
            other => panic!("no CPU implementation for {other}: the case should have been refused"),
        },
    )
}

/// A tensor that all rows share, in accumulators: its own memory if it is of their type.
pub fn widened<A: Real>(dtype: DType, bytes: &[u8]) -> Cow<'_, [A]> {
    if dtype == A::DTYPE {
        return Cow::Borrowed(cast_slice(bytes));
    }
    let mut wide = vec![A::ZERO; bytes.len() / dtype.size()];
    widen(dtype, bytes, &mut wide);
    Cow::Owned(wide)
}

/// The whole of a buffer in accumulators.
pub fn wide_copy<A: Real>(buffer: &Buffer) -> Vec<A> {
    widened(buffer.spec().dtype, &buffer.read::<u8>()).into_owned()
}

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
    fn elements_are_widened_and_rounded_as_their_dtype_says() {
        let any: Vec<f32> = (0..100_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
        let wide: Vec<f64> = any.iter().map(|v| *v as f64).collect();
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::F8e4m3, DType::F8e5m2] {
            let (mut want, mut got) = (vec![0; any.len() * dtype.size()], vec![0; any.len() * dtype.size()]);
            dtype.encode(&wide, &mut want);
            narrow(dtype, &any, &mut got);
            let (mut back, mut exact) = (vec![0.0f32; any.len()], vec![0.0; any.len()]);
            widen(dtype, &got, &mut back);
            dtype.decode(&want, &mut exact);
            for ((v, got), want) in any.iter().zip(&back).zip(&exact) {
                assert!(*got as f64 == *want || (got.is_nan() && want.is_nan()), "{dtype} {v:e}: {got:e} {want:e}");
            }
        }
    }
}
