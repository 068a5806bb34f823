use std::error::Error;

use tempfile::TempDir;

use super::*;
use crate::{
    model::Shape,
    state::tests::{IDENTITY, state},
};

type Tested = Result<(), Box<dyn Error>>;

/// A folder with the steps 100, 200 and 300.
fn folder() -> Result<(TempDir, Folder), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let folder = Folder::open(&place.path().join("made/here"), 3)?;
    for step in [100, 200, 300] {
        folder.save(&state(step))?;
    }
    Ok((place, folder))
}

/// The step that is loaded, and the warnings on the way.
fn load(folder: &Folder) -> Result<(Option<u64>, Vec<String>), CheckpointError> {
    let mut warnings = Vec::new();
    let mut warn = |sentence: &str| {
        warnings.push(sentence.to_owned());
        Ok(())
    };
    let loaded = folder.load(&IDENTITY, &mut warn)?;
    Ok((loaded.map(|state| state.step), warnings))
}

fn listing(folder: &Folder) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(&folder.path)?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[test]
fn empty_folder_has_nothing_to_resume() -> Tested {
    let place = tempfile::tempdir()?;
    let folder = Folder::open(place.path(), 3)?;
    assert_eq!(load(&folder)?, (None, vec![]));
    Ok(())
}

#[test]
fn newest_are_kept_and_latest_is_loaded() -> Tested {
    let (_place, folder) = folder()?;
    folder.save(&state(400))?;
    assert_eq!(
        listing(&folder)?,
        [
            "latest",
            "step-00000200.checkpoint",
            "step-00000300.checkpoint",
            "step-00000400.checkpoint"
        ]
    );
    assert_eq!(
        fs::read_to_string(folder.path.join(LATEST))?,
        "step-00000400.checkpoint\n"
    );
    assert_eq!(load(&folder)?, (Some(400), vec![]));
    Ok(())
}

#[test]
fn damaged_checkpoints_are_skipped() -> Tested {
    type Damage = fn(&Path) -> io::Result<()>;
    let cases: [(&str, Damage, Option<u64>, usize); 8] = [
        (
            "the last is torn",
            |path| {
                let file = File::options()
                    .write(true)
                    .open(path.join(file_name(300)))?;
                file.set_len(100)
            },
            Some(200),
            1,
        ),
        (
            "the last is empty",
            |path| fs::write(path.join(file_name(300)), b""),
            Some(200),
            1,
        ),
        (
            "the last two are of something else",
            |path| {
                fs::write(path.join(file_name(300)), b"torch")?;
                fs::write(path.join(file_name(200)), vec![7; 5000])
            },
            Some(100),
            2,
        ),
        (
            "all are damaged",
            |path| {
                for step in [100, 200, 300] {
                    fs::write(path.join(file_name(step)), b"x")?;
                }
                Ok(())
            },
            None,
            3,
        ),
        (
            "`latest` is gone",
            |path| fs::remove_file(path.join(LATEST)),
            Some(300),
            0,
        ),
        (
            "`latest` is not text",
            |path| fs::write(path.join(LATEST), [0xff, 0xfe, 0]),
            Some(300),
            0,
        ),
        (
            "`latest` names a file outside",
            |path| fs::write(path.join(LATEST), b"../../secret\n"),
            Some(300),
            0,
        ),
        (
            "`latest` names an earlier one",
            |path| fs::write(path.join(LATEST), format!("{}\n", file_name(200))),
            Some(200),
            0,
        ),
    ];
    for (name, damage, step, warnings) in cases {
        let (_place, folder) = folder()?;
        damage(&folder.path)?;
        let (loaded, warned) = load(&folder)?;
        assert_eq!(loaded, step, "{name}");
        assert_eq!(warned.len(), warnings, "{name}: {warned:?}");
    }
    Ok(())
}

#[test]
fn a_save_clears_what_an_interrupted_one_left() -> Tested {
    let (_place, folder) = folder()?;
    fs::write(
        folder.path.join("step-00000350.checkpoint.temporary"),
        b"half",
    )?;
    fs::write(folder.path.join("notes.temporary"), b"not ours")?;
    assert_eq!(load(&folder)?, (Some(300), vec![]));
    folder.save(&state(400))?;
    let names = listing(&folder)?;
    assert!(!names.contains(&"step-00000350.checkpoint.temporary".to_owned()));
    assert!(names.contains(&"notes.temporary".to_owned()));
    Ok(())
}

#[test]
fn rolled_back_run_keeps_its_own_save() -> Tested {
    let (_place, folder) = folder()?;
    folder.save(&state(50))?;
    assert_eq!(load(&folder)?, (Some(50), vec![]));
    assert_eq!(listing(&folder)?.len(), 4);
    Ok(())
}

#[test]
fn another_run_is_refused_not_overwritten() -> Tested {
    let (_place, folder) = folder()?;
    let others = [
        (
            Identity {
                seed: 43,
                ..IDENTITY
            },
            "another `--seed`: 42, this run has 43",
        ),
        (
            Identity {
                shape: Shape { hidden: 5 },
                ..IDENTITY
            },
            "another `--hidden`: 3, this run has 5",
        ),
        (
            Identity {
                data: 1,
                ..IDENTITY
            },
            "another data set (checksum): 65261, this run has 1",
        ),
    ];
    for (identity, wanted) in others {
        let refused = folder.load(&identity, &mut |_| Ok(()));
        let sentence = refused.map(|state| state.map(|state| state.step));
        let sentence = sentence.map_err(|error| error.to_string());
        assert!(
            sentence.as_ref().is_err_and(|text| text.contains(wanted)),
            "{sentence:?}"
        );
    }
    Ok(())
}

#[test]
fn unusable_folder_is_named() -> Tested {
    let file = tempfile::NamedTempFile::new()?;
    let refused = Folder::open(&file.path().join("below"), 3);
    assert!(matches!(refused, Err(CheckpointError::Open { .. })));
    Ok(())
}
