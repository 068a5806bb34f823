//! What stopped programs leave in shared memory.
//!
//! A killed program cannot remove its segments. They hold memory of the pod, and a next attempt that finds one under its name fails or reads
//! old bytes. Only files that libraries of training programs make are removed, only of this user, and only those that are not older
//! than the attempt.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::SystemTime};

use nix::unistd::geteuid;

/// Where they are.
pub(crate) const FOLDER: &str = "/dev/shm";
/// How the names of files begin that NCCL, torch, POSIX semaphores, Python's `shared_memory`, CUDA and OpenMP make.
const PREFIXES: [&str; 6] = [
    "nccl-",
    "torch_",
    "sem.",
    "psm_",
    "cuda.shm.",
    "__KMP_REGISTERED_LIB_",
];
/// Files that are looked at, at most.
const MOST_FILES: usize = 100_000;

/// Removes what programs left in `folder` since `began`; returns how many files.
pub(crate) fn remove_leftovers(folder: &Path, began: SystemTime) -> usize {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let began = began
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(i64::MIN, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
    let user = geteuid().as_raw();
    let left = entries.flatten().take(MOST_FILES).filter(|entry| {
        let name = entry.file_name();
        let known = name
            .to_str()
            .is_some_and(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
        known
            && entry
                .metadata()
                .is_ok_and(|file| file.is_file() && file.uid() == user && file.ctime() >= began)
    });
    left.filter(|entry| fs::remove_file(entry.path()).is_ok())
        .count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_known_new_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "nccl-a",
            "torch_1",
            "sem.mp",
            "psm_x",
            "user-data",
            "xnccl-b",
        ];
        for name in names {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::create_dir(folder.path().join("torch_folder")).unwrap();
        let hour = Duration::from_hours(1);
        assert_eq!(remove_leftovers(folder.path(), SystemTime::now() + hour), 0);
        assert_eq!(remove_leftovers(folder.path(), SystemTime::now() - hour), 4);
        for name in ["user-data", "xnccl-b", "torch_folder"] {
            assert!(folder.path().join(name).exists(), "{name}");
        }
        assert_eq!(
            remove_leftovers(Path::new("/does/not/exist"), SystemTime::now()),
            0
        );
    }
}
