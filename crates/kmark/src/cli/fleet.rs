//! What may be typed of runs on clusters.

use super::{Measure, help};
use clap::Args;
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
pub struct TaskArgs {
    pub dir: PathBuf,
    /// What the submitted folder must say.
    pub token: String,
    /// Number of the task, from 1.
    pub number: usize,
}
