//! The leader: gathers the members, runs the preflight, and makes the report.
//!
//! Invariant: a member that does not answer in time is gone from then on, and is reported as such; the
//! preflight continues with the others.

mod measure;
mod members;
mod volumes;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use trainyard_core::probe::{Reading, Report, compose, paths};

use self::{measure::Measuring, members::Members};
use super::{
    Conduct, Settings,
    limit::Limit,
    message::{Answer, Request},
    peer::{join, now_micros},
    socket::{Binding, SocketError},
};

/// A reading takes 3 seconds, and volumes 10 more at most.
const READING: Duration = Duration::from_secs(15);
/// Times that a clock is asked for; the answer that came fastest counts.
const CLOCKS: usize = 5;

/// The result of a preflight.
#[derive(Debug)]
pub struct Conducted {
    /// The report.
    pub report: Report,
    /// How many members joined, the leader included.
    pub joined: usize,
}

/// Runs a preflight as its leader, and takes part in it.
pub fn run_leader(settings: &Settings, conduct: &Conduct) -> Result<Conducted, SocketError> {
    let listener = Binding::default().listen(conduct.port)?;
    Ok(run_leader_on(listener, settings, conduct))
}

/// The same where it listens already.
pub(super) fn run_leader_on(
    listener: TcpListener,
    settings: &Settings,
    conduct: &Conduct,
) -> Conducted {
    let limit = Limit::after(settings.timeout);
    let port = listener
        .local_addr()
        .map_or(conduct.port, |address| address.port());
    let own = settings.clone();
    // It ends with the goodbye, or when the connection that this function holds is closed.
    let own = thread::spawn(move || {
        let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        drop(join(&own, here));
    });
    let mut members = Members::gather(listener, settings, conduct, limit);
    let report = report(settings, conduct, &mut members, limit);
    members.dismiss(settings.patience());
    if own.is_finished() {
        drop(own.join());
    }
    Conducted {
        joined: members.len(),
        report,
    }
}

fn report(settings: &Settings, conduct: &Conduct, members: &mut Members, limit: Limit) -> Report {
    let mut readings = read(members, limit);
    clocks(members, &mut readings, settings, limit);
    let mut measuring = Measuring {
        settings,
        conduct,
        members,
        limit,
        last_id: 0,
    };
    let streams = measuring.streams();
    let volumes = volumes::conduct(settings, measuring.members, limit);
    // Last: an external program that hangs costs nothing but its own answer.
    let programs = measuring.programs(&readings);

    let attendance = members.attendance(conduct).into_iter();
    let attendance = attendance.map(|(name, lost)| (name, vec![paths::joined(lost.as_deref())]));
    let measured = [streams.nodes, volumes, programs.nodes].into_iter();
    let measured = measured.flatten().chain(attendance);
    let shared = streams.shared.into_iter().chain(programs.shared);
    Report {
        nodes: compose(&readings, &settings.needs, measured),
        shared: shared.collect(),
        leave: streams.leave.into_iter().chain(programs.leave).collect(),
    }
}

/// What every member reads of its machine.
fn read(members: &mut Members, limit: Limit) -> BTreeMap<String, Reading> {
    let all = members
        .present()
        .into_iter()
        .map(|member| (member, Request::Read));
    let answers = members.ask(all.collect(), limit.within(READING));
    let readings = answers
        .into_iter()
        .filter_map(|(member, answer)| match answer {
            Answer::Read(reading) => Some((members.name(member).to_owned(), *reading)),
            _ => None,
        });
    readings.collect()
}

/// How far each clock is ahead of ours: the time that came back, less the middle of asking and
/// receiving. The fastest answer leaves the least doubt.
fn clocks(
    members: &mut Members,
    readings: &mut BTreeMap<String, Reading>,
    settings: &Settings,
    limit: Limit,
) {
    let mut best: BTreeMap<usize, (Duration, i64)> = BTreeMap::new();
    for _ in 0..CLOCKS {
        // One after the other, so that threads of ours do not wait for each other between the times.
        for member in members.present() {
            let (before, start) = (now_micros(), Instant::now());
            let requests = vec![(member, Request::Clock)];
            let answer = members.ask(requests, limit.within(settings.patience()));
            let took = start.elapsed();
            if let Some(Answer::Clock(theirs)) = answer.into_values().next() {
                let half = i64::try_from(took.as_micros() / 2).unwrap_or(0);
                let ahead = theirs - before - half;
                let entry = best.entry(member).or_insert((took, ahead));
                if took < entry.0 {
                    *entry = (took, ahead);
                }
            }
        }
    }
    for (member, (_, ahead)) in best {
        if let Some(reading) = readings.get_mut(members.name(member)) {
            reading.clock_ahead_micros = Some(ahead);
        }
    }
}
