//! What the files of an op are written with: `use crate::contract::*`.

pub(crate) use crate::cpu::text;
pub use crate::cpu::{CpuImpl, naive, vectorised};
pub(crate) use crate::cuda::{kernels, oracle};
pub use crate::entry::Entry;
pub use crate::mutant::{Mutant, Spoil, edited, shared};
pub use crate::plain::{Plain, Tensors, UnlessNan};
pub(crate) use crate::truth;
pub use crate::words::*;
pub use kmark_core::case::Case;
pub use kmark_core::cost::Cost;
pub use kmark_core::dtype::DType;
pub use kmark_core::fill::Fill;
pub use kmark_core::gate::{Block, Invariant, Region, Sink, sum_slack};
pub use kmark_core::op::{Attr, Axis, MEMORY, Op, by_blocks, by_rows, rows_by_columns};
pub use kmark_core::tensor::{TensorSpec, View};
pub use std::ops::Range;
