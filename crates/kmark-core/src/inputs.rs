//! The values of a case's inputs: what each tensor's [`Fill`](crate::fill::Fill) says, for a seed, in its dtype and layout.

use crate::fill::key;
use crate::tensor::TensorSpec;
use rayon::prelude::*;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::fill::Fill;

    #[test]
    fn bits_do_not_depend_on_threads() {
        let spec = TensorSpec::input("x", DType::Bf16, &[100, 1001], Fill::Rows { mean: 0.1, std: 1.0, shift: 256.0 });
        let mut many = vec![0; spec.bytes()];
        fill(&spec, 42, &mut many);
        let mut one = vec![0; spec.bytes()];
        rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(|| fill(&spec, 42, &mut one));
        assert_eq!(many, one);
        // A golden value: these bits are part of the format, a change of them changes what every record means.
        assert_eq!(hash(&many), 869128284990329124);
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
            assert_eq!(
                count(&|row| row.iter().all(|v| *v == row[0] && *v != 0.0 && v.abs().log2().fract() == 0.0)),
                1,
                "equal"
            );
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
        let tied = |at: usize| {
            let first = x[tile(at).next().expect("not empty")];
            all(at, &|v| v == first && v != 0.0)
        };
        assert_eq!((0..16).filter(|at| tied(*at)).count(), 1);
    }

    #[test]
    fn tf32_has_eleven_bits_and_the_exponents_of_f32() {
        let of = |std| {
            let spec = TensorSpec::input("x", DType::F32, &[1000], Fill::Tf32 { std });
            let mut bytes = vec![0; spec.bytes()];
            fill(&spec, 3, &mut bytes);
            let mut x = vec![0.0; 1000];
            DType::F32.decode(&bytes, &mut x);
            x
        };
        let (large, small) = (of(1e6), of(1e-6));
        assert!(large.iter().chain(&small).all(|v| (*v as f32).to_bits().trailing_zeros() >= 13));
        assert!(large.iter().any(|v| (*v as f32).to_bits().trailing_zeros() == 13), "no fewer");
        let rms = |x: &[f64]| (x.iter().map(|v| v * v).sum::<f64>() / 1000.0).sqrt();
        assert!((rms(&large) / 1e6 - 1.0).abs() < 0.1 && (rms(&small) / 1e-6 - 1.0).abs() < 0.1);
        assert!(large.iter().any(|v| DType::F16.round(*v).is_infinite()), "f16 cannot hold them");
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
