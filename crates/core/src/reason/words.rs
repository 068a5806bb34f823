//! The sentences of reasons.

use std::fmt;

use super::{InVain, Reason, WorkerState};

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManagedElsewhere { manager } => {
                write!(f, "the job is managed by `{manager}`")
            }
            Self::OldView {
                version,
                decided_on,
            } => write!(
                f,
                "the view of the pods (version {version}) is older than the status (decided on version {decided_on})"
            ),
            Self::OldStatus {
                attempt,
                pods_attempt,
            } => write!(
                f,
                "the status (attempt {attempt}) is older than the pods (attempt {pods_attempt})"
            ),
            Self::Suspended { terminating } => {
                f.write_str("the job is suspended by `runPolicy.suspend`")?;
                match terminating {
                    0 => Ok(()),
                    left => write!(f, "; {left} pods are still terminating"),
                }
            }
            Self::RestartingInPlace { attempt, phase } => {
                write!(f, "attempt {attempt} starts in place; {phase}")
            }
            Self::HeldOnFailure {
                attempt,
                until,
                held,
                why,
            } => write!(
                f,
                "attempt {attempt} failed ({why}) and is held for inspection until {until}; it holds {held}"
            ),
            Self::OldPods {
                attempt,
                count,
                first,
            } => write!(
                f,
                "attempt {attempt} is waiting for {count} pods of earlier attempts to terminate (first: `{first}`)"
            ),
            Self::NamesHeld { count, first } => write!(
                f,
                "{count} pods cannot be created until pods with the same name are deleted (first: `{first}`)"
            ),
            Self::QuickFailures {
                failures,
                attempt,
                retry_at,
            } => write!(
                f,
                "{failures} quick failures in a row; attempt {attempt} continues at {retry_at}"
            ),
            Self::NodesReleased {
                times,
                attempt,
                retry_at,
            } => write!(
                f,
                "the gang released its nodes {times} times; attempt {attempt} continues at {retry_at}"
            ),
            Self::LauncherWaits {
                have,
                wanted,
                state,
            } => {
                let state = match state {
                    WorkerState::Running => "run",
                    WorkerState::Ready => "are ready",
                };
                write!(
                    f,
                    "the launcher waits for its workers: {have} of {wanted} {state}"
                )
            }
            Self::PodsStarting {
                missing,
                wanted,
                pending,
            } => write!(
                f,
                "{missing} of {wanted} pods are not created yet, {pending} are not running yet"
            ),
            Self::Unscheduled {
                count,
                wanted,
                scheduler,
            } => write!(f, "{count} of {wanted} pods have no node yet: {scheduler}"),
            Self::LookingForNodes => f.write_str("looking for nodes for the gang"),
            Self::NoNodes { why, unfit, .. } => {
                f.write_str(why)?;
                if unfit.is_empty() {
                    return Ok(());
                }
                write!(
                    f,
                    "; {} of its earlier nodes failed the preflight (`{}`)",
                    unfit.len(),
                    unfit.join("`, `")
                )
            }
            Self::UnfitNode { node, fault, more } => {
                f.write_str(&unfit_node(node, fault, *more))?;
                f.write_str("; looking for another node")
            }
            Self::CheckingPodGroup => f.write_str("checking whether the PodGroup exists"),
            Self::CreatingPodGroup => f.write_str("creating the PodGroup"),
            Self::LookingUpFabric { fabric } => write!(f, "looking up the fabric `{fabric}`"),
            Self::NoFabric { fabric, why } => {
                write!(f, "the job waits for the fabric `{fabric}`: {why}")
            }
            Self::NoRuntime { runtime, why } => {
                write!(f, "the job waits for the {runtime}: {why}")
            }
            Self::NoPreflight { why } => write!(f, "the required preflight cannot run: {why}"),
            Self::PreflightRuns { nodes, since } => {
                write!(f, "preflight of {nodes} nodes running since {since}")
            }
            Self::PreflightRetry { why, retry_at } => {
                write!(f, "{why}; the preflight is retried at {retry_at}")
            }
            Self::Refused {
                tried,
                message,
                more,
                ..
            } => {
                write!(f, "cannot {tried}: {message}")?;
                f.write_str(&and_more(*more, ""))
            }
            Self::NoImage { pod, message } => {
                write!(f, "cannot pull the image of pod `{pod}`: {message}")
            }
            // Whoever found it made the sentence.
            Self::Unadmitted { why }
            | Self::Evicted { why }
            | Self::NoPodGroup { why }
            | Self::PodGroupWaits { why }
            | Self::Invalid { why }
            | Self::SetAside { why } => f.write_str(why),
            Self::NodeSilent {
                node,
                pod,
                more,
                lost_at,
            } => {
                write!(f, "node `{node}` of pod `{pod}`")?;
                f.write_str(&and_more(*more, " pods"))?;
                write!(f, " is not responding; the pod counts as lost at {lost_at}")
            }
            Self::Degraded {
                running,
                wanted,
                needed,
            } => write!(
                f,
                "{running} of {wanted} workers run; at least {needed} are needed to train"
            ),
            Self::AllPodsExist { pods } => write!(f, "all {pods} pods exist"),
            Self::NothingToRun { role } => write!(
                f,
                "no {role} pod is requested, so the job can neither run nor finish"
            ),
            Self::BeingDeleted { terminating } => write!(
                f,
                "the job is being deleted; {terminating} pods are still terminating"
            ),
            Self::CleaningUp { terminating } => write!(
                f,
                "the job has ended; {terminating} pods are still terminating"
            ),
            Self::RunningOn { running, until } => write!(
                f,
                "the job has succeeded; {running} pods still run and are deleted at {until} (set `cleanPodPolicy` to \
                 `None` to keep them, to `Running` to delete them at once)"
            ),
            Self::Ended => f.write_str("the job has ended"),
            Self::ExpiresAt { at } => write!(f, "the job has ended and is deleted at {at}"),
            Self::Expired { ttl_seconds } => {
                write!(f, "the job ended {ttl_seconds} s ago and is deleted")
            }
            Self::RetryDoesNotHelp {
                job,
                shown_by,
                error,
                next,
            } => write!(
                f,
                "Job {job} has failed because {shown_by}: {error}. To fix it: {next}. To retry in any case, set {}",
                match shown_by {
                    InVain::NoProgress { .. } => "`trainyard.dev/no-progress: \"0\"`",
                    _ => "`backoffLimit`",
                }
            ),
        }
    }
}

impl fmt::Display for InVain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same_place = match self {
            Self::Attempts {
                first,
                second,
                same_place,
            } => {
                write!(f, "attempts {first} and {second} ended with the same error")?;
                same_place
            }
            Self::Pod { pod, same_place } => {
                write!(f, "pod `{pod}` ended twice in a row with the same error")?;
                same_place
            }
            Self::NoProgress {
                attempts,
                first,
                last,
                step,
            } => {
                // Attempts between them that others ended are not counted.
                let all = (last + 1).saturating_sub(*first) == *attempts;
                return match (all, attempts) {
                    (_, 1) => write!(f, "attempt {last} reached no step later than {step}"),
                    (true, _) => {
                        write!(
                            f,
                            "attempts {first} to {last} reached no step later than {step}"
                        )
                    }
                    (false, _) => write!(
                        f,
                        "{attempts} of the attempts {first} to {last} failed and reached no step later than {step}"
                    ),
                };
            }
            Self::Verdict => return f.write_str("a retry does not help"),
        };
        f.write_str(if *same_place {
            " at the same place"
        } else {
            ""
        })
    }
}

/// ` (and 2 more)`, where there are more.
fn and_more(more: usize, noun: &str) -> String {
    match more {
        0 => String::new(),
        more => format!(" (and {more} more{noun})"),
    }
}

/// That nodes failed the preflight, without what follows from it.
pub(crate) fn unfit_node(node: &str, fault: &str, more: usize) -> String {
    let more = and_more(more, "");
    format!("node `{node}` failed the preflight: {fault}{more}")
}
