//! From a silence to findings: when to ask for evidence, and what follows from it.

use std::time::Duration;

use super::{
    Ask, Cause, Finding, Outlook, Watch,
    apart::{self, Apart, Motion, Way, apart},
    collective::{self, Collective, common},
    finding::{NAMED, Others},
    slow,
    stall::{self, LOOKS_APART_LEAST, LOOKS_LEAST, LOOKS_MOST, Limits, WORK_MOST, WORK_UNSEEN},
};
use crate::{
    diagnose::Confidence,
    mutant::{self, Mutant},
    spec::WatchMode,
    watch::signal::{Phase, Stack},
};

/// Evidence that did not arrive this long after it was first asked for is missing; before that, it may be on its way.
const EVIDENCE_WITHIN: Duration = Duration::from_secs(10);
/// Dumps are asked for after this silence even where a hang would be named later: steps may take minutes.
const DUMPS_AFTER: Duration = Duration::from_mins(1);
/// Ranks are compared by their step times at most this often: with thousands of them it costs a sort.
const COMPARE_APART: Duration = Duration::from_secs(5);

/// A silence that is longer than usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspicion {
    /// When evidence was first asked for.
    since: Duration,
    looks: u32,
    next_look: Duration,
    /// The surest finding of it so far.
    reported: Option<(bool, Confidence)>,
    /// Whether dumps were asked for.
    dumped: bool,
    /// Whether nothing surer can follow.
    settled: bool,
}

/// When ranks were compared last, by step times and by looks at a slow job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compare {
    at: Option<Duration>,
    /// When stacks of a slow job were asked for, and in which silence.
    asked: Option<(Duration, u32)>,
}

impl Compare {
    /// Whether step times may be compared again.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.at
            .is_none_or(|at| now.saturating_sub(at) >= COMPARE_APART)
    }
}

impl Watch {
    /// What is found at `now`, which evidence is needed, and when to look again.
    pub fn look(&mut self, now: Duration) -> Outlook {
        self.take_time(now);
        let mut outlook = Outlook::default();
        if self.ranks.iter().all(|rank| rank.ended) {
            outlook.findings.append(&mut self.pending);
            self.promised = None;
            return outlook;
        }
        self.compare_ranks(&mut outlook);
        outlook.findings.append(&mut self.pending);
        self.judge(&mut outlook);
        if let Some(at) = &mut outlook.wake_at {
            // Looks that only keep the time: what is late by more than one of them was not watched.
            let beat = stall::beat(&self.limits());
            *at = (*at)
                .min(self.now.saturating_add(beat))
                .saturating_add(self.away);
        }
        self.promised = outlook.wake_at;
        outlook
    }

    /// How long silence is ordinary now.
    pub(super) fn limits(&self) -> Limits {
        let said = self.said.filter(|_| !mutant::is(Mutant::ForgetsPhases));
        let phase = said.map_or(Phase::Train, |said| said.phase);
        stall::limits(&self.settings, &self.rhythm, self.started, phase)
    }

    fn judge(&mut self, outlook: &mut Outlook) {
        let (now, limits) = (self.now, self.limits());
        if now < self.excused_until {
            wake(outlook, self.excused_until);
            return;
        }
        let from = self.progress_at.max(self.excused_until);
        if now.saturating_sub(from) < limits.suspect {
            wake(outlook, from.saturating_add(limits.suspect));
            return;
        }
        let mut suspicion = self.suspicion.unwrap_or(Suspicion {
            since: now,
            looks: 0,
            next_look: now,
            reported: None,
            dumped: false,
            settled: false,
        });
        if suspicion.settled {
            return;
        }
        // Bytes that move excuse a silence, but not without end. Looks are up to a minute apart, so they count as moving until one
        // shows that they stopped.
        let worked = self.worked.map(|worked| {
            let unseen = worked.last.saturating_add(WORK_UNSEEN).min(now);
            let last = if worked.stopped { worked.last } else { unseen };
            last.min(worked.first.saturating_add(WORK_MOST))
        });
        let from = from.max(worked.unwrap_or_default());
        let silence = now.saturating_sub(from);
        let asked = suspicion.looks >= LOOKS_LEAST
            && now.saturating_sub(suspicion.since) >= LOOKS_APART_LEAST * 2;
        let waited = now.saturating_sub(suspicion.since) >= EVIDENCE_WITHIN;
        let seen = waited || apart::is_seen(&self.ranks, self.silence);
        if asked
            && seen
            && let Some(finding) = self.conclude(&limits, silence)
        {
            let strength = (finding.act, finding.confidence);
            suspicion.settled = finding.act
                || silence >= limits.ceiling && finding.confidence >= Confidence::Medium;
            if suspicion.reported < Some(strength) {
                suspicion.reported = Some(strength);
                outlook.findings.push(finding);
            }
        }
        if !suspicion.settled {
            let may_ask = suspicion.looks < LOOKS_MOST || mutant::is(Mutant::AsksForever);
            if now >= suspicion.next_look && may_ask {
                outlook.ask.extend([Ask::Usage, Ask::Stacks]);
                suspicion.looks += 1;
                if suspicion.looks == 1 {
                    outlook.ask.push(Ask::Collectives);
                }
                let late = silence >= limits.patience || silence >= DUMPS_AFTER;
                if late && !suspicion.dumped {
                    suspicion.dumped = true;
                    outlook.ask.push(Ask::Dumps);
                }
                let elapsed = now.saturating_sub(suspicion.since);
                suspicion.next_look = now.saturating_add(stall::next_look(elapsed));
            }
            if suspicion.next_look > now {
                wake(outlook, suspicion.next_look);
            }
            if let Some(moment) = limits.next_after(silence) {
                wake(outlook, from.saturating_add(moment));
            }
        }
        self.suspicion = Some(suspicion);
    }

    /// What follows from the evidence so far.
    fn conclude(&self, limits: &Limits, silence: Duration) -> Option<Finding> {
        if silence < limits.patience {
            return None;
        }
        let apart = apart(&self.ranks, self.silence, limits.still());
        let at_ceiling = silence >= limits.ceiling && !mutant::is(Mutant::PatienceWithoutCeiling);
        // A line that never changes is no progress, although its CPU time moves.
        let stands = apart.motion >= Motion::Stands;
        let confidence = match apart.way {
            _ if apart.sure || mutant::is(Mutant::HangsWithoutEvidence) => Confidence::High,
            // An attempt without a step that runs may just not report its steps.
            Way::AllAlike if !self.started && !stands => return None,
            Way::AllAlike if !at_ceiling => return None,
            Way::AllAlike if stands || apart.motion == Motion::Unseen => Confidence::Medium,
            Way::AllAlike => Confidence::Low,
            _ if at_ceiling && (apart.motion == Motion::Still || apart.others_stand) => {
                Confidence::Medium
            }
            _ if at_ceiling => Confidence::Low,
            _ if silence < limits.unclear => return None,
            _ if apart.others_stand && apart.motion >= Motion::Stuck => Confidence::Medium,
            _ => return None,
        };
        // Before the first step one rank may prepare data for an hour while the others wait for it.
        let confidence = match confidence {
            Confidence::Medium if !self.started => Confidence::Low,
            other => other,
        };
        let sure = confidence == Confidence::High || confidence == Confidence::Medium && at_ceiling;
        let mut finding = self.describe(apart);
        finding.confidence = confidence;
        finding.act = sure && self.settings.mode == WatchMode::Act;
        Some(finding)
    }

    /// The finding in its fields.
    fn describe(&self, apart: Apart) -> Finding {
        let stack = |rank: u32| -> Option<&Stack> {
            let rank = self.ranks.get(rank as usize)?;
            let seen = rank.seen(self.silence).has_stack();
            rank.stack.as_ref().filter(|_| seen)
        };
        let place = |rank: u32| stack(rank).and_then(|stack| stack.place.clone());
        let named = apart.ranks;
        let others: Vec<u32> = (0_u32..)
            .zip(&self.ranks)
            .filter(|(number, rank)| !rank.ended && named.binary_search(number).is_err())
            .map(|(number, _)| number)
            .collect();
        let first = named.first().copied();
        let mut ranks = named;
        let behind = apart.behind;
        let began: Vec<(u32, &[Collective])> = (0_u32..)
            .zip(&self.ranks)
            .filter(|(_, rank)| !rank.ended)
            .map(|(number, rank)| (number, rank.collectives(self.silence)))
            .collect();
        // One that names other ranks than the stacks do says nothing of these.
        let collective = match &behind {
            Some(behind) if behind.ranks == ranks => behind.collective.clone(),
            None => common(&began),
            Some(_) => None,
        };
        let cause = match apart.way {
            Way::Stopped => Cause::HangStopped,
            Way::DiskWait => Cause::HangDiskWait {
                channel: first
                    .and_then(|rank| self.ranks.get(rank as usize))
                    .and_then(|rank| rank.wait_channel.clone()),
            },
            Way::Behind => Cause::HangInCollective {
                sequence: behind.as_ref().map_or(0, |behind| behind.sequence),
                others: behind.as_ref().map_or(0, |behind| behind.others),
            },
            Way::Elsewhere => Cause::HangCpuSide {
                place: first.and_then(place),
            },
            // The only rank needs no comparison.
            Way::AllAlike if self.ranks.len() == 1 => {
                ranks = vec![0];
                Cause::HangCpuSide { place: place(0) }
            }
            Way::AllAlike => {
                let digest = |rank: u32| stack(rank).map(|stack| stack.digest);
                let common = others.first().copied();
                let all = |rank: &u32| digest(*rank) == common.and_then(digest);
                let alike = others.iter().all(all);
                Cause::HangAllAlike {
                    place: common.filter(|_| alike).and_then(place),
                }
            }
        };
        let count = ranks.len();
        ranks.truncate(NAMED);
        let waits = |rank: &u32| {
            collective::waits(&began, *rank)
                || stack(*rank).is_some_and(|stack| stack.in_collective)
        };
        let others = (count > 0 && !others.is_empty() && self.ranks.len() > 1).then(|| Others {
            count: u32::try_from(others.len()).unwrap_or(u32::MAX),
            in_collective: others.iter().all(waits),
            place: others.first().copied().and_then(place),
        });
        Finding {
            cause,
            ranks,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            confidence: Confidence::Low,
            act: false,
            since: self.progress_clock,
            silent_for: self.now.saturating_sub(self.progress_at),
            others,
            collective,
        }
    }

    /// Slow ranks: by the step times that they report, and by looks at a job that became slower.
    fn compare_ranks(&mut self, outlook: &mut Outlook) {
        let now = self.now;
        if self.compare.is_due(now) {
            self.compare.at = Some(now);
            if let Some((rank, percent)) = slow::slowest(&self.ranks) {
                self.add_straggler(rank, Some(percent));
            }
        }
        let silent = self.suspicion.is_some() || self.said.is_some();
        if silent || !self.pace.wants_looks(now) {
            self.compare.asked = None;
            return;
        }
        if let Some((asked, silence)) = self.compare.asked {
            let next = asked.saturating_add(slow::LOOKS_APART);
            if now < next {
                return wake(outlook, next);
            }
            // One look for each step: in a save that nobody announced, too, all others wait for one.
            if silence == self.silence {
                return;
            }
            if let Some(rank) = self.pace.take_look(&self.ranks, asked) {
                self.add_straggler(rank, None);
            }
        }
        if self.pace.wants_looks(now) {
            self.compare.asked = Some((now, self.silence));
            outlook.ask.push(Ask::Stacks);
            wake(outlook, now.saturating_add(slow::LOOKS_APART));
        }
    }

    fn add_straggler(&mut self, rank: u32, percent: Option<u32>) {
        if self.stragglers.insert(rank) {
            let cause = Cause::Straggler { percent };
            let mut finding = Finding::new(cause, Some(rank), Confidence::Medium);
            finding.since = self.clock;
            self.pending.push(finding);
        }
    }
}

/// Looks again at `at`, or earlier where something else is due.
fn wake(outlook: &mut Outlook, at: Duration) {
    outlook.wake_at = Some(outlook.wake_at.map_or(at, |before| before.min(at)));
}
