//! What of a record's samples stays in memory while a report is made: a run may be longer than memory, or than a page that
//! a browser opens.

use super::rows::{Keep, Row};
use std::collections::HashMap;

/// Rows of an op whose samples are drawn, at the most.
pub const MOST_SAMPLED: usize = 200;

/// The rows so far, in their order.
#[derive(Default)]
pub struct Kept {
    of_op: HashMap<(String, String, &'static str), usize>,
    rows: usize,
}

impl Kept {
    /// Lets go what the row, if it is shown, keeps beyond its share.
    pub fn settle(&mut self, row: &mut Row, keep: &Keep, shown: bool) {
        if keep.samples == 0 {
            return;
        }
        let of_op = self.of_op.entry((row.op.clone(), row.device.clone(), row.mode)).or_default();
        self.rows += usize::from(shown);
        *of_op += usize::from(shown && row.is_told());
        if !shown || self.rows > keep.rows {
            row.samples.thin(0);
            row.behind = Box::default();
        } else if *of_op > MOST_SAMPLED {
            row.samples.thin(keep.later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_rows_keep_less_and_what_is_not_shown_nothing() {
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../kmark/tests/data/run");
        let loaded = crate::store::load(run.as_ref()).unwrap();
        let keep = Keep { samples: 50, later: 5, rows: MOST_SAMPLED + 2, behind: Some(|_, r, _| r.impl_name.clone()) };
        let mut kept = Kept::default();
        let mut settled = |shown: bool| {
            let mut row = Row::new("a", &loaded.run, &loaded.records[0], &keep);
            assert_eq!(row.samples.ns.len(), 50);
            kept.settle(&mut row, &keep, shown);
            (row.samples.ns.len(), row.samples.mhz.len(), row.behind.is_empty())
        };
        assert_eq!(settled(false), (0, 0, true));
        for _ in 0..MOST_SAMPLED {
            assert_eq!(settled(true), (50, 50, false));
        }
        assert_eq!([settled(true), settled(true), settled(true)], [(5, 5, false), (5, 5, false), (0, 0, true)]);
    }
}
