//! `trainyard suspend`, `resume`, `restart` and `delete`, on this machine and on a cluster.

use std::{
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use trainyard_host::store::RunFolder;
use trainyard_kube::look::JobSeen;

use crate::{
    args::{Delete, Named},
    cluster::{self, Site},
    failure::{Exit, Failure},
    printer::Printer,
    stored::{self, Stored},
    words,
};

/// Poll interval for a run that is being stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The job to change, which has not ended.
#[expect(clippy::large_enum_variant, reason = "a command has one")]
enum Target<'a> {
    Machine(Stored),
    Cluster(Site<'a>, JobSeen),
}

impl<'a> Target<'a> {
    /// The job that the arguments name, for someone to `verb` it.
    fn find(args: &'a Named, verb: &str) -> Result<Self, Failure> {
        if !args.place.is_cluster() {
            return stored::live(args, verb).map(Self::Machine);
        }
        let site = cluster::connect(&args.place)?;
        let job = site.find(&args.job)?;
        if !job.has_ended() {
            return Ok(Self::Cluster(site, job));
        }
        let state = job.state().to_lowercase();
        let message = format!("cannot {verb} {}: it has {state}", title(&job));
        Err(Failure::new(message).hint(format!(
            "an ended job cannot be changed; run `{}` and apply its file again",
            site.command("delete", &args.job)
        )))
    }

    fn title(&self) -> String {
        match self {
            Self::Machine(run) => format!("job `{}`", run.record.name),
            Self::Cluster(_, job) => title(job),
        }
    }

    /// A command of this program for the same job.
    fn command(&self, command: &str, args: &Named) -> String {
        match self {
            Self::Machine(run) => format!("trainyard {command} {}", run.record.name),
            Self::Cluster(site, _) => site.command(command, &args.job),
        }
    }
}

fn title(job: &JobSeen) -> String {
    let key = &job.key;
    format!("{} `{}/{}`", job.kind().name(), key.namespace, key.name)
}

/// Suspends or resumes the job.
pub(super) fn suspend(args: &Named, suspend: bool, printer: &mut Printer) -> Result<Exit, Failure> {
    let target = Target::find(args, if suspend { "suspend" } else { "resume" })?;
    let title = target.title();
    match &target {
        Target::Machine(run) => {
            let request = run.folder.request_suspend(suspend);
            request.map_err(stored::refused)?;
        }
        Target::Cluster(site, job) => {
            if let Some(manager) = job.manager() {
                printer.summary(&format!(
                    "warning: `{manager}` manages the job, and may set `suspend` again"
                ));
            }
            if job.suspend == suspend {
                let not = if suspend { "" } else { "not " };
                printer.summary(&format!("{title} is {not}suspended already"));
                return Ok(Exit::Done);
            }
            site.look.suspend(job, suspend).map_err(cluster::refused)?;
        }
    }
    printer.summary(&if suspend {
        let resume = target.command("resume", args);
        format!("{title} is suspended and its pods are terminating; `{resume}` resumes it")
    } else {
        let suspend = target.command("suspend", args);
        format!("{title} resumes with a new attempt; `{suspend}` suspends it again")
    });
    Ok(Exit::Done)
}

/// Requests a new attempt.
pub(super) fn restart(args: &Named, printer: &mut Printer) -> Result<Exit, Failure> {
    let target = Target::find(args, "restart")?;
    let title = target.title();
    let (suspended, attempts) = match &target {
        Target::Machine(run) => (run.state() == "Suspended", run.attempts()),
        Target::Cluster(_, job) => (job.suspend, job.status.trainyard.attempt),
    };
    if suspended {
        let resume = target.command("resume", args);
        return Err(Failure::new(format!("{title} is suspended"))
            .hint(format!("`{resume}` resumes it with a new attempt")));
    }
    let name = Timestamp::now().to_string();
    match &target {
        Target::Machine(run) => run.folder.request_restart(&name).map_err(stored::refused)?,
        Target::Cluster(site, job) => {
            site.look.restart(job, &name).map_err(cluster::refused)?;
        }
    }
    printer.summary(&format!(
        "requested attempt {} of {title}; it does not count against the failure budget; `{}` shows its progress",
        attempts + 1,
        target.command("status", args)
    ));
    Ok(Exit::Done)
}

/// Deletes the job and all that is kept of it.
pub(super) fn delete(args: &Delete, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return delete_in_cluster(args, printer);
    }
    let store = stored::open(&args.state)?;
    let job = &args.which.job;
    let named = stored::find(&store, &args.which)?.folder;
    let folders = match args.which.run {
        Some(_) => vec![named],
        None => store.runs(job).map_err(stored::refused)?,
    };
    for folder in &folders {
        stop(folder, args)?;
    }
    if args.no_wait && folders.iter().any(RunFolder::is_live) {
        printer.summary(&format!(
            "job `{job}` is being stopped; `trainyard delete {job}` removes it once it has ended"
        ));
        return Ok(Exit::Done);
    }
    for folder in &folders {
        folder.remove().map_err(stored::refused)?;
    }
    printer.summary(&format!(
        "deleted {} of job `{job}` with logs; volumes stay, and `trainyard run` of its file starts a \
         new run",
        words::counted(folders.len() as u64, "run")
    ));
    Ok(Exit::Done)
}

/// Stops the run where it lives, and waits for its end unless `--no-wait` is set.
fn stop(folder: &RunFolder, args: &Delete) -> Result<(), Failure> {
    if !folder.is_live() {
        return Ok(());
    }
    folder.request_stop(false).map_err(stored::refused)?;
    let until = Instant::now() + Duration::from_secs(args.timeout);
    while !args.no_wait && folder.is_live() {
        if Instant::now() >= until {
            return Err(Failure::new(format!(
                "job `{}` has not ended within {} s",
                folder.job, args.timeout
            ))
            .hint("pods may use their whole grace period; wait longer with `--timeout`"));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Deletes the job and waits until it and its pods are gone.
fn delete_in_cluster(args: &Delete, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = cluster::connect(&args.place)?;
    let job = site.find(&args.which.job)?;
    let title = title(&job);
    site.look.delete(&job).map_err(cluster::refused)?;
    let again = "applying its file again creates a new job";
    if args.no_wait {
        printer.summary(&format!("{title} is being deleted; {again}"));
        return Ok(Exit::Done);
    }
    printer.note("waiting for its pods to terminate");
    let timeout = Duration::from_secs(args.timeout);
    let gone = site.look.wait_until_gone(&job, timeout);
    gone.map_err(cluster::refused)?;
    printer.summary(&format!("{title} and its pods are deleted; {again}"));
    Ok(Exit::Done)
}
