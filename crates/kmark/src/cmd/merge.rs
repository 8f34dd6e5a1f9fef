//! `kmark merge`: several runs into one folder.

use super::{print, say};
use crate::cli::MergeArgs;
use crate::error::Result;
use crate::merge::{merge, other_code, write};

pub fn run(args: MergeArgs) -> Result<u8> {
    let merged = merge(&args.runs)?;
    write(&merged, &args.out)?;
    let differs = other_code(&merged);
    if !differs.is_empty() {
        let names: Vec<&str> = differs.into_iter().collect();
        say(&format!("these have other code in other runs: {}", names.join(", ")));
    }
    let mut text = String::new();
    for (name, one) in &merged {
        let driver = one.run().environment.get("driver").map(|d| format!(", driver {d}")).unwrap_or_default();
        text.push_str(&format!("{name}: {}{driver}, {} records\n", one.run().device.name, one.count()));
    }
    text.push_str(&format!("{} runs in {}\n", merged.len(), args.out.display()));
    print(&text)?;
    Ok(0)
}
