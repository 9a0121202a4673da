//! How numbers are written in a table: plain, with commas, as percentages, dates, times and yes or no.

use chrono::{NaiveDate, NaiveTime, Timelike};

/// How the numbers of a column are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NumberFormat {
    /// 1234.5, as programs write it.
    #[default]
    Plain,
    /// 1,234.5, also with spaces or apostrophes between thousands.
    Thousands,
    /// 1.234,5, also with spaces or apostrophes between thousands.
    DecimalComma,
    /// 12.5%, which is 0.125.
    Percent,
    /// 12,5%, which is 0.125.
    PercentComma,
    /// Yes and no, true and false, on and off, or their first letters: 1 and 0.
    Boolean,
    /// 2026-11-18 or 2026-11-18 12:30:00, in days since the beginning of 1970.
    Date,
    /// 18.11.2026, in days since the beginning of 1970.
    DateDayFirst,
    /// 11/18/2026, in days since the beginning of 1970.
    DateMonthFirst,
    /// 12:30 or 12:30:15, in days.
    Time,
}

impl NumberFormat {
    /// The formats besides the plain one, with their names in experiment files and what they look like.
    pub const NAMED: [(&'static str, Self, &'static str); 9] = [
        ("thousands", Self::Thousands, "1,234.5"),
        ("decimal-comma", Self::DecimalComma, "1.234,5"),
        ("percent", Self::Percent, "12.5%"),
        ("percent-comma", Self::PercentComma, "12,5%"),
        ("boolean", Self::Boolean, "yes"),
        ("date", Self::Date, "2026-11-18 12:30"),
        ("date-day-first", Self::DateDayFirst, "18.11.2026"),
        ("date-month-first", Self::DateMonthFirst, "11/18/2026"),
        ("time", Self::Time, "12:30:15"),
    ];

    /// Its name in experiment files; `plain`, which need not be named, for plain numbers.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, format, _)| *format == self).map_or("plain", |(name, ..)| name)
    }

    /// The number that a text stands for, if it is written in this format; finite unless it is plain.
    pub fn parse(self, text: &str) -> Option<f64> {
        const POINT: [char; 7] = [',', ' ', '\u{a0}', '\u{2009}', '\u{202f}', '\'', '\u{2019}'];
        const COMMA: [char; 7] = ['.', ' ', '\u{a0}', '\u{2009}', '\u{202f}', '\'', '\u{2019}'];
        let text = text.trim();
        match self {
            Self::Plain => text.parse().ok(),
            Self::Thousands => grouped(text, POINT, '.'),
            Self::DecimalComma => grouped(text, COMMA, ','),
            Self::Percent => grouped(text.strip_suffix('%')?.trim_end(), POINT, '.').map(|n| n / 100.0),
            Self::PercentComma => grouped(text.strip_suffix('%')?.trim_end(), COMMA, ',').map(|n| n / 100.0),
            Self::Boolean => boolean(text),
            Self::Date => date(text, |[year, month, day]| (year, month, day)),
            Self::DateDayFirst => date(text, |[day, month, year]| (year, month, day)),
            Self::DateMonthFirst => date(text, |[month, day, year]| (year, month, day)),
            Self::Time => time(text),
        }
    }
}

/// A number whose digits before the decimal mark may be separated into groups of three.
fn grouped(text: &str, separators: [char; 7], decimal: char) -> Option<f64> {
    let text = text.strip_prefix('\u{2212}').map_or_else(|| text.to_owned(), |rest| format!("-{rest}"));
    let sign = if text.starts_with(['+', '-']) { 1 } else { 0 };
    let end = text[sign..].find([decimal, 'e', 'E']).map_or(text.len(), |place| sign + place);
    let (whole, rest) = (&text[sign..end], &text[end..]);
    let mut digits = String::from(&text[..sign]);
    match whole.chars().find(|c| separators.contains(c)) {
        None => digits.push_str(whole),
        Some(separator) => {
            for (k, group) in whole.split(separator).enumerate() {
                let is_first = (1..=3).contains(&group.len()) && !group.starts_with('0');
                let fits = if k == 0 { is_first } else { group.len() == 3 };
                if !fits {
                    return None;
                }
                digits.push_str(group);
            }
        }
    }
    let is_number = |c: char| c.is_ascii_digit();
    if !digits[sign..].chars().all(is_number) || !text[sign..].starts_with(|c| is_number(c) || c == decimal) {
        return None;
    }
    if let Some(fraction) = rest.strip_prefix(decimal) {
        digits.push('.');
        digits.push_str(fraction);
    } else {
        digits.push_str(rest);
    }
    digits.parse().ok().filter(|number: &f64| number.is_finite())
}

fn boolean(text: &str) -> Option<f64> {
    let is_one_of = |words: [&str; 6]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_one_of(["true", "yes", "on", "t", "y", "1"]) {
        return Some(1.0);
    }
    is_one_of(["false", "no", "off", "f", "n", "0"]).then_some(0.0)
}

/// The days since the beginning of 1970; `order` finds year, month and day among the three numbers of a date. A time may follow, with its distance
/// from UTC.
fn date(text: &str, order: fn([&str; 3]) -> (&str, &str, &str)) -> Option<f64> {
    let (date, clock) = text.split_once(['T', ' ']).map_or((text, None), |(date, clock)| (date, Some(clock)));
    let separator = date.chars().find(|c| !c.is_ascii_digit()).filter(|c| "-/.".contains(*c))?;
    let parts: [&str; 3] = date.split(separator).collect::<Vec<_>>().try_into().ok()?;
    let (year, month, day) = order(parts);
    // A year of two digits leaves a doubt about the century.
    let fits = year.len() == 4 && [month, day].iter().all(|part| (1..=2).contains(&part.len()));
    let whole = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?;
    if !fits {
        return None;
    }
    let date = NaiveDate::from_ymd_opt(whole(year)? as i32, whole(month)?, whole(day)?)?;
    let days = date.signed_duration_since(NaiveDate::from_ymd_opt(1970, 1, 1)?).num_days() as f64;
    match clock {
        None => Some(days),
        Some(clock) => {
            let (clock, shift) = zone(clock.trim())?;
            Some(days + time(clock)? - shift)
        }
    }
}

/// The time of a day, and the distance of its zone from UTC in days.
fn zone(clock: &str) -> Option<(&str, f64)> {
    if let Some(clock) = clock.strip_suffix('Z') {
        return Some((clock, 0.0));
    }
    let Some(place) = clock.rfind(['+', '-']) else { return Some((clock, 0.0)) };
    let (clock, zone) = clock.split_at(place);
    let digits: String = zone[1..].chars().filter(|c| *c != ':').collect();
    let whole = |text: &str| text.parse::<f64>().ok();
    let minutes = match digits.len() {
        2 if digits.bytes().all(|b| b.is_ascii_digit()) => 60.0 * whole(&digits)?,
        4 if digits.bytes().all(|b| b.is_ascii_digit()) => 60.0 * whole(&digits[..2])? + whole(&digits[2..])?,
        _ => return None,
    };
    Some((clock.trim_end(), if zone.starts_with('-') { -minutes } else { minutes } / 1440.0))
}

/// The part of a day that has passed at this time.
fn time(text: &str) -> Option<f64> {
    let parsed = NaiveTime::parse_from_str(text, "%H:%M:%S%.f");
    let time = parsed.or_else(|_| NaiveTime::parse_from_str(text, "%H:%M")).ok()?;
    let seconds = f64::from(time.num_seconds_from_midnight()) + f64::from(time.nanosecond()) * 1e-9;
    Some(seconds / 86_400.0)
}

/// Whether a field of a table says that its value is missing.
pub(super) fn is_missing_word(field: &str) -> bool {
    field.is_empty() || ["?", "NA", "N/A", "NaN", "nan", "null", "NULL"].contains(&field)
}

/// Whether a field of a column of numbers says that its value is missing. Of these words, some may be categories in a column of words.
pub(super) fn is_missing_number(field: &str) -> bool {
    const WORDS: [&str; 16] = [
        "na", "n/a", "n.a.", "<na>", "#n/a", "#na", "nan", "null", "none", "nil", "missing", "unknown", "-",
        "--", "---", ".",
    ];
    is_missing_word(field) || WORDS.iter().any(|word| field.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_what_they_are_named_after_and_refuse_the_rest() {
        use NumberFormat::*;
        let day = 20_775.0;
        for (format, text, expected) in [
            (Plain, "1234.5", Some(1234.5)),
            (Plain, "1,234.5", None),
            (Thousands, "1,234.5", Some(1234.5)),
            (Thousands, "1 234 567.5e-1", Some(123_456.75)),
            (Thousands, "-1'234", Some(-1234.0)),
            (Thousands, "\u{2212}12.5", Some(-12.5)),
            (Thousands, ".5", Some(0.5)),
            (Thousands, "1,23", None),
            (Thousands, "1,234,56", None),
            (Thousands, "1234,567", None),
            (Thousands, "1,234 567", None),
            (Thousands, "0,125", None),
            (Thousands, "inf", None),
            (Thousands, "", None),
            (Thousands, "-", None),
            (DecimalComma, "1.234,5", Some(1234.5)),
            (DecimalComma, "1\u{a0}234,5", Some(1234.5)),
            (DecimalComma, "0,125", Some(0.125)),
            (DecimalComma, "1.234", Some(1234.0)),
            (DecimalComma, "1.5", None),
            (DecimalComma, "1,5,5", None),
            (Percent, "12.5%", Some(0.125)),
            (Percent, "12.5 %", Some(0.125)),
            (Percent, "12.5", None),
            (PercentComma, "12,5 %", Some(0.125)),
            (Boolean, "Yes", Some(1.0)),
            (Boolean, "FALSE", Some(0.0)),
            (Boolean, "maybe", None),
            (Date, "2026-11-18", Some(day)),
            (Date, "2026/11/18 06:00", Some(day + 0.25)),
            (Date, "2026-11-18T12:00:00Z", Some(day + 0.5)),
            (Date, "2026-11-18T12:00:00.000+06:00", Some(day + 0.25)),
            (Date, "2026-02-30", None),
            (Date, "26-11-18", None),
            (Date, "2026-11/18", None),
            (DateDayFirst, "18.11.2026", Some(day)),
            (DateDayFirst, "11/18/2026", None),
            (DateMonthFirst, "11/18/2026", Some(day)),
            (DateMonthFirst, "1/1/1970", Some(0.0)),
            (Time, "06:00", Some(0.25)),
            (Time, "18:00:00.0", Some(0.75)),
            (Time, "25:00", None),
        ] {
            assert_eq!(format.parse(text), expected, "{format:?} {text}");
        }
        for (name, format, example) in NumberFormat::NAMED {
            assert!(format.parse(example).is_some() && format.name() == name);
        }
    }

    #[test]
    fn words_for_missing_values_depend_on_whether_words_are_values() {
        assert!(["", "NA", "none", "None", "-", "n.a.", "?"].into_iter().all(is_missing_number));
        assert!(["", "NA", "?"].into_iter().all(is_missing_word));
        assert!(!["none", "-", "None"].into_iter().any(is_missing_word), "they may be categories");
        assert!(!["0", "abc", "inf"].into_iter().any(is_missing_number));
    }
}
