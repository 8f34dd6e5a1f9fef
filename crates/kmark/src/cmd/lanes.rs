//! The devices of a run at work: one thread and one set of workers for each, cases handed to whoever is free. Limits are
//! those of the device. A GPU that stops working ends the case it was at; the others go on with the rest.
//!
//! A worker dies with the thread that started it, so a lane prepares and measures in one thread.

use super::progress::Progress;
use crate::bench::{Bench, Deadlines};
use crate::device::Choice;
use crate::error::{CASE_FAILED, Error, Result};
use crate::host::Workers;
use crate::log::Log;
use crate::plan::{Plan, Planned};
use crate::{python, roofs};
use kmark_core::record::{Record, Status, family};
use kmark_core::run::{Gpu, Phases, Settings};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What all lanes know.
pub struct Lanes<'a> {
    pub plan: &'a Plan,
    pub settings: &'a Settings,
    pub deadline: Option<Duration>,
    pub with_roofs: bool,
    pub log: Arc<Log>,
    progress: Mutex<Progress>,
    /// The next case that nobody has.
    next: AtomicUsize,
    stop: AtomicBool,
    /// GPUs that no longer work, and why.
    lost: Mutex<Vec<String>>,
}

/// What a lane tells, in this order: it is ready, a case at a time, where its time went.
pub enum Event<'a> {
    Ready(Gpu),
    Case(&'a Planned, Vec<Record>),
    End(Gpu, Phases),
}

type Told<'a> = Sender<Result<Event<'a>>>;

impl<'a> Lanes<'a> {
    pub fn new(
        plan: &'a Plan,
        settings: &'a Settings,
        deadline: Option<Duration>,
        with_roofs: bool,
        log: Arc<Log>,
        progress: Progress,
    ) -> Lanes<'a> {
        let (progress, next, stop) = (Mutex::new(progress), AtomicUsize::new(0), AtomicBool::new(false));
        Lanes { plan, settings, deadline, with_roofs, log, progress, next, stop, lost: Mutex::default() }
    }

    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Runs all cases. `gpus` is what is known of each device. The first error ends the run, when the others have finished
    /// the case that they are at.
    pub fn run(&self, gpus: &[Gpu], mut hear: impl FnMut(Event) -> Result<()>) -> Result<()> {
        let mut done = Ok(());
        std::thread::scope(|scope| {
            let (told, events) = channel();
            for (at, gpu) in gpus.iter().enumerate() {
                let (told, gpu) = (told.clone(), gpu.clone());
                scope.spawn(move || self.lane(at, gpu, told));
            }
            drop(told);
            for event in events {
                let heard = event.and_then(&mut hear);
                if let (Err(e), true) = (heard, done.is_ok()) {
                    self.stop.store(true, Ordering::Relaxed);
                    done = Err(e);
                }
            }
        });
        done?;
        let left = self.plan.items.len().saturating_sub(self.next.load(Ordering::Relaxed));
        let lost = self.lost.lock().unwrap_or_else(|e| e.into_inner()).join("; ");
        match left {
            0 => Ok(()),
            // Nothing is recorded of these: whoever goes on with the run, or with the shard elsewhere, measures them.
            _ => {
                Err(Error { code: CASE_FAILED, message: format!("no GPU is left, {left} cases were not run: {lost}") })
            }
        }
    }

    fn lane(&self, at: usize, mut gpu: Gpu, told: Told<'a>) {
        let mut workers = Workers::new(self.plan.devices[at], true);
        workers.log = Some(Arc::clone(&self.log));
        let mut phases = Phases::default();
        // Who listens ends only after us.
        let tell = |event| drop(told.send(event));
        match self.prepare(&mut workers, &mut gpu, &mut phases) {
            Ok(()) => tell(Ok(Event::Ready(gpu.clone()))),
            // Others may work.
            Err(e) if self.plan.devices.len() > 1 => workers.lost = Some(e.message),
            Err(e) => return tell(Err(e)),
        }
        while workers.lost.is_none() && !self.stop.load(Ordering::Relaxed) {
            let Some(planned) = self.plan.items.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let deadlines = Deadlines::of(self.deadline);
            let roofs = gpu.roofs.take();
            let mut bench = Bench { workers: &mut workers, settings: self.settings, deadlines, roofs, phases };
            let new = bench.case(planned, |imp, records| {
                if at == 0 {
                    self.progress().live(&planned.case.id, imp, records, self.settings.rounds);
                }
            });
            (phases, gpu.roofs) = (bench.phases, bench.roofs);
            let crashed = new.iter().any(|r| r.status == Status::Crashed);
            tell(Ok(Event::Case(planned, new)));
            if crashed {
                workers.look_after();
            }
        }
        if let Some(why) = &workers.lost {
            let line = format!("{} ({}) does not work: {why}", gpu.device.name, gpu.device.id);
            self.progress().note(&line);
            self.lost.lock().unwrap_or_else(|e| e.into_inner()).push(line);
        }
        phases.start_ns += workers.start_time.as_nanos() as u64;
        phases.worker_ns += workers.busy.as_nanos() as u64;
        tell(Ok(Event::End(gpu, phases)));
    }

    /// Starts the workers, which calibrate themselves, and measures once per run the roofs that are not known.
    fn prepare(&self, workers: &mut Workers, gpu: &mut Gpu, phases: &mut Phases) -> Result<()> {
        let names = self.plan.items.iter().flat_map(|p| p.impls.iter().map(|i| family(i.name())));
        let mut families: Vec<String> = names.collect();
        families.sort();
        families.dedup();
        for f in &families {
            self.progress().now(&format!("starting {f}"));
            // Without its interpreter or library a family of Python's is unavailable, case by case; others must start.
            workers.start(f).or_else(|e| if python::runs(f) { Ok(()) } else { Err(e) })?;
        }
        if workers.hellos.is_empty() {
            workers.start(workers.device().kind())?; // somebody must say what the device is
        }
        let hello = workers.hellos.values().next().expect("a plan has impls");
        gpu.calibration = hello.calibration.clone();
        if gpu.roofs.is_none() && !self.with_roofs {
            gpu.no_roofs = Some("--no-roofs".into());
        } else if self.with_roofs && roofs::are_lacking(gpu.roofs.as_ref(), self.plan) {
            let (start, budget) = (Instant::now(), Duration::from_nanos(self.settings.budget_ns));
            self.progress().now("roofs");
            let measured = roofs::measure(workers, gpu.roofs.take(), self.plan, budget);
            (gpu.roofs, gpu.no_roofs) = measured.map_or_else(|why| (None, Some(why)), |roofs| (Some(roofs), None));
            gpu.no_roofs.iter().for_each(|why| self.progress().note(&format!("no roofs: {why}")));
            phases.roofs_ns += start.elapsed().as_nanos() as u64;
        }
        Ok(())
    }
}

/// What a run knows of its devices: those of its run.json, where it is resumed.
pub fn known(run: &kmark_core::run::Run, devices: &[Choice]) -> Result<Vec<Gpu>> {
    let bare = |device| Gpu { device, calibration: None, roofs: None, no_roofs: None };
    if let [_] = devices {
        let (roofs, no_roofs) = (run.roofs.clone(), run.no_roofs.clone());
        return Ok(vec![Gpu { roofs, no_roofs, ..bare(run.device.clone()) }]);
    }
    let one = |d: &Choice| {
        let id = d.id()?;
        Ok(run.gpus.iter().find(|g| g.device == id).cloned().unwrap_or_else(|| bare(id)))
    };
    devices.iter().map(one).collect()
}

/// Puts what a lane found out about its device into the run.
pub fn learn(run: &mut kmark_core::run::Run, gpu: Gpu) {
    if gpu.device == run.device {
        (run.calibration, run.roofs, run.no_roofs) = (gpu.calibration.clone(), gpu.roofs.clone(), gpu.no_roofs.clone());
    }
    if let Some(known) = run.gpus.iter_mut().find(|g| g.device == gpu.device) {
        *known = gpu;
    }
}
