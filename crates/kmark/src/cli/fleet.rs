//! What may be typed of runs on clusters.

use super::{Measure, help};
use crate::units::parse_fraction;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = help::SUBMIT)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub measure: Measure,
    /// Hand the work to Slurm, by `sbatch`
    #[arg(long, required_unless_present = "resume")]
    pub slurm: bool,
    /// Tasks of the array; each runs its shard of the cases on one node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: u32,
    /// Every task runs all cases instead of its shard: to hold nodes and GPUs against each other
    #[arg(long)]
    pub whole: bool,
    /// GPUs that a task asks for; with `--device auto` it uses all of them, and the CPU without any
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpus_per_node: u32,
    #[arg(long, value_name = "NAME", help = "Partition of the cluster")]
    pub partition: Option<String>,
    #[arg(long, value_name = "TIME", help = "Time that a task may take, as Slurm writes it: 90, 2:30:00, 1-0")]
    pub time: Option<String>,
    #[arg(long, value_name = "FEATURES", help = "Features that a node must have")]
    pub constraint: Option<String>,
    /// Any other option of sbatch, such as --sbatch=--account=me; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
    /// Folder for everything about it; the nodes must see it under the same name
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub out: Option<PathBuf>,
    /// Resubmit the tasks of this folder that are neither done nor under way
    #[arg(long, value_name = "DIR", exclusive = true)]
    pub resume: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = help::STATUS)]
pub struct StatusArgs {
    /// Folder of a submitted run
    pub dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = help::COLLECT)]
pub struct CollectArgs {
    /// Folder of a submitted run
    pub dir: PathBuf,
    /// The folder that its runs go into; new or empty [default: DIR/collected, made anew each time]
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Wait until no task is pending or running
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args)]
pub struct FleetArgs {
    #[command(subcommand)]
    pub what: FleetWhat,
}

#[derive(Subcommand)]
pub enum FleetWhat {
    /// Show how much GPUs differ on the same cases, and which of them is slow for certain
    Report {
        #[command(flatten)]
        runs: FleetRuns,
        /// An earlier folder of the same GPUs: shows how each has changed since
        #[arg(long, value_name = "DIR")]
        since: Option<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Exit with 3 if a GPU is slower than the others for certain, and with 5 or 6 if a row failed
    #[command(after_help = help::FLEET_CHECK)]
    Check {
        #[command(flatten)]
        runs: FleetRuns,
        /// Slower by less than this is in line, however certain it is
        #[arg(long, value_parser = parse_fraction, default_value = "3%", value_name = "PERCENT")]
        threshold: f64,
        /// Exit with 4 if so much could have been missed
        #[arg(long)]
        strict: bool,
    },
}

#[derive(Args)]
pub struct FleetRuns {
    /// Folders of runs, folders that hold them, or of what `kmark submit` made once it is collected
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// Only rows whose case, op or impl is like this; `*` stands for anything; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<String>,
}

#[derive(Args)]
pub struct TaskArgs {
    pub dir: PathBuf,
    /// What the submitted folder must say.
    pub token: String,
    /// Number of the task, from 1.
    pub number: usize,
}
