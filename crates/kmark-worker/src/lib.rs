//! Floor 3 of Kernelmark: the worker process. It opens a device and answers the requests of a host for one family of
//! impls; a Python process serves its family with the same code. It knows no command line, no plan and no report.

mod cheats;
pub mod device;
pub mod env;
pub mod faults;
pub mod impls;
pub mod seal;
mod truth;
pub mod worker;
