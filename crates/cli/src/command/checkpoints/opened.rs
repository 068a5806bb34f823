//! A folder of checkpoints as it is now, alone or with the local tiers in front of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_checkpoint_engine::{
    Store,
    clock::SystemClock,
    open::{self, OpenError},
    store::View,
    tiers::is_on_local_tiers,
    token,
};
use trainyard_core::checkpoint::{
    CommitSeen, FolderSeen, Merged, OnTier, StepLine, StepName, StepState, Summary, Tier, merge,
    summary_of_tiers,
};

use crate::failure::Failure;

/// A folder of checkpoints as it is now.
pub(super) struct Opened {
    /// The root.
    pub(super) store: Store,
    /// The local tiers, then the root.
    roots: Vec<PathBuf>,
    locals: Vec<Store>,
    /// The step folders over all tiers, by name.
    steps: BTreeMap<String, Merged>,
    pub(super) summary: Summary,
}

pub(super) fn open_store(root: &Path) -> Result<Store, Failure> {
    let shown = root.display();
    let cannot = || format!("cannot open the checkpoints in `{shown}`");
    let storage = match open::existing(root) {
        Err(OpenError::Existing(error)) => Err(error).with_context(cannot)?,
        opened => opened.with_context(cannot)?,
    };
    let seed = token::seed().context("cannot read random bytes")?;
    let store = Store::existing(storage, SystemClock::start(), seed).with_context(cannot)?;
    Ok(store)
}

fn view(root: &Path, store: &Store) -> Result<View, Failure> {
    let view = store
        .whole_view()
        .with_context(|| format!("cannot read the checkpoints in `{}`", root.display()))?;
    Ok(view)
}

/// Looks at a root and the local tiers in front of it.
pub(super) fn look(root: &Path, locals: &[PathBuf]) -> Result<Opened, Failure> {
    let store = open_store(root)?;
    let mut stores = Vec::new();
    let (mut views, mut roots) = (Vec::new(), Vec::new());
    for folder in locals {
        let local = open_store(folder)?;
        if local.run() != store.run() {
            return Err(Failure::new(format!(
                "`{}` is not a local tier of `{}`: it has run `{}`, not `{}`",
                folder.display(),
                root.display(),
                local.run(),
                store.run()
            )));
        }
        views.push((Tier::Local, view(folder, &local)?));
        stores.push(local);
        roots.push(folder.clone());
    }
    let tier = match open::scheme(root) {
        Some(_) => Tier::Object,
        None => Tier::Shared,
    };
    views.push((tier, view(root, &store)?));
    roots.push(root.to_owned());
    let folders: Vec<(Tier, &[FolderSeen])> = (views.iter())
        .map(|(tier, view)| (*tier, view.folders.as_slice()))
        .collect();
    let merged = merge(&folders);
    let records: Vec<_> = (views.iter())
        .flat_map(|(_, view)| view.records.iter().cloned())
        .collect();
    let now = Timestamp::now().as_second();
    let is_local = |name: &StepName| is_on_local_tiers(&store, name);
    let mut summary = summary_of_tiers(store.run(), &records, &merged, &is_local, Some(now));
    let foreign = views.iter().flat_map(|(_, view)| &view.foreign);
    summary
        .notes
        .extend(foreign.map(|name| format!("`{name}` is not part of a checkpoint")));
    let steps: BTreeMap<String, Merged> = (merged.into_iter())
        .map(|one| (one.folder.folder.clone(), one))
        .collect();
    Ok(Opened {
        store,
        roots,
        locals: stores,
        steps,
        summary,
    })
}

impl Opened {
    /// The step that a number or a folder name means. Of several folders of one step the newest complete one is meant.
    pub(super) fn find(&self, text: &str) -> Result<&StepLine, Failure> {
        let number = text.parse::<u64>().ok();
        let is_meant =
            |line: &&StepLine| Some(line.name.step) == number || line.name.to_string() == text;
        let lines: Vec<&StepLine> = self.summary.steps.iter().filter(is_meant).collect();
        let complete = lines
            .iter()
            .rev()
            .find(|line| line.state == StepState::Complete);
        complete.or(lines.last()).copied().ok_or_else(|| {
            Failure::new(format!("no checkpoint of step `{text}`"))
                .hint("list the steps with `trainyard checkpoints ls ROOT`")
        })
    }

    pub(super) fn commit(&self, name: &StepName) -> Option<CommitSeen> {
        self.steps.get(&name.to_string())?.folder.commit()
    }

    /// The stores that may have a file of a step, the nearest first.
    pub(super) fn stores(&self) -> impl Iterator<Item = &Store> {
        self.locals.iter().chain([&self.store])
    }

    /// What each tier has of a step.
    pub(super) fn tiers(&self, name: &StepName) -> &[OnTier] {
        let step = self.steps.get(&name.to_string());
        step.map_or(&[], |step| &step.tiers)
    }

    /// Where a tier is.
    pub(super) fn root_of(&self, on: &OnTier) -> String {
        let root = self.roots.get(on.place);
        root.map(|root| root.display().to_string())
            .unwrap_or_default()
    }

    /// The tiers of a step in one line, such as `local, shared (1 of 2 pieces)`.
    pub(super) fn tiers_named(&self, name: &StepName) -> String {
        let of = self
            .steps
            .get(&name.to_string())
            .and_then(|step| step.pieces);
        let named = self.tiers(name).iter().map(|on| {
            let tier = on.tier.name();
            match of {
                Some((_, of)) if on.pieces < of => {
                    format!("{tier} ({} of {of} pieces)", on.pieces)
                }
                _ if !on.is_committed => format!("{tier} (not committed)"),
                _ => tier.to_owned(),
            }
        });
        named.collect::<Vec<_>>().join(", ")
    }
}
