//! How a report is to look.

use super::columns::Column;
use super::data::Unit;

#[derive(Default)]
pub struct Options {
    pub color: bool,
    /// Columns of the terminal; `None` means as wide as it takes.
    pub width: Option<u16>,
    /// What is shown of a row instead of what the format shows by itself.
    pub columns: Option<Vec<Column>>,
    /// Of times, instead of one that keeps them readable.
    pub unit: Option<Unit>,
    /// Of pictures that cannot follow their reader: light on dark.
    pub dark: bool,
}
