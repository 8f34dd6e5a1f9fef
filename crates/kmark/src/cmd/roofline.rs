//! `kmark roofline`: the machine's limits, each with the impl that reached it and the state of the device meanwhile.

use super::progress::Progress;
use super::{print, to_json};
use crate::cli::RooflineArgs;
use crate::device::Choice;
use crate::error::{Error, Result};
use crate::host::Workers;
use crate::roofs::{self, Limit, PATTERNS, Scale};
use crate::units;
use kmark_core::cost::Factors;
use kmark_core::dtype::DType::{Bf16, F8e4m3, F16, F32, F64};
use serde_json::json;

pub fn run(args: RooflineArgs) -> Result<u8> {
    let device = Choice::parse(&args.device)?;
    let parse = |word: &String| Factors::try_from(word.clone());
    let products = match args.dtype.is_empty() {
        true if device == Choice::Cpu => [F32, F64].map(Factors::Of).to_vec(),
        true => [Bf16, F16, F8e4m3, F32, F64].map(Factors::Of).into_iter().chain([Factors::Tf32]).collect(),
        false => args.dtype.iter().map(parse).collect::<std::result::Result<_, _>>().map_err(Error::usage)?,
    };
    let mut progress = Progress::new(vec![1; PATTERNS.len() + products.len()], args.quiet || args.json);
    let mut workers = Workers::new(device, true);
    workers.start(device.kind())?; // it tells how much memory there is
    let scale = Scale::of(&workers);
    let mut found: Vec<(String, &str, Limit)> = Vec::new();
    for kind in PATTERNS {
        progress.now(kind);
        let limit = roofs::pattern(&mut workers, kind, scale);
        let limit = limit.map_err(|why| Error::own(format!("the {kind} roof could not be measured: {why}")))?;
        progress.done(|| format!("{kind}  {}", units::rate(limit.rate)));
        found.push((kind.to_string(), "B/s", limit));
    }
    for factors in products {
        progress.now(&format!("{factors} product"));
        match roofs::product(&mut workers, factors, scale) {
            Ok(limit) => {
                progress.done(|| format!("{factors} product  {}", units::flops(limit.rate)));
                found.push((format!("{factors} product"), "FLOP/s", limit));
            }
            Err(why) => progress.done(|| format!("{factors} product  not measured: {why}")),
        }
    }
    progress.end();
    if args.json {
        let list: Vec<_> = found
            .iter()
            .map(|(what, unit, limit)| {
                let mut value = serde_json::to_value(limit).expect("plain data");
                value["what"] = json!(what);
                value["unit"] = json!(unit);
                value
            })
            .collect();
        print(&to_json(&json!({"device": device.id()?, "limits": list})))?;
    } else {
        print(&words(&device, &found)?)?;
    }
    Ok(0)
}

fn words(device: &Choice, found: &[(String, &str, Limit)]) -> Result<String> {
    let mut text = format!("{}\n", device.id()?.name);
    let width = found.iter().map(|(what, ..)| what.len()).max().unwrap_or(0);
    for (what, unit, l) in found {
        let rate = if *unit == "B/s" { units::rate(l.rate) } else { units::flops(l.rate) };
        let mut state: Vec<String> = Vec::new();
        state.extend(l.clock_mhz.map(|mhz| format!("{mhz:.0} MHz")));
        if let Some(c) = &l.conditions {
            state.push(format!("{:.0} W, {:.0} °C", c.power_w, c.temperature_c));
            if !c.throttled.is_empty() {
                state.push(format!("held down by {}", c.throttled.join(", ")));
            }
        }
        text.push_str(&format!("{what:width$}  {rate:>13}  {:<16} {:<28} {}\n", l.impl_name, l.case, state.join(", ")));
    }
    Ok(text)
}
