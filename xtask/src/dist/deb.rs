//! The Debian package: an `ar` archive of two tar archives, without scripts and without dependencies.

use super::{
    Release,
    entry::{FILE, Files, PROGRAM, gzip},
    pages,
    program::Program,
    tar,
};
use crate::Failure;

/// The file name and the bytes of the package.
pub(super) fn pack(release: &Release, program: &Program) -> Result<(String, Vec<u8>), Failure> {
    let architecture = architecture(program.architecture);
    let mut files = Files::default();
    files.add("usr/bin/trainyard", PROGRAM, program.bytes.clone());
    let pages = &release.pages;
    for (name, text) in &pages.manual {
        // Debian's policy has manual pages compressed.
        files.add(format!("usr/share/man/man1/{name}.gz"), FILE, gzip(text));
    }
    for (shell, text) in &pages.completions {
        files.add(
            format!("usr/share/{}", pages::debian_place(*shell)),
            FILE,
            text.clone(),
        );
    }
    files.add("usr/share/doc/trainyard/copyright", FILE, copyright());
    let notices = gzip(release.notices.as_bytes());
    files.add("usr/share/doc/trainyard/THIRD-PARTY.txt.gz", FILE, notices);
    let mut control = Files::default();
    let text = control_file(&release.version, architecture, files.bytes());
    control.add("control", FILE, text);
    let packed = |files: &Files| -> Result<Vec<u8>, Failure> {
        let archive = tar::archive(files, "./", release.time).map_err(Failure::Failed)?;
        Ok(gzip(&archive))
    };
    let bytes = ar(
        &[
            ("debian-binary", b"2.0\n".as_slice()),
            ("control.tar.gz", &packed(&control)?),
            ("data.tar.gz", &packed(&files)?),
        ],
        release.time,
    );
    Ok((
        format!("trainyard_{}_{architecture}.deb", release.version),
        bytes,
    ))
}

/// The architecture as Debian names it.
fn architecture(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn control_file(version: &str, architecture: &str, bytes: u64) -> String {
    format!(
        "Package: trainyard\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The Trainyard authors\n\
         Installed-Size: {}\n\
         Section: admin\n\
         Priority: optional\n\
         Description: distributed training jobs on Kubernetes and on one machine\n \
         Runs the job files of the Kubeflow Training Operator and the MPI Operator on a\n \
         cluster or as processes of one machine, restarts the ranks of a job together,\n \
         and reports why a job waits, is refused or failed. One static program.\n",
        bytes.div_ceil(1024)
    )
}

fn copyright() -> &'static str {
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
     Upstream-Name: trainyard\n\
     Comment: The crates and scripts that the program is built from, with the terms of each, are in\n \
     /usr/share/doc/trainyard/THIRD-PARTY.txt.gz.\n\
     \n\
     Files: *\n\
     Copyright: The Trainyard authors\n\
     License: Apache-2.0\n \
     On Debian systems, the full text of the Apache License, version 2.0, is in\n \
     /usr/share/common-licenses/Apache-2.0.\n"
}

/// An archive in the common form of `ar`: names of at most 15 characters, each file at an even place.
fn ar(files: &[(&str, &[u8])], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, data) in files {
        let size = data.len();
        archive.extend(
            format!(
                "{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
                0, 0, "100644"
            )
            .bytes(),
        );
        archive.extend(*data);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}
