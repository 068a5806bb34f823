//! Volumes as all nodes see them: each writes a file, all look for all, each removes its own.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
};

use trainyard_core::probe::{Check, VolumeNeeds, paths::volume_shared};

use super::{
    super::{
        Settings,
        limit::Limit,
        message::{Answer, Request, VolumeAction, VolumeStep},
        peer::FILES,
    },
    members::Members,
};

/// The checks of every volume, by the name of the node.
pub(super) fn conduct(
    settings: &Settings,
    members: &mut Members,
    limit: Limit,
) -> BTreeMap<String, Vec<Check>> {
    let mut checks: BTreeMap<String, Vec<Check>> = BTreeMap::new();
    // A single member has no other to check it.
    if members.present().len() < 2 {
        return checks;
    }
    for volume in settings.needs.volumes.iter().flatten() {
        let Some(path) = &volume.path else {
            continue;
        };
        for (name, check) in one(path, volume, settings, members, limit) {
            checks.entry(name).or_default().push(check);
        }
    }
    checks
}

fn one(
    path: &str,
    volume: &VolumeNeeds,
    settings: &Settings,
    members: &mut Members,
    limit: Limit,
) -> Vec<(String, Check)> {
    // From the keys of hash maps, which the system draws at random for each process.
    let random = RandomState::new().build_hasher().finish();
    let file = |member: usize| format!("{FILES}{random:016x}-{member}");
    let text = |member: usize| format!("{random:016x} {member}\n");
    let all = members.present();
    let mut ask = |of: &[usize], action: &dyn Fn(usize) -> VolumeAction| {
        let step = |member: usize| {
            let path = path.to_owned();
            let action = action(member);
            (member, Request::Volume(VolumeStep { path, action }))
        };
        let requests = of.iter().copied().map(step).collect();
        // A volume that hangs is answered for within this.
        let limit = limit.within(settings.patience() * 3);
        members.ask(requests, limit)
    };
    let written = ask(&all, &|member| VolumeAction::Write {
        name: file(member),
        text: text(member),
    });
    let files: Vec<(String, String)> = all
        .iter()
        .map(|member| (file(*member), text(*member)))
        .collect();
    let seen = ask(&all, &|_| VolumeAction::Look {
        files: files.clone(),
    });
    // Each removes its own. Files of members that are gone are removed by another one.
    let removed = ask(&all, &|member| VolumeAction::Remove { name: file(member) });
    let clean = |member: &usize| matches!(removed.get(member), Some(Answer::Volume(wrong)) if wrong.is_empty());
    if let Some(other) = all.iter().copied().find(clean) {
        for lost in all.iter().filter(|member| !removed.contains_key(member)) {
            ask(&[other], &|_| VolumeAction::Remove { name: file(*lost) });
        }
    }
    let whose: BTreeMap<String, usize> =
        all.iter().map(|member| (file(*member), *member)).collect();
    let mut checks = Vec::new();
    for member in &all {
        let Some(Answer::Volume(wrong)) = seen.get(member) else {
            continue;
        };
        let unwritten = match written.get(member) {
            Some(Answer::Volume(failed)) => failed.clone(),
            _ => Vec::new(),
        };
        // Its own failure to write comes first: what others did not write is reported for them.
        let own = unwritten
            .into_iter()
            .map(|(_, why)| ("itself".to_owned(), why));
        let others = wrong.iter().filter_map(|(file, why)| {
            let writer = whose.get(file).copied();
            let was_written = writer.is_none_or(|writer| {
                matches!(written.get(&writer), Some(Answer::Volume(failed)) if failed.is_empty())
            });
            let name = writer.map_or(file.as_str(), |writer| members.name(writer));
            was_written.then(|| (name.to_owned(), why.clone()))
        });
        let wrong: Vec<(String, String)> = own.chain(others).collect();
        let check = volume_shared(path, &wrong, all.len(), volume.host_path.is_some());
        checks.push((members.name(*member).to_owned(), check));
    }
    checks
}
