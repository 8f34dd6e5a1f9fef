//! Floor 0 of Kernelmark: its words. Nothing here knows a device, opens a file or prints.

pub mod across;
pub mod case;
mod cases;
pub mod consistent;
pub mod cost;
pub mod dtype;
pub mod error;
pub mod expr;
pub mod fill;
pub mod gate;
pub mod inputs;
pub mod op;
pub mod own;
pub mod record;
pub mod run;
pub mod spelling;
pub mod stats;
pub mod stop;
pub mod tally;
pub mod tensor;
pub mod turns;
pub mod units;
pub mod verdict;
pub mod wire;
