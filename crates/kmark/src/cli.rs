//! What may be typed. Meaning is given to it in `plan` and `cmd`.

mod baselines;
mod fleet;
mod help;
mod records;

pub use self::baselines::*;
pub use self::fleet::*;
pub use self::records::*;
use crate::shard::Shard;
use crate::units::{parse_duration, parse_fraction};
use clap::{Args, Parser, Subcommand, ValueEnum};
use kmark_core::tally::Grade;
use kmark_core::turns::ROUNDS;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser)]
#[command(
    name = "kmark",
    version,
    about = "Benchmarks kernels: checked against an fp64 oracle, timed so that the number holds up"
)]
#[command(disable_help_subcommand = true, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Verify and time impls, and write the records
    Run(RunArgs),
    /// Check impls against the oracle without timing them
    Verify(VerifyArgs),
    /// Compile the CUDA kernels of a selection without a GPU, and show errors, warnings and spills
    Build(BuildArgs),
    /// Show ops, impls, suites, devices or the cases of a suite
    List(ListArgs),
    /// Make a table, Markdown, CSV, JSON, charts or a page from the records of a run
    Report(ReportArgs),
    /// Compare runs: what became faster, slower or wrong; exits with 3 if something became slower
    Compare(CompareArgs),
    /// Show runs in the order of their start: where times changed, and which commit, driver or version came with it
    History(HistoryArgs),
    /// Put runs of several machines, GPUs or libraries into one folder, which report and compare take like a run
    Merge(MergeArgs),
    /// Hand a run to a Slurm cluster as an array of tasks; resubmit what did not get done
    Submit(SubmitArgs),
    /// Show the tasks of a submitted run: their states, cases done, failures, time left
    Status(StatusArgs),
    /// Put what the tasks of a submitted run have recorded into one folder
    Collect(CollectArgs),
    /// Hold GPUs against each other that ran the same cases: which of them is slow?
    Fleet(FleetArgs),
    /// Measure the machine's limits: memory traffic in four patterns, matrix products by dtype
    Roofline(RooflineArgs),
    /// Python libraries to compare with: show, check, install or pack their pinned environments
    Baselines(BaselinesArgs),
    /// Show what this machine offers and what stands in the way of good numbers
    Doctor(DoctorArgs),
    /// Print the JSON Schema of run.json and of the lines of records.jsonl
    Schema(SchemaArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Task(TaskArgs),
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(Args)]
pub struct Selection {
    /// Suites, ops, suite files (.toml, .json) or files with ops of your own (.py); `kmark list suites` and `kmark list ops` show ours
    #[arg(value_name = "SUITE|OP|FILE", default_value = "smoke", hide_default_value = true)]
    pub what: Vec<String>,
    #[command(flatten)]
    pub choice: Choice,
    #[arg(
        long,
        default_value = "auto",
        help = "auto, cpu, cuda[:N]; `run` takes several GPUs, too: cuda:0,2 or cuda:all; each case runs on one that is free"
    )]
    pub device: String,
    /// Impls to run, `*` stands for anything; may be repeated. Libraries (torch, quack) run only if they are named here, and
    /// so do files of yours (./mine.cu, ./mine.py:fast) [default: all of ours]
    #[arg(long = "impl", value_name = "PATTERN")]
    pub impls: Vec<String>,
    /// The grade that right answers must have: tight ones are rounded once, loose ones may round intermediates to 16 bits
    #[arg(long, value_enum, default_value = "loose")]
    pub grade: Asked,
    /// Count unsupported and unavailable impls as failures
    #[arg(long)]
    pub strict: bool,
    /// Seed of the inputs
    #[arg(long, default_value_t = kmark_core::case::DEFAULT_SEED)]
    pub seed: u64,
    /// How long one step of one impl may take before it is ended; large cases get more [default: 60s, and 240s more while a
    /// Python library may compile]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub deadline: Option<Duration>,
}

/// Which cases, of those that suites hold, and what is changed in them.
#[derive(Args, Default)]
pub struct Choice {
    /// Only these dtypes, for instance bf16,f32
    #[arg(long, value_name = "DTYPES", value_delimiter = ',')]
    pub dtype: Vec<String>,
    /// Replace an axis or attribute of every case, for instance m=4096,8192 or w=f32; may be repeated
    #[arg(long, value_name = "NAME=VALUES")]
    pub set: Vec<String>,
    /// Replace all axes, for instance 4096x7168,8192x7168
    #[arg(long, value_name = "CONFIGS", value_delimiter = ',')]
    pub configs: Vec<String>,
    /// Only cases like this, by id or op; `*` stands for anything: '*-k512*'; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<String>,
    /// Leave out cases like this; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
}

/// A grade, as it is typed.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Asked {
    Tight,
    Loose,
}

impl From<Asked> for Grade {
    fn from(asked: Asked) -> Grade {
        match asked {
            Asked::Tight => Grade::Tight,
            Asked::Loose => Grade::Loose,
        }
    }
}

/// What is measured, and how: of a run, here or on a cluster.
#[derive(Args)]
pub struct Measure {
    #[command(flatten)]
    pub selection: Selection,
    /// The impl that speed-ups refer to [default: the fastest that is not ours, else the plainest of ours]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Whether the tensors are in the cache when a launch starts
    #[arg(long, value_enum, default_value = "cold")]
    pub cache: Cache,
    /// Time replays of a CUDA graph
    #[arg(long, conflicts_with_all = ["e2e", "cache"])]
    pub graph: bool,
    /// Time the host's side as well
    #[arg(long, conflicts_with = "cache")]
    pub e2e: bool,
    /// Sampling time per case and impl [default: 2s, or what the suite says]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub budget: Option<Duration>,
    /// Stop early when the 95 % interval of the time is this narrow
    #[arg(long, value_parser = parse_fraction, default_value = "0.5%", value_name = "PERCENT")]
    pub precision: f64,
    /// Rounds in which the impls of a case take turns
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// `auto` (until steady) or a time
    #[arg(long, default_value = "auto", value_name = "auto|TIME")]
    pub warmup: String,
    /// Do not measure the machine's limits; rows have no share of a roof then
    #[arg(long)]
    pub no_roofs: bool,
    /// Take the machine's limits from this run, which the same device made a while ago, and measure only those that it
    /// does not have
    #[arg(long, value_name = "RUN", conflicts_with = "no_roofs")]
    pub roofs_from: Option<PathBuf>,
    /// Before anything is timed, let Python libraries compile what the cases need, in N processes at a time
    /// [default: they compile at first use, one after the other]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub compile_jobs: Option<u32>,
    /// A word to find the run by, in run.json; may be repeated
    #[arg(long, value_name = "NAME")]
    pub tag: Vec<String>,
    /// Leave the machine's name out of run.json
    #[arg(long)]
    pub no_host: bool,
    /// Time without checking; the records say `unverified`
    #[arg(long)]
    pub skip_verify: bool,
    /// Show where Python exceptions came from
    #[arg(long, short)]
    pub verbose: bool,
}

#[derive(Args)]
#[command(after_help = help::RUN)]
pub struct RunArgs {
    #[command(flatten)]
    pub measure: Measure,
    /// Only a part of the cases, for one of several machines: 2/8 is the second of eight. Each case falls into one part,
    /// wherever it is asked, with all its impls; parts take about as long as each other
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub shard: Option<Shard>,
    /// Folder for run.json and records.jsonl [default: a new one in kmark-runs]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the interrupted run in --out
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Show cases, impls and how long it may take; run nothing
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// No progress, no table; what fails is said all the same
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Cache {
    Cold,
    Hot,
}

#[derive(Args)]
#[command(after_help = help::VERIFY)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub selection: Selection,
    /// Only a part of the cases, for one of several machines: 2/8 is the second of eight. Each case falls into one part,
    /// wherever it is asked, with all its impls; parts take about as long as each other
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub shard: Option<Shard>,
    /// Instead of the impls, run wrong variants of them: the gate must reject every one
    #[arg(long)]
    pub mutants: bool,
    /// Instead of the impls, hold the GPU's oracle and inputs against the CPU's
    #[arg(long, conflicts_with = "mutants")]
    pub oracle: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// No progress, no table; what fails is said all the same
    #[arg(long, short)]
    pub quiet: bool,
    /// Show where Python exceptions came from
    #[arg(long, short)]
    pub verbose: bool,
}

#[derive(Args)]
pub struct BuildArgs {
    #[command(flatten)]
    pub selection: Selection,
    /// Architectures, for instance sm_90a,sm_100a [default: all that kernels claim]
    #[arg(long, value_name = "ARCHS", value_delimiter = ',')]
    pub arch: Vec<String>,
    /// Leave the oracles out
    #[arg(long)]
    pub no_oracles: bool,
    /// Leave the kernels out
    #[arg(long, conflicts_with = "no_oracles")]
    pub no_kernels: bool,
    /// Compile with next to no optimisation: finds errors and warnings in a fraction of the time, but no spills (needs a
    /// recent NVRTC)
    #[arg(long)]
    pub quick: bool,
    #[arg(long, hide = true, value_parser = parse_part)]
    pub part: Option<(usize, usize)>,
    #[arg(long, hide = true)]
    pub cases_from_stdin: bool,
}

/// `2/8`: the third of eight parts.
fn parse_part(text: &str) -> Result<(usize, usize), String> {
    let (part, parts) = text.split_once('/').ok_or("write it like 2/8")?;
    let number = |w: &str| w.parse::<usize>().map_err(|e| e.to_string());
    Ok((number(part)?, number(parts)?.max(1)))
}

#[derive(Args)]
pub struct ListArgs {
    #[command(subcommand)]
    pub what: ListWhat,
    /// Print as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum ListWhat {
    /// Ops with their contracts, axes and attributes; how a CUDA kernel of an op receives its arguments
    Ops {
        /// Only these
        #[arg(value_name = "OP")]
        ops: Vec<String>,
        /// What a CUDA kernel sees before its first line: types, attributes, arguments
        #[arg(long)]
        signature: bool,
        /// A file to start a CUDA kernel from
        #[arg(long, value_name = "OP", conflicts_with_all = ["signature", "ops"])]
        template: Option<String>,
    },
    /// Impls, of these ops or of all
    Impls {
        #[arg(value_name = "OP")]
        ops: Vec<String>,
    },
    /// Dtypes, and the ops that have them
    Dtypes,
    /// Suites in the binary
    Suites,
    /// Devices of this machine
    Devices,
    /// The cases of suites, ops or suite files
    Cases {
        #[arg(value_name = "SUITE|OP|FILE", required = true)]
        what: Vec<String>,
        #[command(flatten)]
        choice: Choice,
    },
}

#[derive(Args)]
pub struct RooflineArgs {
    #[arg(long, default_value = "auto", help = "auto, cpu or cuda[:N]")]
    pub device: String,
    /// Dtypes of the matrix products, or tf32 [default: those that the device has a roof for]
    #[arg(long, value_name = "DTYPES", value_delimiter = ',')]
    pub dtype: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct DoctorArgs {
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SchemaArgs {
    /// Which schema
    #[arg(value_enum, default_value = "all")]
    pub what: SchemaWhat,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum SchemaWhat {
    /// Both: a run or a record
    All,
    Record,
    Run,
}

#[derive(Args)]
pub struct CompletionsArgs {
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct WorkerArgs {
    pub family: String,
    #[arg(long, default_value = "cpu")]
    pub device: String,
}
