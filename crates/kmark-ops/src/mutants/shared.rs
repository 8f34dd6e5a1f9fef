//! Mutants that more than one op can have.

use super::{Mutant, after, edited, outputs, read, write};
use crate::truth;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;

/// The gradient of the target alone: what a gradient check of one column does not see.
pub const TARGET_ONLY: Mutant = Mutant {
    name: "target-only",
    about: "the gradient is right at the target column and zero elsewhere",
    applies: |c| c.axis("n") > 1,
    spoil: |right, c, b| {
        let (n, target) = (c.axis("n"), b.get("target"));
        edited(right, b, "dx", move |dx| {
            for (row, t) in dx.chunks_mut(n).zip(read(&target)) {
                row.iter_mut().enumerate().filter(|(i, _)| *i as f64 != t).for_each(|(_, v)| *v = 0.0);
            }
        })
    },
};

pub const TARGET_SHIFTED: Mutant = Mutant {
    name: "target-shifted",
    about: "one is subtracted in the column after the target",
    applies: |c| c.axis("n") > 1,
    spoil: |right, c, b| {
        let (n, ignore) = (c.axis("n"), c.number("ignore"));
        let (target, dloss) = (b.get("target"), b.get("dloss"));
        edited(right, b, "dx", move |dx| {
            for ((row, t), d) in dx.chunks_mut(n).zip(read(&target)).zip(read(&dloss)) {
                if t != ignore {
                    row[t as usize] += d;
                    row[(t as usize + 1) % n] -= d;
                }
            }
        })
    },
};

pub const IGNORED_NOT_ZEROED: Mutant = Mutant {
    name: "ignored-not-zeroed",
    about: "an ignored row gets dloss * softmax, the one-hot alone is left out",
    applies: |c| c.axis("m") > 7,
    spoil: |right, c, b| {
        let (n, ignore) = (c.axis("n"), c.number("ignore"));
        let (x, target, dloss) = (b.get("x"), b.get("target"), b.get("dloss"));
        edited(right, b, "dx", move |dx| {
            let (x, target, dloss) = (read(&x), read(&target), read(&dloss));
            for (row, dx) in dx.chunks_mut(n).enumerate().filter(|(row, _)| target[*row] == ignore) {
                let p = truth::softmax(&x[row * n..(row + 1) * n]).p;
                dx.iter_mut().zip(p).for_each(|(v, p)| *v = dloss[row] * p);
            }
        })
    },
};

pub const DLOSS_OF_ROW_0: Mutant = Mutant {
    name: "dloss-of-row-0",
    about: "every row is scaled by the first row's dloss, as if the loss were a mean",
    // A row of one class has no gradient.
    applies: |c| c.axis("m") > 1 && c.axis("n") > 1,
    spoil: |right, c, b| {
        let (n, dloss) = (c.axis("n"), b.get("dloss"));
        edited(right, b, "dx", move |dx| {
            let dloss = read(&dloss);
            dx.chunks_mut(n).zip(&dloss).for_each(|(row, d)| row.iter_mut().for_each(|v| *v *= dloss[0] / d));
        })
    },
};

/// The lost block is the first: row 0 is ordinary, while a later one may be all zero and not be missed.
pub const DW_LOSES_ROWS: Mutant = Mutant {
    name: "dw-loses-rows",
    about: "the first sixteenth of the rows is not added to dw",
    applies: |c| c.axis("m") >= 16 && c.axis("n") > 1,
    spoil: |right, c, b| {
        let (from, b) = (c.axis("m") / 16, b.clone());
        after(right, move || write(&b.get("dw"), &weight_gradient(&b, from, |sum| sum)))
    },
};

pub const DW_IN_HALF: Mutant = Mutant {
    name: "dw-in-half",
    about: "dw is accumulated in the 16-bit type of the activations",
    applies: |c| c.dtype.size() == 2 && c.axis("m") >= 32 && c.axis("n") >= 8,
    spoil: |right, c, b| {
        let (dtype, b) = (c.dtype, b.clone());
        after(right, move || write(&b.get("dw"), &weight_gradient(&b, 0, |sum| dtype.round(sum))))
    },
};

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

/// dw of a norm over the rows from `from` on; every partial sum goes through `round`.
fn weight_gradient(b: &Buffers, from: usize, round: impl Fn(f64) -> f64) -> Vec<f64> {
    let (x, dout, rstd) = (read(&b.get("x")), read(&b.get("dout")), read(&b.get("rstd")));
    let mean = b.0.iter().find(|b| b.spec().name == "mean").map_or(vec![0.0; rstd.len()], read);
    let n = x.len() / rstd.len();
    let mut dw = vec![0.0; n];
    for row in from..rstd.len() {
        for i in 0..n {
            let xh = (x[row * n + i] - mean[row]) * rstd[row];
            dw[i] = round(dw[i] + dout[row * n + i] * xh);
        }
    }
    dw
}

/// Gate and up of a gated op: tensors of their own, or the halves of the rows of `x` if the form is packed.
pub fn gate_and_up(c: &Case, b: &Buffers) -> (Vec<f64>, Vec<f64>) {
    if c.attr("form") == "packed" {
        let (x, n) = (read(&b.get("x")), c.axis("n"));
        let half = |at: usize| x.chunks(2 * n).flat_map(|row| &row[at * n..(at + 1) * n]).copied().collect();
        return (half(0), half(1));
    }
    (read(&b.get("gate")), read(&b.get("up")))
}
