//! CSV: one line per record, numbers plain, for spreadsheets and scripts.

use super::rows::{Row, rows};
use super::{Options, RunData};

const HEADER: [&str; 28] = [
    "run",
    "case",
    "op",
    "dtype",
    "impl",
    "device",
    "mode",
    "status",
    "contract",
    "grade",
    "worst_error",
    "time_ns",
    "lo_ns",
    "hi_ns",
    "median_ns",
    "mad_ns",
    "p05_ns",
    "p95_ns",
    "samples",
    "gb_per_s",
    "gflop_per_s",
    "of_roof",
    "clock_mhz",
    "baseline",
    "speedup",
    "verdict",
    "visible",
    "message",
];

pub fn render(runs: &[RunData], options: &Options) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    let mut put = |fields: &[String]| out.write_record(fields).expect("a vector grows");
    put(&HEADER.map(String::from));
    for run in runs {
        for r in rows(run, options) {
            put(&fields(&r));
        }
    }
    String::from_utf8(out.into_inner().expect("a vector takes everything")).expect("fields are text")
}

fn fields(r: &Row) -> Vec<String> {
    let words = [&r.run, &r.case, &r.op, r.dtype, &r.impl_name, &r.device, r.mode, r.status, &r.contract];
    let mut out: Vec<String> = words.iter().map(|w| w.to_string()).collect();
    out.push(r.grade.map_or("", |g| g.word()).to_string());
    out.push(r.worst_error.map(|w| format!("{w:.3}")).unwrap_or_default());
    match &r.time {
        None => out.extend((0..12).map(|_| String::new())),
        Some(t) => {
            out.extend(
                [t.time_ns, t.lo_ns, t.hi_ns, t.median_ns, t.mad_ns, t.p05_ns, t.p95_ns].map(|v| format!("{v:.1}")),
            );
            out.push(t.samples.to_string());
            out.extend([t.gb_per_s, t.gflop_per_s].map(|v| format!("{v:.4}")));
            out.push(t.of_roof.map(|v| format!("{v:.4}")).unwrap_or_default());
            out.push(t.clock_mhz.map(|v| format!("{v:.0}")).unwrap_or_default());
        }
    }
    match &r.against {
        None => out.extend((0..4).map(|_| String::new())),
        Some(a) => {
            let c = &a.comparison;
            out.extend([a.baseline.clone(), format!("{:.4}", c.speedup), c.verdict.word().to_string()]);
            out.push(c.visible.map(|v| format!("{v:.4}")).unwrap_or_default());
        }
    }
    out.push(r.message.clone());
    out
}
