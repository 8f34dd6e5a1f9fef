//! What stands below the flags in help: examples, exit codes, variables.

pub const RUN: &str = "\
Examples:
  kmark run                                             the smoke suite, on a GPU if there is one
  kmark run gemm --dtype bf16 --impl ./mine.cu --impl cublaslt --impl 'cuda/*'
  kmark run dsv3 --impl 'cuda/*' --impl quack --impl torch --baseline torch
  kmark run dsv3 --filter 'softmax*' --exclude '*-n8192*' --dry-run
  kmark run smoke --out runs/a --resume                 resumes an interrupted run

Exit codes: 0 all well; 1 our own error; 2 wrong usage; 5 a wrong answer; 6 a case failed; 7 nothing could be checked.

Variables:
  KMARK_PYTHON     interpreter of libraries that have no environment of their own [default: the one that kmark
                   was installed with, else python3]
  KMARK_HOME       where `kmark baselines install` puts environments [default: ~/.local/share/kmark]
  KMARK_CUDA_PATH  where NVIDIA's libraries are, if the system does not find them
  NO_COLOR         no colours";

pub const VERIFY: &str = "\
Examples:
  kmark verify smoke                                    every impl of ours on every case
  kmark verify softmax --impl ./mine.py:softmax --device cpu
  kmark verify smoke --mutants                          wrong kernels, which must all be rejected

Exit codes: 0 all well; 1 our own error; 2 wrong usage; 5 a wrong answer, or a mutant that passed; 6 a case failed;
7 nothing could be checked.

Variables: KMARK_PYTHON, KMARK_HOME, KMARK_CUDA_PATH, NO_COLOR, as for `kmark run`.";

pub const COMPARE: &str = "\
Examples:
  kmark compare runs/a runs/b --threshold 3%
  kmark compare base new --format markdown              a comment for a pull request
  kmark compare a1 b1 --base a2 --new b2                several runs on a side

In CI: kmark run smoke --out new && kmark compare base new --threshold 3%

Exit codes: 0 no regression; 3 something is slower; 4 cannot tell (--strict); 5 a result became wrong; 6 a case fails now.

Variables: NO_COLOR: no colours.";

pub const REPORT: &str = "\
Examples:
  kmark report runs/a --format html --out a.html        a page to share
  kmark report runs/a --format svg --out charts         or png
  kmark report runs/a --format families                 who is fastest at what: libraries beside each other, by op
  kmark report runs/a --filter 'gemm*' --sort -speedup --columns m,n,k,impl,time_ns,speedup --format csv

Exit codes: 0 done; 1 our own error; 2 wrong usage, or records that are none.

Variables: NO_COLOR: no colours. LC_ALL=C: plain ASCII.";

pub const HISTORY: &str = "\
Examples:
  kmark history kmark-runs                              all runs in a folder, an op and impl a line
  kmark history runs --cases --filter 'gemm*' --tag nightly

Exit codes: 0 done; 1 our own error; 2 wrong usage, or no run.";

pub const MERGE: &str = "\
Examples:
  kmark merge h100/run a100/run --out both && kmark report both
  kmark compare h100/run a100/run                       one GPU against another

Exit codes: 0 done; 1 our own error; 2 wrong usage, or copies of a run that contradict each other.";

pub const STATUS: &str = "\
Examples:
  kmark status /shared/dsv3
  kmark status /shared/dsv3 --json                      for programs

Exit codes: 0 shown; 1 our own error; 2 wrong usage.";

pub const SUBMIT: &str = "\
Examples:
  kmark submit dsv3 --impl 'cuda/*' --slurm --partition gpu --gpus-per-node 1 --nodes 8 --time 2:00:00 --out /shared/dsv3
  kmark submit smoke --whole --slurm --gpus-per-node 1 --nodes 200 --out /shared/fleet     every task runs all cases
  kmark submit --resume /shared/dsv3                    resubmits what was cancelled, preempted or failed

kmark, the folder that this is typed in and DIR must be on the nodes under the same names.

Exit codes: 0 queued; 1 our own error; 2 wrong usage, or Slurm refuses.";

pub const COLLECT: &str = "\
Examples:
  kmark collect /shared/dsv3 --wait && kmark report /shared/dsv3/collected

Exit codes: 0 every case is there; 1 our own error; 2 wrong usage; 5 a wrong answer; 6 a case is missing or failed;
7 nothing could be checked.";

pub const FLEET_CHECK: &str = "\
Examples:
  kmark submit smoke --whole --slurm --gpus-per-node 1 --nodes 200 --out /shared/fleet
  kmark collect /shared/fleet --wait && kmark fleet check /shared/fleet --threshold 3%

Exit codes: 0 all in line; 1 our own error; 2 wrong usage; 3 a GPU is slow; 4 cannot tell (--strict);
5 a wrong answer; 6 a case failed.";
