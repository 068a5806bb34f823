//! The loop that runs a job here: observe, decide, write, act, wait.
//!
//! One thread does all of it and sleeps in the kernel until something happens: a word from a pod
//! init, output of a container, the end of a pod's last process, a request to stop, a timer.
//!
//! Invariant: however [`run`] returns, every pod is gone by then.

mod act;
mod beats;
mod checkpoints;
mod ends;
mod events;
mod facts;
mod failures;
mod faults;
mod gpu_wait;
mod hangs;
mod keeper;
mod listen;
mod notice;
mod outlet;
mod output;
mod pace;
mod profile;
mod remote;
mod report;
mod schedule;
mod show;
mod site;
mod stacks;
mod start;
mod steps;
mod stored;
mod streams;
mod table;
mod wanted;
mod watches;

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use trainyard_core::{
    chronicle::Places,
    job::{self, Autoscaler, Grouping, Observed, Seating, SeenFabric, SeenGang, SeenPreflight},
    launch::Plan,
    spec::{Job, RestartScope, WatchMode},
};
use trainyard_probe::evidence::{GpuPower, Ras};

use self::{
    beats::Beats,
    checkpoints::Checkpoints,
    facts::Recorder,
    failures::Failures,
    faults::Faults,
    gpu_wait::GpuWait,
    hangs::Hangs,
    keeper::Keeper,
    listen::Listener,
    notice::Notices,
    outlet::Outlet,
    remote::Remote,
    schedule::Schedule,
    site::Site,
    steps::Steps,
    stored::Stored,
    table::{Entry, Pods},
    wanted::Wanted,
    watches::{Watch, Watches},
};
use crate::{
    HostError,
    kineto::Daemon,
    pod_spec::Surroundings,
    prepare::{Prepared, prepare},
    request::{RunEvent, RunRequest},
    stop::StopHandle,
    store::{RunFolder, RunRecord, RunReport, RunWriter, Store},
    volumes::Volumes,
};

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
    let outlet = Outlet::new(writer, sink);
    let engine = Engine::new(request, &prepared, plan, faults, keeper, outlet, &store);
    let mut engine = engine.inspect_err(|_| {
        // Nothing ran, so there is nothing to keep.
        drop(fs::remove_dir_all(&folder));
    })?;
    let outcome = engine.run_to_end(stop);
    engine.end_everything();
    outcome
}

/// Makes the folder for dumps of Flight Recorders, where the job is watched. A note where that fails: the run goes on without.
fn flight_folder(job: &Job, run: &Path) -> (Option<PathBuf>, Option<String>) {
    if job.settings.watch == WatchMode::Off {
        return (None, None);
    }
    let folder = run.join("flight");
    match fs::create_dir(&folder) {
        Ok(()) => (Some(folder), None),
        Err(error) => {
            let note = format!("Flight Recorders of ranks are not asked for dumps: {error}");
            (None, Some(note))
        }
    }
}

/// An address of this machine on which nobody listens.
fn free_address() -> Option<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    Some(listener.local_addr().ok()?.to_string())
}

/// The parts of a run. What concerns one of them alone is a method of that part.
struct Engine<'a> {
    job: &'a Job,
    wanted: Wanted<'a>,
    site: Site<'a>,
    stored: Stored,
    outlet: Outlet<'a>,
    watches: Watches,
    schedule: Schedule,
    pods: Pods,
    buffer: output::Buffer,
    steps: Steps,
    listener: Listener,
    failures: Failures,
    facts: Recorder,
    faults: Faults,
    hangs: Hangs,
    gpu_wait: GpuWait,
    beats: Beats,
    notices: Notices,
    /// Nothing where traces cannot be recorded.
    kineto: Option<Daemon>,
    checkpoints: Checkpoints,
    volumes: Volumes,
    remote: Remote,
}

impl<'a> Engine<'a> {
    fn new(
        request: &RunRequest,
        prepared: &'a Prepared,
        plan: Plan<'a>,
        faults: Faults,
        keeper: Keeper,
        outlet: Outlet<'a>,
        store: &Store,
    ) -> Result<Self, HostError> {
        let RunFolder { id, path, .. } = outlet.writer.folder();
        let (open_files, most) = getrlimit(Resource::RLIMIT_NOFILE)
            .map_err(HostError::system_errno("read the limit of open files"))?;
        // A pod takes four descriptors and more; what programs may open is passed on unchanged.
        setrlimit(Resource::RLIMIT_NOFILE, most, most)
            .map_err(HostError::system_errno("raise the limit of open files"))?;
        let volumes = Volumes::plan(request, &prepared.job, store, id)?;
        let (beats, no_beats) = Beats::new(path.join("beats"));
        let (flight, no_flight) = flight_folder(&prepared.job, path);
        let (kineto, no_kineto) = match Daemon::start(path.join("profiles")) {
            Ok(daemon) => (Some(daemon), None),
            Err(error) => (
                None,
                Some(format!(
                    "`trainyard profile` cannot record this run: {error}"
                )),
            ),
        };
        let notices = Notices::new(path.join("notice.json"));
        let surroundings = Surroundings {
            environment: request.options.environment.iter().cloned().collect(),
            image_env: request.options.image_env.clone(),
            working_dir: request.options.working_dir.clone(),
            volumes: store.volumes(),
            own_volumes: volumes.own(path),
            hosts: path.join("hosts"),
            stage: path.join("mnt"),
            beats: beats.folder().map(Path::to_owned),
            notice: notices.file().to_owned(),
            ras: flight.as_ref().and_then(|_| free_address()),
            flight,
            kineto: kineto.as_ref().map(|daemon| daemon.folders().clone()),
            open_files,
        };
        let ras = Ras::new(surroundings.ras.as_deref());
        let ras = ras.filter(|_| surroundings.ras.is_some());
        let remote = Remote::listen(path, &request.options.program)?;
        let now = Instant::now();
        let by_pod = prepared.job.restart_scope() == RestartScope::Pod;
        let mut engine = Self {
            job: &prepared.job,
            wanted: Wanted::new(&prepared.job),
            site: Site::new(prepared, plan, surroundings, remote.commands().to_owned()),
            stored: Stored::default(),
            watches: Watches::new()?,
            schedule: Schedule::new(now),
            pods: Pods::new(keeper),
            buffer: output::Buffer::new(),
            steps: Steps::default(),
            listener: Listener::new(now, by_pod, request.options.rules.clone()),
            failures: Failures::default(),
            facts: Recorder::new(None, Places::new()),
            faults,
            hangs: Hangs::new((&prepared.job.settings).into(), ras, now)?,
            gpu_wait: GpuWait::new(&prepared.gpus),
            beats,
            notices,
            kineto,
            checkpoints: Checkpoints::default(),
            volumes,
            remote,
            outlet,
        };
        if engine.gpu_wait.has_gpus() {
            engine.hangs.watch_power(GpuPower::start(), now);
        }
        engine.prepare(request, &prepared.notes)?;
        let notes = no_beats.into_iter().chain(no_flight).chain(no_kineto);
        for note in engine.volumes.renew(store)?.into_iter().chain(notes) {
            engine.outlet.note(note);
        }
        Ok(engine)
    }

    /// Writes what pods and readers need before the first pod is started, and checks that every
    /// role can be.
    fn prepare(&mut self, request: &RunRequest, notes: &[String]) -> Result<(), HostError> {
        self.site.write_files()?;
        let writer = &self.outlet.writer;
        let RunFolder { id, path, .. } = writer.folder().clone();
        let injections = request.options.inject.iter();
        let record = RunRecord {
            job: request.manifest.clone(),
            injections: injections.map(ToString::to_string).collect(),
            ..RunRecord::new(self.job, id.clone(), writer.started_at())
        };
        writer.write_record(&record).map_err(HostError::Store)?;
        let (mut facts, places) = (None, record.ranks.places(&record.replicas));
        self.outlet.save(|writer| {
            facts = Some(writer.create_facts()?);
            Ok(())
        });
        self.facts = Recorder::new(facts, places);
        self.watches.add(self.remote.listener(), Watch::Listener)?;
        self.watch_keeper()?;
        if let Some(looker) = self.hangs.looker() {
            self.watches.add(looker.descriptor(), Watch::Looker)?;
        }
        if let Some(beats) = self.beats.descriptor() {
            self.watches.add(beats, Watch::Beats)?;
        }
        let scratch = path.join("scratch");
        self.site.check_roles(&scratch.join("check"))?;
        if let Some(folder) = self.site.checkpoint_folder(&scratch)? {
            self.checkpoints = Checkpoints::new(folder);
        }
        if let Some(bell) = self.checkpoints.descriptor() {
            self.watches.add(bell, Watch::Checkpoints)?;
        }
        self.outlet.emit(RunEvent::Prepared {
            run_id: id.clone(),
            folder: path,
            pods: self.job.total_replicas(),
        });
        let limits = self.site.cgroups.make(self.job, &id);
        let notes = notes.iter().cloned();
        let notes = notes.chain(self.volumes.note()).chain(limits);
        for note in notes.chain(self.checkpoints.note()) {
            self.outlet.note(note);
        }
        Ok(())
    }

    fn run_to_end(&mut self, stop: &StopHandle) -> Result<RunReport, HostError> {
        self.watches.add(stop.as_fd(), Watch::Stop)?;
        loop {
            while self.schedule.is_due(Instant::now()) {
                self.pass()?;
            }
            if self.is_over() {
                break;
            }
            self.write_store(Instant::now());
            let seen = self.watches.wait(self.time_to_next_event());
            let seen = seen.map_err(HostError::system_errno("wait for pods"))?;
            for (watch, number) in seen {
                self.handle(watch, number, stop)?;
            }
            self.act_on_time()?;
        }
        self.report_last_notice();
        let report = self.report();
        self.outlet.save(|writer| writer.write_report(&report));
        self.outlet
            .emit(RunEvent::Finished(Box::new(report.clone())));
        Ok(report)
    }

    /// One turn of observe, decide, write, act.
    fn pass(&mut self) -> Result<(), HostError> {
        self.schedule.begin(Instant::now());
        self.stored.view += 1;
        self.conclude();
        // One time for both: silence that ends between two readings of the clock would never be noticed.
        let now = Timestamp::now();
        let mut observed = self.observe(now);
        if self.listener.is_by_pod() {
            observed.judged = self.judge_ends(self.job, &observed);
        }
        let decision = job::decide(self.wanted.job(), &observed, now);
        if decision.status != self.stored.status {
            let (view, status) = (self.stored.view, decision.status);
            self.outlet
                .save(|writer| writer.write_status(view, &status));
            self.stored.status = status.clone();
            self.outlet.emit(RunEvent::Status(Box::new(status)));
        }
        self.facts.concluded(self.listener.take_kept());
        self.facts.observe(&self.stored.status, observed.pods, now);
        if self.failures.is_unreported() {
            // After the output of its pod.
            self.read_failed_pod_output();
        }
        if let Some(failure) = self.failures.take_unreported() {
            self.outlet.emit(RunEvent::FailedFirst(Box::new(failure)));
        }
        for event in decision.events {
            self.outlet.emit(RunEvent::Event(event));
        }
        self.schedule.wake_after(
            decision
                .wake_at
                .map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default()),
        );
        for action in decision.actions {
            self.carry_out(action)?;
        }
        self.start_again();
        Ok(())
    }

    fn observe(&self, now: Timestamp) -> Observed {
        let stored = &self.stored;
        Observed {
            version: stored.view,
            status: stored.status.clone(),
            being_deleted: false,
            pods: self.pods.entries.values().map(Entry::observed).collect(),
            services: stored.services.clone(),
            nodes: stored.nodes.clone(),
            shared: stored.shared.clone(),
            autoscaler: if stored.autoscaler {
                Autoscaler::Current
            } else {
                Autoscaler::Missing
            },
            refusals: Vec::new(),
            progress: self.steps.progress(now),
            seating: Seating::Open,
            grouping: Grouping::Unused,
            verdict: self.failures.verdict(),
            judged: Vec::new(),
            transports: self.listener.transports(),
            fabric: SeenFabric::Unused,
            preflight: SeenPreflight::Unused,
            gang: SeenGang::Unused,
            store: self.checkpoints.seen(),
            watches_ranks: true,
            attended: true,
        }
    }

    /// Whether nothing is left to do. Pods that a policy would leave running on a cluster are
    /// ended here, because nothing would watch them.
    fn is_over(&mut self) -> bool {
        let has_ended = self.stored.has_ended();
        if !has_ended && !self.wanted.is_stopped() {
            return false;
        }
        let left = self.pods.live();
        if has_ended {
            for key in &left {
                self.stop_pod(*key);
            }
        }
        let is_over = left.is_empty() && (has_ended || self.pods.entries.is_empty());
        is_over && (self.wanted.is_stopped_at_once() || self.checkpoints.is_over(Instant::now()))
    }

    /// How long until something is due; `None` where nothing is.
    fn time_to_next_event(&self) -> Option<Duration> {
        let dues = [
            self.pods.due(),
            self.schedule.due(),
            self.steps.due(),
            self.faults.due(),
            self.hangs.due(),
            self.beats.due(),
            self.gpu_wait.due(),
            self.checkpoints.due(),
            self.watches.due(),
            self.facts.due(&self.steps.points),
        ];
        let next = dues.into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Writes to the store what was seen since, so that other terminals see it, and so that it is known after an engine that
    /// was killed. Nothing is written between the end of a rank and what was decided about it.
    fn write_store(&mut self, now: Instant) {
        if self.failures.take_unsaved() {
            if let Some(key) = self.failures.writes_on() {
                self.read_pipes(key);
                let folder = self.outlet.writer.folder();
                self.failures.read_last_lines(folder);
            }
            let failures = self.failures.all();
            self.outlet.save(|writer| writer.write_failures(failures));
        }
        if let Some(pods) = self.pods.take_unsaved() {
            self.outlet.save(|writer| writer.write_pods(pods));
        }
        if let Some(progress) = self.steps.take_unsaved(now) {
            self.outlet.save(|writer| writer.write_progress(&progress));
        }
        self.write_facts(now, false);
    }
}
