//! Which device a command runs on: what was typed, what there is, and how a worker opens it.

use crate::env;
use kmark_core::error::{Error, Result};
use kmark_core::record::DeviceId;
use kmark_core::spelling::unknown;
use kmark_device::cpu::Cpu;
use kmark_device::cuda::{Cuda, Driver};
use kmark_device::{Device, Fault};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    Cpu,
    Cuda(usize),
}

impl Choice {
    /// `auto` is the first GPU, or the CPU where there is none.
    pub fn parse(word: &str) -> Result<Choice> {
        let number = |n: &str| n.parse().map_err(|_| Error::usage(format!("--device {word}: write it like cuda:0")));
        match word {
            "cpu" => Ok(Choice::Cpu),
            "auto" => Ok(if gpus().is_ok_and(|n| n > 0) { Choice::Cuda(0) } else { Choice::Cpu }),
            "cuda" => Choice::Cuda(0).checked(),
            w => match w.strip_prefix("cuda:") {
                Some(n) => Choice::Cuda(number(n)?).checked(),
                None => Err(Error::usage(unknown("device", w, ["auto", "cpu", "cuda"]))),
            },
        }
    }

    /// One device, or with `cuda:all` and `cuda:0,2` several GPUs.
    pub fn parse_all(word: &str) -> Result<Vec<Choice>> {
        if word == "cuda:all" {
            Choice::parse("cuda")?; // or why there is none
            return Ok((0..gpus().unwrap_or(0)).map(Choice::Cuda).collect());
        }
        let Some((first, more)) = word.split_once(',') else { return Ok(vec![Choice::parse(word)?]) };
        let mut all = vec![Choice::parse(first)?];
        for n in more.split(',') {
            let next = Choice::parse(&format!("cuda:{n}"))?;
            if all.contains(&next) || all[0] == Choice::Cpu {
                return Err(Error::usage(format!("--device {word}: write it like cuda:0,2,5, each GPU once")));
            }
            all.push(next);
        }
        Ok(all)
    }

    /// The kind of device that a word asks for on another machine: the CPU, or the first GPU.
    pub fn expected(word: &str) -> Result<Choice> {
        match word {
            "cpu" => Ok(Choice::Cpu),
            w if w == "cuda" || w.starts_with("cuda:") => Ok(Choice::Cuda(0)),
            w => Err(Error::usage(unknown("device", w, ["auto", "cpu", "cuda"]))),
        }
    }

    fn checked(self) -> Result<Choice> {
        let Choice::Cuda(ordinal) = self else { return Ok(self) };
        match gpus() {
            Err(why) => Err(Error::usage(format!("--device cuda: {why}"))),
            Ok(count) if ordinal >= count => {
                Err(Error::usage(format!("--device cuda:{ordinal}: there are {count} GPUs, counted from 0")))
            }
            Ok(_) => Ok(self),
        }
    }

    /// The number of the GPU, if it is one.
    pub fn gpu(self) -> Option<usize> {
        match self {
            Choice::Cpu => None,
            Choice::Cuda(n) => Some(n),
        }
    }

    /// As records name it.
    pub fn kind(self) -> &'static str {
        match self {
            Choice::Cpu => "cpu",
            Choice::Cuda(_) => "cuda",
        }
    }

    /// As it is typed.
    pub fn word(self) -> String {
        match self {
            Choice::Cpu => "cpu".into(),
            Choice::Cuda(n) => format!("cuda:{n}"),
        }
    }

    /// Without opening it.
    pub fn id(self) -> Result<DeviceId> {
        match self {
            Choice::Cpu => Ok(Cpu::new(&env::cpu_name()).id()),
            Choice::Cuda(n) => {
                let failed = |f: Fault| Error::own(f.message);
                let driver = Driver::get().map_err(Error::own)?;
                let name = driver.device_name(n as i32).map_err(failed)?;
                Ok(DeviceId { kind: "cuda".into(), name, id: driver.device_uuid(n as i32).map_err(failed)? })
            }
        }
    }

    /// The GPU's architecture, such as `sm_90a`; none for a CPU.
    pub fn arch(self) -> Option<String> {
        let Choice::Cuda(n) = self else { return None };
        Driver::get().ok()?.arch(n as i32).ok()
    }

    /// Bytes of a GPU's L2 cache.
    pub fn cache_bytes(self) -> Option<u64> {
        let Choice::Cuda(n) = self else { return None };
        Driver::get().ok()?.l2_bytes(n as i32).ok()
    }

    /// For a worker.
    pub fn open(self) -> std::result::Result<Box<dyn Device>, Fault> {
        match self {
            Choice::Cpu => Ok(Box::new(Cpu::new(&env::cpu_name()))),
            Choice::Cuda(n) => Ok(Box::new(Cuda::open(n, kernel_cache(), kmark_ops::headers())?)),
        }
    }
}

/// How many GPUs the driver knows; `Err` says why there is no driver.
pub fn gpus() -> std::result::Result<usize, String> {
    Driver::get()?.device_count().map_err(|f| f.message)
}

/// Where compiled kernels are kept.
pub fn kernel_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let ours = set("KMARK_CACHE").or_else(|| set("XDG_CACHE_HOME").map(|c| c.join("kmark")));
    ours.or_else(|| set("HOME").map(|h| h.join(".cache/kmark"))).map(|c| c.join("kernels"))
}
