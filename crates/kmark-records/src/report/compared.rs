//! Two sides of runs as a table, as Markdown for a pull request, as JSON.

use super::Options;
use super::against::mark;
use super::markdown::cell;
use super::table::{clean, paint, table};
use crate::compare::{Compared, Outcome, Row};
use crate::units;
use comfy_table::{Cell, Color};

pub const FORMATS: [&str; 3] = ["table", "markdown", "json"];

pub fn render(format: &str, compared: &Compared, options: &Options) -> String {
    match format {
        "json" => serde_json::to_string_pretty(compared).expect("rows are plain data") + "\n",
        "markdown" => markdown(compared),
        _ => terminal(compared, options),
    }
}

const HEADER: [&str; 7] = ["case", "impl", "base", "new", "ratio", "between", "verdict"];

fn terminal(compared: &Compared, options: &Options) -> String {
    let mut text = String::new();
    for d in &compared.differences {
        text.push_str(&(clean(&format!("{}: {} -> {}", d.what, d.base, d.new)).replace('\n', " ") + "\n"));
    }
    if !compared.differences.is_empty() {
        text.push('\n');
    }
    let mut last = "";
    let lines = compared.rows.iter().map(|r| {
        let case = if std::mem::replace(&mut last, &r.case) == r.case { "" } else { &r.case };
        let mut cells: Vec<Cell> = [case, &r.impl_name].into_iter().map(|word| Cell::new(clean(word))).collect();
        cells.extend(numbers(r).into_iter().map(Cell::new));
        cells.push(paint(&clean(&verdict(r)).replace('\n', " "), options, |c| match r.outcome {
            Outcome::Faster | Outcome::Mended => c.fg(Color::Green),
            Outcome::Slower | Outcome::Broken => c.fg(Color::Red),
            _ => c.fg(Color::DarkGrey),
        }));
        cells
    });
    text.push_str(&table(&HEADER, 2..6, lines, options));
    text.push_str(&format!("\n{}\n", summary(compared)));
    text
}

fn markdown(compared: &Compared) -> String {
    let mut text = format!("**{}**\n", summary(compared));
    if !compared.differences.is_empty() {
        text.push_str("\n| differs | base | new |\n|---|---|---|\n");
        for d in &compared.differences {
            text.push_str(&format!("| {} | {} | {} |\n", cell(&d.what), cell(&d.base), cell(&d.new)));
        }
    }
    text.push_str(&format!("\n| {} |\n|---|---|---|---|---|---|---|\n", HEADER.join(" | ")));
    for r in &compared.rows {
        let [base, new, ratio, between] = numbers(r);
        let words = [&r.case, &r.impl_name, &base, &new, &ratio, &between, &verdict(r)].map(|w| cell(w));
        text.push_str(&format!("| {} |\n", words.join(" | ")));
    }
    text
}

fn numbers(r: &Row) -> [String; 4] {
    let time = |ns: Option<f64>| ns.map(units::time).unwrap_or_default();
    let (ratio, between) = match &r.comparison {
        None => Default::default(),
        Some(c) => (
            format!("{}×{}", units::digits(c.speedup), mark(r.same_contract, r.same_grade)),
            format!("{} to {}", units::digits(c.lo), units::digits(c.hi)),
        ),
    };
    [time(r.base_ns), time(r.new_ns), ratio, between]
}

fn verdict(r: &Row) -> String {
    let sees = r.comparison.as_ref().and_then(|c| c.visible).map(|v| format!("sees {}", units::sees(v)));
    let note = if r.note.is_empty() { sees } else { Some(r.note.clone()) };
    note.map_or(r.outcome.word().into(), |note| format!("{} ({note})", r.outcome.word()))
}

fn summary(compared: &Compared) -> String {
    let all = [
        Outcome::Broken,
        Outcome::Slower,
        Outcome::Faster,
        Outcome::Same,
        Outcome::Ambiguous,
        Outcome::Missing,
        Outcome::New,
        Outcome::Mended,
    ];
    let count = |o: Outcome| compared.rows.iter().filter(|r| r.outcome == o).count();
    let counts: Vec<String> =
        all.into_iter().filter(|o| count(*o) > 0).map(|o| format!("{} {}", count(o), o.word())).collect();
    let regressions = compared.rows.iter().filter(|r| r.regression).count();
    let end = match regressions {
        0 => "no regression".to_string(),
        1 => "1 regression".to_string(),
        n => format!("{n} regressions"),
    };
    format!("{} rows: {}; {end}", compared.rows.len(), counts.join(", "))
}
