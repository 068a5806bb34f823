//! Names, seals and files from anybody.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn names_have_one_spelling() {
    let step: StepName = "000000012500-a7-5f3c9e".parse().unwrap();
    assert_eq!((step.step, step.attempt), (12_500, 7));
    assert_eq!(step.path(), "steps/000000012500-a7-5f3c9e");
    let long: StepName = "1234567890123-a0-5f3c9e".parse().unwrap();
    assert_eq!(long.step, 1_234_567_890_123);
    for text in [
        "12500-a7-5f3c9e",
        "000000012500-a07-5f3c9e",
        "000000012500-7-5f3c9e",
        "000000012500-a7-5F3C9E",
        "000000012500-a7-5f3c",
        "000000012500-a7-5f3c9e-x",
        "000000012500-a7-",
        "+00000012500-a7-5f3c9e",
        "99999999999999999999999-a7-5f3c9e",
        "../../etc",
        "",
    ] {
        let error = text.parse::<StepName>().unwrap_err().to_string();
        assert_eq!(error, format!("`{text}` is not the name of a step folder"));
    }
}

#[test]
fn record_names_are_pairs() {
    let id = AttemptId {
        attempt: 7,
        restart: 2,
    };
    assert_eq!(id.record_file(), "0000000007.0002.json");
    for (file, kind) in [
        (id.record_file(), AttemptFile::Record),
        (id.restored_file(), AttemptFile::Restored),
        (id.drained_file(), AttemptFile::Drained),
    ] {
        assert_eq!(AttemptId::from_file(&file), Ok((id, kind)));
    }
    for file in ["7.2.json", "0000000007.json", "0000000007.0002", "a.b.json"] {
        assert!(AttemptId::from_file(file).is_err(), "{file}");
    }
}

#[test]
fn step_files_parse_as_written() {
    for (text, file) in [
        ("00003.safetensors", StepFile::Data { rank: 3, file: 0 }),
        ("00003.1.safetensors", StepFile::Data { rank: 3, file: 1 }),
        ("100000.piece.json", StepFile::Piece(100_000)),
        ("objects/00003.json", StepFile::Objects(3)),
        (
            "layout-00000000000009d2.json",
            StepFile::Layout(LayoutId(0x9d2)),
        ),
        ("COMMIT.json", StepFile::Commit),
        ("REMOVED.json", StepFile::Removed),
        ("00003.local.json", StepFile::LocalPiece(3)),
        ("LOCAL.json", StepFile::LocalCommit),
        ("DRAIN.json", StepFile::Drain),
    ] {
        assert_eq!(file.to_string(), text);
        assert_eq!(text.parse(), Ok(file));
    }
    for text in [
        "3.safetensors",
        "00003.0.safetensors",
        "layout-9d2.json",
        "COMMIT.json.tmp",
    ] {
        assert!(text.parse::<StepFile>().is_err(), "{text}");
    }
}

#[test]
fn seal_is_the_last_member() {
    let sealed = seal(br#"{"version":1}"#.to_vec()).unwrap();
    let crc = Crc32c::of(br#"{"version":1"#);
    let text = String::from_utf8(sealed.clone()).unwrap();
    assert_eq!(text, format!("{{\"version\":1,\"crc32c\":\"{crc}\"}}\n"));
    assert_eq!(open(&sealed), Ok((br#"{"version":1}"#.to_vec(), crc)));
    assert_eq!(open(b""), Err(SealError::Empty));
    assert_eq!(open(b"{}"), Err(SealError::NoSeal));
    assert_eq!(seal(b"{}".to_vec()), Err(SealError::NotAnObject));
    assert_eq!(seal(b"[1,2]".to_vec()), Err(SealError::NotAnObject));
}

#[test]
fn crc32c_is_castagnoli() {
    // The check value that catalogues of checksums give for this polynomial.
    assert_eq!(Crc32c::of(b"123456789"), Crc32c(0xe306_9283));
}

#[test]
fn unknown_members_are_kept() {
    let root = br#"{"version":1,"run":"r","mood":{"a":[1,2.5]}}"#.to_vec();
    let bytes = seal(root).unwrap();
    let read = decode::<Root>(&bytes).unwrap();
    assert_eq!(read.document.other["mood"], json!({"a": [1, 2.5]}));
    assert!(!read.document.other.contains_key("crc32c"));
    assert_eq!(encode(&read.document).unwrap(), bytes);
    assert_eq!(sealed(read.document.clone()).unwrap(), read);
}

#[test]
fn newer_version_is_refused() {
    // Nothing else of it is looked at: its members may mean something else.
    let bytes = seal(br#"{"version":2,"run":7}"#.to_vec()).unwrap();
    let error = decode::<Root>(&bytes).unwrap_err();
    assert_eq!(error, ManifestError::Newer { found: 2 });
    assert_eq!(
        error.to_string(),
        "the file has format version 2, and this trainyard reads version 1; use the newer trainyard that wrote it"
    );
}

#[test]
fn hostile_files_get_one_sentence() {
    for (object, sentence) in [
        (r#"{"version":0,"run":"r"}"#, "version 0 does not exist"),
        (r#"{"version":1}"#, "missing field `run`"),
        (
            r#"{"version":1,"run":"r","crc32c":"00000000"}"#,
            "the member `crc32c` is there twice",
        ),
        (r#"{"version":1,"run":""}"#, "the run id must be"),
        (r#"{"version":1,"run":"a b"}"#, "the run id must be"),
        (r#"{"version":-1,"run":"r"}"#, "is not what it should be"),
        (r#"{"version":1,"run":"r"x}"#, "is not what it should be"),
    ] {
        let error = decode::<Root>(&seal(object.as_bytes().to_vec()).unwrap()).unwrap_err();
        assert!(error.to_string().contains(sentence), "{error}");
    }
    let long = vec![b' '; Root::MAX_BYTES + 1];
    let error = decode::<Root>(&long).unwrap_err().to_string();
    assert_eq!(
        error,
        "the file has 65537 bytes, and at most 65536 are read"
    );
}

#[test]
fn impossible_values_are_refused() {
    let id = AttemptId::first(1);
    let change = |change: &dyn Fn(&mut Piece)| {
        let mut piece = piece(0, 2, 10, id);
        change(&mut piece);
        piece.check().unwrap_err()
    };
    assert_eq!(change(&|piece| piece.rank = 2), "rank 2 of 2 ranks");
    assert_eq!(
        change(&|piece| piece.world = 0),
        "0 ranks; from 1 to 131072 are allowed"
    );
    assert_eq!(
        change(&|piece| piece.files[0].bytes = 200),
        "file 0 has 2 checksums for 4 chunks"
    );
    assert_eq!(
        change(&|piece| piece.files[0].data = 101),
        "file 0 of 100 bytes cannot have tensors from byte 101"
    );
    assert_eq!(
        change(&|piece| piece.chunk_bytes = 0),
        "chunks of 0 bytes; from 1 to 16777216 are allowed"
    );
    assert_eq!(
        change(&|piece| piece.seconds.write = f64::NAN),
        "a duration is negative or not a number"
    );
    let mut commit = seen(10, 1, 0).commit.document;
    commit.pieces.swap(0, 1);
    assert_eq!(
        commit.check().unwrap_err(),
        "its 2 pieces are not those of ranks 0 to 1, in order"
    );
    let (one, two) = (seen(10, 1, 0), seen(20, 1, 0));
    let RecordSeen::Fence(mut fence) = record(2, 0, &[&one]) else {
        panic!("a record");
    };
    fence.resumes_from = Some(two.reference());
    assert_eq!(
        fence.check().unwrap_err(),
        format!(
            "it resumes from `{}`, which is not among the commits that it acknowledges",
            two.folder
        )
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A flipped bit anywhere and a cut anywhere are found.
    #[test]
    fn damage_is_found(at in any::<prop::sample::Index>(), bit in 0_u8..8, cut in any::<bool>()) {
        let commit = seen(10, 1, 0).commit.document;
        let mut bytes = encode(&commit).unwrap();
        if cut {
            bytes.truncate(at.index(bytes.len()));
        } else {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        prop_assert!(decode::<Commit>(&bytes).is_err());
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode::<Piece>(&bytes).is_err());
        let mut object = b"{\"version\":1,".to_vec();
        object.extend(bytes);
        object.push(b'}');
        if let Ok(read) = decode::<Layout>(&seal(object).unwrap()) {
            prop_assert_eq!(read.document.check(), Ok(()));
        }
    }

    #[test]
    fn names_round_trip(step in any::<u64>(), attempt in any::<u32>(), random in any::<u64>()) {
        let name = StepName { step, attempt, nonce: Nonce::from_random(random) };
        prop_assert_eq!(name.to_string().parse::<StepName>().unwrap(), name);
    }
}
