//! What host and worker say to each other: one JSON object per line, over two pipes of their own. The host asks, the
//! worker answers each request once.

use crate::case::Case;
use crate::gate::Verify;
use crate::record::{Calibration, DeviceId, Mode, Status, Times};
use crate::stop::{Stop, StopRule};
use serde::{Deserialize, Serialize};

pub const PROTOCOL: u32 = 1;
/// A line longer than this is not ours.
pub const MAX_LINE: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Hello {
        protocol: u32,
        /// Whether to calibrate the clock; only a run that times needs it.
        calibrate: bool,
    },
    /// Check the impl on fresh memory, with fresh values twice.
    Verify {
        case: Case,
        #[serde(rename = "impl")]
        impl_name: String,
    },
    /// Make memory, inputs and launch ready for sampling; stays until release.
    Prepare {
        case: Case,
        #[serde(rename = "impl")]
        impl_name: String,
    },
    Sample {
        #[serde(rename = "impl")]
        impl_name: String,
        mode: Mode,
        rule: StopRule,
        warmup: Warmup,
        /// Gate the output of the last timed launch.
        gate: bool,
    },
    Release,
    Bye,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warmup {
    UntilSteady { limit_ns: u64 },
    For { ns: u64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Reply {
    Hello {
        protocol: u32,
        device: DeviceId,
        calibration: Option<Calibration>,
        busy_ns: u64,
    },
    Verified {
        verify: Verify,
        busy_ns: u64,
    },
    Prepared {
        times: Times,
        busy_ns: u64,
    },
    Sampled {
        samples_ns: Vec<f64>,
        clock_mhz: Vec<f64>,
        stop: Stop,
        verify: Option<Verify>,
        busy_ns: u64,
    },
    Released,
    /// The request could not be done; the worker goes on.
    Failed {
        status: Status,
        message: String,
        busy_ns: u64,
    },
    Bye,
}

impl Reply {
    /// Time the worker spent on the request by its own account.
    pub fn busy_ns(&self) -> u64 {
        match self {
            Reply::Hello { busy_ns, .. }
            | Reply::Verified { busy_ns, .. }
            | Reply::Prepared { busy_ns, .. }
            | Reply::Sampled { busy_ns, .. }
            | Reply::Failed { busy_ns, .. } => *busy_ns,
            Reply::Released | Reply::Bye => 0,
        }
    }
}
