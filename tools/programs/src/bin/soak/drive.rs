//! One job from its creation until nothing of it is left, as its plan says.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::{self, Answer, POD, Resource, ask},
    invariants::{self, Seen},
    plan::{Outcome, Plan},
    random::Random,
    world::World,
};

/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(800);
/// No job takes longer to its end, whatever happens around it.
const STUCK: Duration = Duration::from_mins(6);
/// No ended or deleted job takes longer to clean up.
const CLEAN: Duration = Duration::from_mins(4);
/// A job that was not found this often in a row is gone.
const GONE: u32 = 8;
/// A job that is to be deleted is deleted by then, whether or not it runs.
const DELETED_BY: Duration = Duration::from_secs(20);

/// Drives jobs one after the other until no further one is to begin.
pub(crate) async fn drive_all(world: &World) {
    while let Some(plan) = world.next_plan() {
        if let Err(broken) = drive(world, &plan).await {
            world.broke(&broken);
            return;
        }
    }
}

/// Drives one job. The error is what must not be.
pub(crate) async fn drive(world: &World, plan: &Plan) -> Result<(), String> {
    world.counts().live.insert(plan.name.clone());
    let mut driver = Driver {
        world,
        plan,
        resource: resource(plan),
        seen: None,
        missed: 0,
        victim: None,
        finishing: None,
        suspended: Suspended::NotYet,
        began: Instant::now(),
        random: Random::new(world.seed, plan.name.bytes().map(u64::from).sum()),
    };
    driver.create().await?;
    driver.until_ended().await?;
    if plan.outcome != Outcome::Deleted {
        world.job_ended();
        driver.hold().await?;
        driver.until_clean().await?;
    }
    driver.delete().await?;
    let mut counts = world.counts();
    counts.live.remove(&plan.name);
    *counts
        .jobs
        .entry((plan.shape.name(), plan.outcome.name()))
        .or_default() += 1;
    if let Some(seen) = &driver.seen {
        counts.disruptions += seen.disruptions();
        if seen.ended() {
            counts.unpaid += invariants::unpaid_attempts(plan, seen);
        }
    }
    Ok(())
}

fn resource(plan: &Plan) -> Resource {
    let kind = plan.shape.kind();
    let found = cluster::JOBS.into_iter().find(|[_, _, is, _]| *is == kind);
    found.unwrap_or(cluster::JOBS[0])
}

/// How far the suspension of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspended {
    NotYet,
    Asked,
    Over,
}

impl Suspended {
    /// How far it is by what is stored of the job: the answer to a change that was carried out may have been lost.
    fn as_stored(self, job: &Value) -> Self {
        let stored = job["spec"]["runPolicy"]["suspend"] == true;
        match (self, stored) {
            (Self::NotYet, true) => Self::Asked,
            (Self::Asked, false) => Self::Over,
            (known, _) => known,
        }
    }
}

struct Driver<'a> {
    world: &'a World,
    plan: &'a Plan,
    resource: Resource,
    seen: Option<Seen>,
    /// Looks in a row that did not find it.
    missed: u32,
    /// The pod that was made to fail, until it is gone: by then its failure is accounted for.
    victim: Option<String>,
    /// The attempt whose pods end well.
    finishing: Option<u64>,
    suspended: Suspended,
    began: Instant,
    random: Random,
}

impl Driver<'_> {
    fn api(&self) -> Api<DynamicObject> {
        cluster::api(
            &self.world.client,
            &self.resource,
            Some(self.plan.namespace),
        )
    }

    fn about(&self, what: &str) -> String {
        let plan = self.plan;
        format!(
            "{} `{}` ({:?}): {what}",
            plan.shape.name(),
            plan.name,
            plan.outcome
        )
    }

    async fn create(&mut self) -> Result<(), String> {
        let manifest = self.plan.manifest().map_err(|error| error.to_string())?;
        let namespace = Some(self.plan.namespace);
        loop {
            match cluster::create(
                &self.world.client,
                &self.resource,
                namespace,
                manifest.clone(),
            )
            .await
            {
                Answer::Ok(()) => return Ok(()),
                // An API server that has just started may not know all rights and kinds yet.
                Answer::Refused(..) | Answer::None if self.began.elapsed() < CLEAN => {}
                other => return Err(self.about(&format!("cannot be created: {other:?}"))),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The job as it is now: nothing where nobody answers, an inner nothing where it is gone.
    async fn job(&self) -> Option<Option<Value>> {
        match ask(self.api().get_opt(&self.plan.name)).await {
            Answer::Ok(Some(job)) => serde_json::to_value(job).ok().map(Some),
            Answer::Ok(None) => Some(None),
            Answer::Refused(..) | Answer::None => None,
        }
    }

    /// Looks at the job, which must be there and as it must be.
    async fn look(&mut self) -> Result<Option<Value>, String> {
        let Some(job) = self.job().await else {
            return Ok(None);
        };
        let Some(job) = job else {
            // An API server that has just started may not serve the kind yet.
            self.missed += 1;
            return match self.missed {
                0..GONE => Ok(None),
                _ => Err(self.about("is gone, and nobody deleted it")),
            };
        };
        self.missed = 0;
        self.seen = Some(invariants::look(self.plan, self.seen.as_ref(), &job)?);
        Ok(Some(job))
    }

    async fn pods(&self) -> Option<Vec<Value>> {
        let label = format!("training.kubeflow.org/job-name={}", self.plan.name);
        cluster::list(&self.world.client, &POD, Some(self.plan.namespace), &label).await
    }

    async fn until_ended(&mut self) -> Result<(), String> {
        loop {
            if let Some(job) = self.look().await? {
                let seen = self.seen.as_ref();
                if seen.is_some_and(Seen::ended) {
                    return Ok(());
                }
                let runs_for = Duration::from_secs(self.plan.runs_for);
                let begun = seen.is_some_and(|seen| seen.attempt > 0);
                let deleted = self.plan.outcome == Outcome::Deleted;
                if deleted
                    && (begun && self.began.elapsed() > runs_for
                        || self.began.elapsed() > DELETED_BY)
                {
                    return Ok(());
                }
                if self.plan.outcome.is_driven() {
                    self.act(&job).await;
                }
                if self.began.elapsed() > STUCK {
                    let status = &job["status"];
                    return Err(self.about(&format!("has not ended after {STUCK:?}: {status}")));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Does to the pods of the job what its plan says.
    async fn act(&mut self, job: &Value) {
        let Some(pods) = self.pods().await else {
            return;
        };
        let Some((attempt, user)) = self.seen.as_ref().map(|seen| (seen.attempt, seen.user()))
        else {
            return;
        };
        if self.plan.outcome == Outcome::Resumes && self.suspended != Suspended::Over {
            return self.suspend(job, &pods, attempt).await;
        }
        if let Some(victim) = &self.victim {
            let left = pods.iter().find(|pod| pod["metadata"]["uid"] == **victim);
            match left {
                Some(pod) if pod["status"]["phase"] != "Failed" => self.end_pod(pod, 1).await,
                Some(_) => {}
                // What it cost is in the status that is read next.
                None => self.victim = None,
            }
            return;
        }
        let current = running(&pods, attempt);
        if self.finishing != Some(attempt) && current.len() < self.plan.pods() {
            return;
        }
        if user < u64::from(self.plan.outcome.user_failures()) {
            if let Some(last) = current.len().checked_sub(1) {
                let at = self.random.between(0, last as u64);
                let pod = current[usize::try_from(at).unwrap_or(0)].clone();
                self.victim = pod["metadata"]["uid"].as_str().map(str::to_owned);
                self.end_pod(&pod, 1).await;
            }
            return;
        }
        self.finishing = Some(attempt);
        for pod in current {
            let role = invariants::slot(pod)
                .map(|(_, role, _)| role)
                .unwrap_or_default();
            let serves = role == "ps" || (self.plan.shape.is_mpi() && role == "worker");
            if !serves {
                self.end_pod(pod, 0).await;
            }
        }
    }

    async fn suspend(&mut self, job: &Value, pods: &[Value], attempt: u64) {
        let status = &job["status"];
        self.suspended = self.suspended.as_stored(job);
        let all_run = running(pods, attempt).len() == self.plan.pods();
        let runs_for = Duration::from_secs(self.plan.runs_for);
        let next = match self.suspended {
            Suspended::NotYet if all_run && self.began.elapsed() > runs_for => {
                Some((true, Suspended::Asked))
            }
            Suspended::Asked if invariants::holds(status, "Suspended") && pods.is_empty() => {
                Some((false, Suspended::Over))
            }
            _ => None,
        };
        if let Some((suspend, then)) = next
            && self.set_suspend(job, suspend).await
        {
            self.suspended = then;
        }
    }

    /// Changes the job as it was seen, or not at all: one that is carried out late must not undo a later one.
    async fn set_suspend(&self, job: &Value, suspend: bool) -> bool {
        let version = &job["metadata"]["resourceVersion"];
        let change = json!({"metadata": {"resourceVersion": version},
            "spec": {"runPolicy": {"suspend": suspend}}});
        let api = self.api();
        let params = PatchParams::default();
        let change = Patch::Merge(&change);
        let patched = api.patch(&self.plan.name, &params, &change);
        matches!(ask(patched).await, Answer::Ok(_))
    }

    /// Ends the containers of a pod as if their programs had. The next pod of its name has done nothing.
    async fn end_pod(&self, pod: &Value, code: i32) {
        let now = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let reason = if code == 0 { "Completed" } else { "Error" };
        let containers = pod["spec"]["containers"].as_array();
        let statuses: Vec<Value> = containers
            .into_iter()
            .flatten()
            .map(|container| {
                json!({"name": container["name"], "image": "soak", "imageID": "", "ready": false,
                    "restartCount": 0, "started": false,
                    "state": {"terminated": {"exitCode": code, "reason": reason,
                        "startedAt": now, "finishedAt": now}}})
            })
            .collect();
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let change = json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": {
            "phase": phase, "containerStatuses": statuses,
            "conditions": [{"type": "Ready", "status": "False"}]}});
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let api = cluster::api(&self.world.client, &POD, Some(self.plan.namespace));
        // What was not done is tried again at the next look.
        drop(ask(api.patch_status(name, &PatchParams::default(), &Patch::Merge(&change))).await);
    }

    /// Watches the ended job for a while: it must stay as it is.
    async fn hold(&mut self) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(self.plan.held_for);
        while Instant::now() < until && !self.world.stops.load(Ordering::Relaxed) {
            self.look().await?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the pods of the ended job are cleaned up as it asks for.
    async fn until_clean(&mut self) -> Result<(), String> {
        let end = Instant::now() + CLEAN;
        loop {
            let all = self.plan.clean_pod_policy == "All";
            let pods = self.pods().await;
            let left = pods.map(|pods| {
                let left = pods.iter().filter(|pod| all || invariants::is_live(pod));
                left.map(|pod| pod["metadata"]["name"].to_string())
                    .collect::<Vec<_>>()
            });
            if left.as_ref().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(self.about(&format!(
                    "has ended, and pods are left after {CLEAN:?}: {left:?}"
                )));
            }
            self.look().await?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Deletes the job and waits until it and its pods are gone.
    async fn delete(&mut self) -> Result<(), String> {
        let end = Instant::now() + CLEAN;
        let params = if self.random.percent(50) {
            DeleteParams::background()
        } else {
            DeleteParams::foreground()
        };
        loop {
            drop(ask(self.api().delete(&self.plan.name, &params)).await);
            let gone = matches!(self.job().await, Some(None));
            if gone && self.pods().await.is_some_and(|pods| pods.is_empty()) {
                return Ok(());
            }
            if Instant::now() > end {
                let what = if gone { "its pods are" } else { "it is" };
                return Err(self.about(&format!(
                    "was deleted, and {what} still there after {CLEAN:?}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The pods of `attempt` that run.
fn running(pods: &[Value], attempt: u64) -> Vec<&Value> {
    let runs = |pod: &&Value| {
        pod["status"]["phase"] == "Running"
            && invariants::is_live(pod)
            && invariants::attempt_of(pod) == attempt
    };
    pods.iter().filter(runs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_whose_answer_was_lost_counts() {
        use Suspended::{Asked, NotYet, Over};
        let job = |suspend: bool| json!({"spec": {"runPolicy": {"suspend": suspend}}});
        for (known, stored, want) in [
            (NotYet, false, NotYet),
            (NotYet, true, Asked),
            (Asked, true, Asked),
            (Asked, false, Over),
            (Over, false, Over),
        ] {
            assert_eq!(known.as_stored(&job(stored)), want, "{known:?} {stored}");
        }
    }
}
