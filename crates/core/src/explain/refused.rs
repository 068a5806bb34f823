//! What the API server refused to create, from its own message.

use super::{Answer, Cause, Facts, pods};
use crate::{
    job::EventReason,
    reason::{Code, Reason},
};

/// The answer where an object of the job was refused.
pub(super) fn refused(facts: &Facts) -> Option<Answer> {
    let waiting = facts.status.trainyard.waiting.as_ref();
    let waiting = waiting.filter(|reason| reason.code == Code::Refused)?;
    let message = waiting.message.as_str();
    let answer = match &waiting.params {
        // The lifecycle uses the same code for this; the pods show more.
        Some(Reason::NoImage { .. }) => return pods::broken(facts),
        Some(Reason::Refused {
            tried,
            taken_by: Some(owner),
            ..
        }) => name_taken(facts, tried, owner),
        Some(Reason::Refused { message, .. }) => judge(facts, message).unwrap_or_else(|| {
            let sentence = format!("the API server rejected an object of the job: {message}");
            unknown(sentence)
        }),
        // Who refused is not known.
        _ => match pods::broken(facts).or_else(|| judge(facts, message)) {
            Some(answer) => answer,
            None => unknown(message.to_owned()),
        },
    };
    let answer = answer.because("API server", message);
    // Where the status has the parameters, the event repeats them.
    let mut events = facts.events.iter().rev();
    let event = events.find(|event| EventReason::Refused.is(&event.reason));
    Some(match event.filter(|_| waiting.params.is_none()) {
        Some(event) => answer.because_of(event),
        None => answer,
    })
}

fn unknown(sentence: String) -> Answer {
    let next = "correct the template as the message says, and apply the file again";
    Answer::waits(Cause::Refused, sentence, next.to_owned())
}

/// What the API server's message means, where it is a known one.
fn judge(facts: &Facts, message: &str) -> Option<Answer> {
    let rules: &[fn(&Facts, &str) -> Option<Answer>] = &[
        quota,
        quota_needs_limits,
        webhook_denied,
        webhook_down,
        pod_security,
        service_account,
        rights,
    ];
    rules.iter().find_map(|rule| rule(facts, message))
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
    let limited = list("limited: ", "\n");
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
    let rest = after(message, "failed quota: ")?;
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

fn name_taken(facts: &Facts, tried: &str, owner: &str) -> Answer {
    Answer::waits(
        Cause::NameTaken,
        format!("it cannot {tried}: an object of that name belongs to {owner}"),
        format!(
            "delete that object, or give the job another name; {} lists the usual ones",
            facts.kubectl("get pods,services,configmaps,jobs,horizontalpodautoscalers")
        ),
    )
}
