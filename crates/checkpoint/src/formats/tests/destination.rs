//! Where a conversion writes, and what it never replaces.

use std::os::unix::fs::symlink;

use super::*;
use crate::formats::convert::check_kinds;

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let case = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        safetensors_file(&case.at("a"));
        case
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, target: &str, to: Format, force: bool) -> Result<Converted, FormatError> {
        let contents = Arc::new(open(&self.at("a"), None).unwrap());
        let options = Options {
            to,
            max_shard_bytes: 40,
            step: 7,
            force,
        };
        let done = Arc::new(AtomicU64::new(0));
        convert(&contents, &self.at("a"), &self.at(target), &options, &done)
    }
}

#[test]
fn existing_destination() {
    let case = Case::new();
    fs::write(case.at("notes"), "mine").unwrap();
    fs::create_dir(case.at("home")).unwrap();
    fs::write(case.at("home/notes"), "mine").unwrap();
    let why = |target: &str, force| {
        let refused = case.run(target, Format::Safetensors, force);
        refused.unwrap_err().why
    };
    assert_eq!(
        why("notes", false),
        "it exists already; `--force` replaces it"
    );
    for target in ["notes", "home"] {
        let why = why(target, true);
        assert!(why.starts_with("it is not a checkpoint"), "{why}");
    }
    let found = why("a", true);
    assert!(found.starts_with("it is the source"), "{found}");
    case.run("b", Format::Safetensors, true).unwrap();
    case.run("b", Format::Dcp, true).unwrap();
    assert!(compared(&case.at("a"), &case.at("b")).is_same());
    assert_eq!(fs::read(case.at("home/notes")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(case.folder.path()).unwrap().count(), 4);
    assert!(case.run("missing/b", Format::Dcp, true).is_err());
}

/// Whatever `--force` would delete beside a checkpoint, it does not.
#[test]
fn force_replaces_only_a_checkpoint() {
    for format in [Format::Hf, Format::Dcp, Format::Trainyard] {
        let case = Case::new();
        let name = format.name();
        case.run("b", format, false).unwrap();
        case.run("b", format, true).unwrap();
        for other in ["config.json", "sub/tokenizer.json"] {
            let path = case.at("b").join(other);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "mine").unwrap();
            let why = case.run("b", format, true).unwrap_err().why;
            let wanted = format!(
                "1 of its files are not part of the checkpoint (first: `{other}`), so it is not replaced"
            );
            assert_eq!(why, wanted, "{name}");
            assert_eq!(fs::read(&path).unwrap(), b"mine", "{name}");
            fs::remove_file(&path).unwrap();
        }
        case.run("b", format, true).unwrap();
        assert!(compared(&case.at("a"), &case.at("b")).is_same(), "{name}");
    }
}

#[test]
fn force_keeps_steps() {
    let case = Case::new();
    case.run("b", Format::Trainyard, false).unwrap();
    let steps = case.at("b/steps");
    let step = fs::read_dir(&steps).unwrap().next().unwrap().unwrap();
    let step = step.file_name().into_string().unwrap();
    let why = case.run(&format!("b/steps/{step}"), Format::Dcp, true);
    let why = why.unwrap_err().why;
    assert!(why.starts_with("it is one step of a folder"), "{why}");
    let other = steps.join(step.replacen("000000000007", "000000000008", 1));
    fs::create_dir(&other).unwrap();
    fs::copy(
        steps.join(&step).join("COMMIT.json"),
        other.join("COMMIT.json"),
    )
    .unwrap();
    let why = case.run("b", Format::Dcp, true).unwrap_err().why;
    assert_eq!(why, "it has 2 steps, so it is not replaced");
    assert!(steps.join(&step).exists() && other.exists());
}

/// A link is replaced, and what it leads to stays.
#[test]
fn linked_destination() {
    let case = Case::new();
    case.run("b", Format::Dcp, false).unwrap();
    symlink(case.at("b"), case.at("link")).unwrap();
    case.run("link", Format::Safetensors, true).unwrap();
    assert!(case.at("link").is_file() && case.at("b/.metadata").exists());
}

/// The destination appears while the conversion runs: between its first byte and its publication.
#[test]
fn destination_created_during_the_conversion() {
    #[derive(Debug)]
    struct Creating(PathBuf, Vec<u8>);
    impl Input for Creating {
        fn size(&self) -> io::Result<u64> {
            self.1.size()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            fs::write(&self.0, "mine")?;
            self.1.read_at(offset, buffer)
        }
    }
    for (format, force) in [
        (Format::Safetensors, false),
        (Format::Safetensors, true),
        (Format::Dcp, false),
        (Format::Dcp, true),
    ] {
        let case = Case::new();
        let mut contents = open(&case.at("a"), None).unwrap();
        let file = fs::read(case.at("a")).unwrap();
        contents.files[0].input = Box::new(Creating(case.at("b"), file));
        let options = Options {
            to: format,
            max_shard_bytes: 40,
            step: 7,
            force,
        };
        let done = Arc::new(AtomicU64::new(0));
        let converted = convert(
            &Arc::new(contents),
            &case.at("a"),
            &case.at("b"),
            &options,
            &done,
        );
        assert_eq!(
            converted.unwrap_err().why,
            "it was created during the conversion, so it is not replaced"
        );
        assert_eq!(fs::read(case.at("b")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(case.folder.path()).unwrap().count(), 2);
    }
}

#[test]
fn other_type_or_shape_is_found_when_read_back() {
    let case = Case::new();
    let source = open(&case.at("a"), None).unwrap();
    let changed = |change: &dyn Fn(&mut Tensor)| {
        let mut written = open(&case.at("a"), None).unwrap();
        change(written.tensors.get_mut("model.w").unwrap());
        check_kinds(&source, &written)
    };
    changed(&|_| {}).unwrap();
    let error = changed(&|tensor| tensor.dtype = Dtype::I32).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`model.w`: type F32 and shape [3, 4] were written, and I32 and [3, 4] were read back"
    );
    assert!(changed(&|tensor| tensor.shape = vec![4, 3]).is_err());
}
