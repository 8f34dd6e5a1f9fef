//! Times that this machine cannot have taken.

use crate::device::Choice;
use crate::host::Workers;
use crate::roofs::{Scale, again};
use crate::units;
use kmark_core::cost::{Factors, Roofs};
use kmark_core::record::{Mode, Record, Status};

/// A CPU may do so many times what it was measured to do, when others leave it alone later.
const CPU_ROOF_MOVES: f64 = 2.0;

/// What the work takes at the least, if the record claims less: its times are no times of this work. In a cache there is
/// no memory to be limited by.
fn least_possible_ns(roofs: &Roofs, record: &Record) -> Option<f64> {
    let time = record.time().filter(|_| record.mode == Mode::Cold)?;
    // What a CPU was measured to do moves with its neighbours.
    let margin = if record.device.kind == "cpu" { CPU_ROOF_MOVES } else { 1.0 };
    let least_ns = 1e9 * roofs.impossible_seconds(&record.cost, Factors::of(record.dtype?, &record.attrs)) / margin;
    (time.hi < least_ns).then_some(least_ns)
}

/// The records of one case. Before anybody is accused the machine gets another chance, because a limit is what it can do
/// undisturbed.
pub fn hold_all_against(roofs: &mut Roofs, workers: &mut Workers, records: &mut [Record]) {
    let suspect = |roofs: &Roofs, records: &[Record]| {
        records.iter().find(|r| least_possible_ns(roofs, r).is_some()).map(|r| r.cost)
    };
    if suspect(roofs, records).is_none() {
        return;
    }
    let scale = Scale::of(workers);
    *roofs = again(workers, roofs, scale);
    // A CPU that is never left alone for long has quiet moments, in which a small case fits and the roofs do not.
    let near = match (workers.device(), suspect(roofs, records)) {
        (Choice::Cpu, Some(cost)) => again(workers, roofs, scale.like(&cost)),
        _ => roofs.clone(),
    };
    records.iter_mut().for_each(|record| hold_against(&near, record));
}

fn hold_against(roofs: &Roofs, record: &mut Record) {
    if let (Some(least_ns), Some(time)) = (least_possible_ns(roofs, record), record.time()) {
        let (is, least) = (units::time(time.value), units::time(least_ns));
        record.status = Status::Impossible;
        record.message = format!("takes {is}, and this machine cannot do the work in less than {least}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmark_core::run::Run;

    #[test]
    fn a_time_beyond_the_roof_is_a_failure_that_keeps_its_samples() {
        let run: Run = serde_json::from_str(include_str!("../tests/data/run/run.json")).unwrap();
        let line = include_str!("../tests/data/run/records.jsonl").lines().next().unwrap();
        let mut record: Record = serde_json::from_str(line).unwrap();
        let roofs = run.roofs.unwrap();
        hold_against(&roofs, &mut record);
        assert_eq!(record.status, Status::Ok);
        record.samples_ns.fill(2e5); // 16.8 MB at 40 GB/s take 420 µs, and a CPU may be twice as fast
        for (mode, status) in [(Mode::Hot, Status::Ok), (Mode::Cold, Status::Impossible)] {
            record.mode = mode;
            hold_against(&roofs, &mut record);
            assert_eq!(record.status, status);
        }
        assert_eq!(record.message, "takes 200 µs, and this machine cannot do the work in less than 208 µs");
        assert_eq!(record.validate(), Ok(()));
        assert!(record.status.is_failure() && !record.status.is_comparable());
    }
}
