//! Inputs: a counter-based generator whose bits depend only on (seed, tensor name, element index).
//!
//! Philox4x32-10 and integer arithmetic make the value; only one multiply and one add in f64 and one rounding follow,
//! so that every device and any number of threads produce the same bits. The normal distribution is the centred sum of
//! eight 16-bit uniforms (Irwin-Hall), because a logarithm or cosine differs between devices in the last place.

use crate::dtype::DType;

/// How the elements of an input are distributed. `Derived` inputs are computed by the op from the others (a saved
/// `rstd`, the `y` of softmax).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    Constant(f64),
    Normal {
        mean: f64,
        std: f64,
    },
    /// Normal around zero, in the [`TF32_BITS`] that tensor cores read of an f32.
    Tf32 {
        std: f64,
    },
    /// Normal, but rows differ as [`ROWS`] says, so that an `eps` that is missing or misplaced shows, and a tail that is
    /// lost, and a variance that cancels. `shift` is how far the shifted row lies from zero.
    Rows {
        mean: f64,
        std: f64,
        shift: f64,
    },
    /// The same around zero and without a shift, but tiles of 128 by 128 have kinds as well: one in a cycle is all zero,
    /// one holds the same value everywhere.
    Tiles {
        std: f64,
    },
    /// Logits: normal around zero, but rows differ as [`LOGITS`] says, so that a maximum that is missing, or that of
    /// another row, shows.
    Logits {
        std: f64,
        shift: f64,
    },
    /// Class indices below `classes`; in every sixteen rows one is ignored, and the first and the last class are met.
    Classes {
        classes: usize,
        ignore: i64,
    },
    Derived,
}

/// Rows come in cycles of so many kinds. Where a cycle begins is the seed modulo this, so that whoever draws the seeds
/// decides which rows are special: [`Op::value_seed`](crate::op::Op::value_seed).
pub const CYCLE: u64 = 16;

/// Which of the kinds of a cycle row `row` is of.
pub fn slot(row: u64, seed: u64) -> usize {
    (row.wrapping_add(seed) % CYCLE) as usize
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Zero,
    Tiny,
    Large,
    /// Far from zero, relative to its spread.
    Up,
    Down,
    /// The first and the last element are loud.
    Ends,
    /// All zero but for four elements, the first and the last among them.
    Sparse,
    /// All elements are the same. Of rows of [`Fill::Rows`] a power of two, so that sums of them and of their squares are
    /// exact: the roundings of equal terms all go one way, which is no kernel's fault.
    Equal,
}

use Kind::{Down, Ends, Equal, Large, Plain, Sparse, Tiny, Up, Zero};

/// Kinds of rows of [`Fill::Rows`] by slot. Ordinary rows come first, so that a case of few rows can be timed on them.
pub const ROWS: [Kind; CYCLE as usize] =
    [Plain, Plain, Plain, Plain, Plain, Plain, Plain, Plain, Plain, Ends, Zero, Tiny, Up, Large, Sparse, Equal];
/// The same for [`Fill::Logits`]; large ones reach hundreds.
pub const LOGITS: [Kind; CYCLE as usize] =
    [Plain, Plain, Plain, Plain, Plain, Plain, Plain, Plain, Plain, Ends, Equal, Large, Up, Down, Large, Plain];

const TINY: f64 = 1.0 / 1024.0;
const LARGE: f64 = 16.0;
/// Of the first and last element of a row that has loud ends.
const LOUD: f64 = 32.0;
/// Rows and columns of a tile.
pub const TILE: u64 = 128;
/// Logits of hundreds, from a deviation of 3.
const LARGE_LOGITS: f64 = 64.0;
/// Added to loud logits, in deviations.
const LOUD_LOGITS: f64 = 4.0;

/// Scale of a row in slot `slot` where rows differ in nothing but their scale, as queries do.
pub fn row_scale(slot: usize) -> f64 {
    match ROWS[slot] {
        Zero => 0.0,
        Tiny => TINY,
        Large => LARGE,
        _ => 1.0,
    }
}

/// Whether [`Fill::Classes`] ignores a row in this slot.
pub fn is_ignored(slot: usize) -> bool {
    slot == 15
}

/// Whether a sparse row of length `n` has something at `column`.
fn is_kept(column: u64, n: u64) -> bool {
    column == 0 || column == n - 1 || column == n / 3 || column == n / 2
}

const SUM_STD: f64 = 53509.91992145008; // sqrt(8 * (65536^2 - 1) / 12), the deviation of eight uniform u16

impl Fill {
    /// Rows of a norm. The shifted one lies as far from zero as the dtype can and still resolve a spread of 1; in f64 so
    /// far that a variance by the difference of two means is lost.
    pub fn norm_rows(mean: f64, dtype: DType) -> Fill {
        let shift = match dtype {
            DType::Bf16 => 256.0,
            DType::F16 => 1024.0,
            DType::F64 => 16_777_216.0,
            _ => 4096.0,
        };
        Fill::Rows { mean, std: 1.0, shift }
    }

    /// Logits of a softmax, shifted so far that exp overflows, and underflows.
    pub fn logits(dtype: DType) -> Fill {
        Fill::Logits { std: 3.0, shift: if dtype.size() == 2 { 512.0 } else { 8192.0 } }
    }

    /// Whether rows differ by more than chance.
    pub fn has_kinds(&self) -> bool {
        matches!(self, Fill::Rows { .. } | Fill::Tiles { .. } | Fill::Logits { .. } | Fill::Classes { .. })
    }

    pub(crate) fn value(&self, key: u64, seed: u64, index: u64, n: u64) -> f64 {
        let normal = |index: u64| {
            let sum: u32 = philox(key, index).iter().map(|w| (w & 0xffff) + (w >> 16)).sum();
            (sum as f64 - 4.0 * 65535.0) * (1.0 / SUM_STD)
        };
        let (row, column) = (index / n, index % n);
        let at_an_end = column == 0 || column == n - 1;
        match *self {
            Fill::Constant(c) => c,
            Fill::Normal { mean, std } => mean + std * normal(index),
            Fill::Tf32 { std } => shortened(std * normal(index)),
            Fill::Tiles { std } => {
                let tile = row / TILE * n.div_ceil(TILE) + column / TILE;
                match ROWS[slot(tile, seed)] {
                    Zero => 0.0,
                    Equal => std * normal(tile),
                    _ => Fill::Rows { mean: 0.0, std, shift: 0.0 }.value(key, seed, index, n),
                }
            }
            Fill::Rows { mean, std, shift } => {
                let plain = mean + std * normal(index);
                match ROWS[slot(row, seed)] {
                    Zero => 0.0,
                    Tiny => TINY * plain,
                    Large => LARGE * plain,
                    Up => shift + plain,
                    Ends if at_an_end => LOUD * plain,
                    Sparse if !is_kept(column, n) => 0.0,
                    Equal => power_of_two(mean + std * normal(row * n)),
                    _ => plain,
                }
            }
            Fill::Logits { std, shift } => {
                let plain = std * normal(index);
                match LOGITS[slot(row, seed)] {
                    Large => LARGE_LOGITS * plain,
                    Up => shift + plain,
                    Down => plain - shift,
                    Ends if at_an_end => LOUD_LOGITS * std + plain,
                    Equal => std * normal(row * n),
                    _ => plain,
                }
            }
            Fill::Classes { classes, ignore } => match slot(index, seed) {
                s if is_ignored(s) => ignore as f64,
                8 | 11 => 0.0,
                7 | 12 => (classes - 1) as f64,
                _ => {
                    let [a, b, ..] = philox(key, index);
                    // 53 bits scaled to the range: exact enough for any vocabulary, and the same on every device.
                    let unit = ((a as u64) << 21 | (b as u64) >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
                    (unit * classes as f64).floor()
                }
            },
            Fill::Derived => unreachable!("derived inputs are computed by the op"),
        }
    }
}

/// Significant bits of TF32, with the one that is not stored.
pub const TF32_BITS: u32 = 11;

/// `x` in as many, halves away from zero: integers make it, so that every device does the same.
fn shortened(x: f64) -> f64 {
    let cut = f64::MANTISSA_DIGITS - TF32_BITS;
    f64::from_bits((x.to_bits() + (1 << (cut - 1))) >> cut << cut)
}

/// The power of two next to `x` towards zero, with its sign.
fn power_of_two(x: f64) -> f64 {
    f64::from_bits(x.to_bits() >> 52 << 52)
}

/// The generator's key: FNV-1a of the tensor's name, mixed with the seed by splitmix64.
pub fn key(seed: u64, name: &str) -> u64 {
    let fnv = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ b as u64).wrapping_mul(0x0100_0000_01b3));
    let mut z = (fnv ^ seed).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Philox4x32-10 (Salmon et al., SC 2011) with the counter `index`.
pub fn philox(key: u64, index: u64) -> [u32; 4] {
    philox4x32([index as u32, (index >> 32) as u32, 0, 0], [key as u32, (key >> 32) as u32])
}

fn philox4x32(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
        }
        let a = c[0] as u64 * 0xd251_1f53;
        let b = c[2] as u64 * 0xcd9e_8d57;
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that the authors of Philox publish with Random123.
    #[test]
    fn philox_matches_the_published_vectors() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
