//! What the files of an op are written with: `use crate::contract::*`.

pub use crate::Entry;
pub(crate) use crate::cuda::{kernel, oracle};
pub use crate::mutants::{Mutant, Spoil, edited, shared};
pub use crate::plain::Tensors;
pub(crate) use crate::truth;
pub use kmark_core::case::Case;
pub use kmark_core::cost::Cost;
pub use kmark_core::dtype::DType;
pub use kmark_core::fill::Fill;
pub use kmark_core::gate::{Block, Invariant, Region, Sink, sum_slack};
pub use kmark_core::op::{Attr, AttrKind, Axis, MATRIX, MEMORY, Op, WEIGHT_DTYPES, YES_NO};
pub use kmark_core::op::{by_blocks, by_rows, rows_by_columns};
pub use kmark_core::tensor::{TensorSpec, View};
pub use std::ops::Range;
