//! The rules as data: read from TOML, checked, and compiled for the search.
//!
//! Owns the meaning of `labels.toml` and `rules.toml` and of files that a user adds to them. Does not
//! look at lines of a log; that is `super::source`.
//!
//! Invariant: every line that a rule can match contains an anchor. Literals of a user's rules that contain
//! no anchor become anchors themselves, which costs speed.

mod anchors;

use std::sync::{Arc, LazyLock, OnceLock};

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use self::anchors::Anchors;
pub(super) use self::anchors::Part;
use crate::{account::Account, progress::UserRules};

const LABELS: &str = include_str!("labels.toml");
const RULES: &str = include_str!("rules.toml");

/// Whether a label is a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelKind {
    /// Something to act on.
    Problem,
    /// Says how the job runs.
    Fact,
    /// Nothing is wrong.
    Healthy,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The same job will likely succeed.
    Helps,
    /// It depends on the cause.
    MayHelp,
    /// The same will happen again.
    DoesNotHelp,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A guess that fits.
    Low,
    /// Likely, but the lines would look the same for another cause.
    Medium,
    /// The lines say so.
    #[default]
    High,
}

impl Retry {
    /// In the words of the reports.
    pub fn words(self) -> &'static str {
        match self {
            Self::Helps => "a retry helps",
            Self::MayHelp => "a retry may help",
            Self::DoesNotHelp => "a retry does not help",
        }
    }
}

impl Confidence {
    /// In the word of the reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// One conclusion that the doctor can come to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Stable name.
    pub name: String,
    /// Problem or fact.
    pub kind: LabelKind,
    /// Which failure budget a failure with it counts against.
    #[serde(deserialize_with = "account")]
    pub account: Account,
    /// Whether a retry helps.
    pub retry: Retry,
    /// What it means, as one sentence.
    pub sentence: String,
    /// What would show that it is wrong.
    pub refuted_by: String,
    /// What to do.
    pub next: String,
    /// What to do instead where no rank is named.
    #[serde(default)]
    pub next_without_rank: Option<String>,
    /// What to do instead where NCCL already logs at level INFO.
    #[serde(default)]
    pub next_with_info: Option<String>,
}

/// What a line that a rule matches stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Fields only.
    Note,
    /// How the job runs.
    Fact,
    /// It finished a piece of work: enough for `healthy` at the end of a log, not for having recovered from a failure.
    Result,
    /// It got past what came before.
    Progress,
    /// It reached its end.
    Done,
    /// An error that wraps another.
    Wrapper,
    /// A process ended with an error.
    Exit,
    /// Follows from something else.
    Symptom,
    /// Explains a failure by itself.
    Cause,
}

/// One rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Stable name.
    pub id: String,
    /// The label that a match is evidence for.
    #[serde(default)]
    pub label: Option<String>,
    /// Literals of which the line must contain one.
    pub any: Vec<String>,
    #[serde(default)]
    pattern: Option<String>,
    #[serde(default)]
    unless: Option<String>,
    /// What a hit stands for.
    pub stage: Stage,
    /// Order among symptoms.
    #[serde(default = "usual_weight")]
    pub weight: u8,
    /// How sure a hit is.
    #[serde(default)]
    pub confidence: Confidence,
    /// The program retries it: not a problem where the job continues.
    #[serde(default)]
    pub recovers: bool,
    /// Looked for in a few lines of each block only.
    #[serde(default)]
    pub sample: bool,
    /// Looked for without an anchor in the first and the last lines of a log.
    #[serde(default)]
    pub short: bool,
    /// Where the text comes from.
    #[serde(default)]
    pub reference: String,
    #[serde(skip)]
    compiled: OnceLock<Option<Regex>>,
    #[serde(skip)]
    refusing: OnceLock<Option<Regex>>,
}

fn usual_weight() -> u8 {
    50
}

fn account<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Account, D::Error> {
    let word = String::deserialize(deserializer)?;
    match word.as_str() {
        "user" => Ok(Account::User),
        "platform" => Ok(Account::Platform),
        "infrastructure" => Ok(Account::Infrastructure),
        "preemption" => Ok(Account::Preemption),
        other => Err(serde::de::Error::custom(format!(
            "unknown account `{other}`; expected `user`, `platform`, `infrastructure` or `preemption`"
        ))),
    }
}

impl Rule {
    /// Whether it is what a launcher prints about the process that ended first.
    pub(super) fn reports_first(&self) -> bool {
        matches!(
            self.id.as_str(),
            "mpirun-noticed" | "mpi-abort" | "prterun-exit" | "elastic-failed"
        )
    }

    /// Whether it is what a launcher prints when it ends the processes that are left.
    pub(super) fn reports_cleanup(&self) -> bool {
        self.id == "launcher-ends-workers"
    }

    /// The expression that a line must match, where there is one.
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// The expression that excludes a line, where there is one.
    pub fn unless(&self) -> Option<&str> {
        self.unless.as_deref()
    }

    pub(super) fn regex(&self) -> Option<&Regex> {
        lazily(&self.compiled, self.pattern.as_deref())
    }

    /// Whether the rule matches `text`, which is known to contain one of its literals.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        self.regex().is_none_or(|regex| regex.is_match(text))
            && lazily(&self.refusing, self.unless.as_deref())
                .is_none_or(|regex| !regex.is_match(text))
    }

    fn check(&self) -> Result<(), RulesError> {
        for pattern in [&self.pattern, &self.unless].into_iter().flatten() {
            build(pattern).map_err(|error| RulesError::Pattern {
                rule: self.id.clone(),
                reason: error.to_string(),
            })?;
        }
        if self.any.is_empty() || self.any.iter().any(|literal| literal.len() < 3) {
            return Err(RulesError::Literals {
                rule: self.id.clone(),
            });
        }
        Ok(())
    }
}

fn lazily<'a>(cell: &'a OnceLock<Option<Regex>>, pattern: Option<&str>) -> Option<&'a Regex> {
    let make = || pattern.and_then(|pattern| build(pattern).ok());
    cell.get_or_init(make).as_ref()
}

fn build(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(1 << 20)
        .build()
}

/// Why rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The text is not TOML of the right shape.
    #[error("cannot read the rules")]
    Parse(#[source] toml::de::Error),
    /// A pattern is not a regular expression.
    #[error("invalid pattern in rule `{rule}`: {reason}")]
    Pattern {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A rule has no literal that can be searched for.
    #[error("rule `{rule}` needs at least one literal in `any`, each of 3 bytes or more")]
    Literals {
        /// The rule.
        rule: String,
    },
    /// A rule names a label that does not exist.
    #[error("rule `{rule}` has unknown label `{label}`; add a `[[label]]` for it")]
    Label {
        /// The rule.
        rule: String,
        /// The label.
        label: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    anchors: Vec<String>,
    #[serde(default)]
    anchors_of_ends: Vec<String>,
    #[serde(default)]
    label: Vec<Label>,
    #[serde(default)]
    rule: Vec<Rule>,
}

/// Literals of many rules, looked for at once.
#[derive(Debug)]
pub(super) struct Finder {
    automaton: AhoCorasick,
    /// The rules of each literal.
    owners: Vec<Vec<u16>>,
}

impl Finder {
    fn new(rules: &[Rule], wanted: impl Fn(&Rule) -> bool) -> Self {
        let mut literals: Vec<&str> = Vec::new();
        let mut owners: Vec<Vec<u16>> = Vec::new();
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| wanted(rule)) {
            let index = u16::try_from(index).unwrap_or(u16::MAX);
            for literal in &rule.any {
                if let Some(position) = literals.iter().position(|known| known == literal) {
                    owners[position].push(index);
                } else {
                    literals.push(literal);
                    owners.push(vec![index]);
                }
            }
        }
        let automaton = AhoCorasick::builder()
            .kind(Some(aho_corasick::AhoCorasickKind::DFA))
            .build(&literals)
            .expect("literals of rules are few and short");
        Self { automaton, owners }
    }

    /// Puts the rules of which `text` contains a literal into `found`, each once, in order.
    pub(super) fn rules_in(&self, text: &[u8], found: &mut Vec<u16>) {
        found.clear();
        for hit in self.automaton.find_overlapping_iter(text) {
            found.extend(&self.owners[hit.pattern().as_usize()]);
        }
        found.sort_unstable();
        found.dedup();
    }
}

/// All rules and labels, ready for use.
#[derive(Debug)]
pub struct Rules {
    labels: Vec<Label>,
    list: Vec<Rule>,
    anchors: Anchors,
    pub(super) finder: Finder,
    pub(super) samples: Finder,
    progress: Arc<UserRules>,
}

impl Rules {
    /// The rules that are compiled in.
    pub fn builtin() -> Self {
        Self::with(&[]).expect("the rules of the program are checked by its tests")
    }

    /// The rules that are compiled in, made once in a process: that takes a while.
    pub fn shared() -> &'static Arc<Self> {
        static SHARED: LazyLock<Arc<Rules>> = LazyLock::new(|| Arc::new(Rules::builtin()));
        &SHARED
    }

    /// The rules that are compiled in, and after them those of `texts`. A label or rule with a known
    /// name takes the place of the one before it.
    pub fn with(texts: &[&str]) -> Result<Self, RulesError> {
        let mut file = parse(LABELS)?;
        let builtin = parse(RULES)?;
        let mut progress = UserRules::default();
        let (mut anchors, at_ends) = (builtin.anchors, builtin.anchors_of_ends);
        file.rule = builtin.rule;
        for text in texts {
            let added = parse(text)?;
            for rule in &added.rule {
                rule.check()?;
                if let Some(pattern) = rule.regex().filter(|_| rule.stage == Stage::Progress) {
                    let unless = lazily(&rule.refusing, rule.unless.as_deref());
                    progress.add(pattern, unless);
                }
            }
            for literal in added.rule.iter().flat_map(|rule| &rule.any) {
                if !anchors.iter().any(|anchor| literal.contains(anchor)) {
                    anchors.push(literal.clone());
                }
            }
            replace(&mut file.label, added.label, |label| &label.name);
            replace(&mut file.rule, added.rule, |rule| &rule.id);
        }
        for rule in &file.rule {
            if let Some(name) = &rule.label
                && !file.label.iter().any(|label| label.name == *name)
            {
                return Err(RulesError::Label {
                    rule: rule.id.clone(),
                    label: name.clone(),
                });
            }
        }
        Ok(Self {
            finder: Finder::new(&file.rule, |rule| !rule.sample),
            samples: Finder::new(&file.rule, |rule| rule.sample),
            labels: file.label,
            list: file.rule,
            anchors: Anchors::new(&anchors, &at_ends),
            progress: Arc::new(progress),
        })
    }

    /// Every label, in the order of the file.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// Every rule, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.list
    }

    /// How the rules that a user added read steps; for a [`Reader`](crate::progress::Reader).
    pub fn progress(&self) -> &Arc<UserRules> {
        &self.progress
    }

    /// The label called `name`.
    pub fn label(&self, name: &str) -> Option<&Label> {
        self.labels.iter().find(|label| label.name == name)
    }

    pub(super) fn anchors(&self) -> &Anchors {
        &self.anchors
    }

    pub(super) fn rule(&self, index: u16) -> &Rule {
        &self.list[usize::from(index)]
    }
}

fn parse(text: &str) -> Result<File, RulesError> {
    toml::from_str(text).map_err(RulesError::Parse)
}

fn replace<T>(known: &mut Vec<T>, added: Vec<T>, name: impl Fn(&T) -> &String) {
    for item in added {
        match known.iter().position(|old| name(old) == name(&item)) {
            Some(position) => known[position] = item,
            None => known.push(item),
        }
    }
}

#[cfg(test)]
mod tests;
