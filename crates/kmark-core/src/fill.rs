//! Inputs: a counter-based generator whose bits depend only on (seed, tensor name, element index).
//!
//! Philox4x32-10 and integer arithmetic make the value; only one multiply and one add in f64 and one rounding follow,
//! so that every device and any number of threads produce the same bits. The normal distribution is the centred sum of
//! eight 16-bit uniforms (Irwin-Hall), because a logarithm or cosine differs between devices in the last place.

use crate::dtype::DType;
use crate::tensor::TensorSpec;
use rayon::prelude::*;

/// How the elements of an input are distributed. `Derived` inputs are computed by the op from the others (a saved
/// `rstd`, the `y` of softmax).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    Constant(f64),
    Normal {
        mean: f64,
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
/// decides which rows are special: [`Case::value_seed`](crate::case::Case::value_seed).
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
    /// All elements are the same.
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

    fn value(&self, key: u64, seed: u64, index: u64, n: u64) -> f64 {
        let normal = |index: u64| {
            let sum: u32 = philox(key, index).iter().map(|w| (w & 0xffff) + (w >> 16)).sum();
            (sum as f64 - 4.0 * 65535.0) * (1.0 / SUM_STD)
        };
        let (row, column) = (index / n, index % n);
        let at_an_end = column == 0 || column == n - 1;
        match *self {
            Fill::Constant(c) => c,
            Fill::Normal { mean, std } => mean + std * normal(index),
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
                    Equal => mean + std * normal(row * n),
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

/// What lies between the rows of an input: NaN in every float format, so that reading it shows.
pub const GAP_BYTE: u8 = 0xff;

/// Fills `bytes`, the memory of tensor `spec`, with its values for `seed`.
pub fn fill(spec: &TensorSpec, seed: u64, bytes: &mut [u8]) {
    const CHUNK: usize = 1 << 14;
    let (n, size) = (spec.row_len(), spec.dtype.size());
    if spec.pitch == n {
        bytes.par_chunks_mut(CHUNK * size).enumerate().for_each(|(chunk, bytes)| {
            let mut out = vec![0.0; bytes.len() / size];
            values(spec, seed, chunk * CHUNK, &mut out);
            spec.dtype.encode(&out, bytes);
        });
    } else {
        bytes.par_chunks_mut(spec.pitch * size).enumerate().for_each(|(row, bytes)| {
            let mut out = vec![0.0; n];
            values(spec, seed, row * n, &mut out);
            spec.dtype.encode(&out, &mut bytes[..n * size]);
            bytes[n * size..].fill(GAP_BYTE);
        });
    }
}

/// Elements `start ..` of tensor `spec` for `seed`, before they are rounded to its dtype.
pub fn values(spec: &TensorSpec, seed: u64, start: usize, out: &mut [f64]) {
    let key = key(seed, spec.name);
    let row_len = spec.row_len().max(1) as u64;
    for (i, v) in out.iter_mut().enumerate() {
        *v = spec.fill.value(key, seed, (start + i) as u64, row_len);
    }
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
    use crate::dtype::DType;

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

    #[test]
    fn bits_do_not_depend_on_threads() {
        let spec = TensorSpec::input("x", DType::Bf16, &[100, 1001], Fill::Rows { mean: 0.1, std: 1.0, shift: 256.0 });
        let mut many = vec![0; spec.bytes()];
        fill(&spec, 42, &mut many);
        let mut one = vec![0; spec.bytes()];
        rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(|| fill(&spec, 42, &mut one));
        assert_eq!(many, one);
        // A golden value: these bits are part of the format, a change of them changes what every record means.
        assert_eq!(hash(&many), 6535454553752747177);
    }

    fn hash(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ *b as u64).wrapping_mul(0x0100_0000_01b3))
    }

    #[test]
    fn the_normal_is_normal() {
        let spec = TensorSpec::input("x", DType::F64, &[1 << 18], Fill::Normal { mean: 0.0, std: 1.0 });
        let mut bytes = vec![0; spec.bytes()];
        fill(&spec, 1, &mut bytes);
        let mut v = vec![0.0; 1 << 18];
        DType::F64.decode(&bytes, &mut v);
        let n = v.len() as f64;
        let mean = v.iter().sum::<f64>() / n;
        let var = v.iter().map(|x| x * x).sum::<f64>() / n;
        let beyond_two = v.iter().filter(|x| x.abs() > 2.0).count() as f64 / n;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((var - 1.0).abs() < 0.01, "{var}");
        assert!((beyond_two - 0.0455).abs() < 0.005, "{beyond_two}");
    }

    #[test]
    fn sixteen_rows_hold_every_kind_wherever_a_cycle_begins() {
        let (m, n) = (16, 40);
        for seed in 0..40 {
            let spec = TensorSpec::input("x", DType::F64, &[m, n], Fill::Rows { mean: 0.0, std: 1.0, shift: 1e6 });
            let mut x = vec![0.0; m * n];
            values(&spec, seed, 0, &mut x);
            let count = |f: &dyn Fn(&[f64]) -> bool| x.chunks(n).filter(|row| f(row)).count();
            assert_eq!(count(&|row| row.iter().all(|v| *v == 0.0)), 1, "zero");
            assert_eq!(count(&|row| row.iter().all(|v| v.abs() < 0.01 && *v != 0.0)), 1, "tiny");
            assert_eq!(count(&|row| row.iter().all(|v| *v > 1e5)), 1, "shifted");
            assert_eq!(count(&|row| row.iter().filter(|v| **v != 0.0).count() == 4), 1, "sparse");
            assert_eq!(count(&|row| row.iter().all(|v| *v == row[0] && *v != 0.0)), 1, "equal");
            let spec = TensorSpec::input("x", DType::F64, &[m, n], Fill::Logits { std: 3.0, shift: 8192.0 });
            values(&spec, seed, 0, &mut x);
            let count = |f: &dyn Fn(&[f64]) -> bool| x.chunks(n).filter(|row| f(row)).count();
            assert_eq!(count(&|row| row.iter().any(|v| (100.0..8000.0).contains(&v.abs()))), 2, "hundreds");
            assert_eq!(count(&|row| row.iter().all(|v| v.abs() > 8000.0)), 2, "shifted up and down");
            assert_eq!(count(&|row| row.iter().all(|v| *v == row[0])), 1, "a tie");
            let spec = TensorSpec::input("t", DType::I64, &[m], Fill::Classes { classes: 7, ignore: -100 });
            let mut t = vec![0.0; m];
            values(&spec, seed, 0, &mut t);
            assert!([-100.0, 0.0, 6.0].iter().all(|class| t.contains(class)), "{t:?}");
        }
    }

    #[test]
    fn sixteen_tiles_hold_a_zero_one_and_a_tie() {
        let (m, n) = (256, 1000);
        let spec = TensorSpec::input("x", DType::F64, &[m, n], Fill::Tiles { std: 1.0 });
        let mut x = vec![0.0; m * n];
        values(&spec, 7, 0, &mut x);
        let tile = |at: usize| (0..m * n).filter(move |i| i / n / 128 * 8 + i % n / 128 == at);
        let all = |at: usize, f: &dyn Fn(f64) -> bool| tile(at).all(|i| f(x[i]));
        assert_eq!((0..16).filter(|at| all(*at, &|v| v == 0.0)).count(), 1);
        let first = |at: usize| x[tile(at).next().expect("not empty")];
        assert_eq!((0..16).filter(|at| all(*at, &|v| v == first(*at) && v != 0.0)).count(), 1);
    }

    #[test]
    fn classes_stay_in_range_and_some_are_ignored() {
        let spec = TensorSpec::input("t", DType::I64, &[1000], Fill::Classes { classes: 7, ignore: -100 });
        let mut bytes = vec![0; spec.bytes()];
        fill(&spec, 3, &mut bytes);
        let mut v = vec![0.0; 1000];
        DType::I64.decode(&bytes, &mut v);
        assert!(v.iter().all(|t| *t == -100.0 || (0.0..7.0).contains(t)));
        assert!(v.contains(&-100.0) && v.contains(&0.0) && v.contains(&6.0));
    }
}
