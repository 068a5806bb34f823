//! Figures and times as words.

use std::time::Duration;

use jiff::Timestamp;
use trainyard_core::{job::time_words, view::State};

/// A length in milliseconds, such as `12 min`; days from two days on.
pub(super) fn millis(millis: i64) -> String {
    const DAY: u64 = 86_400_000;
    let millis = u64::try_from(millis).unwrap_or(0);
    if millis >= 2 * DAY {
        return format!("{} d", millis / DAY);
    }
    time_words(Duration::from_millis(millis))
}

/// An age as a list has it, such as `12m`.
pub(super) fn age(millis: i64) -> String {
    let seconds = millis.max(0) / 1_000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A moment in UTC: the time on the day of `now`, else with its date.
pub(super) fn moment(at: i64, now: i64) -> String {
    const DAY: i64 = 86_400_000;
    let form = if at.div_euclid(DAY) == now.div_euclid(DAY) {
        "%H:%M:%SZ"
    } else {
        "%m-%d %H:%MZ"
    };
    let at = Timestamp::from_millisecond(at);
    at.map_or_else(|_| "unknown".to_owned(), |at| at.strftime(form).to_string())
}

/// A share, such as `87.8 %`.
pub(super) fn percent(ratio: f64) -> String {
    if ratio.is_finite() {
        format!("{:.1} %", ratio.clamp(0.0, 1.0) * 100.0)
    } else {
        "–".to_owned()
    }
}

/// A step, and of how many.
pub(super) fn step(step: Option<u64>, steps: Option<u64>) -> String {
    match (step, steps) {
        (Some(step), Some(steps)) => format!("{step}/{steps}"),
        (Some(step), None) => step.to_string(),
        (None, _) => "–".to_owned(),
    }
}

/// `1 rank`, `2 ranks`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The state whose colour the state of a job has.
pub(super) fn colour_of(state: &str) -> State {
    match state {
        "running" => State::Training,
        "waiting" => State::Placing,
        "stalled" => State::Stalled,
        "restarting" => State::Restarting,
        "suspended" => State::Suspended,
        "succeeded" => State::Done,
        "failed" => State::Failed,
        "unknown" => State::Lost,
        _ => State::Other,
    }
}

/// The state of a number in documents.
pub(super) fn state_of(number: u64) -> State {
    let at = usize::try_from(number).unwrap_or(usize::MAX);
    State::ALL.get(at).copied().unwrap_or(State::Other)
}

/// The state of a name in documents.
pub(super) fn named(name: &str) -> State {
    let mut all = State::ALL.into_iter();
    all.find(|state| state.name() == name)
        .unwrap_or(State::Other)
}

/// `notObserved` as `not observed`.
pub(super) fn word(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            word.push(' ');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units() {
        let cases = [
            (millis(450), "0.5 s"),
            (millis(-5), "0 ms"),
            (millis(3 * 86_400_000), "3 d"),
            (age(119_000), "119s"),
            (age(7_100_000), "118m"),
            (age(i64::MAX), "106751991167d"),
            (percent(0.878), "87.8 %"),
            (percent(f64::NAN), "–"),
            (step(Some(3), Some(9)), "3/9"),
            (step(None, Some(9)), "–"),
            (counted(1, "rank"), "1 rank"),
            (moment(0, 5), "00:00:00Z"),
            (moment(0, 86_400_000), "01-01 00:00Z"),
            (moment(i64::MAX, 0), "unknown"),
            (word("notObserved"), "not observed"),
        ];
        for (got, want) in cases {
            assert_eq!(got, want);
        }
    }
}
