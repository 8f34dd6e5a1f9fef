//! Impls that misbehave: they crash, hang, eat memory, talk nonsense to the host, are slower than they look, or cheat
//! (`cheats.rs`). Only tests can select them, by setting KMARK_TEST_FAULTS; nobody meets them otherwise.

use crate::cheats::{self, Cheat};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_device::buffer::Buffers;
use kmark_device::{Device, Fault, Impl, Launch};
use kmark_ops::Entry;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

pub const FAMILY: &str = "fault/";

#[derive(Clone, Copy)]
enum Kind {
    Crash,
    CrashLater,
    Hang,
    Memory,
    Garbage,
    Panic,
    Noise,
    Twin,
    Slow,
    Cheat(Cheat),
}

const KINDS: [(Kind, &str, &str); 24] = [
    (Kind::Crash, "fault/crash", "ends the process"),
    (Kind::CrashLater, "fault/crash-later", "ends the process at the 20th launch"),
    (Kind::Hang, "fault/hang", "never returns"),
    (Kind::Memory, "fault/memory", "allocates without end"),
    (Kind::Garbage, "fault/garbage", "writes to every pipe that it finds"),
    (Kind::Panic, "fault/panic", "panics"),
    (Kind::Noise, "fault/noise", "prints a lot, and is right"),
    (Kind::Twin, "fault/twin", "the op's last impl under another name"),
    (Kind::Twin, "fault/brother", "the same under a third name"),
    (Kind::Slow, "fault/slow", "the same, but every launch takes twice as long, or as KMARK_TEST_FAULTS says: 1.1"),
    (Kind::Cheat(Cheat::Wobbles), "fault/wobbles", "right, but its last bits are never the same"),
    (Kind::Cheat(Cheat::WobblesAtFirst), "fault/wobbles-at-first", "the same, and works at the first launches only"),
    (Kind::Cheat(Cheat::EveryOther), "fault/every-other", "works at every other launch only"),
    (Kind::Cheat(Cheat::AtFirst), "fault/at-first", "works at the first launches only"),
    (Kind::Cheat(Cheat::OnPoison), "fault/on-poison", "works only if the outputs are no numbers"),
    (Kind::Cheat(Cheat::LooksRight), "fault/looks-right", "skips if the outputs look as they did"),
    (Kind::Cheat(Cheat::Half), "fault/half", "leaves half of an output alone after some launches"),
    (Kind::Cheat(Cheat::Hole), "fault/hole", "leaves 64 bytes alone after some launches"),
    (Kind::Cheat(Cheat::Deferred), "fault/deferred", "writes what the last launch computed"),
    (Kind::Cheat(Cheat::Late), "fault/late", "writes from a thread after it has returned"),
    (Kind::Cheat(Cheat::Remembers), "fault/remembers", "slow, but remembers results by a hash of the inputs"),
    (Kind::Cheat(Cheat::KeepsLast), "fault/keeps-last", "slow, but skips the work if the inputs are those of the last"),
    (Kind::Cheat(Cheat::FirstBinding), "fault/first-binding", "works only if it is bound for the first time"),
    (Kind::Cheat(Cheat::LaterBindings), "fault/later-bindings", "works only if it was bound before"),
];

/// Whether the machine's limits are to be measured by `fault/crash` alone.
pub fn spoil_roofs() -> bool {
    std::env::var_os("KMARK_TEST_FAULTS").is_some_and(|v| v == "roofs")
}

/// By what `fault/slow` multiplies its time.
fn slowness() -> f64 {
    static SET: OnceLock<f64> = OnceLock::new();
    *SET.get_or_init(|| {
        let set = std::env::var("KMARK_TEST_FAULTS").ok().and_then(|v| v.parse().ok());
        set.filter(|v| *v > 1.0).unwrap_or(2.0)
    })
}

struct FaultImpl {
    kind: Kind,
    name: &'static str,
    about: &'static str,
    right: &'static dyn Impl,
}

/// The misbehaving impls of an op; none unless a test asked.
pub fn of(entry: &'static Entry, device: &str) -> Vec<&'static dyn Impl> {
    static ASKED: OnceLock<bool> = OnceLock::new();
    if !*ASKED.get_or_init(|| std::env::var_os("KMARK_TEST_FAULTS").is_some()) {
        return Vec::new();
    }
    let Some(right) = entry.cpu.last().copied().filter(|_| device == "cpu") else { return Vec::new() };
    KINDS
        .iter()
        .map(|(kind, name, about)| &*Box::leak(Box::new(FaultImpl { kind: *kind, name, about, right })) as &dyn Impl)
        .collect()
}

impl FaultImpl {
    /// Whether this process has bound it to this case before.
    fn is_bound_again(&self, case: &Case) -> bool {
        static BOUND: Mutex<BTreeSet<(&str, String)>> = Mutex::new(BTreeSet::new());
        !BOUND.lock().expect("nobody panics in here").insert((self.name, case.id.clone()))
    }
}

impl Impl for FaultImpl {
    fn name(&self) -> &str {
        self.name
    }
    fn about(&self) -> std::borrow::Cow<'_, str> {
        self.about.into()
    }
    fn hash(&self) -> String {
        self.right.hash()
    }
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String> {
        self.right.supports(op, case)
    }
    fn bind(
        &self,
        device: &dyn Device,
        op: &'static Op,
        case: &Case,
        buffers: &Buffers,
    ) -> Result<Box<dyn Launch>, Fault> {
        let mut right = self.right.bind(device, op, case, buffers)?;
        if let Kind::Cheat(cheat) = self.kind {
            return Ok(cheats::launch(cheat, self.is_bound_again(case), right, buffers));
        }
        let (kind, mut launches) = (self.kind, 0u32);
        Ok(Box::new(move || {
            let start = Instant::now();
            right.launch().expect("CPU impls do not fail");
            launches += 1;
            match kind {
                Kind::Twin | Kind::Cheat(_) => {}
                Kind::Slow => {
                    let until = start.elapsed().mul_f64(slowness());
                    while start.elapsed() < until {
                        std::hint::spin_loop();
                    }
                }
                Kind::Crash => std::process::abort(),
                Kind::CrashLater if launches >= 20 => std::process::abort(),
                Kind::CrashLater => {}
                Kind::Hang => loop {
                    std::thread::sleep(Duration::from_secs(3600));
                },
                Kind::Memory => {
                    let mut hoard = Vec::new();
                    loop {
                        hoard.push(vec![1u8; 64 << 20]);
                    }
                }
                Kind::Garbage => {
                    for number in 3..1000 {
                        let pipe = std::fs::OpenOptions::new().write(true).open(format!("/dev/fd/{number}"));
                        let _ = pipe.and_then(|mut p| p.write_all(b"{\"is\":\"bye\"}\n"));
                    }
                }
                Kind::Panic => panic!("a panic inside an impl"),
                Kind::Noise => {
                    let _ = writeln!(std::io::stdout(), "{}", "noise ".repeat(1000));
                    let _ = writeln!(std::io::stderr(), "{}", "noise ".repeat(1000));
                }
            }
        }))
    }
}
