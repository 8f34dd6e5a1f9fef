//! The two 8-bit float formats as CPU code sees them: widened by a table, rounded to nearest even in integers.

use kmark_core::dtype::DType;
use std::sync::LazyLock;

/// An 8-bit format: fraction bits and the bias of its exponent, which together with IEEE's subnormals make it whole.
#[derive(Clone, Copy)]
pub struct Format {
    fraction: u32,
    bias: u32,
    /// What lies above the largest finite value: infinity, or NaN where there is none.
    beyond: u32,
}

pub const E4M3: Format = Format { fraction: 3, bias: 7, beyond: 0x7f };
pub const E5M2: Format = Format { fraction: 2, bias: 15, beyond: 0x7c };

impl Format {
    #[inline(always)]
    pub fn round(self, v: f32) -> u8 {
        let (bits, drop) = (v.to_bits() & 0x7fff_ffff, 23 - self.fraction);
        let normal = (bits + ((1 << (drop - 1)) - 1 + ((bits >> drop) & 1))) >> drop;
        let normal = normal.wrapping_sub((127 - self.bias) << self.fraction);
        // Below the smallest normal value, adding a power of two whose spacing is that of the subnormals rounds.
        let shift = f32::from_bits((127 + 1 - self.bias - self.fraction + 23) << 23);
        let subnormal = (f32::from_bits(bits) + shift).to_bits().wrapping_sub(shift.to_bits());
        let code = if bits < (127 + 1 - self.bias) << 23 { subnormal } else { normal.min(self.beyond) };
        let code = if bits > 0x7f80_0000 { 0x7f } else { code };
        (code | (v.to_bits() >> 24 & 0x80)) as u8
    }
}

/// Every code of a dtype as f32. All of them are normal numbers there, or zero.
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
                assert_eq!(format.round(v), want[0], "{dtype} {v:e}");
            }
        }
    }
}
