//! How a launch is timed on a GPU, and whether the GPU's timers can be trusted.
//!
//! Cold: memory prepared, cache flushed, then a kernel that holds the stream until the host has enqueued everything, so
//! that no gap between launches enters the interval; stamps of the multiprocessors' clocks stand outside the two events,
//! and behind them what compares the outputs with the known answer.

use super::driver::{Event, Graph, Queue};
use super::memory::Raw;
use super::{Cuda, engine::Engine};
use crate::buffer::{Buffers, POISON_BYTE};
use crate::{Device, Fault, Launch, Sample, Span, Timed};
use kmark_core::record::{Calibration, Mode, Status};
use kmark_core::stats::median;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More launches than this do not fit into a stream's queue while it is held.
const QUEUE: u32 = 256;

pub fn sample(cuda: &Cuda, mut timed: Timed) -> Result<Sample, Fault> {
    let (queue, engine) = (cuda.queue(), cuda.engine());
    (timed.prepare)()?;
    if timed.check.is_some() {
        engine.count_anew()?;
    }
    if matches!(timed.mode, Mode::Cold | Mode::E2e) {
        engine.flush()?;
    }
    if timed.mode == Mode::E2e {
        queue.wait()?;
        let start = Instant::now();
        timed.launch.launch()?;
        queue.wait()?;
        let ns = start.elapsed().as_nanos() as f64;
        timed.launch.witness()?;
        check_after(engine, &mut timed)?;
        queue.wait()?;
        return Ok(Sample { ns, clock_mhz: None, differing: engine.read_back()?.1 });
    }
    let batch = timed.batch.min(QUEUE);
    let hold = Hold::begin(engine)?;
    let (start, stop) = (queue.event()?, queue.event()?);
    engine.stamp(0)?;
    queue.record(&start)?;
    for _ in 0..batch {
        timed.launch.launch()?;
    }
    queue.record(&stop)?;
    engine.stamp(1)?;
    // What settles waits for the device, which is held; and the checks of a graph's many copies may fill its queue. Nothing
    // of a graph is left to run once it is done, so its check can come late.
    let later = timed.launch.settles() || timed.mode == Mode::Graph;
    if !later {
        check_after(engine, &mut timed)?;
    }
    drop(hold);
    queue.wait()?;
    if !engine.was_released() {
        let message = "the launch waits for the device before it returns, so it cannot be timed without its launch gap";
        return Err(Fault::new(Status::Unsupported, message));
    }
    timed.launch.witness()?;
    if later {
        check_after(engine, &mut timed)?;
        queue.wait()?;
    }
    let ns = (start.ns_to(&stop)? - pair_ns(cuda)?).max(SHORTEST_NS);
    let (clock_mhz, differing) = engine.read_back()?;
    Ok(Sample { ns: ns / batch as f64, clock_mhz, differing })
}

/// Enqueues the comparison of the outputs with what they must be, if there is any.
fn check_after(engine: &Engine, timed: &mut Timed) -> Result<(), Fault> {
    let Some(check) = timed.check else { return Ok(()) };
    if timed.launch.settles() {
        timed.launch.settle()?;
    }
    check()?;
    engine.publish()
}

/// No launch is shorter; it keeps a time positive when the timer's steps hide it.
const SHORTEST_NS: f64 = 32.0;

/// What two events cost by themselves: the time between them with nothing in between, which is no kernel's. Measured once.
fn pair_ns(cuda: &Cuda) -> Result<f64, Fault> {
    const TIMES: usize = 51;
    if let Some(known) = cuda.0.pair_ns.get() {
        return Ok(*known);
    }
    let queue = cuda.queue();
    let mut all = Vec::new();
    for _ in 0..TIMES {
        let hold = Hold::begin(cuda.engine())?;
        let (start, stop) = (queue.event()?, queue.event()?);
        queue.record(&start)?;
        queue.record(&stop)?;
        drop(hold);
        queue.wait()?;
        all.push(start.ns_to(&stop)?);
    }
    Ok(*cuda.0.pair_ns.get_or_init(|| median(&all)))
}

/// While the stream is held, nothing that a launch enqueued on it can run: outputs that change meanwhile were written from
/// another stream. And once the stream is done, so must the whole GPU be.
pub fn check_order(cuda: &Cuda, launch: &mut dyn Launch, buffers: &Buffers) -> Result<(), Fault> {
    let Some(returned) = launch.returned() else { return Ok(()) };
    let (queue, engine) = (cuda.queue(), cuda.engine());
    // Memory that was returned last time will be used again: no result may be left in it.
    for span in &returned {
        queue.set(span.address, POISON_BYTE, span.bytes)?;
    }
    queue.wait()?;
    let outputs = buffers.0.iter().filter(|b| b.spec().role.is_output()).filter_map(|b| {
        let address = b.is_on_device().then(|| b.address())?;
        Some(Span { address, bytes: b.spec().bytes() })
    });
    let watched: Vec<Span> = outputs.chain(returned).collect();
    let aside = queue.another()?;
    let look = || watched.iter().map(|span| glimpse(&aside, span)).collect::<Result<Vec<_>, Fault>>();
    let before = look()?;
    let hold = Hold::begin(engine)?;
    launch.launch()?;
    std::thread::sleep(STRAY_TIME);
    let after = look()?;
    drop(hold);
    queue.wait()?;
    if !engine.was_released() {
        return Ok(()); // it waited for the GPU; sampling says so
    }
    if before != after {
        let message = "launches on another stream than the current one, which is the one that is timed";
        return Err(Fault::new(Status::Wrong, message));
    }
    // A host that is busy with other things comes late, too: what a launch does, it does every time.
    for _ in 0..STRAY_TRIES {
        let start = Instant::now();
        queue.wait_for_card()?;
        if start.elapsed() <= STRAY_TIME / 10 {
            return Ok(());
        }
        launch.launch()?;
        queue.wait()?;
    }
    let message = "the current stream was done while another one still worked: the launch does not wait for it";
    Err(Fault::new(Status::Wrong, message))
}

/// How long a launch on another stream is given to show itself.
const STRAY_TIME: Duration = Duration::from_millis(3);
/// How often a launch is seen to leave work behind before it is said to.
const STRAY_TRIES: usize = 5;

/// Some bytes of a piece of memory: its beginning, middle and end.
fn glimpse(queue: &Queue, span: &Span) -> Result<Vec<u8>, Fault> {
    const BYTES: usize = 4096;
    let each = BYTES.min(span.bytes);
    let mut bytes = vec![0; 3 * each];
    for (i, chunk) in bytes.chunks_mut(each.max(1)).enumerate() {
        queue.download(span.address + ((span.bytes - each) / 2 * i) as u64, chunk)?;
    }
    Ok(bytes)
}

/// The stream stands still while this lives; however the scope is left, it goes on.
struct Hold<'a> {
    engine: &'a Engine,
    ticket: u32,
}

impl Hold<'_> {
    fn begin(engine: &Engine) -> Result<Hold<'_>, Fault> {
        thread_local!(static TICKET: Cell<u32> = const { Cell::new(0) });
        let ticket = TICKET.with(|t| {
            t.set(t.get() + 1);
            t.get()
        });
        engine.hold(ticket)?;
        Ok(Hold { engine, ticket })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.engine.release(self.ticket);
    }
}

/// A captured graph as a launch. Its kernels are those of the launch that was captured, so that one lives as long.
pub struct Replay {
    pub queue: Arc<Queue>,
    pub graph: Graph,
    pub launch: Box<dyn Launch>,
}

impl Launch for Replay {
    fn launch(&mut self) -> Result<(), Fault> {
        self.queue.replay(&self.graph)
    }
    fn settle(&mut self) -> Result<(), Fault> {
        self.launch.settle()
    }
    fn settles(&self) -> bool {
        self.launch.settles()
    }
    fn refresh(&mut self) -> Result<(), Fault> {
        self.launch.refresh()
    }
}

/// A launch of known duration is this long: the cost of the events, and of waking up, is less than a thousandth of it.
const KNOWN_NS: u64 = 20_000_000;
/// Measured duration over known one, and event timer over host clock, may be off by this much.
const KNOWN_OFF: f64 = 0.005;
const TIMERS_OFF: f64 = 0.005;
/// Tries before a disturbance counts as a broken clock: on a busy host the thread that waits may be put aside.
const TRIES: usize = 20;

/// What an empty kernel costs between two events; whether a kernel of known duration is measured as such; whether the
/// event timer, the GPU's global timer and the host's clock agree.
pub fn calibrate(cuda: &Cuda) -> Result<Calibration, Fault> {
    let (queue, engine) = (cuda.queue(), cuda.engine());
    let words = Raw::new(queue, 24)?;
    engine.timer_step(words.address)?;
    let clock_step_ns = words.download::<u64>()?[0] as f64;

    let nothing = Buffers(Vec::new());
    let time = |mode: Mode, enqueue: &dyn Fn() -> Result<(), Fault>| {
        let mut launch = Direct(enqueue);
        let prepare = &|| Ok(());
        cuda.sample(Timed { launch: &mut launch, buffers: &nothing, prepare, check: None, mode, batch: 1 })
            .map(|s| s.ns)
    };
    let typical = |mode: Mode, enqueue: &dyn Fn() -> Result<(), Fault>, times: usize| -> Result<f64, Fault> {
        let all = (0..times).map(|_| time(mode, enqueue)).collect::<Result<Vec<f64>, Fault>>()?;
        Ok(median(&all))
    };
    let empty_launch_ns = typical(Mode::Hot, &|| engine.empty(), 100)?;
    // Half a cache full of data, read after a flush and read again.
    let half = || engine.read_half_a_cache();
    half()?;
    let cold_over_hot = typical(Mode::Cold, &half, 11)? / typical(Mode::Hot, &half, 11)?;

    let (mut known_launch_ratio, mut timer_ratio) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TRIES {
        let by_events = time(Mode::Hot, &|| engine.spin(KNOWN_NS, words.address))?;
        let by_timer: Vec<u64> = words.download()?;
        // The spin ends with the first look at the timer after its time is over.
        let known = by_events / (by_timer[1] - by_timer[0]).max(1) as f64;
        // Against the host's clock: so long that starting and waiting do not show.
        let (start, stop): (Event, Event) = (queue.event()?, queue.event()?);
        queue.record(&start)?;
        queue.wait()?;
        let host = Instant::now();
        engine.spin(KNOWN_NS, words.address)?;
        queue.record(&stop)?;
        queue.wait()?;
        let by_host = host.elapsed().as_nanos() as f64;
        let timers = start.ns_to(&stop)? / by_host;
        let nearer = |a: f64, b: f64| if (b - 1.0).abs() < (a - 1.0).abs() { b } else { a };
        known_launch_ratio = nearer(known_launch_ratio, known);
        timer_ratio = nearer(timer_ratio, timers);
        if (known_launch_ratio - 1.0).abs() < KNOWN_OFF && (timer_ratio - 1.0).abs() < TIMERS_OFF {
            let (cold_over_hot, event_pair_ns) = (Some(cold_over_hot), Some(pair_ns(cuda)?));
            return Ok(Calibration {
                clock_step_ns,
                empty_launch_ns,
                empty_call_ns: None,
                event_pair_ns,
                known_launch_ratio,
                timer_ratio,
                cold_over_hot,
            });
        }
    }
    Err(Fault::new(
        Status::Unavailable,
        format!(
            "the GPU's timers cannot be trusted, so nothing is measured: a kernel of known duration took \
             {known_launch_ratio:.4} times as long by events as by the GPU's timer, and events differ from the host's \
             clock by the factor {timer_ratio:.4}"
        ),
    ))
}

/// A function that enqueues, as a launch.
struct Direct<F>(F);

impl<F: FnMut() -> Result<(), Fault>> Launch for Direct<F> {
    fn launch(&mut self) -> Result<(), Fault> {
        (self.0)()
    }
}
