//! Inputs: a counter-based generator whose bits depend only on (seed, tensor name, element index).
//!
//! Philox4x32-10 and integer arithmetic make the value; only one multiply and one add in f64 and one rounding follow,
//! so that every device and any number of threads produce the same bits. The normal distribution is the centred sum of
//! eight 16-bit uniforms (Irwin-Hall), because a logarithm or cosine differs between devices in the last place.

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
    /// Normal, but rows differ: in every sixteen one is all zero, one tiny and one large, so that an `eps` that is
    /// missing or misplaced shows.
    Rows {
        mean: f64,
        std: f64,
    },
    /// Class indices below `classes`; every 32nd row is ignored.
    Classes {
        classes: usize,
        ignore: i64,
    },
    Derived,
}

/// Scale of row `row` under [`Fill::Rows`]. Row 0 is ordinary, so that a case of one row tests something.
pub fn row_scale(row: u64) -> f64 {
    match row % 16 {
        5 => 1.0 / 1024.0,
        9 => 0.0,
        13 => 16.0,
        _ => 1.0,
    }
}

/// Whether [`Fill::Classes`] ignores this row.
pub fn row_is_ignored(row: u64) -> bool {
    row % 32 == 7
}

const SUM_STD: f64 = 53509.91992145008; // sqrt(8 * (65536^2 - 1) / 12), the deviation of eight uniform u16

impl Fill {
    fn value(&self, key: u64, index: u64, row_len: u64) -> f64 {
        let normal = || {
            let sum: u32 = philox(key, index).iter().map(|w| (w & 0xffff) + (w >> 16)).sum();
            (sum as f64 - 4.0 * 65535.0) * (1.0 / SUM_STD)
        };
        match *self {
            Fill::Constant(c) => c,
            Fill::Normal { mean, std } => mean + std * normal(),
            Fill::Rows { mean, std } => row_scale(index / row_len) * (mean + std * normal()),
            Fill::Classes { ignore, .. } if row_is_ignored(index) => ignore as f64,
            Fill::Classes { classes, .. } => {
                let [a, b, ..] = philox(key, index);
                // 53 bits scaled to the range: exact enough for any vocabulary, and the same on every device.
                let unit = ((a as u64) << 21 | (b as u64) >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
                (unit * classes as f64).floor()
            }
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
    let row_len = *spec.shape.last().unwrap_or(&1) as u64;
    for (i, v) in out.iter_mut().enumerate() {
        *v = spec.fill.value(key, (start + i) as u64, row_len);
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
        let spec = TensorSpec::input("x", DType::Bf16, &[100, 1001], Fill::Rows { mean: 0.1, std: 1.0 });
        let mut many = vec![0; spec.bytes()];
        fill(&spec, 42, &mut many);
        let mut one = vec![0; spec.bytes()];
        rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(|| fill(&spec, 42, &mut one));
        assert_eq!(many, one);
        // A golden value: these bits are part of the format, a change of them changes what every record means.
        assert_eq!(hash(&many), 16048053725726873313);
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
