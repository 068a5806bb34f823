//! Which jobs the operator crashed or panicked on, and which of them it leaves alone. Values only: time is an
//! argument, and what is stored is read and written elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Passes over a job that panic in a row before it is set aside.
pub(super) const PANICS: u32 = 3;
/// Crashes of the operator while it processed one job before that is set aside.
pub(super) const CRASHES: u32 = 2;
/// Crashes further apart than this are not counted together: the job may have been in work by chance.
pub(super) const CRASHES_WITHIN_SECONDS: i64 = 3_600;
/// Records that are stored.
const STORED_MAX: usize = 1_000;
/// Longest panic message that is kept, in characters.
const MESSAGE_CHARS: usize = 200;

/// A job in work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its identity.
    pub(super) uid: String,
    /// Its kind and name, for people.
    pub(super) job: String,
}

/// What is to become of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It is processed as ever.
    Clear,
    /// It was set aside, has been edited since, and is processed again.
    Released,
    /// It is left alone; the sentence says why.
    SetAside(String),
}

/// The jobs that the operator crashed or panicked on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Suspects {
    /// The version of the operator; another one may do better.
    version: String,
    /// By identity.
    jobs: BTreeMap<String, Suspect>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Suspect {
    job: String,
    /// Digest of what the user wrote; nothing until the job is seen after a crash.
    content: Option<u64>,
    crashes: u32,
    /// Unix time of the last crash.
    last_crash: i64,
    panics: u32,
    last_panic: String,
}

impl Suspects {
    /// What is known at the start of a process of `version`: what was stored, and the job that was in work when the
    /// last process ended without leaving its pass.
    pub(super) fn recover(
        stored: Option<Self>,
        crashed: Option<&Mark>,
        version: &str,
        now: i64,
    ) -> Self {
        let stored = stored.filter(|stored| stored.version == version);
        let mut suspects = stored.unwrap_or_default();
        version.clone_into(&mut suspects.version);
        if let Some(mark) = crashed {
            let suspect = suspects.jobs.entry(mark.uid.clone()).or_default();
            suspect.job.clone_from(&mark.job);
            let apart = now.saturating_sub(suspect.last_crash) > CRASHES_WITHIN_SECONDS;
            if apart && suspect.crashes < CRASHES {
                suspect.crashes = 0;
            }
            suspect.crashes = suspect.crashes.saturating_add(1);
            suspect.last_crash = now;
        }
        suspects
    }

    /// What is to become of the job of `mark`, of which `content` is the digest.
    pub(super) fn judge(&mut self, mark: &Mark, content: impl FnOnce() -> u64) -> Judgement {
        let Some(suspect) = self.jobs.get_mut(&mark.uid) else {
            return Judgement::Clear;
        };
        let content = content();
        if *suspect.content.get_or_insert(content) != content {
            let held = suspect.sentence().is_some();
            self.jobs.remove(&mark.uid);
            return if held {
                Judgement::Released
            } else {
                Judgement::Clear
            };
        }
        suspect
            .sentence()
            .map_or(Judgement::Clear, Judgement::SetAside)
    }

    /// A pass over the job panicked with `message`.
    pub(super) fn panicked(&mut self, mark: &Mark, content: u64, message: &str) -> Judgement {
        let suspect = self.jobs.entry(mark.uid.clone()).or_default();
        if suspect.content.is_some_and(|known| known != content) {
            *suspect = Suspect::default();
        }
        suspect.job.clone_from(&mark.job);
        suspect.content = Some(content);
        suspect.panics = suspect.panics.saturating_add(1);
        suspect.last_panic = message.chars().take(MESSAGE_CHARS).collect();
        suspect
            .sentence()
            .map_or(Judgement::Clear, Judgement::SetAside)
    }

    /// A pass over the job ended. A crash is not forgiven for that: it may need a state that comes back.
    pub(super) fn passed(&mut self, mark: &Mark) {
        if let Some(suspect) = self.jobs.get_mut(&mark.uid) {
            suspect.panics = 0;
            if suspect.crashes == 0 {
                self.jobs.remove(&mark.uid);
            }
        }
    }

    /// The job called `job` is gone.
    pub(super) fn forget(&mut self, job: &str) {
        self.jobs.retain(|_, suspect| suspect.job != job);
    }

    /// What is to be stored: those set aside first, then those that a crash speaks against.
    pub(super) fn to_store(&self) -> Self {
        let held = |suspect: &Suspect| suspect.sentence().is_some();
        let mut kept: Vec<_> = self.jobs.iter().collect();
        kept.retain(|(_, suspect)| held(suspect) || suspect.crashes > 0);
        kept.sort_by_key(|(_, suspect)| (!held(suspect), -suspect.last_crash));
        kept.truncate(STORED_MAX);
        let kept = kept.into_iter().map(|(uid, it)| (uid.clone(), it.clone()));
        Self {
            version: self.version.clone(),
            jobs: kept.collect(),
        }
    }

    /// How often the operator crashed on the job of `uid`.
    pub(super) fn crashes(&self, uid: &str) -> u32 {
        self.jobs.get(uid).map_or(0, |suspect| suspect.crashes)
    }
}

impl Suspect {
    /// Why it is set aside, where it is.
    fn sentence(&self) -> Option<String> {
        let what = if self.crashes >= CRASHES {
            format!(
                "the operator crashed {} times while processing this job",
                self.crashes
            )
        } else if self.panics >= PANICS {
            format!(
                "{} passes over this job in a row panicked (last: {})",
                self.panics, self.last_panic
            )
        } else {
            return None;
        };
        Some(format!(
            "{what}; the job is set aside until its spec or a `trainyard.dev/` annotation changes, or the operator is upgraded"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "0.1.0";

    fn mark(uid: &str) -> Mark {
        Mark {
            uid: uid.to_owned(),
            job: format!("PyTorchJob n/{uid}"),
        }
    }

    fn is_held(suspects: &mut Suspects, uid: &str, content: u64) -> bool {
        matches!(
            suspects.judge(&mark(uid), || content),
            Judgement::SetAside(_)
        )
    }

    #[test]
    fn second_crash_sets_a_job_aside() {
        // Times of crashes in seconds, and whether the job is set aside after the last.
        let cases: &[(&[i64], bool)] = &[
            (&[], false),
            (&[100], false),
            (&[100, 130], true),
            (&[100, 100 + CRASHES_WITHIN_SECONDS], true),
            (&[100, 101 + CRASHES_WITHIN_SECONDS], false),
            (&[100, 130, 9_000], true),
        ];
        for (crashes, held) in cases {
            let mut suspects = Suspects::recover(None, None, VERSION, 0);
            for at in *crashes {
                let stored = Some(suspects.to_store());
                suspects = Suspects::recover(stored, Some(&mark("a")), VERSION, *at);
                // A pass that ends between two crashes proves nothing.
                if !is_held(&mut suspects, "a", 1) {
                    suspects.passed(&mark("a"));
                }
            }
            assert_eq!(is_held(&mut suspects, "a", 1), *held, "{crashes:?}");
            assert!(!is_held(&mut suspects, "b", 1), "{crashes:?}");
        }
    }

    #[test]
    fn panics_in_a_row_set_a_job_aside() {
        // `p` panics, `.` passes, `e` edits the job.
        let cases = [
            ("pp", false),
            ("ppp", true),
            ("pp.pp", false),
            ("pp.ppp", true),
            ("ppep", false),
            ("pppe", false),
            ("pppeppp", true),
        ];
        for (steps, held) in cases {
            let mut suspects = Suspects::default();
            let mut content = 7;
            for step in steps.chars() {
                match step {
                    'p' => drop(suspects.panicked(&mark("a"), content, "index out of bounds")),
                    '.' => suspects.passed(&mark("a")),
                    _ => content += 1,
                }
            }
            assert_eq!(is_held(&mut suspects, "a", content), held, "{steps}");
        }
    }

    #[test]
    fn edit_or_upgrade_releases() {
        let mut suspects = Suspects::default();
        for _ in 0..PANICS {
            suspects.panicked(&mark("a"), 1, "index out of bounds");
        }
        let Judgement::SetAside(sentence) = suspects.judge(&mark("a"), || 1) else {
            unreachable!("it is set aside")
        };
        assert!(
            sentence.starts_with(
                "3 passes over this job in a row panicked (last: index out of bounds); the job is set aside until"
            ),
            "{sentence}"
        );
        let stored = suspects.to_store();
        assert_eq!(suspects.judge(&mark("a"), || 2), Judgement::Released);
        assert_eq!(suspects.judge(&mark("a"), || 2), Judgement::Clear);

        let mut same = Suspects::recover(Some(stored.clone()), None, "", 0);
        assert!(is_held(&mut same, "a", 1), "a restart changes nothing");
        let mut newer = Suspects::recover(Some(stored), None, "0.2.0", 0);
        assert!(!is_held(&mut newer, "a", 1), "another version tries again");
    }

    #[test]
    fn stored_records_are_bounded() {
        let mut suspects = Suspects::default();
        for job in 0..2 * STORED_MAX {
            let count = if job % 2 == 0 { PANICS } else { 1 };
            for _ in 0..count {
                suspects.panicked(&mark(&format!("{job:06}")), 1, &"x".repeat(9_999));
            }
        }
        for job in 0..10 {
            let uid = format!("{job:06}");
            suspects.forget(&mark(&uid).job);
            assert!(!is_held(&mut suspects, &uid, 1), "gone with its job");
        }
        assert_eq!(suspects.jobs.len(), 2 * STORED_MAX - 10);
        for job in 0..10 {
            for _ in 0..PANICS {
                suspects.panicked(&mark(&format!("x{job}")), 1, "again");
            }
        }
        let stored = suspects.to_store();
        assert_eq!(stored.jobs.len(), STORED_MAX, "only those set aside");
        let text = serde_json::to_string(&stored).unwrap();
        assert!(text.len() < 512 * 1024, "{}", text.len());
        assert_eq!(serde_json::from_str::<Suspects>(&text).unwrap(), stored);
    }
}
