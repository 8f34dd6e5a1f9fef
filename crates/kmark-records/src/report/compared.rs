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

const HEADER: [&str; 8] = ["case", "impl", "on", "base", "new", "ratio", "between", "verdict"];

/// The columns that say something: which GPU, only where a case and impl have several.
fn shown(compared: &Compared) -> Vec<usize> {
    let several = compared.rows.iter().any(|r| r.on.is_some());
    (0..HEADER.len()).filter(|at| HEADER[*at] != "on" || several).collect()
}

fn terminal(compared: &Compared, options: &Options) -> String {
    let mut text = String::new();
    for d in &compared.differences {
        text.push_str(&(clean(&format!("{}: {} -> {}", d.what, d.base, d.new)).replace('\n', " ") + "\n"));
    }
    if !compared.differences.is_empty() {
        text.push('\n');
    }
    let mut last = "";
    let columns = shown(compared);
    let lines = compared.rows.iter().map(|r| {
        let case = if std::mem::replace(&mut last, &r.case) == r.case { "" } else { &r.case };
        let mut words = words(r);
        words[0] = case.into();
        let cell = |at: &usize| match HEADER[*at] {
            "verdict" => paint(&clean(&words[*at]).replace('\n', " "), options, |c| match r.outcome {
                Outcome::Faster | Outcome::Mended => c.fg(Color::Green),
                Outcome::Slower | Outcome::Broken => c.fg(Color::Red),
                _ => c.fg(Color::DarkGrey),
            }),
            _ => Cell::new(clean(&words[*at])),
        };
        columns.iter().map(cell).collect()
    });
    let header: Vec<&str> = columns.iter().map(|at| HEADER[*at]).collect();
    let numbers = columns.len() - 5..columns.len() - 1;
    text.push_str(&table(&header, numbers, lines, options));
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
    let columns = shown(compared);
    let line = |words: Vec<String>| format!("| {} |\n", words.join(" | "));
    let of = |words: [String; 8]| columns.iter().map(|at| words[*at].clone()).collect();
    text.push_str(&format!("\n{}|{}\n", line(of(HEADER.map(String::from))), "---|".repeat(columns.len())));
    for r in &compared.rows {
        text.push_str(&line(of(words(r).map(|w| cell(&w)))));
    }
    text
}

/// What stands in the columns of a row.
fn words(r: &Row) -> [String; 8] {
    let time = |ns: Option<f64>| ns.map(units::time).unwrap_or_default();
    let (ratio, between) = match &r.comparison {
        None => Default::default(),
        Some(c) => (
            format!("{}×{}", units::digits(c.speedup), mark(r.same_contract, r.same_grade)),
            format!("{} to {}", units::digits(c.lo), units::digits(c.hi)),
        ),
    };
    let [case, name, on] = [r.case.clone(), r.impl_name.clone(), r.on.clone().unwrap_or_default()];
    [case, name, on, time(r.base_ns), time(r.new_ns), ratio, between, verdict(r)]
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
