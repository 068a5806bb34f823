//! `cargo xtask dist`: what users install, made from this commit.
//!
//! Owns which artifacts there are, what they are called and where they lie. How each is packed is a module of its own below; how each is installed
//! on a bare root file system and run is [`trial`].
//!
//! Invariants: nothing is fetched. The same sources, toolchain and date give the same bytes: every time in a file is that of the commit, every
//! archive is in the order of its names, and no path of this machine is in the program. A folder never holds artifacts of two commits: what is there
//! is removed first.

mod chart;
mod checkpoint;
mod date;
mod deb;
mod entry;
mod image;
mod manifest;
mod notices;
mod options;
mod pages;
mod parts;
mod program;
mod sbom;
mod sha256;
mod tar;
#[cfg(test)]
mod tests;
mod trial;
mod wheel;
mod zip;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use self::{
    options::{Artifact, Options},
    pages::Pages,
    program::Program,
};
use crate::{Failure, cache::cannot, report, static_program::Profile, step};

pub(crate) use manifest::release_item;

/// What all artifacts of one run have in common.
#[derive(Clone, Debug)]
struct Release {
    version: String,
    /// The time that every file has, in seconds since 1970.
    time: u64,
    /// The text of the licence.
    licence: String,
    /// The terms of what others wrote.
    notices: String,
    pages: Pages,
    /// The list of parts, as a file.
    parts: String,
}

/// Makes the artifacts that `arguments` name, and tries them where asked to.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    if matches!(arguments, ["help" | "--help" | "-h"]) {
        print!("{}", options::USAGE);
        return Ok(());
    }
    let options = Options::read(arguments)?;
    let began = Instant::now();
    let made = make(&options)?;
    println!("{}", report::table(&made.rows()));
    for (artifact, why) in &made.left_out {
        println!("not made: {}: {why}", artifact.name());
    }
    let folder = made.folder.display();
    report::progress(&format!(
        "`{folder}` is complete after {}",
        report::seconds(began.elapsed())
    ));
    if options.test {
        trial::run(&made)?;
    }
    Ok(())
}

/// What was made.
#[derive(Debug)]
struct Made {
    folder: PathBuf,
    release: Release,
    /// Where the program that was packed is.
    program: PathBuf,
    profile: Profile,
    /// The files by their names, in the order in which they were made.
    files: Vec<(Artifact, String)>,
    left_out: Vec<(Artifact, String)>,
}

impl Made {
    /// Where the file of an artifact is, if it was made.
    fn path(&self, artifact: Artifact) -> Option<PathBuf> {
        let (_, name) = self.files.iter().find(|(one, _)| *one == artifact)?;
        Some(self.folder.join(name))
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![["artifact", "file", "size"].map(str::to_owned).to_vec()];
        rows.extend(self.files.iter().map(|(artifact, name)| {
            let size = fs::metadata(self.folder.join(name)).map_or(0, |about| about.len());
            vec![artifact.name().to_owned(), name.clone(), megabytes(size)]
        }));
        rows
    }
}

/// Bytes in millions, with one decimal.
fn megabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

fn make(options: &Options) -> Result<Made, Failure> {
    let time = date::of_release()?;
    let program = match &options.binary {
        Some(path) => Program::read(path)?,
        None => Program::build(options.profile)?,
    };
    let release = release(&program, time)?;
    clear(&options.folder)?;
    let folder = fs::canonicalize(&options.folder).map_err(cannot("find", &options.folder))?;
    let mut made = Made {
        folder,
        release,
        program: program.path.clone(),
        profile: options.profile,
        files: Vec::new(),
        left_out: Vec::new(),
    };
    for artifact in Artifact::ALL {
        if !options.wants(artifact) {
            continue;
        }
        let packed = pack(artifact, &made.release, &program, options);
        match packed {
            Ok((name, bytes)) => {
                let path = made.folder.join(&name);
                fs::write(&path, bytes).map_err(cannot("write", &path))?;
                made.files.push((artifact, name));
            }
            // What needs more than cargo is left out, unless it was asked for by its name.
            Err(Failure::CouldNotRun(why)) if artifact.is_optional() && options.only.is_empty() => {
                let why = why.lines().next().unwrap_or_default().to_owned();
                made.left_out.push((artifact, why));
            }
            Err(failure) => return Err(failure),
        }
    }
    manifest::write(&made, &program, options)?;
    Ok(made)
}

fn pack(
    artifact: Artifact,
    release: &Release,
    program: &Program,
    options: &Options,
) -> Result<(String, Vec<u8>), Failure> {
    match artifact {
        Artifact::Program => program::pack(release, program),
        Artifact::Wheel => wheel::pack(release, program),
        Artifact::Deb => deb::pack(release, program),
        Artifact::Image => image::pack(release, program),
        Artifact::Chart => chart::pack(release),
        Artifact::Sbom => {
            let name = format!("trainyard-{}.cdx.json", release.version);
            Ok((name, release.parts.clone().into_bytes()))
        }
        Artifact::CheckpointWheel => checkpoint::pack(release, options.profile),
    }
}

fn release(program: &Program, time: u64) -> Result<Release, Failure> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let path = step::root().join("LICENSE");
    let licence = fs::read_to_string(&path).map_err(cannot("read", &path))?;
    if program.architecture != std::env::consts::ARCH {
        return Err(Failure::CouldNotRun(format!(
            "`{}` is a program for {}, and this machine is {}: it cannot print its own manual pages here\n\nhint: run `cargo xtask dist` on a \
             machine of that architecture",
            program.path.display(),
            program.architecture,
            std::env::consts::ARCH
        )));
    }
    // The target of releases, whether this toolchain has it or not.
    let parts = parts::of_program(&format!("{}-unknown-linux-musl", program.architecture))?;
    Ok(Release {
        licence,
        notices: notices::text(&parts)?,
        pages: Pages::of(&program.path)?,
        parts: sbom::text(&parts, &version, time),
        version,
        time,
    })
}

/// Makes `folder` an empty folder. One with files that no release has is not touched.
fn clear(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(cannot("make", folder))?;
    let mut old = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot("list", folder))? {
        old.push(entry.map_err(cannot("list", folder))?.path());
    }
    if old.is_empty() {
        return Ok(());
    }
    if !folder.join(manifest::BUILT_FROM).is_file() {
        return Err(Failure::CouldNotRun(format!(
            "`{}` is not empty and was not made by `cargo xtask dist`: it has no `{}`\n\nhint: name another folder with `--out`",
            folder.display(),
            manifest::BUILT_FROM
        )));
    }
    for path in old {
        fs::remove_file(&path).map_err(cannot("remove", &path))?;
    }
    Ok(())
}

/// A folder for files of one run, removed with them at its end.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self, Failure> {
        let path =
            std::env::temp_dir().join(format!("trainyard-dist-{name}-{}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path).map_err(cannot("remove", &path))?;
        }
        fs::create_dir_all(&path).map_err(cannot("make", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the folder of temporary files is the system's to remove.
        drop(fs::remove_dir_all(&self.0));
    }
}
