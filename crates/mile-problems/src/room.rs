//! The memory of this machine, of this process, and what would not fit.

use std::fmt::Display;

use crate::error::LabError;

/// Where the memory of a machine is not known, nothing larger than this is tried.
const UNKNOWN: u64 = 1 << 40;

/// Bytes of memory that this machine has for this process, if the system says so: all, or the limit of its container.
pub fn of_machine() -> Option<u64> {
    let all = kilobytes("/proc/meminfo", "MemTotal");
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    match (all, limit) {
        (Some(all), Some(limit)) => Some(all.min(limit)),
        (all, limit) => all.or(limit),
    }
}

/// The most bytes of memory that this process has had so far, if the system says so.
pub fn peak() -> Option<u64> {
    kilobytes("/proc/self/status", "VmHWM")
}

/// The bytes in a line such as `MemTotal:  16384 kB` of a file.
fn kilobytes(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Refuses the value of a key for which `what` would need more bytes than this machine has.
pub fn check(
    key: impl Into<String>,
    expected: &str,
    got: impl Display,
    what: &str,
    bytes: f64,
) -> Result<(), LabError> {
    let all = of_machine();
    if bytes <= all.unwrap_or(UNKNOWN) as f64 {
        return Ok(());
    }
    let here = all.map_or("less".into(), |all| words(all as f64));
    let why = format!("{what} would need {} of memory, and this machine has {here}", words(bytes));
    Err(LabError::expected(key, format!("{expected}; {why}"), got))
}

/// A number of bytes in words, such as `1.5 GB`.
pub fn words(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    // 999.5 of a unit is shown as 1 of the next.
    let power = (0..UNITS.len() - 1).find(|power| bytes < 999.5 * 1e3_f64.powi(*power as i32));
    let power = power.unwrap_or(UNITS.len() - 1);
    let number = bytes / 1e3_f64.powi(power as i32);
    let digits = if number < 9.95 && power > 0 { 1 } else { 0 };
    format!("{number:.digits$} {}", UNITS[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_two_or_three_digits_and_a_unit() {
        let cases =
            [(0.0, "0 B"), (999.0, "999 B"), (1234.0, "1.2 kB"), (9.96e6, "10 MB"), (999.6e6, "1.0 GB")];
        for (bytes, text) in cases.into_iter().chain([(4.56e10, "46 GB"), (3e21, "3000 EB")]) {
            assert_eq!(words(bytes), text);
        }
    }

    #[test]
    fn what_no_machine_has_is_refused_with_what_it_would_need() {
        let with = |bytes: f64| check("problem.dim", "a smaller dimension", 10, "a vector", bytes);
        with(80.0).unwrap();
        let error = with(1e18).unwrap_err();
        assert!(matches!(&error, LabError::Config(error) if error.key == "problem.dim"), "{error}");
        assert!(error.to_string().contains("1.0 EB"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_had_less_than_the_machine_has() {
        assert!(peak().unwrap() > 1 << 20 && peak().unwrap() < of_machine().unwrap());
    }
}
