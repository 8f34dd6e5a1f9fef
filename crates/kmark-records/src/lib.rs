//! Floor 1 of Kernelmark, beside the devices: what needs records and nothing else. It knows no device, no op and no command
//! line; it reads and writes the folders of runs, and prints nothing.

pub mod compare;
pub mod history;
pub mod merge;
pub mod pairs;
pub mod report;
pub mod shown;
pub mod store;

use kmark_core::{error, units};
