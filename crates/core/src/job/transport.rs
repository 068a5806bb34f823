//! Which transport ranks really use, and whether that is what the job requires.
//!
//! Owns the condition `TransportVerified` and the end of an attempt whose ranks on different nodes use
//! another one: a job that was meant for RDMA and runs over sockets holds its GPUs for weeks at a tenth of their
//! speed, and nothing fails.
//!
//! Invariants: a transport that no rank has reported is not a mismatch. A mismatch is charged to the platform's account;
//! the same one twice in a row ends the job, so it is never retried forever.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Account, ConditionStatus, ConditionType, EventKind, EventReason, LastFailure, budget,
    conditions, in_place, messages, messages::Fails, mutant, mutant::Mutant, pass::Pass, verdict,
};
use crate::{
    diagnose::{Confidence, Depth, Retry, TransportSeen, VerdictSummary},
    spec::{Job, RequiredTransport, is_between_nodes, is_direct},
};

/// Ranks and nodes that a verdict names.
const NAMED: usize = 16;

/// Whether the transport of `job` is to be read: the job requires one, or makes NCCL log it.
pub fn asks_for_transport(job: &Job) -> bool {
    let logs = |value: &str| matches!(value.to_ascii_uppercase().as_str(), "INFO" | "TRACE");
    let mut specs = job
        .roles
        .values()
        .filter_map(|role| role.template.spec.as_ref());
    !job.settings.require_transport.is_empty()
        || specs.any(|spec| {
            let variables = spec.containers.iter().flat_map(|container| &container.env);
            variables.flatten().any(|variable| {
                variable.name == "NCCL_DEBUG" && variable.value.as_deref().is_some_and(logs)
            })
        })
}

/// The transports that the ranks of an attempt reported, together.
#[derive(Debug)]
struct Reported<'a> {
    /// Every rank that reported a channel. Ranks without a number count one by one.
    ranks: Vec<(&'a TransportSeen, BTreeSet<&'a str>)>,
    world: Option<u32>,
}

/// Channels between nodes that are not what is required.
#[derive(Debug)]
struct Mismatch {
    label: &'static str,
    /// What they go over, in words.
    used: String,
    /// How many ranks use it, and some of them.
    count: usize,
    ranks: BTreeSet<u32>,
    /// The pods that hold them.
    pods: Vec<String>,
}

impl<'a> Reported<'a> {
    /// What was reported in this attempt, where anything was.
    fn new(pass: &Pass<'a>) -> Option<Self> {
        let attempt = pass.status.trainyard.attempt;
        let reported = pass.observed.transports.as_ref()?;
        if reported.attempt != attempt {
            return None;
        }
        let mut numbered: BTreeMap<u32, (&TransportSeen, BTreeSet<&str>)> = BTreeMap::new();
        let mut others = Vec::new();
        let with_channels = reported
            .ranks
            .iter()
            .filter(|seen| !seen.transports.is_empty());
        for seen in with_channels {
            let names = seen.transports.iter().map(String::as_str);
            match seen.rank {
                Some(rank) => {
                    let known = numbered
                        .entry(rank)
                        .or_insert_with(|| (seen, BTreeSet::new()));
                    known.1.extend(names);
                }
                None => others.push((seen, names.collect())),
            }
        }
        let ranks: Vec<_> = numbered.into_values().chain(others).collect();
        let world = reported.ranks.iter().filter_map(|seen| seen.world).max();
        (!ranks.is_empty()).then_some(Self { ranks, world })
    }

    /// Whether every rank has reported.
    fn is_complete(&self) -> bool {
        self.world
            .is_some_and(|world| self.ranks.len() >= world as usize)
    }

    /// `12 of 16 ranks use NET/IB with GDRDMA, 4 use P2P/CUMEM`.
    fn sentence(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (_, names) in &self.ranks {
            *counts.entry(words(names)).or_default() += 1;
        }
        let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let parts: Vec<String> = counts
            .iter()
            .enumerate()
            .map(|(index, (what, count))| match index {
                0 => format!("{} {} {what}", self.share(*count), verb(*count)),
                _ => format!("{count} {} {what}", verb(*count)),
            })
            .collect();
        parts.join(", ")
    }

    /// `4 of 16 ranks`.
    fn share(&self, count: usize) -> String {
        match self.world {
            Some(world) => format!("{count} of {world} ranks"),
            None if count == 1 => "1 rank".to_owned(),
            None => format!("{count} ranks"),
        }
    }

    /// Whether any rank uses `what` between nodes.
    fn any(&self, what: impl Fn(&str) -> bool) -> bool {
        let names = self.ranks.iter().flat_map(|(_, names)| names);
        names
            .copied()
            .any(|name| is_between_nodes(name) && what(name))
    }

    fn mismatch(&self, job: &Job, required: &[RequiredTransport]) -> Option<Mismatch> {
        if required.is_empty() {
            return None;
        }
        let allowed = |name: &str| required.iter().any(|one| one.allows(name));
        if self.any(|name| !allowed(name)) {
            let wrong = |name: &str| is_between_nodes(name) && !allowed(name);
            return Some(self.those_with(job, required, wrong));
        }
        // A rank may receive into the memory of its GPU and send from that of the host, so only all ranks together
        // show that none uses GPUDirect.
        let strict = |name: &str| {
            let mut fits = required.iter().filter(|one| one.allows(name));
            fits.all(|one| one.is_direct())
        };
        let unmet = self.is_complete()
            && self.any(strict)
            && !self.any(|name| is_direct(name) || !strict(name));
        unmet.then(|| self.those_with(job, required, is_between_nodes))
    }

    /// What is found and what was required, in a sentence.
    fn refusal(&self, pass: &Pass<'_>, mismatch: &Mismatch) -> String {
        format!(
            "{} of attempt {} {} {}, but the job requires {}",
            self.share(mismatch.count),
            pass.status.trainyard.attempt,
            verb(mismatch.count),
            mismatch.used,
            listed(&pass.job.settings.require_transport)
        )
    }

    /// The ranks that use something that is `wrong`.
    fn those_with(
        &self,
        job: &Job,
        required: &[RequiredTransport],
        wrong: impl Fn(&str) -> bool,
    ) -> Mismatch {
        let mut used = BTreeSet::new();
        let mut ranks = BTreeSet::new();
        let mut pods: Vec<String> = Vec::new();
        let mut count = 0;
        for (seen, names) in &self.ranks {
            let theirs: BTreeSet<&str> = names.iter().copied().filter(|name| wrong(name)).collect();
            if theirs.is_empty() {
                continue;
            }
            used.extend(theirs);
            count += 1;
            if ranks.len() < NAMED {
                ranks.extend(seen.rank);
            }
            let pod = pod_of(job, seen);
            if pods.len() < NAMED && !pods.contains(&pod) {
                pods.push(pod);
            }
        }
        let allowed = |name: &&str| required.iter().any(|one| one.allows(name));
        let label = if used.iter().all(allowed) {
            "gdr_disabled"
        } else if used.iter().all(|name| name.starts_with("NET/Socket")) {
            "socket_fallback"
        } else {
            "transport_mismatch"
        };
        Mismatch {
            label,
            used: words(&used),
            count,
            ranks,
            pods,
        }
    }
}

/// Keeps the condition up to date; it speaks of the attempt that runs.
pub(super) fn report(pass: &mut Pass<'_>) {
    let attempt = pass.status.trainyard.attempt;
    let requires = !pass.job.settings.require_transport.is_empty();
    if let Some(reported) = Reported::new(pass) {
        if let Some(mismatch) = reported.mismatch(pass.job, &pass.job.settings.require_transport) {
            let sentence = reported.refusal(pass, &mismatch);
            return set(pass, ConditionStatus::False, "TransportMismatch", sentence);
        }
        if let Some(sentence) = unexpected(pass, &reported) {
            let known = pass.condition(ConditionType::TransportVerified);
            if known.is_none_or(|known| known.message != sentence) {
                pass.emit(
                    EventKind::Warning,
                    EventReason::TransportUnexpected,
                    sentence.clone(),
                );
            }
            let status = ConditionStatus::False;
            return set(pass, status, "TransportUnexpected", sentence);
        }
        let between = reported.any(|_| true);
        let sentence = reported.sentence();
        let (status, message) = match (reported.is_complete(), reported.world) {
            (true, _) if requires && !between => (
                ConditionStatus::Unknown,
                format!("{sentence}; no inter-node channel was reported"),
            ),
            (true, _) => (ConditionStatus::True, sentence),
            (false, Some(_)) => (ConditionStatus::Unknown, format!("{sentence} so far")),
            (false, None) => (
                ConditionStatus::Unknown,
                format!("{sentence} so far (world size not reported yet)"),
            ),
        };
        let verified =
            status == ConditionStatus::True && !pass.holds(ConditionType::TransportVerified);
        set(pass, status, "TransportVerified", message.clone());
        if verified && pass.holds(ConditionType::TransportVerified) {
            pass.emit(EventKind::Normal, EventReason::TransportVerified, message);
        }
        return;
    }
    let known = pass.condition(ConditionType::TransportVerified);
    let of_before = known.is_some_and(|known| known.status != ConditionStatus::False)
        && attempt != pass.observed.status.trainyard.attempt;
    let awaited = known.is_none() && requires && pass.holds(ConditionType::Running);
    if of_before || awaited {
        let message = format!(
            "no rank of attempt {attempt} has reported its transport; set `NCCL_DEBUG=INFO` so that NCCL logs it"
        );
        set(pass, ConditionStatus::Unknown, "TransportUnknown", message);
    }
}

/// What the ranks use where their fabric promises something else and the job requires nothing: it continues,
/// with a warning event.
fn unexpected(pass: &Pass<'_>, reported: &Reported<'_>) -> Option<String> {
    if !pass.job.settings.require_transport.is_empty() {
        return None;
    }
    let fabric = pass.status.trainyard.fabric.as_ref()?;
    let expects = fabric
        .spec
        .as_ref()?
        .expects
        .as_ref()?
        .transport
        .as_deref()?;
    let required = match expects {
        "ib" | "roce" => "NET/IB",
        "ofi" => "NET/OFI",
        "socket" => "NET/Socket",
        _ => return None,
    };
    let required = RequiredTransport::parse_list(required).ok()?;
    let mismatch = reported.mismatch(pass.job, &required)?;
    Some(format!(
        "{} of attempt {} {} {}, but the fabric `{}` is expected to provide `{expects}`",
        reported.share(mismatch.count),
        pass.status.trainyard.attempt,
        verb(mismatch.count),
        mismatch.used,
        fabric.name
    ))
}

/// Ends the attempt where its ranks use something else than what is required. The error is why the job
/// fails.
pub(super) fn enforce(pass: &mut Pass<'_>) -> Result<(), Fails> {
    if pass.status.trainyard.barrier.is_some() || in_place::is_held(pass) {
        // The attempt ends already, and its end is charged, or is once people have looked at it.
        return Ok(());
    }
    let Some(reported) = Reported::new(pass) else {
        return Ok(());
    };
    let Some(mismatch) = reported.mismatch(pass.job, &pass.job.settings.require_transport) else {
        return Ok(());
    };
    if mutant::is(Mutant::IgnoresTransport) {
        return Ok(());
    }
    let sentence = reported.refusal(pass, &mismatch);
    let again = repeated(pass, &mismatch);
    remember(pass, mismatch, &sentence);
    let account = Account::Platform;
    let paid = budget::charge(&mut pass.status.trainyard.spent, pass.job, account, 1);
    if let Some(before) = again {
        pass.emit(
            EventKind::Warning,
            EventReason::TransportMismatch,
            format!("{sentence}."),
        );
        return Err(messages::same_transport(pass.job, before, &sentence));
    }
    paid.map_err(|exhausted| exhausted.fails(pass.job))?;
    let spent = pass.status.trainyard.spent.of(account);
    let limit = budget::limit(pass.job, account)
        .map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit}"));
    let message = format!(
        "{sentence}. Failure budget ({}): {spent} of {limit} used.",
        account.name()
    );
    pass.emit(EventKind::Warning, EventReason::TransportMismatch, message);
    pass.next_attempt();
    pass.hold(
        ConditionType::Restarting,
        messages::other_transport(pass.job),
    );
    Ok(())
}

/// The attempt before, where it ended for the same transport.
fn repeated(pass: &Pass<'_>, mismatch: &Mismatch) -> Option<u32> {
    let last = pass.status.trainyard.last_failure.as_ref()?;
    let before = last.verdict.as_ref()?;
    let same = before.label == mismatch.label && before.place.as_deref() == Some(&mismatch.used);
    let in_a_row = last.attempt.checked_add(1) == Some(pass.status.trainyard.attempt);
    (same && in_a_row).then_some(last.attempt)
}

/// Keeps what was found where people look first.
fn remember(pass: &mut Pass<'_>, mismatch: Mismatch, sentence: &str) {
    let attempt = pass.status.trainyard.attempt;
    let nodes: BTreeSet<String> = pass
        .observed
        .pods
        .iter()
        .filter(|pod| pod.attempt == attempt)
        .filter(|pod| mismatch.pods.contains(&pass.job.pod_name(pod.slot)))
        .filter_map(|pod| pod.node.clone())
        .collect();
    let verdict = VerdictSummary {
        attempt,
        label: mismatch.label.to_owned(),
        sentence: sentence.to_owned(),
        ranks: mismatch.ranks.into_iter().collect(),
        nodes: nodes.into_iter().take(NAMED).collect(),
        account: Account::Platform,
        retry: Retry::MayHelp,
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: Some(mismatch.used.clone()),
        exception: None,
        signature: None,
        next: "check why NCCL does not select it: its log lines with `NET/` list the devices that it found in the pod"
            .to_owned(),
    };
    pass.status.trainyard.last_failure = Some(LastFailure {
        attempt,
        pod: mismatch.pods.into_iter().next().unwrap_or_default(),
        account: Account::Platform,
        message: format!("its ranks use {}", mismatch.used),
        cause: None,
        step: verdict::step(pass),
        since_attempt: None,
        verdict: Some(verdict),
    });
}

fn set(pass: &mut Pass<'_>, status: ConditionStatus, word: &str, message: String) {
    conditions::set_beside(
        &mut pass.status.conditions,
        pass.job.kind,
        (ConditionType::TransportVerified, status, word),
        message,
        pass.stamp,
    );
}

/// The pod that holds a rank: the one it names as its host, as under `mpirun`, or the one in whose log it
/// stands.
fn pod_of(job: &Job, seen: &TransportSeen) -> String {
    let mut slots = job.slots();
    let host = seen.host.as_deref();
    let named = slots.find_map(|slot| {
        let name = job.pod_name(slot);
        (Some(name.as_str()) == host).then_some(name)
    });
    let pod = || seen.source.split('/').next().unwrap_or_default();
    named.unwrap_or_else(|| pod().to_owned())
}

fn verb(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

/// What a rank uses between nodes, or, where it is nothing, at all.
fn words(names: &BTreeSet<&str>) -> String {
    let between = names.iter().any(|name| is_between_nodes(name));
    let parts: Vec<String> = names
        .iter()
        .filter(|name| is_between_nodes(name) == between)
        .map(|name| match name.strip_suffix("/GDRDMA") {
            Some(network) => format!("{network} with GDRDMA"),
            None => (*name).to_owned(),
        })
        .collect();
    parts.join(" and ")
}

fn listed(required: &[RequiredTransport]) -> String {
    let names: Vec<String> = required.iter().map(ToString::to_string).collect();
    names.join(" or ")
}
