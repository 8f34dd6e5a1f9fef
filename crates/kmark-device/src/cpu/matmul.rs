//! Products of dense matrices in f32 and f64: a safe face on the `gemm-f32` and `gemm-f64` crates, whose functions take
//! bare pointers.

use gemm_common::Parallelism;

/// The text of this file, for the hashes of whoever stands on it.
pub const SOURCE: &str = include_str!("matmul.rs");

/// Sizes, the result with the steps of its columns and rows, whether it is added to, the two operands likewise, two
/// factors, three conjugations, threads.
#[rustfmt::skip]
type Kernel<T> = unsafe fn(
    usize, usize, usize, *mut T, isize, isize, bool, *const T, isize, isize, *const T, isize, isize, T, T, bool, bool, bool,
    Parallelism,
);

/// What the crates multiply with their vector kernels.
pub trait Scalar: Copy + Send + Sync + 'static {
    const UNITY: Self;
    fn kernel() -> Kernel<Self>;
}

impl Scalar for f32 {
    const UNITY: f32 = 1.0;
    fn kernel() -> Kernel<f32> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Scalar for f64 {
    const UNITY: f64 = 1.0;
    fn kernel() -> Kernel<f64> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

/// A matrix in a slice: element (i, j) at `i * row_step + j * col_step`.
#[derive(Clone, Copy)]
pub struct Mat<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_step: usize,
    col_step: usize,
}

impl<'a, T> Mat<'a, T> {
    /// Rows of `cols` elements, `pitch` apart.
    pub fn new(data: &'a [T], rows: usize, cols: usize, pitch: usize) -> Mat<'a, T> {
        assert!(fits(data.len(), rows, cols, pitch), "{rows} rows of {cols} at {pitch} in {} elements", data.len());
        Mat { data, rows, cols, row_step: pitch, col_step: 1 }
    }

    /// The same memory with rows and columns exchanged.
    pub fn transposed(self) -> Mat<'a, T> {
        Mat { rows: self.cols, cols: self.rows, row_step: self.col_step, col_step: self.row_step, ..self }
    }
}

/// Whether the last element of the last row lies inside, and rows do not overlap.
fn fits(len: usize, rows: usize, cols: usize, pitch: usize) -> bool {
    rows == 0 || cols == 0 || (pitch >= cols && (rows - 1).checked_mul(pitch).is_some_and(|at| at + cols <= len))
}

/// How `c` is changed.
#[derive(Clone, Copy, PartialEq)]
pub enum Into {
    /// c = a * b
    Set,
    /// c += a * b
    Add,
}

/// `c` is row-major with rows of `b`'s columns, `pitch` apart. On all cores if `parallel`.
pub fn matmul<T: Scalar>(c: &mut [T], pitch: usize, a: Mat<T>, b: Mat<T>, into: Into, parallel: bool) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    assert_eq!(k, b.rows, "the inner sizes of a product are equal");
    assert!(fits(c.len(), m, n, pitch), "{m} rows of {n} at {pitch} in {} elements", c.len());
    if m == 0 || n == 0 {
        return;
    }
    let step = |s: usize| isize::try_from(s).expect("a slice is shorter than isize::MAX");
    let threads = if parallel { Parallelism::Rayon(0) } else { Parallelism::None };
    // The kernels like columns: the transposed product, of the transposed matrices, has them.
    // SAFETY: the three matrices lie inside their slices: a and b by `Mat::new`, which transposing does not change, c by
    // the assertion above; c is borrowed mutably, so it overlaps neither; its rows do not overlap each other.
    unsafe {
        T::kernel()(
            n,
            m,
            k,
            c.as_mut_ptr(),
            step(pitch),
            1,
            into == Into::Add,
            b.data.as_ptr(),
            step(b.row_step),
            step(b.col_step),
            a.data.as_ptr(),
            step(a.row_step),
            step(a.col_step),
            T::UNITY,
            T::UNITY,
            false,
            false,
            false,
            threads,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_match_plain_loops_in_every_orientation() {
        let (m, n, k) = (5, 7, 9);
        let data = |len: usize, f: usize| -> Vec<f64> { (0..len).map(|i| ((i * f) % 13) as f64 - 6.0).collect() };
        let (a, b) = (data(m * 16, 5), data(k * 11, 7));
        let (at, bt) = (data(k * 6, 3), data(n * 10, 11));
        let plain = |a: &dyn Fn(usize, usize) -> f64, b: &dyn Fn(usize, usize) -> f64, i, j| -> f64 {
            (0..k).map(|x| a(i, x) * b(x, j)).sum()
        };
        for (turn_a, turn_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let ma = if turn_a { Mat::new(&at, k, m, 6).transposed() } else { Mat::new(&a, m, k, 16) };
            let mb = if turn_b { Mat::new(&bt, n, k, 10).transposed() } else { Mat::new(&b, k, n, 11) };
            let mut c = vec![1.0; m * 8];
            matmul(&mut c, 8, ma, mb, Into::Add, turn_a);
            for i in 0..m {
                for j in 0..n {
                    let fa = |i: usize, x: usize| if turn_a { at[x * 6 + i] } else { a[i * 16 + x] };
                    let fb = |x: usize, j: usize| if turn_b { bt[j * 10 + x] } else { b[x * 11 + j] };
                    assert_eq!(c[i * 8 + j], 1.0 + plain(&fa, &fb, i, j));
                }
                assert_eq!(c[i * 8 + 7], 1.0, "the gap stays");
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows of")]
    fn a_matrix_outside_its_slice_is_refused() {
        Mat::new(&[0.0f32; 11], 3, 4, 4);
    }
}
