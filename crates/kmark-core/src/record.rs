//! Schema v1: the record (one JSON line: an impl on a case). Raw facts only; times, GB/s and speed-ups are derived when
//! reading. Validation lives here, files do not.

use crate::cost::Cost;
use crate::dtype::DType;
use crate::gate::Verify;
use crate::stats::{Typical, geomean, midmean};
use crate::stop::Stop;
use crate::verdict::{Round, Series};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const SCHEMA: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Ok,
    Wrong,
    Unsupported,
    Unavailable,
    OutOfMemory,
    Crashed,
    Hung,
    BuildFailed,
    /// Timed, but verification was switched off.
    Unverified,
    /// Right, but slower whenever the values are new: it remembers results or skips work, so its times are of no launch.
    /// Or its bits change though the case asks for the same ones from every launch.
    Inconsistent,
    /// Right and timed, but faster than the machine can be: something is wrong with the times.
    Impossible,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Wrong => "wrong",
            Status::Unsupported => "unsupported",
            Status::Unavailable => "unavailable",
            Status::OutOfMemory => "out-of-memory",
            Status::Crashed => "crashed",
            Status::Hung => "hung",
            Status::BuildFailed => "build-failed",
            Status::Unverified => "unverified",
            Status::Inconsistent => "inconsistent",
            Status::Impossible => "impossible",
        }
    }

    /// Whether a record of this status carries times.
    pub fn is_timed(self) -> bool {
        matches!(self, Status::Ok | Status::Unverified | Status::Impossible)
    }

    /// Whether those times may be compared with others.
    pub fn is_comparable(self) -> bool {
        matches!(self, Status::Ok | Status::Unverified)
    }

    /// Whether this status makes the run fail: an impl that does not claim the case, or whose library is not there,
    /// does not.
    pub fn is_failure(self) -> bool {
        !matches!(self, Status::Ok | Status::Unverified | Status::Unsupported | Status::Unavailable)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Cold,
    Hot,
    Graph,
    E2e,
}

impl Mode {
    pub fn word(self) -> &'static str {
        match self {
            Mode::Cold => "cold",
            Mode::Hot => "hot",
            Mode::Graph => "graph",
            Mode::E2e => "e2e",
        }
    }
}

/// Which device a record was made on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceId {
    /// `cpu` or `cuda`.
    pub kind: String,
    pub name: String,
    /// Tells two devices of one name apart (a GPU's UUID; for a CPU its threads and architecture).
    pub id: String,
}

/// Costs outside the steady launch, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub build_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tune_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_call_ns: Option<f64>,
    /// Copying what the first call returned into place, which no later call is charged for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub settle_ns: Option<f64>,
}

/// One turn of an impl: the next `samples` entries of `samples_ns` were taken in round `round`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Visit {
    pub round: u32,
    pub samples: u32,
    /// What the device was seen to do meanwhile, where it can tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub conditions: Option<Conditions>,
}

/// How many samples were checked, and how: before each, outputs were given wrong values, and after it they were held
/// against the answer that the gate had accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// Samples taken.
    pub samples: u64,
    /// Of them, checked in every byte of every output.
    pub whole: u64,
    /// Checked in pieces chosen at random.
    pub parts: u64,
    /// Taken on values that the impl had never seen, and judged by the gate.
    pub fresh: u64,
    /// Whether every sample left the same bits; if not, results were compared in size, and some judged by the gate.
    pub same_bits: bool,
}

impl Checked {
    pub fn add(&mut self, more: &Checked) {
        self.samples += more.samples;
        self.whole += more.whole;
        self.parts += more.parts;
        self.fresh += more.fresh;
        self.same_bits &= more.same_bits;
    }
}

/// State of a GPU over a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conditions {
    /// Highest power drawn, W.
    pub power_w: f64,
    /// Highest temperature, °C.
    pub temperature_c: f64,
    /// Lowest clock of the multiprocessors, MHz.
    pub sm_mhz: f64,
    /// Lowest clock of the memory, MHz.
    pub memory_mhz: f64,
    /// Why the clocks were held below what they could be; empty: they were not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub throttled: Vec<String>,
}

/// What the compiler made of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelFigures {
    pub name: String,
    pub registers: u32,
    /// Static shared memory of a block, bytes; dynamic is added at launch.
    pub shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
    /// Local memory of a thread, bytes.
    pub local_bytes: u32,
    /// Bytes of spilled registers, stores and loads together; absent where the compiler did not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spilled_bytes: Option<u32>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
}

/// What a search among the variants of a kernel found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tuned {
    /// As it can be fixed behind the impl's name: `#BN=128,STAGES=4`.
    pub chosen: String,
    /// The chosen one first, then the others from the fastest on; those that failed come last.
    pub tried: Vec<Tried>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    pub values: String,
    /// Its time in the search; absent where it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time_ns: Option<f64>,
    /// Why it failed, one line.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    pub schema: u32,
    /// The case's id.
    pub case: String,
    pub op: String,
    pub axes: IndexMap<String, u64>,
    /// Absent where it is no op of ours: a function of the user's that was timed from Python.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dtype: Option<DType>,
    pub attrs: IndexMap<String, String>,
    /// Inputs and outputs; `*` marks a tensor changed in place.
    pub contract: String,
    #[serde(rename = "impl")]
    pub impl_name: String,
    /// Hash of the impl: of its source, the values that were tuned, the libraries that it stands on.
    pub impl_hash: String,
    /// Of its source alone, where that is not the same.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source_hash: Option<String>,
    pub device: DeviceId,
    pub mode: Mode,
    pub seed: u64,
    pub status: Status,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verify: Option<Verify>,
    /// How the launches that were timed were checked; absent where they were not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked: Option<Checked>,
    /// Raw samples in ns, in the order in which they were taken. Empty unless the status is `ok`, `unverified` or
    /// `impossible`.
    pub samples_ns: Vec<f64>,
    /// The processor's clock at each sample in MHz; empty where the device cannot tell.
    pub clock_mhz: Vec<f64>,
    /// How the samples fall into visits; two visits of one round are an A/A pair.
    pub visits: Vec<Visit>,
    /// Which process took the samples: its family, or what several share. Between two processes the same launch differs by
    /// a little; absent in older records.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<String>,
    /// Records of one case with the same group were interleaved with each other and may be compared.
    pub group: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stop: Option<Stop>,
    pub cost: Cost,
    /// What a call does in units of the user's: tokens, queries, rows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub items: Option<f64>,
    pub times: Times,
    /// The kernels of a launch, where they are known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub kernels: Vec<KernelFigures>,
    /// Of a kernel whose values were tuned for this case: which were tried, and what was chosen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tuned: Option<Tuned>,
    /// What the impl chose or found out: an algorithm, a workspace.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// Why it failed, with the tail of the log; empty otherwise.
    pub message: String,
    /// Where a Python exception came from, as Python prints it.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub traceback: String,
}

/// The part of an impl's name before the slash: impls of one family share a worker process. A file is a family of its own,
/// by its name without folders and kernel: `./mine.cu:fast` is of `mine.cu`.
pub fn family(impl_name: &str) -> String {
    let file = impl_name.rsplit('/').next().unwrap_or(impl_name).split([':', '#']).next().unwrap_or(impl_name);
    if file.contains('.') {
        return file.to_string();
    }
    impl_name.split('/').next().unwrap_or(impl_name).to_string()
}

/// Whether a file holds Python code of a user's: as such, as JSON (a definition, a solution), or as a task's list of files.
pub fn holds_python(file: &str) -> bool {
    [".py", ".json", ".yml"].iter().any(|end| file.ends_with(end))
}

impl Record {
    /// A record of its line. It stands here because reports of long runs spend most of their time in it, and this crate is
    /// compiled as one unit for that.
    pub fn parse(line: &[u8]) -> serde_json::Result<Record> {
        serde_json::from_slice(line)
    }

    /// What no record may claim. The error names the field.
    pub fn validate(&self) -> Result<(), String> {
        let timed = self.status.is_timed();
        let word = self.status.word();
        if self.schema != SCHEMA {
            return Err(format!("schema {} is not {SCHEMA}, the version this kmark reads", self.schema));
        }
        let empty = self.samples_ns.is_empty() && self.clock_mhz.is_empty() && self.visits.is_empty();
        if !timed && !empty {
            return Err(format!("a record with status {word} carries samples_ns"));
        }
        if timed && self.samples_ns.is_empty() {
            return Err(format!("a record with status {word} has no samples_ns"));
        }
        if let Some(bad) = self.samples_ns.iter().chain(&self.clock_mhz).find(|v| !(v.is_finite() && **v > 0.0)) {
            return Err(format!("{bad} among samples_ns or clock_mhz is not a positive number"));
        }
        if !self.clock_mhz.is_empty() && self.clock_mhz.len() != self.samples_ns.len() {
            return Err("clock_mhz and samples_ns differ in length".into());
        }
        if self.visits.iter().map(|v| v.samples as usize).sum::<usize>() != self.samples_ns.len() {
            return Err("visits do not add up to samples_ns".into());
        }
        match (self.status, &self.verify) {
            (Status::Ok, v) if !v.as_ref().is_some_and(Verify::ok) => Err("status ok without a passed verify".into()),
            (Status::Wrong, v) if v.as_ref().is_none_or(Verify::ok) => Err("status wrong without a problem".into()),
            _ => Ok(()),
        }
    }

    /// What a run may hold once: the same case, impl, mode and device.
    pub fn key(&self) -> (String, String, Mode) {
        (self.case.clone(), self.impl_name.clone(), self.mode)
    }

    /// Share of the samples in visits during which the clocks were held down.
    pub fn throttled(&self) -> f64 {
        let held = |v: &&Visit| v.conditions.as_ref().is_some_and(|c| !c.throttled.is_empty());
        let count: u32 = self.visits.iter().filter(held).map(|v| v.samples).sum();
        if self.samples_ns.is_empty() { 0.0 } else { count as f64 / self.samples_ns.len() as f64 }
    }

    /// Why they were, each reason once.
    pub fn throttled_by(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for reason in self.visits.iter().filter_map(|v| v.conditions.as_ref()).flat_map(|c| &c.throttled) {
            if !reasons.contains(reason) {
                reasons.push(reason.clone());
            }
        }
        reasons
    }

    /// The clock of a CPU's core while it was timed.
    pub fn core_mhz(&self) -> Option<f64> {
        (self.device.kind == "cpu" && !self.clock_mhz.is_empty()).then(|| geomean(&self.clock_mhz))
    }

    /// The time that is shown for it.
    pub fn time(&self) -> Option<Typical> {
        self.time_and_series().map(|(time, _)| time)
    }

    /// The round and the samples of each visit.
    fn by_visit(&self) -> impl Iterator<Item = (u32, &[f64])> {
        let mut rest = self.samples_ns.as_slice();
        self.visits.iter().map(move |v| {
            let (now, later) = rest.split_at(v.samples as usize);
            rest = later;
            (v.round, now)
        })
    }

    /// What it has to say in a comparison; `None` without times.
    pub fn series(&self) -> Option<Series> {
        self.time_and_series().map(|(_, series)| series)
    }

    /// Both at once, for whoever has many records to read.
    pub fn time_and_series(&self) -> Option<(Typical, Series)> {
        let times = self.visit_times();
        let time = Typical::of_times(&times.iter().map(|(_, time)| *time).collect::<Vec<_>>(), &self.samples_ns)?;
        Some((time, Series { time_ns: time.value, rounds: rounds(&times) }))
    }

    /// The round and the midmean of each visit that took samples.
    fn visit_times(&self) -> Vec<(u32, f64)> {
        let visits = self.by_visit().filter(|(_, samples)| !samples.is_empty());
        visits.map(|(round, samples)| (round, midmean(samples))).collect()
    }
}

/// The two visits of each round; a round that was cut short is left out.
fn rounds(visits: &[(u32, f64)]) -> Vec<Round> {
    let mut rounds = Vec::new();
    for pair in visits.chunk_by(|a, b| a.0 == b.0) {
        if let [(_, first), (_, second)] = pair {
            rounds.push(Round { first: *first, second: *second });
        }
    }
    rounds
}

/// What the engine found out about its own clock before it measured anything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Smallest step of the clock, ns.
    pub clock_step_ns: f64,
    /// What an empty launch costs, ns. Stated, never subtracted.
    pub empty_launch_ns: f64,
    /// What an empty call of a Python function costs, ns, where functions are Python's. Stated, never subtracted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub empty_call_ns: Option<f64>,
    /// What two events of a GPU cost by themselves, ns; it is in no sample. Absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_pair_ns: Option<f64>,
    /// Measured over expected duration of a launch of known length; near 1.
    pub known_launch_ratio: f64,
    /// One timer over a second, independent one; near 1.
    pub timer_ratio: f64,
    /// Time to read half a cache full of data after a flush over the time to read it again; well above 1 where a
    /// flush works. Absent where it is not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cold_over_hot: Option<f64>,
}
