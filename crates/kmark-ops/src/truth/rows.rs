//! Oracles of ops that treat each row on its own: what an element is, and how far a kernel may be off, is said once, where
//! it is computed.

use kmark_core::case::Case;
use kmark_core::gate::{Block, Region, Sink};
use kmark_core::op::by_rows;
use kmark_core::tensor::View;

/// Elements of an output, as many for each row.
#[derive(Default)]
pub struct Out {
    expect: Vec<f64>,
    slack: Vec<f64>,
    loose: Vec<f64>,
    regions: Vec<u8>,
}

impl Out {
    /// An element: its value, the slack of a kernel that rounds once, and what one may add that rounds on the way, to the
    /// 16-bit type of the output.
    pub fn put(&mut self, expect: f64, slack: f64, loose: f64) {
        self.put_in(0, expect, slack, loose);
    }

    /// The same in a region of the op.
    pub fn put_in(&mut self, region: u8, expect: f64, slack: f64, loose: f64) {
        self.expect.push(expect);
        self.slack.push(slack);
        self.loose.push(loose);
        self.regions.push(region);
    }

    /// Puts all of them into the sink, as those of `tensor` from `start` on; what is `loose` counts if that is 16 bits wide.
    pub fn flush(&self, sink: &dyn Sink, tensor: &'static str, start: usize, loose: bool) {
        let (expect, slack, region) = (&self.expect, &self.slack, Region::Each(&self.regions));
        sink.put(Block { tensor, start, expect, slack, loose: if loose { &self.loose } else { &[] }, region });
    }
}

/// Calls `row` on every row of a case with axes `m` and `n`, blocks of them in parallel, and puts what it says of
/// `outputs` into the sink; an output that the case does not have is left out.
pub fn by_row<const K: usize>(
    c: &Case,
    inputs: &View,
    sink: &dyn Sink,
    outputs: [&'static str; K],
    row: impl Fn(usize, &mut [Out; K]) + Sync,
) {
    by_rows(c.axis("m"), c.axis("n"), |rows| {
        let mut out: [Out; K] = std::array::from_fn(|_| Out::default());
        rows.clone().for_each(|r| row(r, &mut out));
        for (tensor, out) in outputs.into_iter().zip(&out) {
            let Some(spec) = inputs.specs.iter().find(|s| s.name == tensor && s.role.is_output()) else { continue };
            out.flush(sink, tensor, rows.start * (out.expect.len() / rows.len()), spec.dtype.size() == 2);
        }
    });
}
