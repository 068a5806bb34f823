//! What the API server refused to create, from its own message.

use super::{Answer, Cause, Facts, pods};
use crate::{launch::BELONGS_TO, reason::Code};

/// The answer where an object of the job was refused.
pub(super) fn refused(facts: &Facts) -> Option<Answer> {
    let waiting = facts.status.trainyard.waiting.as_ref();
    let waiting = waiting.filter(|reason| reason.code == Code::Refused)?;
    let message = waiting.message.as_str();
    // The lifecycle uses the same code for this; the pods show more.
    if message.starts_with("cannot pull the image") {
        return pods::broken(facts);
    }
    let answer = judge(facts, message);
    let answer = answer.because("API server", message);
    let mut events = facts.events.iter().rev();
    let event =
        events.find(|event| event.reason == "Refused" && !message.starts_with(&event.message));
    Some(match event {
        Some(event) => answer.because_of(event),
        None => answer,
    })
}

fn judge(facts: &Facts, message: &str) -> Answer {
    let rules: &[fn(&Facts, &str) -> Option<Answer>] = &[
        quota,
        quota_needs_limits,
        webhook_denied,
        webhook_down,
        pod_security,
        service_account,
        rights,
        name_taken,
    ];
    let found = rules.iter().find_map(|rule| rule(facts, message));
    found.unwrap_or_else(|| {
        Answer::waits(
            Cause::Refused,
            format!(
                "the API server rejected an object of the job: {}",
                object(message).1
            ),
            "correct the template as the message says, and apply the file again".to_owned(),
        )
    })
}

/// What was tried, and the API server's message.
fn object(message: &str) -> (&str, &str) {
    message.split_once(": ").unwrap_or(("", message))
}

/// The text between `before` and `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after).map_or(rest, |(found, _)| found))
}

/// The text after `before`.
fn after<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.split_once(before).map(|(_, rest)| rest)
}

/// `exceeded quota: team, requested: cpu=8, used: cpu=56, limited: cpu=60`.
fn quota(facts: &Facts, message: &str) -> Option<Answer> {
    let name = between(message, "exceeded quota: ", ",")?;
    let list = |word: &str, after: &str| -> Vec<(String, String)> {
        let items = between(message, word, after).unwrap_or_default();
        let pairs = items
            .split(',')
            .filter_map(|item| item.trim().split_once('='));
        pairs
            .map(|(resource, amount)| (resource.to_owned(), amount.to_owned()))
            .collect()
    };
    let requested = list("requested: ", ", used: ");
    let used = list("used: ", ", limited: ");
    let limited = list("limited: ", " (and ");
    let of = |list: &[(String, String)], resource: &str| {
        let found = list.iter().find(|(name, _)| name == resource);
        found.map_or_else(|| "?".to_owned(), |(_, amount)| amount.clone())
    };
    let parts: Vec<String> = requested
        .iter()
        .map(|(resource, amount)| {
            format!(
                "`{resource}` needs {amount} more, {} of {} are used",
                of(&used, resource),
                of(&limited, resource)
            )
        })
        .collect();
    let mut answer = Answer::waits(
        Cause::QuotaExceeded,
        format!("its pods exceed the quota `{name}`: {}", parts.join("; ")),
        format!(
            "free resources, request less, or have the quota raised; {} shows it; the job continues \
             once it fits",
            facts.kubectl(&format!("describe quota {name}"))
        ),
    );
    // The figures as they are now may already be others.
    if let Some(quota) = facts.quotas.iter().find(|quota| quota.name == name) {
        let now: Vec<String> = requested
            .iter()
            .filter_map(|(resource, _)| {
                let (used, hard) = quota.resources.get(resource)?;
                Some(format!("{resource}: {used} of {hard} used now"))
            })
            .collect();
        answer = answer.because(format!("quota `{name}`"), now.join(", "));
    }
    Some(answer)
}

/// `failed quota: team: must specify limits.cpu for: pytorch`.
fn quota_needs_limits(_: &Facts, message: &str) -> Option<Answer> {
    let rest = between(message, "failed quota: ", " (and ")?;
    let (name, what) = rest.split_once(": ")?;
    Some(Answer::waits(
        Cause::QuotaNeedsLimits,
        format!("the quota `{name}` accepts only pods that state their resources: {what}"),
        "state these `resources` for every container of the template, and apply the file again"
            .to_owned(),
    ))
}

fn webhook_denied(_: &Facts, message: &str) -> Option<Answer> {
    let name = between(message, "admission webhook \"", "\"")?;
    let words = after(message, "denied the request: ").unwrap_or("no reason given");
    Some(Answer::waits(
        Cause::WebhookDenied,
        format!("the admission webhook `{name}` refuses its pods: {words}"),
        format!("correct the template as `{name}` asks, or ask its owner"),
    ))
}

fn webhook_down(_: &Facts, message: &str) -> Option<Answer> {
    let name = between(message, "failed calling webhook \"", "\"")?;
    Some(Answer::waits(
        Cause::WebhookDown,
        format!("the admission webhook `{name}` does not respond, so no pod can be created"),
        format!(
            "get the service behind `{name}` to run again: `kubectl get \
             validatingwebhookconfigurations,mutatingwebhookconfigurations` shows its service"
        ),
    ))
}

/// `violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (…)`.
fn pod_security(facts: &Facts, message: &str) -> Option<Answer> {
    let level = between(message, "violates PodSecurity \"", "\"")?;
    let words = after(message, &format!("violates PodSecurity \"{level}\": "))?;
    Some(Answer::waits(
        Cause::PodSecurity,
        format!(
            "the namespace `{}` accepts only pods of the pod security standard `{level}`: {words}",
            facts.job.namespace
        ),
        "set these fields of `securityContext` in the template, and apply the file again"
            .to_owned(),
    ))
}

/// `error looking up service account team/trainer: serviceaccount "trainer" not found`.
fn service_account(facts: &Facts, message: &str) -> Option<Answer> {
    let name = between(message, "serviceaccount \"", "\" not found")?;
    Some(Answer::waits(
        Cause::ServiceAccountMissing,
        format!("its pods run as the service account `{name}`, which does not exist"),
        format!(
            "create it: {}; the job then continues",
            facts.kubectl(&format!("create serviceaccount {name}"))
        ),
    ))
}

/// `User "system:serviceaccount:trainyard-system:trainyard" cannot create resource "pods" …`.
fn rights(_: &Facts, message: &str) -> Option<Answer> {
    let user = between(message, "User \"", "\"")?;
    let what = after(message, "\" cannot ")?;
    Some(Answer::waits(
        Cause::Forbidden,
        format!("the operator (`{user}`) may not {what}"),
        "apply the roles that come with the operator (`deploy/`), for this namespace too"
            .to_owned(),
    ))
}

fn name_taken(facts: &Facts, message: &str) -> Option<Answer> {
    let owner = between(message, BELONGS_TO, ";")?;
    let (tried, _) = object(message);
    let tried = tried.strip_prefix("cannot ").unwrap_or(tried);
    Some(Answer::waits(
        Cause::NameTaken,
        format!("it cannot {tried}: an object of that name belongs to {owner}"),
        format!(
            "delete that object, or give the job another name; {} lists the usual ones",
            facts.kubectl("get pods,services,configmaps,jobs,horizontalpodautoscalers")
        ),
    ))
}
