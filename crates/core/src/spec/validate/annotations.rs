//! Our own settings: `trainyard.dev/…` annotations to [`JobSettings`].

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    finding::{Profile, catalogue},
    spec::{
        Compat, GangBy, JobSettings, Kind, Limit, MpiTransport, OnNan, Parallelism, Preflight,
        ProgressBy, RequiredTransport, RestartIn, RestartScope, SettingError, Supervise, Switch,
        WatchMode, Wish, annotation,
        collector::Place,
        is_subdomain,
        nearest::{nearest, one_of},
    },
};

const PREFIX: &str = annotation::PREFIX;

/// Annotations that change the job.
const KNOWN: [&str; 27] = [
    annotation::RESTART_SCOPE,
    annotation::BUDGET,
    annotation::LOST_AFTER,
    annotation::HANG_AFTER,
    annotation::WATCH,
    annotation::HANG_FLOOR,
    annotation::FIRST_STEP_WITHIN,
    annotation::ON_NAN,
    annotation::RESTART_IN,
    annotation::SUPERVISE,
    annotation::STOP_GRACE,
    annotation::HOLD_ON_FAILURE,
    annotation::NO_PROGRESS,
    annotation::START_WITHIN,
    annotation::COMPAT,
    annotation::RESTART,
    annotation::MPI_TRANSPORT,
    annotation::GANG,
    annotation::PLACEMENT,
    annotation::PARALLELISM,
    annotation::PREEMPTION,
    annotation::CHECKPOINTED_AT,
    annotation::CHECKPOINTS,
    annotation::REQUIRE_TRANSPORT,
    annotation::FABRIC,
    annotation::PREFLIGHT,
    annotation::PROGRESS,
];

/// Longest name of a restart: it is kept in the status.
const RESTART_CHARS: usize = 64;

/// Most attempts that a setting may ask for.
const MOST_ATTEMPTS: u32 = 1_000;

/// Longest path of a folder of checkpoints: it is part of every pod.
const PATH_BYTES: usize = 1_024;

/// Annotations that other parts of Trainyard read.
const READ_ELSEWHERE: [&str; 3] = [
    annotation::PROFILE,
    annotation::LINT_ALLOW,
    annotation::TEMPLATE,
];

/// The word of `trainyard.dev/compat` that brings back everything.
const EVERYTHING: &str = "all";

/// The settings, with what is wrong in them left out.
pub(in crate::spec) fn settings(
    place: &Place<'_>,
    kind: Kind,
    annotations: &BTreeMap<String, String>,
) -> JobSettings {
    let mut settings = JobSettings::default();
    let ours = annotations
        .range(PREFIX.to_owned()..)
        .take_while(|(key, _)| key.starts_with(PREFIX));
    let mut everything = false;
    for (key, text) in ours {
        let place = place.key(key);
        let result = match key.as_str() {
            annotation::RESTART_SCOPE => {
                scope(text).map(|scope| settings.restart_scope = Some(scope))
            }
            annotation::BUDGET => budget(text, &mut settings),
            annotation::LOST_AFTER => duration(text).map(|time| settings.lost_after = time),
            annotation::HANG_AFTER => duration(text).map(|time| settings.hang_after = Some(time)),
            annotation::WATCH => {
                word(text, WatchMode::ALL, WatchMode::name).map(|mode| settings.watch = mode)
            }
            annotation::HANG_FLOOR => duration(text).map(|time| settings.hang_floor = time),
            annotation::FIRST_STEP_WITHIN => {
                duration(text).map(|time| settings.first_step_within = time)
            }
            annotation::ON_NAN => {
                word(text, OnNan::ALL, OnNan::name).map(|on_nan| settings.on_nan = on_nan)
            }
            annotation::RESTART_IN => {
                word(text, RestartIn::ALL, RestartIn::name).map(|way| settings.restart_in = way)
            }
            annotation::SUPERVISE => {
                word(text, Supervise::ALL, Supervise::name).map(|wish| settings.supervise = wish)
            }
            annotation::STOP_GRACE => {
                at_most(text, STOP_GRACE_MAX, "25s").map(|time| settings.stop_grace = time)
            }
            annotation::HOLD_ON_FAILURE => {
                at_most(text, HOLD_MAX, "24h").map(|time| settings.hold_on_failure = Some(time))
            }
            annotation::NO_PROGRESS => {
                attempts(text).map(|count| settings.no_progress = Some(count))
            }
            annotation::START_WITHIN => duration(text).map(|time| settings.start_within = time),
            annotation::COMPAT => compat(text, &mut settings).map(|all| everything = all),
            annotation::RESTART => restart(text).map(|name| settings.restart = Some(name)),
            annotation::MPI_TRANSPORT => {
                transport(text, kind).map(|transport| settings.mpi_transport = Some(transport))
            }
            annotation::GANG => gang(text).map(|gang| settings.gang = Some(gang)),
            annotation::PLACEMENT => Wish::parse(text).map(|wish| settings.placement = Some(wish)),
            annotation::PARALLELISM => {
                Parallelism::parse(text).map(|axes| settings.parallelism = Some(axes))
            }
            annotation::PREEMPTION => {
                switch(text, "lower-priority").map(|switch| settings.preemption = Some(switch))
            }
            annotation::CHECKPOINTED_AT => {
                settings.checkpointed_at = checkpointed_at(key, text, &place);
                Ok(())
            }
            annotation::CHECKPOINTS => {
                checkpoints(text).map(|path| settings.checkpoints = Some(path))
            }
            annotation::REQUIRE_TRANSPORT => RequiredTransport::parse_list(text)
                .map(|required| settings.require_transport = required),
            annotation::FABRIC => fabric(text).map(|name| settings.fabric = Some(name)),
            annotation::PREFLIGHT => preflight(text).map(|wish| settings.preflight = wish),
            annotation::PROGRESS => progress(text).map(|by| settings.progress = by),
            annotation::PROFILE => profile(text),
            other => {
                unknown(other, &place);
                Ok(())
            }
        };
        if let Err(error) = result {
            place.report(&catalogue::BAD_ANNOTATION, format!("`{key}` {error}"));
        }
    }
    if everything {
        settings.compat.extend(Compat::ALL);
        settings.restart_scope.get_or_insert(RestartScope::Pod);
        settings.mpi_transport = settings.mpi_transport.or(MpiTransport::before(kind));
    }
    settings
}

fn unknown(key: &str, place: &Place<'_>) {
    if READ_ELSEWHERE.contains(&key) {
        return;
    }
    if place.is_full() {
        return place.report(&catalogue::UNKNOWN_ANNOTATION, "");
    }
    let message = format!("unknown annotation `{key}`, it is ignored");
    match nearest(key, KNOWN.into_iter().chain(READ_ELSEWHERE)) {
        Some(meant) => place.report_with(
            &catalogue::UNKNOWN_ANNOTATION,
            message,
            format!("did you mean `{meant}`?"),
        ),
        None => place.report(&catalogue::UNKNOWN_ANNOTATION, message),
    }
}

/// A restart in place waits 35 s for a program to stop, which includes its stacks and the memory of its devices.
const STOP_GRACE_MAX: Duration = Duration::from_secs(25);

/// A gang that is held keeps its devices from everybody else.
const HOLD_MAX: Duration = Duration::from_hours(24);

/// A duration of at most `most`, which users write as `words`.
fn at_most(text: &str, most: Duration, words: &str) -> Result<Duration, SettingError> {
    let time = duration(text)?;
    if time > most {
        return Err(SettingError::not(format!("at most `{words}`"), text));
    }
    Ok(time)
}

fn scope(text: &str) -> Result<RestartScope, SettingError> {
    match text.trim() {
        "gang" => Ok(RestartScope::Gang),
        "pod" => Ok(RestartScope::Pod),
        other => Err(SettingError::not("`gang` or `pod`", other)),
    }
}

/// A running job writes this, so a time that cannot be read does not refuse the job.
fn checkpointed_at(key: &str, text: &str, place: &Place<'_>) -> Option<Timestamp> {
    let time = text.trim().parse().ok();
    if time.is_none() {
        place.report_with(
            &catalogue::UNKNOWN_ANNOTATION,
            format!(
                "`{key}` is not a time, it is ignored: found `{}`",
                text.trim()
            ),
            "write a time with its zone, such as `2026-01-31T12:00:00Z`",
        );
    }
    time
}

/// A folder as a container sees it: absolute, in its shortest form, and of letters that a variable can hold.
fn checkpoints(text: &str) -> Result<String, SettingError> {
    let path = text.trim();
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.len() > PATH_BYTES {
        return Err(SettingError::TooLong {
            most: PATH_BYTES,
            length: path.len(),
        });
    }
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let plain = path
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(is_plain));
    // `$(NAME)` in a value would be replaced by the kubelet.
    if !plain || path.chars().any(char::is_control) || path.contains("$(") {
        let expected = "the absolute path of a folder without `.` and `..`";
        return Err(SettingError::not(expected, text));
    }
    Ok(path.to_owned())
}

fn gang(text: &str) -> Result<GangBy, SettingError> {
    word(text, GangBy::ALL, GangBy::name)
}

/// The value whose name is `text`.
fn word<T: Copy, const N: usize>(
    text: &str,
    values: [T; N],
    name: impl Fn(T) -> &'static str,
) -> Result<T, SettingError> {
    let text = text.trim();
    let names = || values.into_iter().map(&name);
    values
        .into_iter()
        .find(|value| name(*value) == text)
        .ok_or_else(|| match nearest(text, names()) {
            Some(meant) => misspelled(text, meant),
            None => SettingError::not(one_of(names()), text),
        })
}

/// A number of attempts.
fn attempts(text: &str) -> Result<u32, SettingError> {
    let count = text.trim().parse::<u32>().ok();
    let count = count.filter(|count| *count <= MOST_ATTEMPTS);
    count.ok_or_else(|| SettingError::not("a number from 0 to 1000", text))
}

/// `off`, or the word that switches the setting on.
fn switch(text: &str, on: &str) -> Result<Switch, SettingError> {
    match text.trim() {
        "off" => Ok(Switch::Off),
        word if word == on => Ok(Switch::On),
        other => Err(SettingError::not(format!("`{on}` or `off`"), other)),
    }
}

/// The name of an object of the cluster.
fn fabric(text: &str) -> Result<String, SettingError> {
    let name = text.trim();
    if is_subdomain(name) {
        Ok(name.to_owned())
    } else {
        Err(SettingError::not("the name of a fabric", text))
    }
}

fn preflight(text: &str) -> Result<Preflight, SettingError> {
    match text.trim() {
        "required" => Ok(Preflight::Required),
        other => Err(SettingError::not("`required`", other)),
    }
}

fn progress(text: &str) -> Result<ProgressBy, SettingError> {
    match text.trim() {
        "logs" => Ok(ProgressBy::Logs),
        "push" => Ok(ProgressBy::Push),
        other => Err(SettingError::not("`logs` or `push`", other)),
    }
}

/// The profile for the linter; nothing else depends on it.
fn profile(text: &str) -> Result<(), SettingError> {
    let known = Profile::ALL.map(Profile::name);
    match Profile::parse(text.trim()) {
        Some(_) => Ok(()),
        None => Err(SettingError::not(one_of(known), text.trim())),
    }
}

fn transport(text: &str, kind: Kind) -> Result<MpiTransport, SettingError> {
    let text = text.trim();
    let Some(before) = MpiTransport::before(kind) else {
        return Err(SettingError::OnlyForMpi(kind.name()));
    };
    [MpiTransport::Agent, before]
        .into_iter()
        .find(|transport| transport.name() == text)
        .ok_or_else(|| {
            let (before, version) = (before.name(), kind.api_version());
            let expected = format!("`agent` or `{before}` in an `MPIJob` of `{version}`");
            SettingError::not(expected, text)
        })
}

/// `user=3,platform=10,infrastructure=50,preemption=unlimited`, in any order, each at most once.
fn budget(text: &str, settings: &mut JobSettings) -> Result<(), SettingError> {
    const ACCOUNTS: [&str; 4] = ["user", "platform", "infrastructure", "preemption"];
    for item in items(text) {
        let (account, limit) = item
            .split_once('=')
            .map(|(account, limit)| (account.trim(), limit.trim()))
            .ok_or_else(|| SettingError::not("a list such as `user=3,platform=10`", item))?;
        let slot = match account {
            "user" => &mut settings.budget.user,
            "platform" => &mut settings.budget.platform,
            "infrastructure" => &mut settings.budget.infrastructure,
            "preemption" => &mut settings.budget.preemption,
            _ => {
                return Err(SettingError::Unknown {
                    what: "accounts",
                    known: one_of(ACCOUNTS),
                    found: account.to_owned(),
                });
            }
        };
        if slot.is_some() {
            return Err(SettingError::Twice {
                what: "account",
                name: account.to_owned(),
            });
        }
        *slot = Some(match limit {
            "unlimited" => Limit::Unlimited,
            number => Limit::At(number.parse().map_err(|_| SettingError::NotNumber {
                expected: "a number or `unlimited`",
                name: account.to_owned(),
                found: number.to_owned(),
            })?),
        });
    }
    Ok(())
}

/// Whether everything is brought back.
fn compat(text: &str, settings: &mut JobSettings) -> Result<bool, SettingError> {
    let mut everything = false;
    for item in items(text) {
        if item == EVERYTHING {
            everything = true;
            continue;
        }
        let known = Compat::ALL.into_iter().find(|compat| compat.name() == item);
        let names = || {
            Compat::ALL
                .into_iter()
                .map(Compat::name)
                .chain([EVERYTHING])
        };
        settings
            .compat
            .insert(known.ok_or_else(|| match nearest(item, names()) {
                Some(meant) => misspelled(item, meant),
                None => SettingError::Unknown {
                    what: "the values",
                    known: one_of(names()),
                    found: item.to_owned(),
                },
            })?);
    }
    Ok(everything)
}

/// Any text that is not empty, such as the time at which the restart was asked for.
fn restart(text: &str) -> Result<String, SettingError> {
    let name = text.trim();
    match name.chars().count() {
        0 => Err(SettingError::NoText),
        1..=RESTART_CHARS => Ok(name.to_owned()),
        length => Err(SettingError::TooLong {
            most: RESTART_CHARS,
            length,
        }),
    }
}

fn misspelled(found: &str, meant: &str) -> SettingError {
    SettingError::Misspelled {
        what: "value",
        found: found.to_owned(),
        meant: meant.to_owned(),
    }
}

/// The items of a comma list; an item may be followed by a comma at the end.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// Reads whole numbers with a unit, such as `90s`, `10m`, `2h`, `1d` or `1h30m`; the error completes a sentence.
pub fn duration(text: &str) -> Result<Duration, SettingError> {
    let bad = || SettingError::not("a time such as `90s`, `10m` or `2h`", text);
    let mut seconds: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (digits, after) = rest.split_at(end);
        let count: u64 = digits.parse().map_err(|_| bad())?;
        let mut letters = after.chars();
        let unit = match letters.next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3_600,
            Some('d') => 86_400,
            _ => return Err(bad()),
        };
        seconds = count
            .checked_mul(unit)
            .and_then(|part| seconds.checked_add(part))
            .ok_or_else(bad)?;
        rest = letters.as_str();
    }
    // Ten years outlast every job, and sums with timestamps stay far from overflow.
    if seconds == 0 || seconds > 315_360_000 {
        return Err(SettingError::not("from 1s to 3650d", text));
    }
    Ok(Duration::from_secs(seconds))
}
