//! What a job says about where it wants to be: `trainyard.dev/placement` and
//! `trainyard.dev/parallelism`.

use std::fmt;

use super::{
    SettingError,
    nearest::{nearest, one_of},
};

/// What part of the topology should hold the whole gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The gang starts in one domain of the level, or not at all.
    Required(String),
    /// The gang starts in one domain of the level where that is possible now.
    Preferred(String),
}

impl Wish {
    /// The level, by its short name or its label key.
    pub fn level(&self) -> &str {
        match self {
            Self::Required(level) | Self::Preferred(level) => level,
        }
    }

    /// Reads `required=LEVEL` or `preferred=LEVEL`; the error completes a sentence that begins with
    /// the annotation.
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        const EXAMPLE: &str = "`required=LEVEL` or `preferred=LEVEL`, such as `required=rack`";
        let bad = || SettingError::not(EXAMPLE, text);
        let (word, level) = text.split_once('=').ok_or_else(bad)?;
        let level = level.trim();
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if level.is_empty() || !level.chars().all(is_key) {
            return Err(bad());
        }
        match word.trim() {
            "required" => Ok(Self::Required(level.to_owned())),
            "preferred" => Ok(Self::Preferred(level.to_owned())),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required(level) => write!(f, "required={level}"),
            Self::Preferred(level) => write!(f, "preferred={level}"),
        }
    }
}

/// One axis along which the ranks of a job share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// `tp`: the parts of one layer.
    Tensor,
    /// `cp`: the parts of one sequence.
    Context,
    /// `ep`: the experts of one layer.
    Expert,
    /// `pp`: the stages of layers.
    Pipeline,
    /// `dp`: copies of the model.
    Data,
}

impl Axis {
    /// Every axis, the one with the most traffic between its ranks first.
    pub const ALL: [Self; 5] = [
        Self::Tensor,
        Self::Context,
        Self::Expert,
        Self::Pipeline,
        Self::Data,
    ];

    /// The word in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tp",
            Self::Context => "cp",
            Self::Expert => "ep",
            Self::Pipeline => "pp",
            Self::Data => "dp",
        }
    }
}

/// How the ranks of a job are numbered: the axis that varies fastest comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parallelism {
    axes: Vec<(Axis, u32)>,
}

/// More ranks than any job has; products stay far from overflow.
const MAX_RANKS: u64 = 10_000_000;

impl Parallelism {
    /// The axes with their sizes, the fastest first.
    pub fn axes(&self) -> &[(Axis, u32)] {
        &self.axes
    }

    /// The size of `axis`; 1 where it is not stated.
    pub fn size(&self, axis: Axis) -> u32 {
        self.axes
            .iter()
            .find(|(own, _)| *own == axis)
            .map_or(1, |(_, size)| *size)
    }

    /// How many ranks the sizes make.
    pub fn ranks(&self) -> u64 {
        self.axes.iter().map(|(_, size)| u64::from(*size)).product()
    }

    /// The same for `ranks` ranks: where `dp` is not stated it is what is left. `None` where the sizes
    /// do not divide them.
    pub fn for_ranks(&self, ranks: u64) -> Option<Self> {
        let stated = self.ranks();
        if stated == ranks {
            return Some(self.clone());
        }
        let has_data = self.axes.iter().any(|(axis, _)| *axis == Axis::Data);
        if has_data || ranks == 0 || !ranks.is_multiple_of(stated) {
            return None;
        }
        let mut axes = self.axes.clone();
        axes.push((Axis::Data, u32::try_from(ranks / stated).ok()?));
        Some(Self { axes })
    }

    /// Reads `tp=8,pp=4,dp=16`; the error completes a sentence that begins with the annotation.
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        const EXAMPLE: &str = "like `tp=8,pp=4,dp=16`";
        let names = || Axis::ALL.into_iter().map(Axis::name);
        let mut axes: Vec<(Axis, u32)> = Vec::new();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (name, size) = item
                .split_once('=')
                .map(|(name, size)| (name.trim(), size.trim()))
                .ok_or_else(|| SettingError::not(EXAMPLE, item))?;
            let found = Axis::ALL
                .into_iter()
                .find(|axis| axis.name() == name)
                .ok_or_else(|| match nearest(name, names()) {
                    Some(meant) => SettingError::Misspelled {
                        what: "axis",
                        found: name.to_owned(),
                        meant: meant.to_owned(),
                    },
                    None => SettingError::Unknown {
                        what: "the axes",
                        known: one_of(names()),
                        found: name.to_owned(),
                    },
                })?;
            if axes.iter().any(|(other, _)| *other == found) {
                return Err(SettingError::Twice {
                    what: "axis",
                    name: name.to_owned(),
                });
            }
            let size = size.parse().ok().filter(|size| *size > 0).ok_or_else(|| {
                SettingError::NotNumber {
                    expected: "a number from 1",
                    name: name.to_owned(),
                    found: size.to_owned(),
                }
            })?;
            axes.push((found, size));
        }
        if axes.is_empty() {
            return Err(SettingError::Nothing(EXAMPLE.to_owned()));
        }
        let ranks = axes
            .iter()
            .try_fold(1_u64, |ranks, (_, size)| {
                ranks.checked_mul(u64::from(*size))
            })
            .filter(|ranks| *ranks <= MAX_RANKS);
        match ranks {
            Some(_) => Ok(Self { axes }),
            None => Err(SettingError::TooManyRanks(MAX_RANKS)),
        }
    }
}

impl fmt::Display for Parallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (axis, size)) in self.axes.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}={size}", axis.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes() {
        let cases: &[(&str, Option<&str>)] = &[
            ("required=rack", Some("required=rack")),
            (
                " preferred = topology.kubernetes.io/zone ",
                Some("preferred=topology.kubernetes.io/zone"),
            ),
            ("rack", None),
            ("required=", None),
            ("must=rack", None),
            ("required=a b", None),
        ];
        for (text, want) in cases {
            let got = Wish::parse(text).ok().map(|wish| wish.to_string());
            assert_eq!(got.as_deref(), *want, "{text:?}");
        }
    }

    #[test]
    fn parallelisms() {
        let cases: &[(&str, Result<&str, &str>)] = &[
            ("tp=8,pp=4,dp=16", Ok("tp=8,pp=4,dp=16")),
            (" dp = 2 , tp = 4 ,", Ok("dp=2,tp=4")),
            ("", Err("must be like `tp=8,pp=4,dp=16`, found nothing")),
            ("tp", Err("must be like `tp=8,pp=4,dp=16`, found `tp`")),
            ("tp=0", Err("needs a number from 1 for `tp`, found `0`")),
            ("tp=2,tp=2", Err("names the axis `tp` twice")),
            ("ddp=2", Err("has no axis `ddp`, did you mean `dp`?")),
            (
                "shards=2",
                Err("has the axes `tp`, `cp`, `ep`, `pp` or `dp`, found `shards`"),
            ),
            ("tp=100000,dp=100000", Err("makes more than 10000000 ranks")),
        ];
        for (text, want) in cases {
            let got = Parallelism::parse(text).map(|found| found.to_string());
            let got = got.map_err(|error| error.to_string());
            assert_eq!(
                got.as_ref().map(String::as_str).map_err(String::as_str),
                *want,
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_is_left_is_data() {
        let stated = Parallelism::parse("tp=8,pp=4").unwrap();
        assert_eq!(
            stated
                .for_ranks(64)
                .map(|found| found.to_string())
                .as_deref(),
            Some("tp=8,pp=4,dp=2")
        );
        assert_eq!(stated.for_ranks(48), None);
        let whole = Parallelism::parse("tp=8,dp=2").unwrap();
        assert_eq!(whole.for_ranks(16), Some(whole.clone()));
        assert_eq!(whole.for_ranks(32), None);
    }
}
