//! Floats of 8 and 16 bits as CPU code sees them: rounded to nearest even in integers and widened in them, which
//! vectorises, or by a table.

use kmark_core::dtype::DType;
use std::sync::LazyLock;

/// A format: fraction bits and the bias of its exponent, which together with IEEE's subnormals make it whole.
#[derive(Clone, Copy)]
pub struct Format {
    fraction: u32,
    bias: u32,
    /// What lies above the largest finite value: infinity, or NaN where there is none.
    beyond: u32,
    /// All bits but the sign, which lies above them.
    magnitude: u32,
}

pub const E4M3: Format = Format { fraction: 3, bias: 7, beyond: 0x7f, magnitude: 0x7f };
pub const E5M2: Format = Format { fraction: 2, bias: 15, beyond: 0x7c, magnitude: 0x7f };
pub const F16: Format = Format { fraction: 10, bias: 15, beyond: 0x7c00, magnitude: 0x7fff };

impl Format {
    #[inline(always)]
    pub fn round(self, v: f32) -> u32 {
        let (bits, drop) = (v.to_bits() & 0x7fff_ffff, 23 - self.fraction);
        let normal = (bits + ((1 << (drop - 1)) - 1 + ((bits >> drop) & 1))) >> drop;
        let normal = normal.wrapping_sub((127 - self.bias) << self.fraction);
        // Below the smallest normal value, adding a power of two whose spacing is that of the subnormals rounds.
        let shift = f32::from_bits((127 + 1 - self.bias - self.fraction + 23) << 23);
        let subnormal = (f32::from_bits(bits) + shift).to_bits().wrapping_sub(shift.to_bits());
        let code = if bits < (127 + 1 - self.bias) << 23 { subnormal } else { normal.min(self.beyond) };
        let code = if bits > 0x7f80_0000 { self.magnitude } else { code };
        code | (v.to_bits() >> (self.magnitude.leading_zeros() - 1) & (self.magnitude + 1))
    }
}

#[inline(always)]
pub fn widen_f16(code: u16) -> f32 {
    let (code, drop) = (code as u32, 23 - F16.fraction);
    let (bits, least) = ((code & F16.magnitude) << drop, (127 + 1 - F16.bias) << 23);
    // A subnormal is what its fraction adds to the smallest normal value.
    let subnormal = (f32::from_bits(bits | least) - f32::from_bits(least)).to_bits();
    let normal = bits + ((127 - F16.bias) << 23);
    let finite = if bits < 1 << 23 { subnormal } else { normal };
    let wide = if bits >= F16.beyond << drop { bits | 0x7f80_0000 } else { finite };
    f32::from_bits(wide | (code & 0x8000) << 16)
}

#[inline(always)]
pub fn widen_bf16(code: u16) -> f32 {
    f32::from_bits((code as u32) << 16)
}

/// NaN keeps a set fraction bit.
#[inline(always)]
pub fn round_bf16(v: f32) -> u16 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    (if v.is_nan() { (bits >> 16) | 0x40 } else { rounded }) as u16
}

/// Every code of an 8-bit dtype as f32. All of them are normal numbers there, or zero.
pub fn values(dtype: DType) -> &'static [f32; 256] {
    static TABLES: LazyLock<[[f32; 256]; 2]> = LazyLock::new(|| {
        [DType::F8e4m3, DType::F8e5m2].map(|dtype| {
            let mut wide = [0.0; 256];
            dtype.decode(&std::array::from_fn::<u8, 256, _>(|code| code as u8), &mut wide);
            wide.map(|v| v as f32)
        })
    });
    match dtype {
        DType::F8e4m3 => &TABLES[0],
        DType::F8e5m2 => &TABLES[1],
        other => panic!("no CPU implementation for {other}: the case should have been refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_and_every_rounding_is_that_of_the_dtype() {
        for (dtype, format) in [(DType::F8e4m3, E4M3), (DType::F8e5m2, E5M2)] {
            let table = values(dtype);
            for code in 0..=255u8 {
                let (mut want, got) = ([0.0], table[code as usize]);
                dtype.decode(&[code], &mut want);
                assert!(
                    got as f64 == want[0] || (got.is_nan() && want[0].is_nan()),
                    "{dtype} {code:#x}: {got} {want:?}"
                );
            }
            let any = (0..400_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
            // Around every code and every midpoint between two, ties among them.
            let near = table.iter().flat_map(|v| {
                (0..64).flat_map(move |i| {
                    let middle = v * (1.0 + i as f32 / 64.0);
                    [middle, f32::from_bits(middle.to_bits() ^ 1), f32::from_bits(middle.to_bits().wrapping_add(1))]
                })
            });
            for v in any.chain(near).chain([f32::MIN_POSITIVE, 1e-45, 464.0, 61440.0]) {
                let mut want = [0u8];
                dtype.encode(&[v as f64], &mut want);
                assert_eq!(format.round(v) as u8, want[0], "{dtype} {v:e}");
            }
        }
    }

    #[test]
    fn every_code_of_f16_and_the_roundings_around_it_are_those_of_the_dtype() {
        for code in 0..=u16::MAX {
            let (mut want, got) = ([0.0], widen_f16(code));
            DType::F16.decode(&code.to_le_bytes(), &mut want);
            assert!(
                got as f64 == want[0] && got.is_sign_negative() == (code >> 15 == 1)
                    || got.is_nan() && want[0].is_nan()
            );
            // The code itself, the middle between it and the next, and what lies beside both.
            for middle in [got.to_bits(), got.to_bits() + 0x1000] {
                for v in
                    [middle.wrapping_sub(1), middle, middle + 1].map(f32::from_bits).into_iter().filter(|v| !v.is_nan())
                {
                    let mut want = [0u8; 2];
                    DType::F16.encode(&[v as f64], &mut want);
                    assert_eq!(F16.round(v) as u16, u16::from_le_bytes(want), "{v:e}");
                }
            }
        }
        let small = (0..200_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761) >> 4));
        for v in small.chain([f32::INFINITY, -65520.0, 65519.996, 2.9802322e-8, 2.980233e-8]) {
            let mut want = [0u8; 2];
            DType::F16.encode(&[v as f64], &mut want);
            assert_eq!(F16.round(v) as u16, u16::from_le_bytes(want), "{v:e}");
        }
        assert!(widen_f16(F16.round(f32::NAN) as u16).is_nan());
    }
}
