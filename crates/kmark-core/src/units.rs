//! Numbers as people write and read them: durations, percentages, bytes, rates.

use std::time::Duration;

/// `2s`, `25ms`, `100us`, `1m`.
pub fn parse_duration(word: &str) -> Result<Duration, String> {
    let split = word.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(word.len());
    let (number, unit) = word.split_at(split);
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(format!("'{word}' is not a duration; write it like 2s, 25ms or 100us")),
    };
    match number.parse::<f64>() {
        Ok(n) if n > 0.0 && n * scale <= 86_400.0 => Ok(Duration::from_secs_f64(n * scale)),
        _ => Err(format!("'{word}' is not a duration between 1ns and 24 hours")),
    }
}

/// `0.5%` or `0.005`.
pub fn parse_fraction(word: &str) -> Result<f64, String> {
    let (number, scale) = word.strip_suffix('%').map_or((word, 1.0), |n| (n, 0.01));
    match number.trim().parse::<f64>() {
        Ok(n) if n > 0.0 && n * scale < 1.0 => Ok(n * scale),
        _ => Err(format!("'{word}' is not a percentage between 0% and 100%; write it like 0.5%")),
    }
}

/// `60MiB`, `1GiB`, `500KiB`, or plain bytes.
pub fn parse_bytes(word: &str) -> Result<u64, String> {
    let split = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let (number, unit) = word.split_at(split);
    let scale = match unit {
        "" | "B" => 1u64,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(format!("'{word}' is not a size; write it like 60MiB or 1GiB")),
    };
    match number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(scale)) {
        Some(n) if n > 0 => Ok(n),
        _ => Err(format!("'{word}' is not a size; write it like 60MiB or 1GiB")),
    }
}

/// Three significant digits with a unit that keeps them readable.
pub fn time(ns: f64) -> String {
    scaled(ns, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")])
}

/// A time to wait for: `45 s`, `34 min`, `2 h 5 min`.
pub fn long(ns: u64) -> String {
    let (seconds, minutes) = (ns.div_ceil(1_000_000_000), ns.div_ceil(60_000_000_000));
    match minutes {
        _ if seconds < 100 => format!("{seconds} s"),
        m if m < 100 => format!("{m} min"),
        m => format!("{} h {} min", m / 60, m % 60),
    }
}

pub fn bytes(n: u64) -> String {
    const KIB: f64 = 1024.0;
    scaled(n as f64, &[(KIB.powi(4), "TiB"), (KIB.powi(3), "GiB"), (KIB.powi(2), "MiB"), (KIB, "KiB"), (1.0, "B")])
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (size, unit) = units.iter().find(|(size, _)| value >= *size).unwrap_or(&units[units.len() - 1]);
    format!("{} {unit}", digits(value / size))
}

/// Three significant digits, no exponent.
pub fn digits(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 || a == 0.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    }
}

/// Bytes per second.
pub fn rate(per_second: f64) -> String {
    scaled(per_second, &[(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")])
}

pub fn flops(per_second: f64) -> String {
    scaled(per_second, &[(1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")])
}

pub fn percent(fraction: f64) -> String {
    format!("{} %", digits(100.0 * fraction))
}

/// The smallest difference a comparison sees; beyond a factor of two the exact size says nothing.
pub fn sees(fraction: f64) -> String {
    if fraction > 1.0 { "> 100 %".into() } else { percent(fraction) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_fractions() {
        assert_eq!(parse_duration("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(parse_duration("5").is_err() && parse_duration("-1s").is_err() && parse_duration("1e9s").is_err());
        assert_eq!(parse_fraction("0.5%"), Ok(0.005));
        assert_eq!(parse_fraction("0.01"), Ok(0.01));
        assert!(parse_fraction("0").is_err() && parse_fraction("150%").is_err() && parse_fraction("x").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("60MiB"), Ok(60 << 20));
        assert_eq!(parse_bytes("512"), Ok(512));
        for wrong in ["", "0", "60MB", "-1MiB", "1.5GiB", "99999999999GiB", "MiB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn readable_numbers() {
        assert_eq!(time(1234.0), "1.23 µs");
        assert_eq!(time(12_340_000.0), "12.3 ms");
        assert_eq!(time(0.5), "0.500 ns");
        assert_eq!(bytes(3 << 30), "3.00 GiB");
        assert_eq!(percent(0.0123), "1.23 %");
    }
}
