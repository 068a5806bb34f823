//! Findings that are meant to be there: the annotation `trainyard.dev/lint-allow`.
//!
//! Invariant: an entry without a reason allows nothing, and so does one that names a rule of the
//! contract; both are reported. So is an entry that nothing needs any more, unless its rule looks at more
//! than is at hand.

use super::{Rule, hygiene, rule as find_rule};
use crate::{
    finding::Finding,
    spec::{Document, Place, annotation},
};

/// One entry that holds.
struct Entry<'a> {
    code: &'a str,
    used: bool,
}

/// Leaves out the findings that `document` allows, and adds what is wrong with its entries.
/// `could_see` says whether the rule with a code had all at hand that it looks at.
pub(super) fn apply(
    document: &Document,
    root: &Place<'_>,
    findings: &mut Vec<Finding>,
    could_see: impl Fn(&str) -> bool,
) {
    let Some(text) = document.annotation(annotation::LINT_ALLOW) else {
        return;
    };
    let place = root
        .key("metadata")
        .key("annotations")
        .key(annotation::LINT_ALLOW);
    let mut entries = Vec::new();
    for item in text
        .split([';', '\n'])
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let (code, reason) = item.split_once(':').unwrap_or((item, ""));
        let code = code.trim();
        if reason.trim().is_empty() {
            let message = format!("`{code}` has no reason, so it allows nothing");
            place.report_with(
                &hygiene::NO_REASON,
                message,
                format!("write `{code}: ` and why it is intended"),
            );
            continue;
        }
        match find_rule(code) {
            Some(rule) if !rule.is_contract() => entries.push(Entry { code, used: false }),
            Some(_) => report_entry(
                &place,
                format!("`{code}` cannot be allowed: the operator refuses such a job"),
            ),
            None => report_entry(&place, format!("unknown rule `{code}`")),
        }
    }
    findings.retain(|finding| {
        let mut allowed = false;
        for entry in entries
            .iter_mut()
            .filter(|entry| entry.code == finding.code)
        {
            entry.used = true;
            allowed = true;
        }
        !allowed
    });
    for entry in entries
        .iter()
        .filter(|entry| !entry.used && could_see(entry.code))
    {
        report_entry(
            &place,
            format!("`{}` allows nothing: there is no such finding", entry.code),
        );
    }
}

fn report_entry(place: &Place<'_>, message: String) {
    let rule: &Rule = &hygiene::ALLOWS_NOTHING;
    place.report_with(rule, message, "remove the entry");
}
