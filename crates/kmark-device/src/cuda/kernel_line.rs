//! One line `// kmark: kernel …`: a launch, and the shape that it has in a case.

use super::directives::{Names, parts};
use kmark_core::expr::{Scope, evaluate};

/// One launch: the kernel's name, and expressions for its shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelLine {
    pub name: String,
    pub grid: Vec<String>,
    pub block: Vec<String>,
    pub shared: Option<String>,
    pub cluster: Vec<String>,
    pub with: Vec<With>,
    /// Inputs of which it makes something before anything is timed; all that it sees of the case.
    pub bind: Vec<String>,
}

/// What a launch asks of the driver beyond its shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum With {
    /// All blocks run at the same time, and may wait for each other.
    Cooperative,
    /// It may start before the launch before it has ended, and waits for it by itself (`griddepcontrol.wait`).
    Overlap,
}

/// A launch with its shape known.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub cluster: [u32; 3],
    pub with: Vec<With>,
}

impl KernelLine {
    pub(super) fn parse(text: &str) -> Result<KernelLine, String> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("a kernel needs a name")?.to_string();
        let mut line = KernelLine { name, ..KernelLine::default() };
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("`{word}`: write it like grid=ceil(m,4)"))?;
            match key {
                "grid" => line.grid = parts(value),
                "block" => line.block = parts(value),
                "shared" => line.shared = Some(value.to_string()),
                "cluster" => line.cluster = parts(value),
                "with" => line.with = value.split(',').map(With::parse).collect::<Result<_, _>>()?,
                "bind" => line.bind = parts(value),
                _ => {
                    let known = ["grid", "block", "shared", "cluster", "with", "bind"];
                    return Err(kmark_core::spelling::unknown("launch setting", key, known));
                }
            }
        }
        if line.cluster.len() > 3 {
            return Err(format!("kernel {}: a cluster has at most three numbers", line.name));
        }
        if line.grid.is_empty() || line.block.is_empty() || line.grid.len() > 3 || line.block.len() > 3 {
            return Err(format!("kernel {} needs grid= and block=, each of one to three numbers", line.name));
        }
        if let Some(fits) = line.block.iter().chain(&line.shared).chain(&line.cluster).find_map(|e| Fits::first_in(e)) {
            return Err(format!("kernel {}: {}", line.name, fits.only_in_grids()));
        }
        Ok(line)
    }

    /// `None` if there is nothing to launch.
    pub fn shape(&self, names: &Names, compiled: Compiled) -> Result<Option<Shape>, String> {
        let one = |e: &String, scope: &dyn Scope| -> Result<u32, String> {
            let v = evaluate(e, scope)?;
            u32::try_from(v).map_err(|_| format!("kernel {}: {e} is {v}", self.name))
        };
        let three = |list: &[String], scope: &dyn Scope| -> Result<[u32; 3], String> {
            let mut all = [1; 3];
            for (v, e) in all.iter_mut().zip(list) {
                *v = one(e, scope)?;
            }
            Ok(all)
        };
        let (block, cluster) = (three(&self.block, names)?, three(&self.cluster, names)?);
        let shared = self.shared.as_ref().map_or(Ok(0), |e| one(e, names))?;
        let threads: u64 = block.iter().map(|b| *b as u64).product();
        let mut shape = Shape { grid: cluster, block, shared, cluster, with: self.with.clone() };
        let mut known = Vec::new();
        for fits in Fits::ALL.into_iter().filter(|f| self.grid.iter().any(|e| f.is_in(e))) {
            known.push((fits, compiled(&self.name, fits, &shape)?));
        }
        let grid = three(&self.grid, &InGrid { names, known })?;
        if grid.contains(&0) {
            return Ok(None);
        }
        if threads == 0 || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 {
            return Err(format!("kernel {}: grid {grid:?} and block {block:?} cannot be launched", self.name));
        }
        let blocks: u64 = cluster.iter().map(|c| *c as u64).product();
        if blocks == 0 || blocks > LARGEST_CLUSTER || grid.iter().zip(cluster).any(|(g, c)| g % c != 0) {
            return Err(format!(
                "kernel {}: a grid of {grid:?} blocks does not divide into clusters of {cluster:?}, or these have more than \
                 {LARGEST_CLUSTER}",
                self.name
            ));
        }
        shape.grid = grid;
        Ok(Some(shape))
    }
}

/// What follows from the compiled kernel, its block, cluster and shared memory. Only grids know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fits {
    /// Blocks that a multiprocessor holds at once.
    Occupancy,
    /// Clusters that the GPU holds at once.
    Clusters,
}

impl Fits {
    const ALL: [Fits; 2] = [Fits::Occupancy, Fits::Clusters];

    fn name(self) -> &'static str {
        match self {
            Fits::Occupancy => "occupancy",
            Fits::Clusters => "clusters",
        }
    }

    fn is_in(self, expression: &str) -> bool {
        expression.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).any(|word| word == self.name())
    }

    pub(super) fn first_in(expression: &str) -> Option<Fits> {
        Fits::ALL.into_iter().find(|f| f.is_in(expression))
    }

    pub(super) fn only_in_grids(self) -> String {
        let follows = if self == Fits::Occupancy { "follows" } else { "follow" };
        format!("{} {follows} from the compiled kernel, its block and shared; only grid= knows", self.name())
    }
}

/// Asks it of a kernel; its grid is not known yet.
pub type Compiled<'a> = &'a dyn Fn(&str, Fits, &Shape) -> Result<u32, String>;

/// Before the file is compiled, nothing more is known.
pub const NOT_COMPILED: Compiled = &|_, _, _| Ok(1);

/// What the expressions of a grid may name.
struct InGrid<'a> {
    names: &'a Names<'a>,
    known: Vec<(Fits, u32)>,
}

impl Scope for InGrid<'_> {
    fn function(&self, name: &str) -> Option<(&[String], &str)> {
        self.names.function(name)
    }

    fn name(&self, name: &str) -> Option<i64> {
        let fits = self.known.iter().find(|(fits, _)| fits.name() == name);
        fits.map(|(_, count)| i64::from(*count)).or_else(|| self.names.name(name))
    }
}

/// Blocks of the largest cluster that a GPU can run; beyond eight not every one can.
const LARGEST_CLUSTER: u64 = 16;

impl With {
    fn parse(word: &str) -> Result<With, String> {
        match word {
            "cooperative" => Ok(With::Cooperative),
            "overlap" => Ok(With::Overlap),
            _ => Err(kmark_core::spelling::unknown("word after with=", word, ["cooperative", "overlap"])),
        }
    }
}
