//! Scales of axes: positions of values, and ticks.

/// About how many ticks an axis has.
const TICKS: f64 = 6.0;
/// Room between the lowest value and the end of an axis, as a share of its length.
const ROOM: f64 = 0.03;
/// A linear axis over a range that is smaller than this share of its values is that of a single value: its ticks could
/// not be told apart.
const SINGLE_VALUE: f64 = 1e-12;

/// An axis with its range; a logarithmic one holds positive values only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) log: bool,
    low: f64,
    high: f64,
}

/// A tick: its value and its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) text: String,
}

/// The smallest and the largest of some values.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let wider = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), wider)
}

impl Scale {
    /// A linear axis over a range, widened if it is a single value.
    pub(crate) fn linear(low: f64, high: f64) -> Self {
        if !(low.is_finite() && high.is_finite()) {
            return Self { log: false, low: 0.0, high: 1.0 };
        }
        if high - low <= SINGLE_VALUE * low.abs().max(high.abs()) {
            let pad = 0.5 * low.abs().max(1.0);
            return Self { log: false, low: low - pad, high: low + pad };
        }
        Self { log: false, low, high }
    }

    /// A logarithmic axis over a range of positive values.
    pub(crate) fn log(low: f64, high: f64) -> Self {
        if !(low.is_finite() && high.is_finite() && low > 0.0) {
            return Self { log: true, low: 0.1, high: 1.0 };
        }
        let pad = if high > low * 1.001 { 1.0 } else { 2.0 };
        Self { log: true, low: low / pad, high: high.max(low) * pad }
    }

    /// Extends the range by a share of its length on both sides.
    pub(crate) fn padded(self, share: f64) -> Self {
        if self.log {
            let factor = (self.high / self.low).powf(share);
            Self { low: self.low / factor, high: self.high * factor, ..self }
        } else {
            let room = share * (self.high - self.low);
            Self { low: self.low - room, high: self.high + room, ..self }
        }
    }

    /// Extends the range downwards until a tick is at or below `lowest`, the lowest value shown.
    pub(crate) fn with_tick_below(self, lowest: f64) -> Self {
        let from = |low: f64| Self { low, ..self };
        let tick_below =
            |scale: &Self| scale.ticks().into_iter().map(|tick| tick.at).find(|at| *at <= lowest);
        let reaches = |scale: &Self| {
            scale.place(lowest).is_some_and(|place| place >= ROOM) && tick_below(scale).is_some()
        };
        // Where the ticks are depends on the range, hence the search.
        let lower = |k: i32| match (self.log, 0.01 * f64::from(k)) {
            (true, share) => from(self.low / (self.high / self.low).powf(share)),
            (false, share) => from(self.low - share * (self.high - self.low)),
        };
        let Some(found) = (0..200).map(lower).find(reaches) else { return self };
        let at_tick = tick_below(&found).map_or(found, from);
        if reaches(&at_tick) { at_tick } else { found }
    }

    pub(crate) fn range(self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The position of a value: 0 at the low end, 1 at the high end; `None` if the axis cannot show it.
    pub(crate) fn place(self, value: f64) -> Option<f64> {
        let place = if self.log {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.is_finite().then_some(place)
    }

    /// Ticks at round values.
    pub(crate) fn ticks(self) -> Vec<Tick> {
        self.about(TICKS)
    }

    /// About this many ticks, at round values.
    fn about(self, wanted: f64) -> Vec<Tick> {
        if self.log { self.log_ticks(wanted) } else { self.linear_ticks(wanted) }
    }

    fn linear_ticks(self, wanted: f64) -> Vec<Tick> {
        let step = nice((self.high - self.low) / wanted);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let largest = first.unsigned_abs().max(last.unsigned_abs()) as f64 * step;
        // One form for all ticks of an axis, with the digits in which they differ.
        let power = match largest {
            1e-3..1e6 => 0,
            _ => largest.log10().floor() as i32,
        };
        let digits = (f64::from(power) - step.log10().floor()).max(0.0) as usize;
        let text = |value: f64| match (value, power) {
            (0.0, _) => "0".to_owned(),
            (_, 0) => format!("{value:.digits$}"),
            _ => format!("{:.digits$}·10{}", value / 10f64.powi(power), superscript(power)),
        };
        (first..=last).map(|k| k as f64 * step).map(|at| Tick { at, text: text(at) }).collect()
    }

    fn log_ticks(self, wanted: f64) -> Vec<Tick> {
        let (low, high) = (self.low.log10(), self.high.log10());
        let decades = high - low;
        // Where fewer than two powers of ten may be in range, multiples of them get ticks too.
        let digits: &[f64] = match decades {
            d if d < 0.35 => return self.linear_ticks(wanted),
            d if d < 1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            d if d < 2.2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = (decades / wanted).ceil().max(1.0) as i32;
        let powers = (low.floor() as i32..=high.ceil() as i32).filter(|power| power.rem_euclid(every) == 0);
        let values = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
        let inside = |at: &f64| *at >= self.low * (1.0 - 1e-9) && *at <= self.high * (1.0 + 1e-9);
        let text = |at: f64| match digits.len() {
            1 => format!("10{}", superscript(at.log10().round() as i32)),
            _ => short(at, 2),
        };
        values.filter(inside).map(|at| Tick { at, text: text(at) }).collect()
    }
}

/// A value with at most this many significant digits.
pub(crate) fn short(value: f64, digits: i32) -> String {
    let power = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let trimmed = |value: f64, decimals: i32| {
        let text = format!("{value:.*}", decimals.max(0) as usize);
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    if (-3..5).contains(&power) {
        return trimmed(value, digits - 1 - power);
    }
    match trimmed(value / 10f64.powi(power), digits - 1).as_str() {
        "1" => format!("10{}", superscript(power)),
        digits => format!("{digits}·10{}", superscript(power)),
    }
}

/// The smallest round number that is about `step` or more: 1, 2 or 5 times a power of ten, or 25, 250, ...
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let nice = |digit: &f64| digit * power >= step * 0.9 && (*digit != 2.5 || power >= 10.0);
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(nice).unwrap_or(10.0) * power
}

fn superscript(power: i32) -> String {
    let raised = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit),
    };
    power.to_string().chars().map(raised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, wanted: u8) -> Vec<String> {
        scale.about(wanted.into()).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn linear_ticks_are_round_numbers() {
        assert_eq!(texts(Scale::linear(0.0, 150.0), 6), ["0", "25", "50", "75", "100", "125", "150"]);
        assert_eq!(texts(Scale::linear(0.0, 1.0), 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(Scale::linear(0.0, 12.2), 6), ["0", "2", "4", "6", "8", "10", "12"]);
        assert_eq!(texts(Scale::linear(-1.0, 1.0), 4), ["-1.0", "-0.5", "0", "0.5", "1.0"]);
    }

    #[test]
    fn ticks_have_all_digits_in_which_they_differ() {
        let close = texts(Scale::linear(0.543147, 0.543149), 4);
        assert_eq!(close, ["0.5431470", "0.5431475", "0.5431480", "0.5431485", "0.5431490"]);
        assert_eq!(texts(Scale::linear(1e6, 1e6 + 2.0), 2), ["1.000000·10⁶", "1.000001·10⁶", "1.000002·10⁶"]);
        assert_eq!(texts(Scale::linear(0.0, 1e-5), 2), ["0", "0.5·10⁻⁵", "1.0·10⁻⁵"]);
        assert_eq!(Scale::linear(0.7, 0.7 + 1e-15).range(), Scale::linear(0.7, 0.7).range());
    }

    #[test]
    fn an_axis_reaches_to_a_tick_below_its_values() {
        for log in [false, true] {
            for k in 0..400 {
                let low = 10f64.powf(-9.0 + 0.0237 * f64::from(k));
                let high = low * 10f64.powf(0.001 + 0.03 * f64::from(k));
                let plain = if log { Scale::log(low, high) } else { Scale::linear(low, high) };
                let scale = plain.padded(0.04).with_tick_below(low);
                let lowest = scale.ticks()[0].at;
                assert!(lowest <= low, "{low} to {high}: {lowest}, {scale:?}");
                let places = (scale.place(low).unwrap(), scale.place(high).unwrap());
                assert!(places.0 >= ROOM && places.1 < 1.0, "{places:?}");
                assert!(places.1 - places.0 > 0.5, "the values fill the axis: {low} to {high}: {places:?}");
            }
        }
        assert_eq!(Scale::linear(2.5, 8.0).with_tick_below(2.5).range(), (2.0, 8.0));
    }

    #[test]
    fn log_ticks_are_powers_or_digits() {
        assert_eq!(texts(Scale::log(1e-12, 1.0), 5), ["10⁻¹²", "10⁻⁹", "10⁻⁶", "10⁻³", "10⁰"]);
        assert_eq!(texts(Scale::log(0.04, 2.4), 5), ["0.05", "0.1", "0.2", "0.5", "1", "2"]);
        assert_eq!(texts(Scale::log(1e-9, 4e-8), 5), ["10⁻⁹", "2·10⁻⁹", "5·10⁻⁹", "10⁻⁸", "2·10⁻⁸"]);
    }

    #[test]
    fn places_run_from_zero_to_one_and_what_has_none_is_nowhere() {
        let scale = Scale::log(1e-2, 1e2);
        assert!((scale.place(1.0).unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(scale.place(0.0), None);
        assert_eq!(scale.place(f64::NAN), None);
        assert_eq!(Scale::linear(f64::NAN, 1.0).range(), (0.0, 1.0));
        assert!(Scale::linear(3.0, 3.0).place(3.0).is_some());
        assert!(Scale::log(3.0, 3.0).place(3.0).is_some());
    }
}
