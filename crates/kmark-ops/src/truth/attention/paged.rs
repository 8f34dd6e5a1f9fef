//! Caches of keys and values in pages.

use super::{Kind, RowOf, Seq, kind, lengths};
use crate::truth::Scatter;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::fill::Fill;
use kmark_core::tensor::TensorSpec;
use std::ops::Range;

/// A paged cache: sequences of known lengths on pages that lie scattered in a pool with some to spare.
pub struct Pages {
    pub page: usize,
    pub lengths: Vec<usize>,
    /// Logical number of each sequence's first page.
    first: Vec<usize>,
    /// Pages in the pool.
    pub pool: usize,
    /// Most pages that a sequence has: columns of the page table.
    pub columns: usize,
}

impl Pages {
    /// Of sequences of up to `l` tokens.
    pub fn of(c: &Case) -> Pages {
        let (page, longest) = (c.count("page"), c.axis("l"));
        let lengths = lengths(c, c.axis("b"), longest);
        let mut used = 0;
        let mut first = Vec::new();
        for len in &lengths {
            first.push(used);
            used += len.div_ceil(page);
        }
        Pages { page, lengths, first, pool: used + used / 8 + 1, columns: longest.div_ceil(page) }
    }

    fn used(&self, s: usize) -> usize {
        self.lengths[s].div_ceil(self.page)
    }

    /// Integers that a kernel must read: every length, and the page of every token.
    pub fn integers(&self) -> u64 {
        (0..self.lengths.len()).map(|s| 1 + self.used(s) as u64).sum()
    }

    /// How pages are scattered for `seed`.
    pub fn scatter(&self, seed: u64) -> Scatter {
        Scatter::new(seed, self.pool)
    }

    /// What kernels find pages and ends by: `page_table` and `lengths`.
    pub fn tensors(&self) -> [TensorSpec; 2] {
        let sequences = self.lengths.len();
        [
            TensorSpec::input("page_table", DType::I32, &[sequences, self.columns], Fill::Derived),
            TensorSpec::input("lengths", DType::I32, &[sequences], Fill::Derived),
        ]
    }

    /// Rows `rows` of one of them.
    pub fn derive(&self, tensor: &str, seed: u64, rows: Range<usize>, out: &mut [f64]) {
        match tensor {
            "lengths" => out.iter_mut().zip(rows).for_each(|(o, s)| *o = self.lengths[s] as f64),
            _ => self.table(seed, rows, out),
        }
    }

    /// The page table; -1 where the sequence has no page.
    fn table(&self, seed: u64, rows: Range<usize>, out: &mut [f64]) {
        let scatter = self.scatter(seed);
        for (s, row) in rows.zip(out.chunks_mut(self.columns)) {
            for (column, entry) in row.iter_mut().enumerate() {
                *entry = if column < self.used(s) { scatter.at(self.first[s] + column) as f64 } else { -1.0 };
            }
        }
    }

    /// What lies in slot `slot` of the pool.
    pub fn kind(&self, scatter: &Scatter, slot: usize) -> Kind {
        let logical = scatter.find(slot / self.page);
        let s = self.first.partition_point(|f| *f <= logical) - 1;
        // Sequences without pages share their first page's number with the next one; the last of them has it.
        let position = (logical - self.first[s]) * self.page + slot % self.page;
        kind(position, self.lengths[s])
    }

    pub fn seqs(&self, queries: usize) -> Vec<Seq> {
        self.lengths.iter().map(|len| Seq { queries, keys: *len }).collect()
    }

    /// Row of a cache with `heads` heads per token, by a page table as it lies in memory.
    pub fn rows(&self, table: Vec<i64>, heads: usize) -> RowOf {
        let (page, columns) = (self.page, self.columns);
        Box::new(move |s, j, head| {
            let physical = table[s * columns + j / page] as usize;
            (physical * page + j % page) * heads + head
        })
    }
}
