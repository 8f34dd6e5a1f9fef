//! Mutants that more than one op can have.

use super::{Mutant, outputs, read};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;

/// Whether the case's dtype resolves a relative error, whoever rounds on the way: 16 bits do not resolve all.
pub fn resolves(c: &Case, relative: f64) -> bool {
    c.dtype.size() != 2 || relative > 4.0 * c.dtype.unit()
}

/// Rounding shows where there is enough of it, in 16 bits.
pub fn rounds(c: &Case) -> bool {
    c.dtype.size() == 2 && c.axis("n") >= 8 && c.axis("m") * c.axis("n") >= 512
}

/// Its first row is right; what belongs into the others stands between the rows. Not for ops without an output that is
/// laid out as attribute `memory` says.
pub const PITCH_IGNORED: Mutant = Mutant {
    name: "pitch-ignored",
    about: "rows are written as if they were adjacent, whatever the pitch",
    applies: |c| c.attr("memory") == "strided" && c.axis("m") > 1,
    spoil: |mut right, _, b| {
        let out = outputs(b).remove(0);
        Box::new(move || {
            let before = out.read::<u8>().to_vec();
            right.launch().expect(crate::mutants::WORKS);
            let values = read(&out);
            let mut bytes = out.write::<u8>();
            bytes.copy_from_slice(&before);
            let spec = out.spec();
            spec.dtype.encode(&values, &mut bytes[..spec.elems() * spec.dtype.size()]);
        })
    },
};

/// Gate and up of a gated op: tensors of their own, or the halves of the rows of `x` if the form is packed.
pub fn gate_and_up(c: &Case, b: &Buffers) -> (Vec<f64>, Vec<f64>) {
    if c.attr("form") == "packed" {
        let (x, n) = (read(&b.get("x")), c.axis("n"));
        let half = |at: usize| x.chunks(2 * n).flat_map(|row| &row[at * n..(at + 1) * n]).copied().collect();
        return (half(0), half(1));
    }
    (read(&b.get("gate")), read(&b.get("up")))
}
