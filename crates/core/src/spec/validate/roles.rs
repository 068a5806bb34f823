//! The roles of a job: which there are, how many pods each wants, and how they restart.

use std::collections::BTreeMap;

use super::{MAX_REPLICAS, template, word};
use crate::{
    finding::{Fix, catalogue},
    spec::{
        Kind, RestartPolicy, Role, RoleSpec,
        check::Sheet,
        collector::Place,
        defaults,
        nearest::{nearest, one_of},
        wire,
    },
};

/// Every role of the job that could be read.
pub(super) fn roles(sheet: &mut Sheet<'_>) -> BTreeMap<Role, RoleSpec> {
    let kind = sheet.kind;
    let map = sheet.spec().key(kind.replica_map());
    let mut roles = BTreeMap::new();
    let written = sheet.roles.take();
    let Some(written) = written.filter(|written| !written.is_empty()) else {
        let known = kind.roles().iter().map(|role| role.name());
        map.report_with(
            &catalogue::NO_ROLES,
            format!("`spec.{}` has no role", kind.replica_map()),
            format!("a {kind} has {}", one_of(known)),
        );
        return roles;
    };
    for (key, spec) in written {
        let key = key.as_str();
        let place = map.key(key);
        let Some(role) = role_of(kind, key, &place.clone().at_key_of(&map, key)) else {
            continue;
        };
        if roles
            .insert(role, role_spec(kind, role, spec, &place))
            .is_some()
        {
            let message = format!("the role `{role}` is defined twice, in two spellings");
            place
                .at_key_of(&map, key)
                .report(&catalogue::UNKNOWN_ROLE, message);
        }
    }
    together(kind, &map, &roles);
    roles
}

fn role_of(kind: Kind, key: &str, place: &Place<'_>) -> Option<Role> {
    let known = kind.roles();
    if let Some(role) = known.iter().find(|role| role.name() == key) {
        return Some(*role);
    }
    if let Some(role) = known
        .iter()
        .find(|role| role.name().eq_ignore_ascii_case(key))
    {
        place.report_fix(
            &catalogue::ROLE_CASE,
            format!("the role `{key}` is read as `{role}`"),
            format!("write `{role}`, other tools distinguish upper and lower case"),
            Fix::Scalar(role.name().to_owned()),
        );
        return Some(*role);
    }
    if place.is_full() {
        place.report(&catalogue::UNKNOWN_ROLE, "");
        return None;
    }
    let names = || known.iter().map(|role| role.name());
    let message = format!("a {kind} has no role `{key}`, only {}", one_of(names()));
    match nearest(key, names()) {
        Some(meant) => place.report_with(
            &catalogue::UNKNOWN_ROLE,
            message,
            format!("did you mean `{meant}`?"),
        ),
        None => place.report(&catalogue::UNKNOWN_ROLE, message),
    }
    None
}

fn role_spec(kind: Kind, role: Role, spec: wire::ReplicaSpec, place: &Place<'_>) -> RoleSpec {
    RoleSpec {
        replicas: replicas(kind, role, spec.replicas, &place.key("replicas")),
        restart_policy: restart_policy(
            kind,
            role,
            spec.restart_policy.as_deref(),
            &place.key("restartPolicy"),
        ),
        template: template::template(kind, role, spec.template, &place.key("template")),
    }
}

/// How many pods the role wants; 0 where that is wrong.
fn replicas(kind: Kind, role: Role, stated: Option<i64>, place: &Place<'_>) -> u32 {
    let bad = |message: String, hint: &str| {
        place.report_with(&catalogue::BAD_REPLICAS, message, hint);
        0
    };
    let found = stated.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
    let single = matches!(
        (kind, role),
        (Kind::PyTorch | Kind::XgBoost, Role::Master) | (_, Role::Launcher)
    );
    let must_be_stated = matches!(
        (kind, role),
        (Kind::PyTorch | Kind::XgBoost, Role::Master) | (Kind::MpiV2, Role::Worker)
    );
    if single && stated != Some(1) && (stated.is_some() || must_be_stated) {
        return bad(
            format!("`replicas` of {role} must be 1, found {found}"),
            "write `replicas: 1`",
        );
    }
    let least = match (kind, role) {
        (Kind::PyTorch | Kind::MpiV2, Role::Worker) => 1,
        _ => 0,
    };
    match stated {
        None if must_be_stated => bad(
            format!("`replicas` of {role} must be from {least} to {MAX_REPLICAS}, found nothing"),
            "state how many workers there are; unset means 0, which is not allowed",
        ),
        None => defaults::replicas(kind, role),
        Some(value) => match u32::try_from(value) {
            Ok(count) if count >= least && count <= MAX_REPLICAS => count,
            _ => {
                let message = format!(
                    "`replicas` of {role} must be from {least} to {MAX_REPLICAS}, found {value}"
                );
                if value == 0 {
                    bad(message, "remove the role if it is to have no pods")
                } else {
                    place.report(&catalogue::BAD_REPLICAS, message);
                    0
                }
            }
        },
    }
}

fn restart_policy(
    kind: Kind,
    role: Role,
    stated: Option<&str>,
    place: &Place<'_>,
) -> RestartPolicy {
    const ALL: [(&str, RestartPolicy); 4] = [
        ("Always", RestartPolicy::Always),
        ("OnFailure", RestartPolicy::OnFailure),
        ("Never", RestartPolicy::Never),
        ("ExitCode", RestartPolicy::ExitCode),
    ];
    const SSH: [(&str, RestartPolicy); 2] = [
        ("Never", RestartPolicy::Never),
        ("OnFailure", RestartPolicy::OnFailure),
    ];
    let known: &[(&str, RestartPolicy)] = if kind == Kind::MpiV2 { &SSH } else { &ALL };
    stated
        .and_then(|text| word(place, &catalogue::BAD_RESTART_POLICY, text, known))
        .unwrap_or_else(|| kind.default_restart_policy(role))
}

/// What the roles must be together.
fn together(kind: Kind, map: &Place<'_>, roles: &BTreeMap<Role, RoleSpec>) {
    let required = match kind {
        Kind::XgBoost => Some(Role::Master),
        Kind::MpiV1 | Kind::MpiV2 => Some(Role::Launcher),
        _ => None,
    };
    if let Some(role) = required.filter(|role| !roles.contains_key(role)) {
        let message = format!("a {kind} needs the role `{role}`, which is missing");
        map.report(&catalogue::MISSING_ROLE, message);
    }
    if kind == Kind::Tf && roles.contains_key(&Role::Chief) && roles.contains_key(&Role::Master) {
        map.report_with(
            &catalogue::EXCLUSIVE_ROLES,
            "a TFJob has `Chief` or `Master`, found both",
            "`Master` is the old name of `Chief`; remove it",
        );
    }
    // 6 roles of at most MAX_REPLICAS each fit in 32 bits.
    let total: u32 = roles.values().map(|spec| spec.replicas).sum();
    if total > MAX_REPLICAS {
        let counts: Vec<String> = roles
            .iter()
            .map(|(role, spec)| format!("{role} {}", spec.replicas))
            .collect();
        map.report(
            &catalogue::TOO_MANY_PODS,
            format!(
                "the roles together want {total} pods ({}), at most {MAX_REPLICAS} are allowed",
                counts.join(", ")
            ),
        );
    }
}

/// Warns of a job without pods. Not for a job with errors, whose counts are not known.
pub(super) fn nothing_to_run(map: &Place<'_>, roles: &BTreeMap<Role, RoleSpec>) {
    if !roles.is_empty() && roles.values().all(|spec| spec.replicas == 0) {
        map.report(
            &catalogue::NOTHING_TO_RUN,
            "every role wants 0 pods, nothing runs until one is scaled up",
        );
    }
}
