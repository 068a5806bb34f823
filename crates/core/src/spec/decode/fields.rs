//! Keys that no struct of the API has.

use super::{Decoder, Path};
use crate::{
    finding::{Finding, catalogue},
    spec::{Entry, nearest::nearest, wire},
};

impl Decoder<'_, '_> {
    /// Records each key of `entries` that is none of `fields`.
    pub(super) fn check_fields(&self, entries: &[Entry], name: &str, fields: &[&str]) {
        #[cfg(test)]
        super::tests::note_fields(entries, name, fields);
        for entry in entries {
            if fields.contains(&entry.key.as_str()) {
                continue;
            }
            let finding = if self.collector.is_full() {
                Finding::new(&catalogue::UNKNOWN_FIELD, "", entry.key_span, "")
            } else {
                self.unknown(entry, name, fields)
            };
            self.collector.add(finding);
        }
    }

    fn unknown(&self, entry: &Entry, name: &str, fields: &[&str]) -> Finding {
        let key = entry.key.as_str();
        let place = match &self.path {
            Path::Root => "the document".to_owned(),
            path => format!("`{path}`"),
        };
        let path = Path::Key(&self.path, key).to_string();
        let message = format!("{place} has no field `{key}`, it is ignored");
        let finding = Finding::new(&catalogue::UNKNOWN_FIELD, path, entry.key_span, message);
        let meant = nearest(key, fields.iter().copied());
        match meant {
            Some(meant) if meant.eq_ignore_ascii_case(key) => finding.with_hint(format!(
                "write it as `{meant}`, upper and lower case matter"
            )),
            Some(meant) => finding.with_hint(format!("did you mean `{meant}`?")),
            None if wire::is_job_spec(name) && wire::RUN_POLICY_FIELDS.contains(&key) => {
                finding.with_hint(format!("`{key}` belongs in `spec.runPolicy`"))
            }
            None => finding,
        }
    }
}
