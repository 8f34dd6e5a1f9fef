//! Caches of keys and values in pages, and the new tokens that attend to them: decoding.

use super::{
    Geometry, Ints, Kind, RowOf, Seq, fill_keys, fill_queries, fill_values, kind, lengths, masked, no_integers, outputs,
};
use crate::truth::{Scatter, starts};
use kmark_core::case::Case;
use kmark_core::cost::Cost;
use kmark_core::dtype::DType;
use kmark_core::fill::Fill;
use kmark_core::tensor::{TensorSpec, View};
use std::ops::Range;

/// What an op that decodes says of its case: heads, widths and scale, and the names of q, k and v.
pub struct Decoding {
    pub tensors: [&'static str; 3],
    pub hq: usize,
    pub hkv: usize,
    pub dk: usize,
    pub dv: usize,
    pub scale: f64,
}

impl Decoding {
    /// Whether values are the first columns of the keys: then they are one tensor, of one head.
    fn is_latent(&self) -> bool {
        self.tensors[1] == self.tensors[2]
    }

    pub fn geometry(&self, c: &Case, ints: Ints) -> Geometry {
        let (pages, queries, hq) = (Pages::of(c), c.count("q"), self.hq);
        let seqs: Vec<Seq> = pages.lengths.iter().map(|len| Seq { queries, keys: *len }).collect();
        let q_row = move |s: usize, i: usize, head: usize| (s * queries + i) * hq + head;
        Geometry {
            tensors: self.tensors,
            visible: masked(&seqs, true, 0),
            seqs,
            hq,
            hkv: self.hkv,
            dk: self.dk,
            dv: self.dv,
            scale: self.scale,
            q_row: Box::new(q_row),
            lse_at: Box::new(q_row),
            k_row: pages.rows(ints("page_table"), self.hkv),
        }
    }

    /// Kernels find pages and ends by `page_table` and `lengths`.
    pub fn tensors(&self, c: &Case) -> Vec<TensorSpec> {
        let (b, queries, pages) = (c.axis("b"), c.count("q"), Pages::of(c));
        let (q, cache) = ([b, queries, self.hq, self.dk], [pages.pool, pages.page, self.hkv, self.dk]);
        let derived = |name, shape: &[usize]| TensorSpec::input(name, c.dtype, shape, Fill::Derived);
        let [q_name, k_name, v_name] = self.tensors;
        let mut t = match self.is_latent() {
            true => vec![derived(q_name, &q), derived(k_name, &[pages.pool, pages.page, self.dk])],
            false => vec![derived(q_name, &q), derived(k_name, &cache), derived(v_name, &cache)],
        };
        t = t.into_iter().map(|t| t.laid_out(c.attr("memory"))).collect();
        t.push(TensorSpec::input("page_table", DType::I32, &[b, pages.columns], Fill::Derived));
        t.push(TensorSpec::input("lengths", DType::I32, &[b], Fill::Derived));
        t.extend(outputs(c, &[b, queries, self.hq, self.dv], &[b, queries, self.hq]));
        t
    }

    /// Keys and values that are one row are read once.
    pub fn cost(&self, c: &Case) -> Cost {
        let geo = self.geometry(c, &no_integers);
        let mut cost = super::cost(c, &geo, Pages::of(c).integers());
        if self.is_latent() {
            cost.bytes_read -= geo.rows_seen() * geo.dv as u64 * c.dtype.size() as u64;
        }
        cost
    }

    pub fn derive(&self, c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
        let (spec, pages, hq) = (inputs.spec(tensor), Pages::of(c), self.hq);
        let scatter = Scatter::new(c.seed, pages.pool);
        let kind = |row: usize| pages.kind(&scatter, row / self.hkv);
        match tensor {
            "lengths" => out.iter_mut().zip(rows).for_each(|(o, s)| *o = pages.lengths[s] as f64),
            "page_table" => pages.table(&scatter, rows, out),
            "q" => fill_queries(spec, c.seed, rows, out, |row| row / hq + row % hq),
            name if name == self.tensors[1] => fill_keys(spec, (c.seed, self.scale), rows, out, kind),
            _ => fill_values(spec, c.seed, rows, out, kind),
        }
    }
}

/// A paged cache: sequences of known lengths on pages that lie scattered in a pool with some to spare.
struct Pages {
    page: usize,
    lengths: Vec<usize>,
    /// Logical number of each sequence's first page.
    first: Vec<usize>,
    /// Pages in the pool.
    pool: usize,
    /// Most pages that a sequence has: columns of the page table.
    columns: usize,
}

impl Pages {
    /// Of sequences of up to `l` tokens.
    fn of(c: &Case) -> Pages {
        let (page, longest) = (c.count("page"), c.axis("l"));
        let lengths = lengths(c, c.axis("b"), longest);
        let mut first = starts(lengths.iter().map(|len| len.div_ceil(page)));
        let used = first.pop().expect("the end of the last");
        Pages { page, lengths, first, pool: used + used / 8 + 1, columns: longest.div_ceil(page) }
    }

    fn used(&self, s: usize) -> usize {
        self.lengths[s].div_ceil(self.page)
    }

    /// Integers that a kernel must read: every length, and the page of every token.
    fn integers(&self) -> u64 {
        (0..self.lengths.len()).map(|s| 1 + self.used(s) as u64).sum()
    }

    /// The page table; -1 where the sequence has no page.
    fn table(&self, scatter: &Scatter, rows: Range<usize>, out: &mut [f64]) {
        for (s, row) in rows.zip(out.chunks_mut(self.columns)) {
            for (column, entry) in row.iter_mut().enumerate() {
                *entry = if column < self.used(s) { scatter.at(self.first[s] + column) as f64 } else { -1.0 };
            }
        }
    }

    /// What lies in slot `slot` of the pool.
    fn kind(&self, scatter: &Scatter, slot: usize) -> Kind {
        let logical = scatter.find(slot / self.page);
        let s = self.first.partition_point(|f| *f <= logical) - 1;
        // Sequences without pages share their first page's number with the next one; the last of them has it.
        let position = (logical - self.first[s]) * self.page + slot % self.page;
        kind(position, self.lengths[s])
    }

    /// Row of a cache with `heads` heads per token, by a page table as it lies in memory.
    fn rows(&self, table: Vec<i64>, heads: usize) -> RowOf {
        let (page, columns) = (self.page, self.columns);
        Box::new(move |s, j, head| {
            let physical = table[s * columns + j / page] as usize;
            (physical * page + j % page) * heads + head
        })
    }
}
