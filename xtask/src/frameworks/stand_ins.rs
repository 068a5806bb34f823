//! Stand-ins for the CUDA libraries that `PyTorch` is linked against.
//!
//! The wheel of `PyTorch` names about a dozen CUDA libraries that it loads at import, on machines
//! without a GPU too: 2.4 GB that would never be called. A stand-in has the name, the symbols and the
//! versions of symbols that the linker looks for; each of its functions does nothing but answer
//! with an error code. The CUDA runtime itself is the real one, since `PyTorch` calls it at import.
//!
//! Caveat: `torch.distributed.is_nccl_available()` stays true, because it was compiled in. Only gloo
//! works.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{Failure, step};

/// The folder beside `torch` in which it looks for CUDA libraries.
const FOLDER: &str = "nvidia/cu13/lib";
/// The real runtime is installed; the driver is opened only where there is one.
const REAL: &[&str] = &["libcudart", "libcuda"];
/// Libraries whose symbols have no version are recognised by the prefix of their functions.
const PREFIXES: &[(&str, &[&str])] = &[
    ("libcudnn", &["cudnn"]),
    ("libcufile", &["cuFile"]),
    ("libcupti", &["cupti"]),
    ("libcusparseLt", &["cusparseLt"]),
    ("libnccl", &["nccl", "pnccl"]),
    ("libnvshmem_host", &["nvshmem"]),
];
/// What a CUDA function answers that failed for a reason it cannot name.
const UNKNOWN_ERROR: u32 = 999;

/// Makes every stand-in that the `PyTorch` below `library_folder` needs.
pub(super) fn make(library_folder: &Path) -> Result<(), Failure> {
    let packages = packages(library_folder)?;
    let mut wanted = Wanted::default();
    for entry in read_dir(&packages.join("torch/lib"))? {
        if entry.extension().is_some_and(|extension| extension == "so") {
            wanted.read(&readelf(&entry)?);
        }
    }
    let folder = packages.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| {
        Failure::CouldNotRun(format!("cannot make `{}`: {error}", folder.display()))
    })?;
    for library in wanted.libraries() {
        compile(&library, &folder)?;
    }
    Ok(())
}

/// One library to be made.
#[derive(Debug, PartialEq, Eq)]
struct Library {
    file: String,
    /// Symbols by version; without a version under the empty name.
    symbols: BTreeMap<String, BTreeSet<String>>,
}

/// What the libraries of `PyTorch` ask of others.
#[derive(Debug, Default)]
struct Wanted {
    /// CUDA libraries by file name.
    needed: BTreeSet<String>,
    /// By file, then by version.
    versioned: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// Symbols that any library may have.
    unversioned: BTreeSet<String>,
}

impl Wanted {
    /// Adds what one library asks for, as `readelf -d -V --dyn-syms` prints it.
    fn read(&mut self, text: &str) {
        let mut file_of = BTreeMap::new();
        let mut file = None;
        let mut symbols = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if line.contains("(NEEDED)") {
                let name = between(line, "[", "]").unwrap_or_default();
                if ["libcu", "libnv", "libnccl"]
                    .iter()
                    .any(|start| name.starts_with(start))
                {
                    self.needed.insert(name.to_owned());
                }
            } else if let Some(at) = words.iter().position(|word| *word == "File:") {
                file = words.get(at + 1).copied();
            } else if let Some(at) = words.iter().position(|word| *word == "Name:") {
                if let (Some(file), Some(version)) = (file, words.get(at + 1)) {
                    file_of.insert(*version, file);
                }
            } else if let [_, _, _, _, _, _, "UND", symbol, ..] = words.as_slice() {
                symbols.push(*symbol);
            }
        }
        for symbol in symbols {
            match symbol.split_once('@') {
                None => {
                    self.unversioned.insert(symbol.to_owned());
                }
                Some((name, version)) => {
                    let version = version.trim_start_matches('@');
                    if let Some(file) = file_of.get(version) {
                        self.versioned
                            .entry((*file).to_owned())
                            .or_default()
                            .entry(version.to_owned())
                            .or_default()
                            .insert(name.to_owned());
                    }
                }
            }
        }
    }

    fn libraries(&self) -> Vec<Library> {
        let stem = |file: &str| {
            file.split_once(".so")
                .map_or(file, |(stem, _)| stem)
                .to_owned()
        };
        self.needed
            .iter()
            .filter(|file| !REAL.contains(&stem(file).as_str()))
            .map(|file| {
                let symbols = self.versioned.get(file).cloned().unwrap_or_else(|| {
                    let stem = stem(file);
                    let known = PREFIXES.iter().find(|(library, _)| *library == stem);
                    let prefixes = known.map_or(&[][..], |(_, prefixes)| prefixes);
                    let is_its =
                        |symbol: &&String| prefixes.iter().any(|prefix| symbol.starts_with(prefix));
                    let names = self.unversioned.iter().filter(is_its).cloned().collect();
                    BTreeMap::from([(String::new(), names)])
                });
                Library {
                    file: file.clone(),
                    symbols,
                }
            })
            .collect()
    }
}

impl Library {
    fn source(&self) -> String {
        let mut text = String::new();
        for symbol in self.symbols.values().flatten() {
            writeln!(text, "int {symbol}(void) {{ return {UNKNOWN_ERROR}; }}")
                .expect("a string takes whatever is written");
        }
        text
    }

    /// The linker's version script; empty where there are none.
    fn version_script(&self) -> String {
        let mut text = String::new();
        for (version, symbols) in &self.symbols {
            if !version.is_empty() {
                let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
                writeln!(text, "{version} {{ global: {}; }};", names.join("; "))
                    .expect("a string takes whatever is written");
            }
        }
        text
    }
}

fn compile(library: &Library, folder: &Path) -> Result<(), Failure> {
    let broken = |error: std::io::Error| {
        Failure::CouldNotRun(format!("cannot make `{}`: {error}", library.file))
    };
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-Os", "-w", "-x", "c", "-"])
        .arg(format!("-Wl,-soname,{}", library.file))
        .arg("-o")
        .arg(folder.join(&library.file))
        .stdin(Stdio::piped());
    let script = library.version_script();
    if !script.is_empty() {
        let path = folder.join(format!("{}.map", library.file));
        fs::write(&path, script).map_err(broken)?;
        compiler.arg(format!("-Wl,--version-script={}", path.display()));
    }
    let mut child = compiler.spawn().map_err(broken)?;
    let mut input = child.stdin.take().expect("stdin is piped");
    input
        .write_all(library.source().as_bytes())
        .map_err(broken)?;
    drop(input);
    let status = child.wait().map_err(broken)?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::CouldNotRun(format!(
            "cannot make `{}`: `cc` ended with {status}",
            library.file
        )))
    }
}

fn readelf(path: &Path) -> Result<String, Failure> {
    step::capture(
        Command::new("readelf")
            .args(["-W", "-d", "-V", "--dyn-syms"])
            .arg(path),
    )
}

/// The `site-packages` of an environment.
fn packages(library_folder: &Path) -> Result<PathBuf, Failure> {
    read_dir(library_folder)?
        .into_iter()
        .map(|python| python.join("site-packages"))
        .find(|packages| packages.join("torch/lib").is_dir())
        .ok_or_else(|| {
            Failure::CouldNotRun(format!(
                "no `torch` was installed below `{}`",
                library_folder.display()
            ))
        })
}

fn read_dir(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::CouldNotRun(format!("cannot list `{}`: {error}", folder.display()))
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        paths.push(entry.map_err(cannot)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_go_to_their_library() {
        let mut wanted = Wanted::default();
        wanted.read(
            "\
 0x0000000000000001 (NEEDED)             Shared library: [libcublas.so.13]
 0x0000000000000001 (NEEDED)             Shared library: [libnccl.so.2]
 0x0000000000000001 (NEEDED)             Shared library: [libcudart.so.13]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
     7: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND cublasCreate_v2@libcublas.so.13 (3)
     8: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND ncclAllReduce
     9: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND somethingElse
    10: 0000000000001000     4 FUNC    GLOBAL DEFAULT   12 ncclOfItsOwn
    11: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.14 (2)
  0x0000: Version: 1  File: libcublas.so.13  Cnt: 1
  0x0010:   Name: libcublas.so.13  Flags: none  Version: 3
  0x0020: Version: 1  File: libc.so.6  Cnt: 1
  0x0030:   Name: GLIBC_2.14  Flags: none  Version: 2
",
        );
        let library = |file: &str, version: &str, symbol: &str| Library {
            file: file.to_owned(),
            symbols: BTreeMap::from([(version.to_owned(), BTreeSet::from([symbol.to_owned()]))]),
        };
        let cublas = library("libcublas.so.13", "libcublas.so.13", "cublasCreate_v2");
        let nccl = library("libnccl.so.2", "", "ncclAllReduce");
        assert_eq!(
            cublas.version_script(),
            "libcublas.so.13 { global: cublasCreate_v2; };\n"
        );
        assert_eq!(nccl.version_script(), "");
        assert_eq!(nccl.source(), "int ncclAllReduce(void) { return 999; }\n");
        assert_eq!(wanted.libraries(), [cublas, nccl]);
    }
}
