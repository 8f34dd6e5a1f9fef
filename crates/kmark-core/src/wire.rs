//! What host and worker say to each other: one JSON object per line, over two pipes of their own. The host asks, the
//! worker answers each request once; before it does, it may ask back.

use crate::case::Case;
use crate::gate::Verify;
use crate::own::OwnOp;
use crate::record::{Calibration, Checked, Conditions, DeviceId, KernelFigures, Mode, Status, Times};
use crate::stop::{Stop, StopRule};
use serde::{Deserialize, Serialize};

pub const PROTOCOL: u32 = 7;
/// A line longer than this is not ours.
pub const MAX_LINE: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Hello {
        protocol: u32,
        /// Whether to calibrate the clock; only a run that times needs it.
        calibrate: bool,
        /// Ops of users that cases may be of.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        own: Vec<OwnOp>,
        /// Where to leave what is too long for a line.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        folder: String,
    },
    /// What another worker wants to know, to who can tell.
    Asked {
        question: Question,
    },
    /// What was answered, to the worker that asks and has not replied yet.
    Answer {
        reply: Box<Reply>,
    },
    /// Check the impl on fresh memory, with several sets of values.
    Verify {
        case: Case,
        #[serde(rename = "impl")]
        impl_name: String,
        /// Leave out the first set: it is judged where the impl is timed.
        but_first: bool,
    },
    /// Hold the GPU's inputs and oracle against the host's.
    Oracle {
        case: Case,
    },
    /// Make memory, inputs and launch ready for sampling in a mode; stays until release.
    Prepare {
        case: Case,
        #[serde(rename = "impl")]
        impl_name: String,
        mode: Mode,
        /// Judge the first launch, so that timed ones can be held to what it left.
        check: bool,
    },
    /// Put the tensors elsewhere in the device's memory, at the addresses they have.
    Move,
    Sample {
        #[serde(rename = "impl")]
        impl_name: String,
        rule: StopRule,
        warmup: Warmup,
        check: Check,
    },
    Release,
    Bye,
}

/// What only the process that runs a user's reference can tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Question {
    /// Whether the outputs in a file, one after the other, are right for the inputs of the case's seed.
    Judge {
        case: Case,
        outputs: String,
        /// Of the file: nobody else has written to it.
        hash: String,
    },
    /// Values of an input, as f64 into a file.
    Make { case: Case, tensor: String, into: String },
}

impl Question {
    pub fn case(&self) -> &Case {
        match self {
            Question::Judge { case, .. } | Question::Make { case, .. } => case,
        }
    }
}

/// What happens to the outputs of timed launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Nobody looks at them.
    Off,
    /// Each launch is checked; values change in between while that stays cheap.
    On,
    /// The same, and values change at least once.
    Fresh,
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
        /// Bytes of its memory that are free, where that is not the host's.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        memory: Option<u64>,
        calibration: Option<Calibration>,
        busy_ns: u64,
    },
    Verified {
        verify: Verify,
        busy_ns: u64,
    },
    Compared {
        problems: Vec<String>,
        busy_ns: u64,
    },
    Prepared {
        times: Times,
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        kernels: Vec<KernelFigures>,
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        notes: Vec<String>,
        /// Libraries that it stands on, with their versions.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        libraries: String,
        /// What it does, where that is not quite what the op asks.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        contract: Option<String>,
        /// Of the first launch, if it was to be judged; who is wrong is not ready for sampling.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        verify: Option<Verify>,
        busy_ns: u64,
    },
    Sampled {
        samples_ns: Vec<f64>,
        clock_mhz: Vec<f64>,
        stop: Stop,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        conditions: Option<Conditions>,
        /// Of launches on fresh values.
        verify: Option<Verify>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        checked: Option<Checked>,
        busy_ns: u64,
    },
    Released,
    Moved {
        busy_ns: u64,
    },
    /// The request cannot be done before this is answered; the reply comes after it.
    Asks {
        question: Question,
    },
    /// The file is there.
    Made {
        busy_ns: u64,
    },
    /// The request could not be done; the worker goes on.
    Failed {
        status: Status,
        message: String,
        /// Of a Python exception.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        traceback: String,
        busy_ns: u64,
    },
    Bye,
}

impl Reply {
    /// A reply of its line, for a host that is not compiled to be fast.
    pub fn parse(line: &[u8]) -> serde_json::Result<Reply> {
        serde_json::from_slice(line)
    }

    /// Time the worker spent on the request by its own account.
    pub fn busy_ns(&self) -> u64 {
        match self {
            Reply::Hello { busy_ns, .. }
            | Reply::Verified { busy_ns, .. }
            | Reply::Compared { busy_ns, .. }
            | Reply::Prepared { busy_ns, .. }
            | Reply::Sampled { busy_ns, .. }
            | Reply::Moved { busy_ns }
            | Reply::Made { busy_ns }
            | Reply::Failed { busy_ns, .. } => *busy_ns,
            Reply::Released | Reply::Asks { .. } | Reply::Bye => 0,
        }
    }
}
