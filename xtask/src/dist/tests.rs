//! Archives as the programs read them that users have: `tar`, Python, dpkg. One that is not on this machine is not asked, and says so.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Release, Scratch, clear, deb,
    entry::{FILE, Files, PROGRAM},
    image, manifest, megabytes,
    pages::{Pages, Shell},
    parts::{Kind, Part},
    program::{self, Program},
    sbom, sha256, tar, wheel,
};
use crate::Failure;

/// 2026-11-19 in the afternoon.
const TIME: u64 = 1_795_098_903;

fn release() -> Release {
    Release {
        version: "0.1.0".to_owned(),
        time: TIME,
        licence: "the licence\n".to_owned(),
        notices: "notices\n".repeat(100),
        pages: Pages {
            manual: vec![("trainyard.1".to_owned(), b".TH trainyard 1\n".to_vec())],
            completions: vec![
                (Shell::Bash, b"complete".to_vec()),
                (Shell::Zsh, b"#compdef".to_vec()),
            ],
        },
        parts: String::new(),
    }
}

fn sample(architecture: &'static str) -> Program {
    // Bytes that deflate little, and an odd number of them.
    let bytes = (0..20_001_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    Program {
        architecture,
        path: PathBuf::from("trainyard"),
        bytes: bytes.collect(),
    }
}

/// What a program prints, with a success; nothing where this machine does not have it.
fn asked(program: &str, arguments: &[&OsStr]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("TZ", "UTC")
        .output();
    let Ok(output) = output else {
        println!("`{program}` is not on this machine and was not asked");
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn written(scratch: &Scratch, (name, bytes): &(String, Vec<u8>)) -> PathBuf {
    let path = scratch.0.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn tar_has_the_bytes_of_gnu_tar() {
    let scratch = Scratch::new("tar").unwrap();
    let long = format!("{}/{}", "folder".repeat(12), "name".repeat(20));
    let mut files = Files::default();
    for (name, mode, data) in [
        ("a/b/empty", FILE, Vec::new()),
        ("a/program", PROGRAM, vec![7; 512]),
        ("z", FILE, vec![8; 513]),
        (long.as_str(), FILE, b"long".to_vec()),
    ] {
        let path = scratch.0.join("files").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &data).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        files.add(name, mode, data);
    }
    let ours = tar::archive(&files, "", TIME).unwrap();
    let theirs = scratch.0.join("theirs.tar");
    let time = format!("--mtime=@{TIME}");
    let mut arguments: Vec<&OsStr> = [
        "--create",
        "--format=ustar",
        "--sort=name",
        "--blocking-factor=1",
    ]
    .map(OsStr::new)
    .to_vec();
    arguments.extend(
        [
            "--owner=root:0",
            "--group=root:0",
            "--mode=u=rwX,go=rX",
            time.as_str(),
            "--file",
        ]
        .map(OsStr::new),
    );
    let folder = scratch.0.join("files");
    arguments.extend([
        theirs.as_os_str(),
        "--directory".as_ref(),
        folder.as_os_str(),
    ]);
    arguments.extend(["a", long.split('/').next().unwrap(), "z"].map(OsStr::new));
    if asked("tar", &arguments).is_some() {
        let theirs = fs::read(&theirs).unwrap();
        let at = ours
            .iter()
            .zip(&theirs)
            .position(|(own, other)| own != other);
        assert_eq!(
            (at, ours.len()),
            (None, theirs.len()),
            "the first byte that differs"
        );
    }
}

#[test]
fn tar_refuses_what_its_header_cannot_hold() {
    for (path, wanted) in [
        ("x".repeat(101), "too long a path"),
        (format!("{}/x", "y".repeat(156)), "too long a path"),
    ] {
        let mut files = Files::default();
        files.add(path, FILE, "");
        assert!(tar::archive(&files, "", TIME).unwrap_err().contains(wanted));
    }
    let mut files = Files::default();
    files.add("x", FILE, "");
    assert!(
        tar::archive(&files, "", u64::MAX)
            .unwrap_err()
            .contains("too big")
    );
}

/// Reads a wheel as installers do, and compares it with its own record.
const READ_WHEEL: &str = r#"
import base64, hashlib, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
assert wheel.testzip() is None
names = wheel.namelist()
record = next(name for name in names if name.endswith(".dist-info/RECORD"))
listed = {}
for line in wheel.read(record).decode().splitlines():
    path, digest, size = line.split(",")
    listed[path] = (digest, size)
assert sorted(listed) == sorted(names) and len(set(names)) == len(names)
assert listed.pop(record) == ("", "") and names[-1] == record
for path, (digest, size) in listed.items():
    data = wheel.read(path)
    own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert digest == "sha256=" + own and int(size) == len(data), path
for info in wheel.infolist():
    print(oct(info.external_attr >> 16), info.date_time, info.compress_type, info.filename)
print(wheel.read(record.replace("RECORD", "WHEEL")).decode())
"#;

#[test]
fn python_reads_the_wheel() {
    let scratch = Scratch::new("wheel").unwrap();
    let packed = wheel::pack(&release(), &sample("x86_64")).unwrap();
    let name = "trainyard_cli-0.1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64.whl";
    assert_eq!(packed.0, name);
    let path = written(&scratch, &packed);
    let Some(text) = asked(
        "python3",
        &["-c".as_ref(), READ_WHEEL.as_ref(), path.as_os_str()],
    ) else {
        return;
    };
    // DOS counts every other second.
    let date = "(2026, 11, 19, 14, 35, 2)";
    for wanted in [
        format!("0o100755 {date} 8 trainyard_cli-0.1.0.data/scripts/trainyard\n"),
        format!("0o100644 {date} 8 trainyard_cli-0.1.0.dist-info/METADATA\n"),
        format!("0o100644 {date} 0 trainyard_cli-0.1.0.dist-info/licenses/LICENSE\n"),
        "Root-Is-Purelib: false\nTag: py3-none-manylinux_2_17_x86_64\nTag: py3-none-manylinux2014_x86_64\nTag: py3-none-musllinux_1_1_x86_64\n".to_owned(),
    ] {
        assert!(text.contains(&wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn dpkg_reads_the_package() {
    let scratch = Scratch::new("deb").unwrap();
    let packed = deb::pack(&release(), &sample("aarch64")).unwrap();
    assert_eq!(packed.0, "trainyard_0.1.0_arm64.deb");
    let path = written(&scratch, &packed);
    let Some(fields) = asked("dpkg-deb", &["--field".as_ref(), path.as_os_str()]) else {
        return;
    };
    for wanted in [
        "Package: trainyard\n",
        "Version: 0.1.0\n",
        "Architecture: arm64\n",
        "Installed-Size: 21\n",
    ] {
        assert!(fields.contains(wanted), "{wanted} is not in\n{fields}");
    }
    let contents = asked("dpkg-deb", &["--contents".as_ref(), path.as_os_str()]).unwrap();
    for wanted in [
        "drwxr-xr-x root/root         0 2026-11-19 14:35 ./usr/bin/\n",
        "-rwxr-xr-x root/root     20001 2026-11-19 14:35 ./usr/bin/trainyard\n",
        " ./usr/share/man/man1/trainyard.1.gz\n",
        " ./usr/share/bash-completion/completions/trainyard\n",
        " ./usr/share/zsh/vendor-completions/_trainyard\n",
        " ./usr/share/doc/trainyard/copyright\n",
    ] {
        assert!(contents.contains(wanted), "{wanted} is not in\n{contents}");
    }
}

#[test]
fn archives_are_the_same_each_time() {
    let (release, program) = (release(), sample("x86_64"));
    let all = || -> Result<[(String, Vec<u8>); 4], Failure> {
        Ok([
            program::pack(&release, &program)?,
            wheel::pack(&release, &program)?,
            deb::pack(&release, &program)?,
            image::pack(&release, &program)?,
        ])
    };
    let (one, two) = (all().unwrap(), all().unwrap());
    assert!(one == two);
    // And on other machines; the compressor is that of the lock file, so a new version of it may change these.
    let digests = one.map(|(name, bytes)| format!("{name} {}", sha256::hex(&bytes)));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dist/tests.sha256");
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let found = digests.join("\n") + "\n";
    if crate::cache::variable("UPDATE").is_some() {
        fs::write(&path, &found).unwrap();
    } else {
        assert_eq!(found, stored, "UPDATE=1 rewrites {}", path.display());
    }
}

#[test]
fn image_names_its_parts_by_their_digests() {
    let (name, bytes) = image::pack(&release(), &sample("aarch64")).unwrap();
    assert_eq!(name, "trainyard-0.1.0-linux-arm64.oci.tar");
    let scratch = Scratch::new("image").unwrap();
    let path = written(&scratch, &(name, bytes));
    let folder = scratch.0.as_os_str();
    let Some(_) = asked(
        "tar",
        &["-xf".as_ref(), path.as_os_str(), "-C".as_ref(), folder],
    ) else {
        return;
    };
    let blobs = scratch.0.join("blobs/sha256");
    let mut found = 0;
    for entry in fs::read_dir(&blobs).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(
            sha256::hex(&fs::read(&path).unwrap()),
            path.file_name().unwrap().to_string_lossy()
        );
        found += 1;
    }
    assert_eq!(found, 3, "a layer, a configuration and a manifest");
    let index = fs::read_to_string(scratch.0.join("index.json")).unwrap();
    assert!(index.contains("\"architecture\":\"arm64\""), "{index}");
    for document in ["index.json", "manifest.json", "oci-layout"] {
        let path = scratch.0.join(document);
        asked(
            "python3",
            &["-m".as_ref(), "json.tool".as_ref(), path.as_os_str()],
        );
    }
}

#[test]
fn list_of_parts_is_json_with_addresses() {
    let part = |kind, name: &str, needs: &[(&str, &str)]| Part {
        kind,
        name: name.to_owned(),
        version: "1.0.0+a".to_owned(),
        licence: "MIT".to_owned(),
        checksum: (kind == Kind::Crate).then(|| "00".repeat(32)),
        needs: needs
            .iter()
            .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
            .collect(),
    };
    let parts = [
        part(
            Kind::Own,
            "trainyard",
            &[("serde", "1.0.0+a"), ("trainyard-web", "1.0.0+a")],
        ),
        part(Kind::Own, "trainyard-web", &[]),
        part(Kind::Crate, "serde", &[]),
        part(Kind::Script, "@preact/signals", &[]),
    ];
    let text = sbom::text(&parts, "1.0.0", TIME);
    for wanted in [
        "\"timestamp\": \"2026-11-19T14:35:03Z\"",
        "\"purl\": \"pkg:npm/%40preact/signals@1.0.0%2Ba\"",
        "{\"ref\": \"pkg:cargo/trainyard-web@1.0.0%2Ba\", \"dependsOn\": [\"pkg:npm/%40preact/signals@1.0.0%2Ba\"]}",
        "\"dependsOn\": [\"pkg:cargo/serde@1.0.0%2Ba\", \"pkg:cargo/trainyard-web@1.0.0%2Ba\"]",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    let scratch = Scratch::new("sbom").unwrap();
    let path = written(&scratch, &("sbom.json".to_owned(), text.into_bytes()));
    asked(
        "python3",
        &["-m".as_ref(), "json.tool".as_ref(), path.as_os_str()],
    );
}

#[test]
fn only_own_folders_are_cleared() {
    let scratch = Scratch::new("clear").unwrap();
    let folder = scratch.0.join("out");
    clear(&folder).unwrap();
    fs::write(folder.join("thesis.tex"), "").unwrap();
    match clear(&folder) {
        Err(Failure::CouldNotRun(message)) => assert!(
            message.contains("is not empty and was not made by"),
            "{message}"
        ),
        other => panic!("{other:?}"),
    }
    assert!(folder.join("thesis.tex").exists());
    fs::write(folder.join(manifest::BUILT_FROM), "").unwrap();
    clear(&folder).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn sizes_are_rounded_up() {
    for (bytes, want) in [
        (0, "0.0 MB"),
        (1, "0.1 MB"),
        (15_100_000, "15.1 MB"),
        (15_100_001, "15.2 MB"),
    ] {
        assert_eq!(megabytes(bytes), want);
    }
}
