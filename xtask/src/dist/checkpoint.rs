//! The wheel `trainyard-checkpoint`, built by maturin from `crates/python`.

use std::{fs, process::Command};

use super::{Release, Scratch};
use crate::{Failure, cache::cannot, frameworks, static_program::Profile, step};

/// The file name and the bytes of the wheel. Where maturin is not installed, it cannot be made: nothing is fetched here.
pub(super) fn pack(release: &Release, profile: Profile) -> Result<(String, Vec<u8>), Failure> {
    let maturin = frameworks::maturin()?.ok_or_else(|| {
        Failure::CouldNotRun(
            "it needs maturin, which is not installed\n\nhint: `cargo xtask frameworks --only checkpoint` installs the pinned version into the cache"
                .to_owned(),
        )
    })?;
    let scratch = Scratch::new("checkpoint-wheel")?;
    let mut command = Command::new(maturin);
    command
        .args([
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--auditwheel",
            "check",
        ])
        .args(["--manifest-path", "crates/python/Cargo.toml", "--out"])
        .arg(&scratch.0)
        .env("SOURCE_DATE_EPOCH", release.time.to_string())
        .current_dir(step::root());
    if profile == Profile::Dist {
        command.arg("--release");
    }
    step::without_package(&mut command);
    step::run(&mut command)?;
    let mut built = fs::read_dir(&scratch.0).map_err(cannot("list", &scratch.0))?;
    let wheel = built
        .find_map(Result::ok)
        .ok_or_else(|| Failure::Failed("maturin built no wheel".to_owned()))?;
    let bytes = fs::read(wheel.path()).map_err(cannot("read", &wheel.path()))?;
    Ok((wheel.file_name().to_string_lossy().into_owned(), bytes))
}
