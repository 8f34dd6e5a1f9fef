//! What may be typed after `kmark baselines`.

use crate::units::parse_bytes;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct BaselinesArgs {
    #[command(subcommand)]
    pub what: BaselinesWhat,
}

#[derive(Subcommand)]
pub enum BaselinesWhat {
    /// Environments, what runs in them, and whether they are installed
    List {
        /// Only what has this op
        #[arg(long, value_name = "OP")]
        op: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Versions found and wanted, and whether each library can be imported
    Check {
        /// Environments or families of impls [default: all that are installed]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make environments: download pinned wheels, or take them from a bundle
    Install(InstallArgs),
    /// Pack environments for a machine without a network
    Bundle(BundleArgs),
}

#[derive(Args)]
pub struct InstallArgs {
    /// Environments or families of impls
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// The interpreter that they are made with [default: $KMARK_PYTHON, else the one kmark was installed with, else python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Take everything from this bundle, and nothing from the network
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Install torch into the environment instead of using the interpreter's; about 2.7 GB to download
    #[arg(long)]
    pub with_torch: bool,
    /// Replace an environment that is there already
    #[arg(long)]
    pub force: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct BundleArgs {
    /// Environments or families of impls
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Folder for the bundle; new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The size that no part exceeds
    #[arg(long, value_parser = parse_bytes, default_value = "1GiB", value_name = "SIZE")]
    pub split: u64,
    /// How hard to compress, from 0 (quick) to 9 (small)
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=9), value_name = "LEVEL")]
    pub level: u32,
    /// The Python that it will be installed with, for instance 3.12 [default: that of $KMARK_PYTHON, else of python3]
    #[arg(long, value_name = "VERSION")]
    pub python_version: Option<String>,
    /// Pack torch as well
    #[arg(long)]
    pub with_torch: bool,
}
