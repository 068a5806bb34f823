//! Finds `_PyRuntime` of a process: in its program, or in the `libpython` that it has loaded.
//!
//! The symbol is exported, so it is in the dynamic symbols of a stripped file too; where it is not, the section `.PyRuntime` (3.10
//! and later) has the same address. The file is opened as the process sees it, below `/proc/PID/root`, because the process may
//! be in another container.

use std::{collections::BTreeSet, fs, io, path::PathBuf};

use super::{
    layout::{COOKIE, DESCRIPTION_SIZE, Layout, version},
    object::Types,
    walk::Runtime,
};
use crate::{
    Error,
    elf::Elf,
    maps::{self, Mapping},
    memory::{FileMemory, Memory, Reads},
    proc_file,
};

/// How much of `/proc/PID/maps` is read: 100,000 lines, where a trainer with CUDA has some thousands.
const MOST_MAPS: u64 = 16 << 20;
/// Most files that are looked into.
const MOST_FILES: usize = 8;

const RUNTIME: &str = "_PyRuntime";
const VERSION: &str = "Py_Version";
const CODE: &str = "PyCode_Type";
const TEXT: &str = "PyUnicode_Type";
const BYTES: &str = "PyBytes_Type";
/// Both are exported, and distinguish two versions from those before: "New in version 3.10", "New in version 3.9".
const SINCE_3_10: &str = "PyIter_Send";
const SINCE_3_9: &str = "PyFrame_GetBack";

/// The runtime of a process, with an interpreter in it.
pub(super) fn runtime(pid: u32, memory: &FileMemory) -> Result<Runtime, Error> {
    let mut unstarted = false;
    let mut failure = None;
    for candidate in candidates(pid)? {
        match candidate.runtime(pid, memory) {
            Ok(Some(runtime)) if runtime.started(memory) => return Ok(runtime),
            Ok(Some(_)) => unstarted = true,
            Ok(None) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) => Err(error),
        None if unstarted => Err(Error::NotStarted { pid }),
        None => Err(Error::NotPython { pid }),
    }
}

/// A mapped file that may be Python.
struct Candidate {
    mapping: Mapping,
    /// Where it can be opened, best first.
    paths: Vec<PathBuf>,
}

/// The program, and what is named after Python. Other libraries are not looked into: those of a trainer have millions of symbols.
fn candidates(pid: u32) -> Result<Vec<Candidate>, Error> {
    let program = fs::read_link(proc_file::path(pid, "exe"))
        .map_err(|source| Error::from_io(pid, "exe", source))?;
    let text = proc_file::read(pid, "maps", MOST_MAPS)?;
    let mut seen = BTreeSet::new();
    let candidates = maps::loaded_files(&text).into_iter().filter_map(|mapping| {
        let is_program = program.to_str() == Some(&mapping.path);
        if !(is_program || is_named_python(&mapping.path)) || !seen.insert(mapping.path.clone()) {
            return None;
        }
        let range = format!("{:x}-{:x}", mapping.start, mapping.end);
        let mut paths = vec![
            proc_file::path(pid, &format!("root{}", mapping.path)),
            // Also leads to a file that was deleted, and needs more rights.
            proc_file::path(pid, &format!("map_files/{range}")),
        ];
        if is_program {
            paths.insert(0, proc_file::path(pid, "exe"));
        }
        Some(Candidate { mapping, paths })
    });
    Ok(candidates.take(MOST_FILES).collect())
}

/// `python3.11`, `libpython3.11.so.1.0`; not the extension module `python_x.cpython-311-x86_64-linux-gnu.so`.
fn is_named_python(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let named = name.starts_with("python") || name.starts_with("libpython");
    named && !name.contains(".cpython-")
}

impl Candidate {
    /// The runtime that this file has in the process.
    fn runtime(&self, pid: u32, memory: &FileMemory) -> Result<Option<Runtime>, Error> {
        let file = match self.open(memory) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Error::Refused { pid, file: "root" });
            }
            // Deleted or replaced since it was mapped.
            Err(_) => {
                return Err(Error::Runtime {
                    pid,
                    what: "the file of its program",
                });
            }
        };
        let Ok(elf) = Elf::read(&file) else {
            return Ok(None);
        };
        let Some(bias) = elf.bias(self.mapping.start) else {
            return Ok(None);
        };
        let names = [RUNTIME, VERSION, CODE, TEXT, BYTES, SINCE_3_10, SINCE_3_9];
        let symbols = elf.symbols(&file, &names).unwrap_or_default();
        let address = |name| symbols.get(name).map(|address| address.wrapping_add(bias));
        let section = || Some(elf.section(".PyRuntime")?.wrapping_add(bias));
        let Some(runtime) = address(RUNTIME).or_else(section) else {
            return Ok(None);
        };
        let unreadable = |_| Error::Runtime {
            pid,
            what: "`_PyRuntime`",
        };
        let reads = Reads::new(memory, 2);
        let start = reads.window(runtime, DESCRIPTION_SIZE);
        let layout = match start {
            Ok(start) if start.bytes().starts_with(COOKIE) => Layout::described(&start),
            // The runtime of 3.9 is smaller than the description of later ones.
            _ => {
                let version = match address(VERSION) {
                    Some(at) => version(reads.word(at, 0).map_err(unreadable)?),
                    None if address(SINCE_3_10).is_some() => (3, 10),
                    None if address(SINCE_3_9).is_some() => (3, 9),
                    None => (3, 8),
                };
                Layout::known(version).ok_or_else(|| match version {
                    (3, 8) => "CPython 3.8 or older".to_owned(),
                    (major, minor) => format!("CPython {major}.{minor}"),
                })
            }
        };
        let layout = layout.map_err(|found| Error::Version { pid, found })?;
        let or_unknown = |name| address(name).unwrap_or(0);
        let types = Types {
            code: or_unknown(CODE),
            text: or_unknown(TEXT),
            bytes: or_unknown(BYTES),
        };
        Ok(Some(Runtime {
            address: runtime,
            layout,
            types,
        }))
    }

    /// The file that is mapped, and not one that has taken its name since: both begin with the same header.
    fn open(&self, memory: &FileMemory) -> io::Result<FileMemory> {
        let mut failure = io::Error::from(io::ErrorKind::InvalidData);
        for path in &self.paths {
            match proc_file::open_regular(path).map(FileMemory) {
                Ok(file) if same_header(&file, memory, self.mapping.start) => return Ok(file),
                Ok(_) => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// The header has the place of the section headers and the entry point, which differ between builds.
fn same_header(file: &FileMemory, memory: &FileMemory, start: u64) -> bool {
    let (mut on_disk, mut mapped) = ([0; 64], [0; 64]);
    file.read(0, &mut on_disk).is_ok()
        && memory.read(start, &mut mapped).is_ok()
        && on_disk == mapped
}

#[cfg(test)]
mod tests {
    use super::is_named_python;

    #[test]
    fn names_of_files() {
        let cases = [
            ("/usr/bin/python3.11", true),
            ("/opt/conda/bin/python", true),
            ("/usr/lib/libpython3.9.so.1.0", true),
            (
                "/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so",
                false,
            ),
            (
                "/x/site-packages/python_calamine.cpython-311-x86_64-linux-gnu.so",
                false,
            ),
            ("/usr/lib/libtorch_python.so", false),
            ("/usr/lib/libc.so.6", false),
        ];
        for (path, expected) in cases {
            assert_eq!(is_named_python(path), expected, "{path}");
        }
    }
}
