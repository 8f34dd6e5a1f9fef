//! What of a record's samples stays in memory while a report is made: a run may be longer than memory, or than a page that
//! a browser opens.

use super::chart::MOST_SAMPLED;
use super::rows::Row;
use kmark_core::record::Record;
use kmark_core::run::Run;
use std::collections::HashMap;

/// What a format needs of a record beside its row.
pub struct Keep {
    /// So many samples of the first rows of each op, and of the rows after them.
    pub samples: usize,
    pub later: usize,
    /// Of so many rows; the rest have neither samples nor anything behind them.
    pub rows: usize,
    pub behind: Option<fn(&Run, &Row, &Record) -> String>,
}

/// What most formats keep.
pub const NOTHING: Keep = Keep { samples: 0, later: 0, rows: 0, behind: None };

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
