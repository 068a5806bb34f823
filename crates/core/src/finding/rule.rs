//! What a rule is: its code, how bad it is in each profile, and why it matters.

use super::Severity;

/// What a file is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// To be tried out: it may skip what only long runs on shared machines need.
    #[default]
    Demo,
    /// To train for days beside the jobs of others.
    Production,
}

impl Profile {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Demo, Self::Production];

    /// The word on the command line and in the annotation `trainyard.dev/profile`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Production => "production",
        }
    }

    /// The profile with the name `word`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == word)
    }
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Stable code, such as `TY101`.
    pub code: &'static str,
    /// How bad every finding of it is in a demo; `None` where it is not looked for there.
    pub demo: Option<Severity>,
    /// How bad every finding of it is in production.
    pub production: Severity,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// Why it matters, in full sentences.
    pub explanation: &'static str,
}

impl Rule {
    /// How bad a finding of it is in `profile`; `None` where it is not looked for.
    pub fn severity(&self, profile: Profile) -> Option<Severity> {
        match profile {
            Profile::Demo => self.demo,
            Profile::Production => Some(self.production),
        }
    }

    /// Whether it is part of what makes a job valid: such a finding cannot be allowed, because the
    /// operator refuses the job whatever its file says of itself.
    pub fn is_contract(&self) -> bool {
        super::catalogue::RULES
            .iter()
            .any(|rule| rule.code == self.code)
    }
}
