//! Schema v1: the run (`run.json`): what was asked, where it was measured, and where its time went.

use crate::cost::Roofs;
use crate::record::{Calibration, DeviceId, Mode, SCHEMA};
use crate::tally::Grade;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was asked for, as it was understood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    pub mode: Mode,
    pub precision: f64,
    /// Sampling time per case and impl, in ns.
    pub budget_ns: u64,
    pub rounds: u32,
    /// Fixed warm-up in ns; absent means until steady.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warmup_ns: Option<u64>,
    pub seed: u64,
    pub verify: bool,
    /// The grade that right answers must have.
    #[serde(default = "any_grade")]
    pub grade: Grade,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baseline: Option<String>,
}

/// What runs asked for before there were grades.
fn any_grade() -> Grade {
    Grade::Loose
}

/// Where the time of a run went, in ns; of several devices all together, but for the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    pub wall_ns: u64,
    /// Starting workers and calibrating them.
    pub start_ns: u64,
    pub roofs_ns: u64,
    pub verify_ns: u64,
    pub prepare_ns: u64,
    /// Visits: warm-up, flushes, checks and samples.
    pub sample_ns: u64,
    /// The samples themselves: launches that count.
    #[serde(default)]
    pub launches_ns: u64,
    /// Part of the above that the workers themselves account for; the rest is the host's overhead.
    pub worker_ns: u64,
}

impl Phases {
    /// Those of a device, to those of others; the wall clock is the run's own.
    pub fn add(&mut self, more: &Phases) {
        self.start_ns += more.start_ns;
        self.roofs_ns += more.roofs_ns;
        self.verify_ns += more.verify_ns;
        self.prepare_ns += more.prepare_ns;
        self.sample_ns += more.sample_ns;
        self.launches_ns += more.launches_ns;
        self.worker_ns += more.worker_ns;
    }
}

/// A commit, and whether files differed from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Git {
    pub commit: String,
    pub dirty: bool,
}

/// One of several GPUs of a run: its limits are its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    pub device: DeviceId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibration: Option<Calibration>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub roofs: Option<Roofs>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub no_roofs: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    pub schema: u32,
    /// Version of kmark.
    pub kmark: String,
    /// UTC, RFC 3339.
    pub started: String,
    /// Absent while the run is going on or was cut off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finished: Option<String>,
    pub command: Vec<String>,
    pub selection: Vec<String>,
    /// The part of the selection that this run is, such as 2/8; absent where it is all of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shard: Option<String>,
    pub settings: Settings,
    /// The first of them, where there are several.
    pub device: DeviceId,
    /// Every GPU of a run on several, the first included.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gpus: Vec<Gpu>,
    pub environment: IndexMap<String, String>,
    /// Name of the machine, unless it was to be left out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The state of the folder that it was started in, where that is a repository.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub git: Option<Git>,
    /// Words of the user's, to find it again.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibration: Option<Calibration>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub roofs: Option<Roofs>,
    /// The start of the run that they were taken from, if they were not measured in this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub roofs_from: Option<String>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub no_roofs: Option<String>,
    /// The run against itself: 95 % quantile of the A/A differences of its rows, as a relative difference.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub noise_floor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub phases: Option<Phases>,
}

impl Run {
    /// The limits of the device that a record is of.
    pub fn roofs_of(&self, device: &DeviceId) -> Option<&Roofs> {
        match self.gpus.iter().find(|g| g.device == *device) {
            Some(gpu) => gpu.roofs.as_ref(),
            None => self.roofs.as_ref(),
        }
    }

    pub fn validate(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!("schema {} is not {SCHEMA}, the version this kmark reads", self.schema));
        }
        Ok(())
    }
}
