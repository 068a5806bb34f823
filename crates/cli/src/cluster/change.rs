//! `trainyard suspend|resume|restart|delete JOB --cluster`.

use std::time::Duration;

use jiff::Timestamp;
use trainyard_kube::look::JobSeen;

use super::{Site, connect, refused};
use crate::{
    args::{Delete, Named},
    failure::{Exit, Failure},
    printer::Printer,
};

/// Suspends or resumes the job.
pub(crate) fn suspend(args: &Named, suspend: bool, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(&args.job)?;
    let word = if suspend { "suspend" } else { "resume" };
    refuse_ended(&site, &args.job, &job, word)?;
    if let Some(manager) = job.manager() {
        printer.summary(&format!(
            "warning: `{manager}` manages the job, and may set `suspend` again"
        ));
    }
    if job.suspend == suspend {
        let already = if suspend {
            "is suspended"
        } else {
            "is not suspended"
        };
        printer.summary(&format!("{} {already} already", title(&job)));
        return Ok(Exit::Done);
    }
    site.look.suspend(&job, suspend).map_err(refused)?;
    printer.summary(&if suspend {
        format!(
            "{} is suspended and its pods are terminating; `{}` resumes it",
            title(&job),
            site.command("resume", &args.job)
        )
    } else {
        format!(
            "{} resumes with a new attempt; `{}` suspends it again",
            title(&job),
            site.command("suspend", &args.job)
        )
    });
    Ok(Exit::Done)
}

/// Requests a new attempt.
pub(crate) fn restart(args: &Named, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(&args.job)?;
    refuse_ended(&site, &args.job, &job, "restart")?;
    if job.suspend {
        let resume = site.command("resume", &args.job);
        return Err(Failure::new(format!("{} is suspended", title(&job)))
            .hint(format!("`{resume}` resumes it with a new attempt")));
    }
    site.look
        .restart(&job, &Timestamp::now().to_string())
        .map_err(refused)?;
    printer.summary(&format!(
        "requested attempt {1} of {0}; it does not count against the failure budget; `{2}` shows its progress",
        title(&job),
        job.status.trainyard.attempt + 1,
        site.command("status", &args.job)
    ));
    Ok(Exit::Done)
}

/// Deletes the job and waits until it and its pods are gone.
pub(crate) fn delete(args: &Delete, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(&args.which.job)?;
    site.look.delete(&job).map_err(refused)?;
    let again = "applying its file again creates a new job";
    if args.no_wait {
        printer.summary(&format!("{} is being deleted; {again}", title(&job)));
        return Ok(Exit::Done);
    }
    printer.note("waiting for its pods to terminate");
    site.look
        .wait_until_gone(&job, Duration::from_secs(args.timeout))
        .map_err(refused)?;
    printer.summary(&format!(
        "{} and its pods are deleted; {again}",
        title(&job)
    ));
    Ok(Exit::Done)
}

fn title(job: &JobSeen) -> String {
    format!(
        "{} `{}/{}`",
        job.kind().name(),
        job.key.namespace,
        job.key.name
    )
}

/// Refuses to change an ended job.
fn refuse_ended(site: &Site<'_>, word: &str, job: &JobSeen, verb: &str) -> Result<(), Failure> {
    if !job.has_ended() {
        return Ok(());
    }
    let state = job.state().to_lowercase();
    Err(
        Failure::new(format!("cannot {verb} {}: it has {state}", title(job))).hint(format!(
            "an ended job cannot be changed; run `{}` and apply its file again",
            site.command("delete", word)
        )),
    )
}
