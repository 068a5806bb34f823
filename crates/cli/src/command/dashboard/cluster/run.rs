//! One job of a cluster: what is kept of it in memory while pages look at it, and the documents about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_core::{
    chronicle::{Chronicle, Fact},
    explain::{EventFacts, explain},
    view::{
        VERSION,
        losses::losses,
        pyramid::Series,
        rows, saves, seats,
        strip::{By, Strip, StripAsk, strip},
        trace::trace,
    },
};
use trainyard_kube::look::{JobSeen, Live, LiveJob, LivePod, Words};
use trainyard_web::{Document, Problem, ProblemCode, RunPart, SeriesAsk, StripQuery};

use super::{
    super::shared::{ShownVerdict, Verdicts, shown_verdicts},
    Cluster, SLOTS_KEPT, document,
    health::refused,
    history::{History, known_until},
    lock, of_run, problem,
    reader::Reader,
};
use crate::{clean, cluster};

/// What is asked for beside the watches is not asked for again within this time.
pub(super) const FRESH: SignedDuration = SignedDuration::from_secs(20);

/// A document of folded logs and when it was made.
pub(super) type FoldedDocument = (Timestamp, Arc<Vec<u8>>);

/// Events as they were read, and why some could not be.
#[derive(Clone, Debug)]
pub(super) struct EventsRead {
    at: Timestamp,
    pub(super) events: Arc<Vec<EventFacts>>,
    pub(super) why_not: Option<String>,
}

/// An answer of `explain` or why there is none.
#[derive(Clone, Debug)]
struct Explained {
    at: Timestamp,
    answer: Option<Value>,
    why_not: Option<String>,
}

/// A job that pages look at.
#[derive(Debug)]
pub(super) struct RunSlot {
    pub(super) uid: String,
    live: Arc<Live>,
    pub(super) light: Mutex<Light>,
    explained: Mutex<Option<Explained>>,
    events: Mutex<Option<EventsRead>>,
    /// Folded logs by attempt.
    pub(super) folded: Mutex<BTreeMap<u32, FoldedDocument>>,
}

/// What follows the watches.
#[derive(Debug)]
pub(super) struct Light {
    pub(super) job: LiveJob,
    seen: Option<(u64, Arc<JobSeen>)>,
    history: History,
}

/// A job, its pods and its history at one moment.
pub(super) struct Moment {
    pub(super) job: Arc<JobSeen>,
    pub(super) pods: Vec<LivePod>,
    pub(super) chronicle: Arc<Chronicle>,
    /// Until when something is known.
    pub(super) until: Timestamp,
}

impl RunSlot {
    fn new(live: Arc<Live>, job: LiveJob) -> Self {
        Self {
            uid: job.uid().to_owned(),
            live,
            light: Mutex::new(Light {
                job,
                seen: None,
                history: History::default(),
            }),
            explained: Mutex::default(),
            events: Mutex::default(),
            folded: Mutex::default(),
        }
    }

    /// The job as it is now.
    pub(super) fn moment(&self, now: Timestamp) -> Result<Moment, Problem> {
        let mut light = lock(&self.light);
        let (moment, _) = self.look(&mut light, now)?;
        Ok(moment)
    }

    /// What is new in the job.
    pub(super) fn observe(&self, now: Timestamp) -> Result<Vec<Fact>, Problem> {
        let mut light = lock(&self.light);
        let (_, facts) = self.look(&mut light, now)?;
        Ok(facts)
    }

    /// The history as it was at the last look.
    pub(super) fn chronicle(&self) -> Arc<Chronicle> {
        lock(&self.light).history.chronicle()
    }

    fn look(&self, light: &mut Light, now: Timestamp) -> Result<(Moment, Vec<Fact>), Problem> {
        let gone = || {
            problem(
                ProblemCode::NotFound,
                "the job was deleted",
                "a job that was deleted leaves nothing in the cluster",
            )
        };
        let job = self.live.job(&self.uid).ok_or_else(gone)?;
        let version = job.version();
        let known = light.seen.as_ref().filter(|(of, _)| *of == version);
        let seen = match known {
            Some((_, seen)) => Arc::clone(seen),
            None => Arc::new(job.read().ok_or_else(gone)?),
        };
        light.job = job;
        light.seen = Some((version, Arc::clone(&seen)));
        let pods = self.live.pods(&seen);
        let facts = light.history.observe(&seen, &pods, now);
        let moment = Moment {
            until: known_until(&seen, now),
            chronicle: light.history.chronicle(),
            job: seen,
            pods,
        };
        Ok((moment, facts))
    }

    fn series(&self, ask: &SeriesAsk) -> Vec<NamedSeries> {
        let light = lock(&self.light);
        let from = ask.from.unwrap_or(i64::MIN);
        let to = ask.to.unwrap_or(i64::MAX);
        let points = usize::try_from(ask.points).unwrap_or(usize::MAX);
        let all = light.history.series.iter();
        let wanted = all.filter(|(name, _)| ask.names.is_empty() || ask.names.contains(name));
        let series = wanted.map(|(name, pyramid)| NamedSeries {
            name: name.clone(),
            series: pyramid.series(from, to, points),
        });
        series.collect()
    }
}

#[derive(Serialize)]
struct NamedSeries {
    name: String,
    #[serde(flatten)]
    series: Series,
}

/// The last verdict on each attempt, the newest attempt first. The time of one that was there at the first look may not be known.
fn verdicts(moment: &Moment) -> Vec<ShownVerdict> {
    let mut by_attempt = Verdicts::new();
    let last = moment.job.status.trainyard.last_failure.as_ref();
    if let Some(verdict) = last.and_then(|last| last.verdict.clone()) {
        by_attempt.insert(verdict.attempt, (None, verdict.into()));
    }
    for (at, verdict) in &moment.chronicle.verdicts {
        by_attempt.insert(verdict.summary.attempt, (Some(*at), verdict.clone()));
    }
    shown_verdicts(by_attempt)
}

impl Cluster {
    /// The job of an id, which is the identity that the cluster gave it.
    pub(super) fn slot(&self, uid: &str) -> Result<Arc<RunSlot>, Problem> {
        if let Some(slot) = self.known_slot(uid) {
            return Ok(slot);
        }
        let job = self.live.job(uid).ok_or_else(|| no_run(uid))?;
        let slot = Arc::new(RunSlot::new(Arc::clone(&self.live), job));
        let mut slots = lock(&self.slots);
        slots.push_front(Arc::clone(&slot));
        slots.truncate(SLOTS_KEPT);
        Ok(slot)
    }

    /// The same where pages look at it already.
    pub(super) fn known_slot(&self, uid: &str) -> Option<Arc<RunSlot>> {
        let slots = lock(&self.slots);
        slots.iter().find(|slot| slot.uid == uid).cloned()
    }

    pub(super) fn part(
        &self,
        run: &str,
        part: &RunPart,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        self.known()?;
        let job = self.live.job(run).filter(|job| reader.sees_job(job));
        let job = job.ok_or_else(|| no_run(run))?;
        if matches!(part, RunPart::Logs(_) | RunPart::FoldedLogs { .. }) {
            reader.check_logs(job.namespace())?;
        }
        let slot = self.slot(run)?;
        let moment = slot.moment(now)?;
        let id = slot.uid.as_str();
        let chronicle = &moment.chronicle;
        match part {
            RunPart::Strip(ask) => of_run(id, drawn(&moment, ask)),
            RunPart::Ledger => {
                let spec = moment.job.job.as_ref();
                let held = spec.map_or(0, rows::accelerators);
                of_run(id, losses(chronicle, held, moment.until))
            }
            RunPart::Verdicts => {
                let verdicts = verdicts(&moment);
                of_run(id, json!({ "version": VERSION, "verdicts": verdicts }))
            }
            RunPart::Seats { attempt } => of_run(id, seats::seats(chronicle, None, *attempt)),
            RunPart::Series(ask) => {
                let series = slot.series(ask);
                of_run(id, json!({ "version": VERSION, "series": series }))
            }
            RunPart::Logs(ask) => self.logs((&slot, &moment), ask, reader, now),
            RunPart::FoldedLogs { attempt } => {
                self.folded_logs((&slot, &moment), *attempt, reader, now)
            }
            RunPart::Events { cursor } => self.events(&slot, &moment, cursor.as_deref(), now),
            RunPart::Checkpoints => of_run(id, saves::checkpoints(chronicle, at_risk(&moment))),
            RunPart::Spec => of_run(id, json!({ "version": VERSION, "spec": slot.object() })),
            RunPart::Trace => {
                let name = &moment.job.key.name;
                let mut answer = document(&trace(chronicle, name, moment.until))?;
                answer.file_name = Some(format!("{name}.trace.json"));
                Ok(answer)
            }
        }
    }

    /// Why a job that does not run does not, and why that is not known.
    pub(super) fn explain(
        &self,
        slot: &RunSlot,
        moment: &Moment,
        now: Timestamp,
    ) -> (Option<Value>, Option<String>) {
        let state = super::index::row(&moment.job, &moment.chronicle, now).state;
        if matches!(state, rows::RowState::Running | rows::RowState::Succeeded) {
            return (None, None);
        }
        // Whoever asks for the same meanwhile waits for this answer, and does not ask again.
        let mut kept = lock(&slot.explained);
        if let Some(known) = kept.as_ref().filter(|it| is_fresh(it.at, now)) {
            return (known.answer.clone(), known.why_not.clone());
        }
        let job = &moment.job;
        let words = Words {
            program: self.program().to_owned(),
            handle: format!(
                "{}{}",
                job.resource(),
                cluster::flags(&self.place, &job.key.namespace)
            ),
        };
        let (answer, why_not) = match self.look.facts(job, &words) {
            Ok(facts) => {
                let mut answer = serde_json::to_value(explain(&facts)).unwrap_or_default();
                if let Some(answer) = answer.as_object_mut() {
                    answer.insert("version".to_owned(), json!(1));
                    answer.insert("job".to_owned(), json!(facts.job.name));
                    answer.insert("namespace".to_owned(), json!(facts.job.namespace));
                }
                (Some(answer), None)
            }
            Err(error) => (None, Some(refused(error).message)),
        };
        *kept = Some(Explained {
            at: now,
            answer: answer.clone(),
            why_not: why_not.clone(),
        });
        (answer, why_not)
    }

    /// The events of a job and of its pods, as the API server keeps them.
    pub(super) fn read_events(
        &self,
        slot: &RunSlot,
        moment: &Moment,
        now: Timestamp,
    ) -> EventsRead {
        let mut kept = lock(&slot.events);
        if let Some(known) = kept.as_ref().filter(|it| is_fresh(it.at, now)) {
            return known.clone();
        }
        let uids: BTreeSet<&str> = moment.pods.iter().map(|pod| pod.uid.as_str()).collect();
        let (events, error) = self.look.events(&moment.job, &uids);
        let read = EventsRead {
            at: now,
            events: Arc::new(events),
            why_not: error.map(|error| refused(error).message),
        };
        *kept = Some(read.clone());
        read
    }
}

/// The same for a job that is not there and for one that whoever asks may not see.
fn no_run(id: &str) -> Problem {
    problem(
        ProblemCode::NotFound,
        format!("no job with the id `{}` is here", clean::text(id)),
        "a job that was deleted leaves nothing in the cluster",
    )
}

/// Whether what was read at `at` is new enough.
pub(super) fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at).abs() < FRESH
}

fn drawn(moment: &Moment, ask: &StripQuery) -> Strip {
    let chronicle = &moment.chronicle;
    let until = moment.until;
    let end = chronicle.until(until).unwrap_or(until.as_millisecond());
    let from = ask.from.or(chronicle.began).unwrap_or(end);
    let ask = StripAsk {
        from,
        to: ask.to.unwrap_or(end),
        columns: ask.columns,
        rows: ask.rows,
        by: if ask.by_node { By::Node } else { By::Rank },
    };
    strip(chronicle, &ask, until)
}

/// The newest step and its time, where a failure would lose it.
fn at_risk(moment: &Moment) -> Option<(u64, i64)> {
    if moment.job.has_ended() {
        return None;
    }
    let record = moment.job.status.trainyard.progress.as_ref()?;
    Some((record.step, record.last_step_at.as_millisecond()))
}
