//! The logs of a job of a cluster: from the nodes of the pods, through the API server.

use std::collections::BTreeMap;

use trainyard_core::{job::PodPhase, spec::Slot};
use trainyard_host::Ranks;
use trainyard_kube::look::{Chunk, JobSeen, KeptLog, LogOf, LogPart, PodSeen};

use super::{Counter, Label, Pieces, Writer, wanted_slot};
use crate::{
    args::Logs,
    cluster::{Site, connect, refused, slot_of_pod},
    failure::{Exit, Failure},
    paint::Paint,
    printer::Printer,
    words,
};

/// Prints the lines.
pub(super) fn run(args: &Logs, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.follow && args.tail.is_some() && args.grep.is_some() {
        let message = "`--tail` with `--grep` and `--follow` works only for runs on this machine: the API server counts all lines";
        let hint = "leave `--tail` out, or use `--since`, such as `--since 10m`";
        return Err(Failure::new(message).hint(hint));
    }
    let site = connect(&args.place)?;
    let job = site.find(&args.which.job)?;
    let pods = site.look.pods(&job).map_err(refused)?;
    let gone = args
        .attempt
        .is_some_and(|attempt| pods.iter().all(|pod| pod.facts.attempt != attempt));
    if args.first_failure && first_failure(&pods, args.attempt).is_none() {
        let kept = site.look.kept(&job, args.attempt).map_err(refused)?;
        let first: Vec<KeptLog> = kept.into_iter().filter(|log| log.first).collect();
        if first.is_empty() {
            return Err(no_failure(args, &site, &job));
        }
        return print_kept(args, first, &job, printer);
    }
    let wanted = Wanted::new(args, &site, &job, &pods)?;
    if gone && !args.follow {
        let kept = site.look.kept(&job, args.attempt).map_err(refused)?;
        let of_pod = |log: &KeptLog| {
            let slot = slot_of_pod(&job, &log.pod);
            wanted.slot.is_none_or(|wanted| slot == Some(wanted))
        };
        let kept: Vec<KeptLog> = kept.into_iter().filter(of_pod).collect();
        if !kept.is_empty() {
            return print_kept(args, kept, &job, printer);
        }
    }
    if args.follow {
        return follow(args, &site, &job, &wanted, printer);
    }
    let logs: Vec<LogOf> = pods
        .iter()
        .flat_map(|pod| {
            let containers = wanted.containers(pod).into_iter();
            containers.map(move |name| LogOf::new(pod, &name))
        })
        .collect();
    if logs.is_empty() {
        return Err(no_logs(args, &site, &job, &pods));
    }
    let paint = printer.stdout_paint();
    let mut writer = Writer::new(args, logs.len() > 1, printer);
    let mut failed = None;
    let mut read_any = false;
    for log in &logs {
        let label = &label(log, &job, paint);
        let mut pieces = Pieces::default();
        let mut part = part(args);
        if let Some(tail) = args.tail.filter(|_| args.grep.is_some()) {
            // Of the lines that match, which the API server does not know: they are counted first.
            part.tail = None;
            let mut counter = Counter::default();
            let read = site.look.log(&job, log, args.previous, part, &mut |bytes| {
                writer.count_more(&mut &*bytes, &mut counter).is_ok()
            });
            // Why it cannot be read is reported below.
            drop(read);
            pieces.skip = writer.count_end(counter).saturating_sub(tail);
        }
        let mut written = Ok(());
        let read = site.look.log(&job, log, args.previous, part, &mut |bytes| {
            written = writer.copy(label, &mut &*bytes, &mut pieces);
            written.is_ok() && writer.printer.has_reader()
        });
        written?;
        match read {
            Ok(()) => {
                read_any = true;
                writer.end(label, &mut pieces)?;
            }
            // One pod that cannot be read does not hide what the others wrote.
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
        if !writer.printer.has_reader() {
            return Ok(Exit::Done);
        }
    }
    match failed {
        None => Ok(Exit::Done),
        Some(error) if read_any => {
            writer.printer.error(&refused(error));
            Ok(Exit::CouldNot)
        }
        Some(error) => Err(refused(error)),
    }
}

/// The lines that the API server is asked for.
fn part(args: &Logs) -> LogPart {
    LogPart {
        tail: args.tail,
        since: args.since,
    }
}

/// Prints what is there and what comes, until the job is over.
fn follow(
    args: &Logs,
    site: &Site<'_>,
    job: &JobSeen,
    wanted: &Wanted,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let paint = printer.stdout_paint();
    let mut writer = Writer::new(args, wanted.slot.is_none() && job.pods() > 1, printer);
    let mut open: BTreeMap<LogOf, (Label, Pieces)> = BTreeMap::new();
    let mut written = Ok(());
    let followed = site.look.follow(
        job,
        &|pod| wanted.containers(pod),
        part(args),
        &mut |log, chunk| {
            let (label, pieces) = open
                .entry(log.clone())
                .or_insert_with(|| (label(log, job, paint), Pieces::default()));
            written = match chunk {
                Chunk::Bytes(bytes) => writer.copy(label, &mut &*bytes, pieces),
                Chunk::End => writer.end(label, pieces),
                Chunk::Lost(error) => {
                    writer.printer.message(&format!("warning: {error}\n"));
                    Ok(())
                }
            }
            .and_then(|()| writer.printer.flush());
            written.is_ok() && writer.printer.has_reader()
        },
    );
    written?;
    let followed = followed.map_err(refused)?;
    if followed.left_out > 0 {
        writer.printer.summary(&format!(
            "{} not followed, because there are too many; name a pod with `--rank` or `--pod`",
            words::counted(followed.left_out as u64, "log")
        ));
    }
    Ok(Exit::Done)
}

/// Which logs are asked for.
#[derive(Debug)]
struct Wanted {
    attempt: Option<u32>,
    slot: Option<Slot>,
    /// The one pod whose failure is asked for.
    pod: Option<String>,
    /// The container that trains, where only that is wanted.
    container: Option<String>,
    follow: bool,
    previous: bool,
}

impl Wanted {
    fn new(args: &Logs, site: &Site<'_>, job: &JobSeen, pods: &[PodSeen]) -> Result<Self, Failure> {
        let mut wanted = Self {
            // Of an attempt that is over only what its pods still hold can be read.
            attempt: args.attempt.or_else(|| {
                let attempts = pods.iter().map(|pod| pod.facts.attempt);
                attempts.max().filter(|_| !args.follow)
            }),
            slot: None,
            pod: None,
            container: None,
            follow: args.follow,
            previous: args.previous,
        };
        if args.first_failure {
            let failed =
                first_failure(pods, args.attempt).ok_or_else(|| no_failure(args, site, job))?;
            wanted.attempt = Some(failed.facts.attempt);
            wanted.pod = Some(failed.facts.name.clone());
            wanted.container = Some(failed.facts.container.clone());
        }
        if let Some(spec) = &job.job {
            let name = &job.key.name;
            wanted.slot = wanted_slot(args, name, Ranks::of(spec), &spec.replicas())?;
        }
        Ok(wanted)
    }

    /// The containers of `pod` that are wanted.
    fn containers(&self, pod: &PodSeen) -> Vec<String> {
        let is_wanted = self
            .attempt
            .is_none_or(|attempt| pod.facts.attempt == attempt)
            && self.slot.is_none_or(|slot| pod.slot == Some(slot))
            && self.pod.as_ref().is_none_or(|name| *name == pod.facts.name)
            && (!self.previous || pod.facts.restarts > 0)
            && (self.follow || pod.facts.phase != PodPhase::Pending);
        let containers = pod.containers.iter().filter(|name| {
            let only = self.container.as_ref();
            only.is_none_or(|only| only == *name)
        });
        containers.filter(|_| is_wanted).cloned().collect()
    }
}

/// Prints what the operator has kept of pods that are gone.
fn print_kept(
    args: &Logs,
    kept: Vec<KeptLog>,
    job: &JobSeen,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    if let [only] = kept.as_slice() {
        printer.summary(&format!(
            "pod `{}` of attempt {} was deleted; printing the log tail that was kept of it",
            only.pod, only.attempt
        ));
    } else if let Some(first) = kept.first() {
        printer.summary(&format!(
            "the pods of attempt {} were deleted; printing the log tails that were kept of {}",
            first.attempt,
            words::counted(kept.len() as u64, "pod")
        ));
    }
    let paint = printer.stdout_paint();
    if args.since.is_some() {
        printer.summary("warning: `--since` is ignored: the kept lines have no timestamps");
    }
    let mut writer = Writer::new(args, kept.len() > 1, printer);
    for kept in kept {
        let log = LogOf {
            pod: kept.pod,
            uid: String::new(),
            attempt: kept.attempt,
            container: kept.container,
        };
        let label = label(&log, job, paint);
        let mut pieces = Pieces::default();
        if let Some(tail) = args.tail {
            let count = writer.count(&mut kept.text.as_bytes())?;
            pieces.skip = count.saturating_sub(tail);
        }
        writer.copy(&label, &mut kept.text.as_bytes(), &mut pieces)?;
        writer.end(&label, &mut pieces)?;
    }
    Ok(Exit::Done)
}

fn no_failure(args: &Logs, site: &Site<'_>, job: &JobSeen) -> Failure {
    let within = args
        .attempt
        .map_or_else(String::new, |attempt| format!(" in attempt {attempt}"));
    Failure::new(format!(
        "no pod of job `{}` that still exists failed{within}, and no log tail was kept",
        job.key.name
    ))
    .hint(format!(
        "`{}` shows more",
        site.command("explain", &args.which.job)
    ))
}

/// The pod whose training container ended badly before those of the others.
fn first_failure(pods: &[PodSeen], attempt: Option<u32>) -> Option<&PodSeen> {
    let failed = pods.iter().filter(|pod| {
        let exit = pod.facts.exit;
        exit.is_some_and(|exit| exit.code != 0)
            && attempt.is_none_or(|attempt| pod.facts.attempt == attempt)
    });
    failed.min_by_key(|pod| {
        let at = pod.facts.exit.and_then(|exit| exit.at);
        (
            std::cmp::Reverse(pod.facts.attempt),
            at.is_none(),
            at,
            pod.slot,
        )
    })
}

/// Why there is nothing to print.
fn no_logs(args: &Logs, site: &Site<'_>, job: &JobSeen, pods: &[PodSeen]) -> Failure {
    let name = &job.key.name;
    let explain = format!("`{}` shows why", site.command("explain", &args.which.job));
    let attempts: Vec<u32> = pods.iter().map(|pod| pod.facts.attempt).collect();
    match args.attempt {
        Some(attempt) if !attempts.contains(&attempt) => Failure::new(format!(
            "no pod of attempt {attempt} of job `{name}` is left, and none of its logs were kept"
        ))
        .hint("look in the cluster's log storage; the operator keeps only the log tails of attempts that failed"),
        _ if args.previous => Failure::new(format!(
            "no container of job `{name}` was restarted in place"
        ))
        .hint(explain),
        _ if pods.is_empty() => Failure::new(format!("job `{name}` has no pods")).hint(explain),
        _ => Failure::new(format!("no pod of job `{name}` has started")).hint(explain),
    }
}

/// What stands in front of the lines of a log. Containers that do not train are named.
fn label(log: &LogOf, job: &JobSeen, paint: Paint) -> Label {
    let slot = slot_of_pod(job, &log.pod);
    let container = log.container.as_str();
    let named = container != job.kind().container();
    Label::new(&log.pod, slot, log.attempt, (container, named), paint)
}
