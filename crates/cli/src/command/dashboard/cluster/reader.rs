//! Whoever asks, as far as an answer depends on it: what is left out of a document for him, and what he asks the API server with.

use std::{
    collections::BTreeSet,
    hash::RandomState,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use serde_json::Value;
use trainyard_kube::look::{Health, LiveJob};
use trainyard_web::{
    Asker, Credential, Document, Problem, ProblemCode, Question, RunPart, Visitor,
};

use super::{
    Cluster,
    access::{Access, Places},
    document,
    index::Brief,
    lock, problem,
    run::is_fresh,
    sight::{Existing, Sight, UNREVIEWED, Veil},
};
use crate::clean;

/// Whoever asks.
pub(super) struct Reader<'a> {
    /// What he may see; nothing here where that is everything.
    pub(super) sight: Option<Sight>,
    /// His own token, where logs are read with it.
    pub(super) token: Option<&'a str>,
    /// His name.
    pub(super) you: Option<String>,
}

/// What was reviewed, and what stands for names that are hidden.
#[derive(Debug, Default)]
pub(super) struct Readers {
    pub(super) access: Access,
    names: RandomState,
    /// The nodes of all pods, and when they were gathered.
    nodes: Mutex<Option<(Timestamp, Arc<BTreeSet<String>>)>>,
}

impl Reader<'_> {
    /// Somebody who sees everything.
    pub(super) fn owner() -> Self {
        Self {
            sight: None,
            token: None,
            you: None,
        }
    }

    /// Whether he may see the jobs of a kind in a namespace.
    pub(super) fn sees(&self, kind: &str, namespace: &str) -> bool {
        let sight = self.sight.as_ref();
        sight.is_none_or(|sight| sight.sees(kind, namespace))
    }

    pub(super) fn sees_job(&self, job: &LiveJob) -> bool {
        self.sees(job.kind().name(), job.namespace())
    }

    /// Whether the list of jobs may count all of them.
    pub(super) fn sees_all(&self) -> bool {
        self.sight.as_ref().is_none_or(Sight::sees_all)
    }

    /// The jobs that he may see.
    pub(super) fn visible(&self, mut briefs: Vec<Arc<Brief>>) -> Vec<Arc<Brief>> {
        briefs.retain(|brief| self.sees(&brief.row.kind, &brief.row.namespace));
        briefs
    }

    /// When the API server answered last. Every change of anybody's job is an answer: who does not see all of them learns it only while none comes.
    pub(super) fn as_of(&self, health: &Health) -> Option<Timestamp> {
        let is_shown = self.sees_all() || health.unreachable.is_some();
        health.answered_at.filter(|_| is_shown)
    }

    /// What he should know of his own rights.
    pub(super) fn note(&self) -> Option<String> {
        let sight = self.sight.as_ref();
        let is_unreviewed = sight.is_some_and(|sight| sight.is_unreviewed);
        is_unreviewed.then(|| UNREVIEWED.to_owned())
    }

    /// Whether logs in this namespace are his to read; else why not.
    pub(super) fn check_logs(&self, namespace: &str) -> Result<(), Problem> {
        let sight = self.sight.as_ref();
        if sight.is_none_or(|sight| sight.reads_logs(namespace)) {
            return Ok(());
        }
        if let Some(note) = self.note() {
            return Err(problem(ProblemCode::Busy, note, "retry in a few seconds"));
        }
        Err(problem(
            ProblemCode::NotHere,
            format!(
                "you may not read logs in namespace `{namespace}`: the right `get` of `pods/log` is missing"
            ),
            "ask your cluster administrator for this permission",
        ))
    }

    /// Whether nodes are his to see; else why not.
    pub(super) fn check_nodes(&self) -> Result<(), Problem> {
        let sight = self.sight.as_ref();
        if sight.is_none_or(|sight| sight.nodes) {
            return Ok(());
        }
        if let Some(note) = self.note() {
            return Err(problem(ProblemCode::Busy, note, "retry in a few seconds"));
        }
        Err(problem(
            ProblemCode::NotHere,
            "you may not see nodes: the right `list` of `nodes` is missing",
            "ask your cluster administrator for this permission",
        ))
    }
}

impl Cluster {
    /// Whose a token is. It may call the API server.
    pub(crate) fn identify(&self, credential: &Credential) -> Result<Visitor, Problem> {
        let readers = &self.readers;
        readers
            .access
            .identify(&self.look, credential, Timestamp::now)
    }

    /// Whose a token is, where that was found out lately. It calls nothing.
    pub(crate) fn identified(&self, credential: &Credential) -> Option<Result<Visitor, Problem>> {
        let access = &self.readers.access;
        access.identified(credential, Timestamp::now())
    }

    /// Which changes somebody may learn of: those of the jobs that he may see.
    pub(crate) fn sight_of(&self, identity: &Arc<str>, now: Timestamp) -> trainyard_web::Sight {
        let places = self.places();
        let sight =
            self.readers
                .access
                .sight(&self.look, identity, &Places::All(places.clone()), now);
        let own = places
            .iter()
            .filter(|(kind, namespace)| sight.sees(kind.name(), namespace));
        let mut subjects: BTreeSet<String> = own
            .map(|(kind, namespace)| subject(kind.name(), namespace))
            .collect();
        if sight.nodes {
            subjects.insert(NODES.to_owned());
        }
        trainyard_web::Sight {
            all: false,
            subjects,
        }
    }

    fn places(&self) -> BTreeSet<(trainyard_core::spec::Kind, String)> {
        let jobs = self.live.jobs();
        let places = jobs.iter().map(|job| {
            (
                super::access::one_of(job.kind()),
                job.namespace().to_owned(),
            )
        });
        places.collect()
    }

    /// Whoever asks a question, with what he may see of what it is about.
    pub(super) fn reader<'a>(
        &self,
        question: &Question,
        asker: &'a Asker,
        now: Timestamp,
    ) -> Result<Reader<'a>, Problem> {
        let Asker::Visitor {
            identity,
            credential,
        } = asker
        else {
            return Ok(Reader::owner());
        };
        let places = match question {
            Question::About => Places::Nowhere,
            Question::Jobs(_) | Question::Queue | Question::Failures { .. } | Question::Nodes => {
                self.known()?;
                Places::All(self.places())
            }
            Question::Job { namespace, .. } => Places::Namespace(namespace.clone()),
            Question::Run { run, .. } => {
                self.known()?;
                let job = self.live.job(run);
                job.map_or(Places::Nowhere, |job| {
                    Places::Namespace(job.namespace().to_owned())
                })
            }
        };
        let access = &self.readers.access;
        let sight = access.sight(&self.look, identity, &places, now);
        if sight.is_blind() && *question != Question::About {
            return Err(problem(
                ProblemCode::Busy,
                UNREVIEWED,
                "if it stays, check that the API server is up and the rights of the dashboard's ServiceAccount",
            ));
        }
        Ok(Reader {
            sight: Some(sight),
            token: Some(credential.expose()),
            you: access.name_of(identity, now),
        })
    }

    /// A document without the names that whoever asks may not see.
    pub(super) fn covered(
        &self,
        question: &Question,
        answer: Document,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let Some(sight) = &reader.sight else {
            return Ok(answer);
        };
        // What somebody wrote himself, and what his own program wrote, is his.
        let is_own = matches!(
            question,
            Question::About
                | Question::Run {
                    part: RunPart::Spec | RunPart::Logs(_) | RunPart::FoldedLogs { .. },
                    ..
                }
        );
        if is_own || sight.nodes && sight.sees_all() {
            return Ok(answer);
        }
        let mut value: Value = serde_json::from_slice(&answer.json).map_err(|error| {
            problem(
                ProblemCode::Unreadable,
                format!(
                    "the answer cannot be read again: {}",
                    clean::text(&error.to_string())
                ),
                "report this as a bug",
            )
        })?;
        let run = match question {
            Question::Run { run, .. } => Some(run.as_str()),
            _ => value.get("run").and_then(Value::as_str),
        };
        let veil = Veil::new(sight, &self.existing(), &self.nodes_of(run, now));
        if *question == Question::Nodes {
            veil.cover_holders(&mut value);
        }
        veil.cover(&mut value, &self.readers.names);
        let mut covered = document(&value)?;
        covered.file_name = answer.file_name;
        Ok(covered)
    }

    /// Jobs with the lines that whoever asks is shown: a search in what is hidden would find it letter by letter.
    pub(super) fn covered_lines(
        &self,
        briefs: Vec<Arc<Brief>>,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Vec<Arc<Brief>> {
        let sight = reader.sight.as_ref();
        let Some(sight) = sight.filter(|sight| !(sight.nodes && sight.sees_all())) else {
            return briefs;
        };
        let veil = Veil::new(sight, &self.existing(), &self.nodes_of(None, now));
        let cover = |brief: Arc<Brief>| {
            let line = brief.row.line.as_deref();
            let covered = line.and_then(|line| veil.cover_line(line, &self.readers.names));
            let Some(covered) = covered else {
                return brief;
            };
            let mut changed = Brief::clone(&brief);
            changed.row.line = Some(covered);
            Arc::new(changed)
        };
        briefs.into_iter().map(cover).collect()
    }

    /// Every job, by kind, namespace and name.
    fn existing(&self) -> Vec<Existing> {
        let jobs = self.live.jobs();
        let named = jobs.iter().map(|job| {
            let (namespace, name) = (job.namespace().to_owned(), job.name().to_owned());
            (job.kind(), namespace, name)
        });
        named.collect()
    }

    /// The nodes of all pods, and those of earlier pods of one run.
    fn nodes_of(&self, run: Option<&str>, now: Timestamp) -> BTreeSet<String> {
        let mut nodes = BTreeSet::clone(&self.node_names(now));
        let slot = run.and_then(|run| self.known_slot(run));
        if let Some(slot) = slot {
            let chronicle = slot.chronicle();
            let seats = chronicle.lanes.values().flat_map(|lane| &lane.seats);
            nodes.extend(seats.map(|seat| seat.node.clone()));
        }
        nodes
    }

    fn node_names(&self, now: Timestamp) -> Arc<BTreeSet<String>> {
        let mut kept = lock(&self.readers.nodes);
        if let Some((at, names)) = &*kept
            && is_fresh(*at, now)
        {
            return Arc::clone(names);
        }
        let mut names = self.live.nodes();
        // A node that failed has often no pod of a job any more, and the lines of jobs name it.
        let briefs = self.briefs(now);
        let judged = briefs.iter().filter_map(|brief| brief.judged.as_ref());
        names.extend(judged.flat_map(|it| it.verdict.nodes.iter().cloned()));
        let names = Arc::new(names);
        *kept = Some((now, Arc::clone(&names)));
        names
    }
}

/// The subject of changes of the jobs of a kind in a namespace.
pub(super) fn subject(kind: &str, namespace: &str) -> String {
    format!("{kind}/{namespace}")
}

/// The subject of changes of nodes.
pub(super) const NODES: &str = "nodes";
