//! The loop that runs a job here: observe, decide, write, act, wait.
//!
//! One thread does all of it and sleeps in the kernel until something happens: a word from a pod
//! init, output of a container, the end of a pod's last process, a request to stop, a timer.
//!
//! Invariant: however [`run`] returns, every pod is gone by then.

mod act;
mod ends;
mod events;
mod faults;
mod keeper;
mod listen;
mod output;
mod pace;
mod remote;
mod report;
mod show;
mod start;
mod streams;
mod table;
mod unsaved;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        resource::{Resource, getrlimit, setrlimit},
        time::TimeSpec,
    },
};
use trainyard_core::{
    job::{
        self, Autoscaler, ConditionStatus, ConditionType, Grouping, IndexSet, JobStatus,
        NodeHealth, Observed, Refusal, Seating, SeenFabric, SeenPreflight, SharedInputs,
    },
    launch::Plan,
    progress::{StepReporters, Track},
    spec::{Job, RestartScope, Role},
};

use self::{
    faults::Faults,
    keeper::Keeper,
    listen::Listener,
    remote::Remote,
    table::{Entry, Key},
    unsaved::Unsaved,
};
use crate::{
    HostError,
    limits::Limits,
    objects::Objects,
    pod_spec::Surroundings,
    prepare::{Prepared, addresses::Directory, prepare},
    request::{RunEvent, RunRequest},
    stop::StopHandle,
    store::{FailedRank, RunRecord, RunReport, RunWriter, Store},
    volumes::Volumes,
};

/// How often progress alone causes a decision, and a write.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Events taken from the kernel at once.
const BATCH: usize = 256;

/// Runs the job of `request` on this machine to its end, and sends events to `sink`.
///
/// Returns when no process of the job is left. The error is why the job could not be run; a job
/// that ran and failed is not an error.
pub fn run(
    request: &RunRequest,
    stop: &StopHandle,
    sink: &mut dyn FnMut(RunEvent),
) -> Result<RunReport, HostError> {
    let prepared = prepare(request)?;
    let plan = Plan::new(&prepared.job, &prepared.cluster).map_err(|source| HostError::Launch {
        job: prepared.job.name.clone(),
        source,
    })?;
    let faults = Faults::new(&prepared.job, &request.options.inject)?;
    let keeper = Keeper::start(&request.options.program)?;
    keeper.probe()?;
    let store = Store::create(&request.state_dir).map_err(HostError::Store)?;
    let writer = RunWriter::begin(&store, &prepared.job, Timestamp::now());
    let writer = writer.map_err(HostError::Store)?;
    let folder = writer.folder().path.clone();
    let engine = Engine::new(request, &prepared, plan, keeper, writer, &store, sink);
    let mut engine = engine.inspect_err(|_| {
        // Nothing ran, so there is nothing to keep.
        drop(fs::remove_dir_all(&folder));
    })?;
    engine.faults = faults;
    engine.renew_volumes(&store).inspect_err(|_| {
        drop(fs::remove_dir_all(&folder));
    })?;
    let outcome = engine.run_to_end(stop);
    engine.end_everything();
    outcome
}

/// What a descriptor that the kernel reports belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Watch {
    Stop,
    /// A pod init says something.
    Control(Key),
    /// The last process of a pod is gone, or the keeper itself is.
    Keeper,
    /// Someone asks for a command in a pod.
    Listener,
    /// Who asked for a command.
    Client(u64),
    /// A stream of a pod.
    Output(Key, usize),
}

/// What was said once and is not said again.
#[derive(Clone, Copy, Debug, Default)]
struct Complained {
    logs: bool,
    store: bool,
    hosts: bool,
}

struct Engine<'a> {
    job: &'a Job,
    /// The same job as someone has changed it since.
    edited_job: Option<Job>,
    /// The same job with `suspend` set, once a stop was requested.
    stopped_job: Option<Job>,
    prepared: &'a Prepared,
    plan: Plan<'a>,
    directory: Directory,
    objects: Objects,
    surroundings: Surroundings,
    program: PathBuf,
    keeper: Keeper,
    node: String,
    machine: start::Machine,
    writer: RunWriter,
    sink: &'a mut dyn FnMut(RunEvent),
    epoll: Epoll,
    watches: BTreeMap<u64, Watch>,
    next_watch: u64,
    pods: BTreeMap<Key, Entry>,
    next_key: Key,
    /// The store does not have the pods as they are.
    pods_changed: bool,
    buffer: output::Buffer,
    /// When each resting stream is read next.
    resting: BTreeSet<(Instant, u64)>,
    status: JobStatus,
    view: u64,
    services: BTreeMap<Role, IndexSet>,
    shared: Option<SharedInputs>,
    autoscaler: bool,
    nodes: BTreeMap<String, NodeHealth>,
    refusals: Vec<Refusal>,
    /// The stream that speaks for the attempt `tracked`, and what it reported.
    reporters: StepReporters<(Key, usize)>,
    track: Track,
    tracked: u32,
    /// The first step that was reported in the run.
    first_step: Option<u64>,
    /// The furthest step of all attempts.
    last_step: Option<u64>,
    /// The last loss of any attempt. It can be NaN.
    last_loss: Option<f64>,
    failures: Vec<FailedRank>,
    listener: Listener,
    /// Containers that ended in place, and are started again once that was decided.
    to_start_again: Vec<(Key, String)>,
    unsaved: Unsaved,
    /// Whether something was seen since the last decision.
    changed: bool,
    /// When to decide even if nothing is seen.
    decide_at: Option<Instant>,
    decided: Instant,
    started_at: Timestamp,
    /// When the first pod was started.
    first_pod: Option<Instant>,
    stops: usize,
    faults: Faults,
    volumes: Volumes,
    remote: Remote,
    complained: Complained,
    /// The cgroups of the run, where a container has a limit and this user may make them.
    limits: Option<Limits>,
    out_of_memory_kills: u64,
}

impl<'a> Engine<'a> {
    fn new(
        request: &RunRequest,
        prepared: &'a Prepared,
        plan: Plan<'a>,
        keeper: Keeper,
        writer: RunWriter,
        store: &Store,
        sink: &'a mut dyn FnMut(RunEvent),
    ) -> Result<Self, HostError> {
        let folder = writer.folder().path.clone();
        let started_at = writer.started_at();
        let (open_files, most) = getrlimit(Resource::RLIMIT_NOFILE)
            .map_err(HostError::system_errno("read the limit of open files"))?;
        // A pod takes four descriptors and more; what programs may open is passed on unchanged.
        setrlimit(Resource::RLIMIT_NOFILE, most, most)
            .map_err(HostError::system_errno("raise the limit of open files"))?;
        let volumes = Volumes::plan(request, &prepared.job, store, &writer.folder().id)?;
        let surroundings = Surroundings {
            environment: request.options.environment.iter().cloned().collect(),
            image_env: request.options.image_env.clone(),
            working_dir: request.options.working_dir.clone(),
            volumes: store.volumes(),
            own_volumes: volumes.own(&folder),
            hosts: folder.join("hosts"),
            stage: folder.join("mnt"),
            open_files,
        };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(HostError::system_errno("watch descriptors"))?;
        let remote = Remote::listen(&folder, &request.options.program)?;
        let mut engine = Self {
            job: &prepared.job,
            edited_job: None,
            stopped_job: None,
            prepared,
            plan,
            // A machine without the file resolves by other means, which stay.
            directory: Directory::new(
                &prepared.addresses,
                &prepared.job,
                &fs::read_to_string("/etc/hosts").unwrap_or_default(),
            ),
            objects: prepared.objects.clone(),
            surroundings,
            program: request.options.program.clone(),
            keeper,
            node: start::node_name(),
            machine: start::Machine::read(),
            writer,
            sink,
            epoll,
            watches: BTreeMap::new(),
            next_watch: 0,
            pods: BTreeMap::new(),
            next_key: 0,
            pods_changed: false,
            buffer: output::Buffer::new(),
            resting: BTreeSet::new(),
            status: JobStatus::default(),
            view: 0,
            services: BTreeMap::new(),
            shared: None,
            autoscaler: false,
            nodes: BTreeMap::new(),
            refusals: Vec::new(),
            reporters: StepReporters::default(),
            track: Track::default(),
            tracked: 0,
            first_step: None,
            last_step: None,
            last_loss: None,
            failures: Vec::new(),
            listener: Listener::new(
                Instant::now(),
                prepared.job.restart_scope() == RestartScope::Pod,
                request.options.rules.clone(),
            ),
            to_start_again: Vec::new(),
            unsaved: Unsaved::default(),
            changed: true,
            decide_at: None,
            decided: Instant::now(),
            started_at,
            first_pod: None,
            stops: 0,
            faults: Faults::default(),
            volumes,
            remote,
            complained: Complained::default(),
            limits: None,
            out_of_memory_kills: start::out_of_memory_kills(),
        };
        engine.write_run_files(request)?;
        Ok(engine)
    }

    /// Writes what pods and readers need before the first pod is started, and checks that every
    /// role can be.
    fn write_run_files(&mut self, request: &RunRequest) -> Result<(), HostError> {
        let folder = self.writer.folder().path.clone();
        let write = |path: PathBuf| {
            move |source: io::Error| HostError::System {
                tried: format!("write `{}`", path.display()),
                source,
            }
        };
        self.directory
            .write(&self.surroundings.hosts)
            .map_err(write(self.surroundings.hosts.clone()))?;
        fs::create_dir_all(&self.surroundings.stage)
            .map_err(write(self.surroundings.stage.clone()))?;
        let run_id = self.writer.folder().id.clone();
        let mut record = RunRecord::new(self.job, run_id.clone(), self.started_at);
        record.job = request.manifest.clone();
        record.injections = request
            .options
            .inject
            .iter()
            .map(ToString::to_string)
            .collect();
        self.writer
            .write_record(&record)
            .map_err(HostError::Store)?;
        let listener = self.remote.listener().as_raw_fd();
        self.watch_raw(listener, Watch::Listener)?;
        self.watch_keeper()?;
        self.check_roles()?;
        (self.sink)(RunEvent::Prepared {
            run_id,
            folder,
            pods: self.job.total_replicas(),
        });
        let notes = self.prepared.notes.iter().cloned();
        for note in notes.chain(self.volumes.note()) {
            (self.sink)(RunEvent::Note(note));
        }
        self.make_limits();
        Ok(())
    }

    fn run_to_end(&mut self, stop: &StopHandle) -> Result<RunReport, HostError> {
        self.watch(stop.as_fd(), Watch::Stop)?;
        let mut events = [EpollEvent::empty(); BATCH];
        loop {
            while self.is_due() {
                self.pass()?;
            }
            if self.is_over() {
                break;
            }
            self.write_store(Instant::now());
            let count = match self.wait(&mut events) {
                Ok(count) => count,
                Err(nix::Error::EINTR) => 0,
                Err(errno) => {
                    return Err(HostError::system_errno("wait for pods")(errno));
                }
            };
            let mut seen: Vec<(Watch, u64)> = events
                .iter()
                .take(count)
                .filter_map(|event| {
                    let number = event.data();
                    self.watches.get(&number).map(|watch| (*watch, number))
                })
                .collect();
            // What a pod init says comes before any amount of output.
            seen.sort_unstable();
            for (watch, number) in seen {
                self.handle(watch, number, stop)?;
            }
            self.act_on_time()?;
        }
        let report = self.report();
        self.note_store(|writer| writer.write_report(&report));
        (self.sink)(RunEvent::Finished(Box::new(report.clone())));
        Ok(report)
    }

    /// One turn of observe, decide, write, act.
    fn pass(&mut self) -> Result<(), HostError> {
        self.changed = false;
        self.decided = Instant::now();
        self.view += 1;
        self.conclude();
        let mut observed = self.observe();
        if self.listener.is_by_pod() {
            observed.judged = self.judge_ends(self.job, &observed);
        }
        let edited = self.edited_job.as_ref();
        let job = self.stopped_job.as_ref().or(edited).unwrap_or(self.job);
        let now = Timestamp::now();
        let decision = job::decide(job, &observed, now);
        if decision.status != self.status {
            self.status = decision.status;
            let (view, status) = (self.view, self.status.clone());
            self.note_store(|writer| writer.write_status(view, &status));
            (self.sink)(RunEvent::Status(Box::new(status)));
        }
        self.emit_failure();
        for event in decision.events {
            (self.sink)(RunEvent::Event(event));
        }
        self.decide_at = decision.wake_at.map(|at| {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            self.decided + wait
        });
        for action in decision.actions {
            self.carry_out(action)?;
        }
        self.start_again();
        Ok(())
    }

    fn observe(&mut self) -> Observed {
        Observed {
            version: self.view,
            status: self.status.clone(),
            being_deleted: false,
            pods: self.pods.values().map(Entry::observed).collect(),
            services: self.services.clone(),
            nodes: self.nodes.clone(),
            shared: self.shared.clone(),
            autoscaler: if self.autoscaler {
                Autoscaler::Current
            } else {
                Autoscaler::Missing
            },
            refusals: std::mem::take(&mut self.refusals),
            // All that was written is read as it comes.
            progress: self.track.progress(self.tracked, start::now()),
            seating: Seating::Open,
            grouping: Grouping::Unused,
            verdict: self.failures.last().and_then(|last| last.verdict.clone()),
            judged: Vec::new(),
            transports: self.listener.transports(),
            fabric: SeenFabric::Unused,
            preflight: SeenPreflight::Unused,
            attended: true,
        }
    }

    fn is_due(&self) -> bool {
        self.changed || self.decide_at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether the job has ended, as its status says.
    fn has_ended(&self) -> bool {
        self.holds(ConditionType::Succeeded) || self.holds(ConditionType::Failed)
    }

    fn holds(&self, kind: ConditionType) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions
            .any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
    }

    /// Whether nothing is left to do. Pods that a policy would leave running on a cluster are
    /// ended here, because nothing would watch them.
    fn is_over(&mut self) -> bool {
        if !self.has_ended() && self.stopped_job.is_none() {
            return false;
        }
        let left: Vec<Key> = self
            .pods
            .iter()
            .filter(|(_, entry)| !entry.gone)
            .map(|(key, _)| *key)
            .collect();
        if self.has_ended() {
            for key in &left {
                self.stop_pod(*key);
            }
        }
        left.is_empty() && (self.has_ended() || self.pods.is_empty())
    }

    /// Waits for something to happen, or for what is due by the clock.
    fn wait(&self, events: &mut [EpollEvent]) -> nix::Result<usize> {
        // The kernel's own wait knows only milliseconds, in which a stream fills its pipe.
        let mut all = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        ppoll(
            &mut all,
            self.time_to_next_event().map(TimeSpec::from),
            None,
        )?;
        self.epoll.wait(events, EpollTimeout::ZERO)
    }

    /// How long until something is due; `None` where nothing is.
    fn time_to_next_event(&self) -> Option<Duration> {
        let kills = self.pods.values().filter_map(|entry| entry.kill_at);
        let next = kills
            .chain(self.decide_at)
            .chain(self.unsaved.due())
            .chain(self.faults.due(self.first_pod))
            .chain(self.resting.first().map(|(at, _)| *at))
            .min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>, watch: Watch) -> Result<(), HostError> {
        let number = self.next_watch;
        self.next_watch += 1;
        self.epoll
            .add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, number))
            .map_err(HostError::system_errno("watch a descriptor"))?;
        self.watches.insert(number, watch);
        Ok(())
    }

    /// Empties the volumes that are to start fresh; what they held is kept beside them.
    fn renew_volumes(&mut self, store: &Store) -> Result<(), HostError> {
        for note in self.volumes.renew(store)? {
            (self.sink)(RunEvent::Note(note));
        }
        Ok(())
    }

    /// Writes to the store. A disk that is full must not end the job.
    fn note_store(
        &mut self,
        write: impl FnOnce(&RunWriter) -> Result<(), crate::store::StoreError>,
    ) {
        if let Err(error) = write(&self.writer)
            && !self.complained.store
        {
            self.complained.store = true;
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let cause = cause.unwrap_or_default();
            let note = format!("{error}: {cause}; the run continues without it");
            (self.sink)(RunEvent::Note(note));
        }
    }
}
