//! The Python wheel that carries the program and no Python, so that `pip` and `uv` install it.
//!
//! Its distribution is `trainyard-cli`, because `PyPI` has a project of somebody else under `trainyard`; the command is `trainyard`.

use super::{
    Release,
    entry::{Entry, FILE, Files, PROGRAM},
    program::Program,
    sha256, zip,
};
use crate::Failure;

/// What `pip install` names.
pub(super) const DISTRIBUTION: &str = "trainyard-cli";

/// The file name and the bytes of the wheel.
pub(super) fn pack(release: &Release, program: &Program) -> Result<(String, Vec<u8>), Failure> {
    let stem = format!("{}-{}", DISTRIBUTION.replace('-', "_"), release.version);
    let platforms = platforms(program.architecture);
    let name = format!("{stem}-py3-none-{}.whl", platforms.join("."));
    let mut files = Files::default();
    files.add(
        format!("{stem}.data/scripts/trainyard"),
        PROGRAM,
        program.bytes.clone(),
    );
    let about = |file: &str| format!("{stem}.dist-info/{file}");
    files.add(about("METADATA"), FILE, metadata(&release.version));
    files.add(about("WHEEL"), FILE, tags(&release.version, &platforms));
    files.add(about("licenses/LICENSE"), FILE, release.licence.clone());
    files.add(
        about("licenses/THIRD-PARTY.txt"),
        FILE,
        release.notices.clone(),
    );
    let record_path = about("RECORD");
    let record = Entry {
        mode: FILE,
        data: record(&files, &record_path).into_bytes(),
    };
    // Readers find the record at the end, where the format recommends it.
    let all = files.iter().chain([(record_path.as_str(), &record)]);
    let bytes = zip::archive(all, release.time).map_err(Failure::Failed)?;
    Ok((name, bytes))
}

/// The platforms of a program that needs no library: glibc or musl, of any age that installers know.
fn platforms(architecture: &str) -> Vec<String> {
    ["manylinux_2_17", "manylinux2014", "musllinux_1_1"]
        .map(|system| format!("{system}_{architecture}"))
        .to_vec()
}

fn metadata(version: &str) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: {DISTRIBUTION}\n\
         Version: {version}\n\
         Summary: Runs distributed training jobs on Kubernetes, and the same job file on one machine\n\
         Keywords: kubernetes,training,pytorch,mpi,kubeflow,operator\n\
         License-Expression: Apache-2.0\n\
         License-File: LICENSE\n\
         License-File: THIRD-PARTY.txt\n\
         Classifier: Environment :: Console\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Classifier: Programming Language :: Rust\n\
         Requires-Python: >=3.8\n\
         Description-Content-Type: text/markdown\n\
         \n\
         # Trainyard\n\
         \n\
         The program `trainyard`: one static binary for Linux, without Python code and without dependencies.\n\
         \n\
         ```sh\n\
         trainyard new --template quickstart -o job.yaml\n\
         trainyard run job.yaml\n\
         ```\n"
    )
}

fn tags(version: &str, platforms: &[String]) -> String {
    let mut text = format!(
        "Wheel-Version: 1.0\nGenerator: trainyard xtask ({version})\nRoot-Is-Purelib: false\n"
    );
    for platform in platforms {
        text.extend([format!("Tag: py3-none-{platform}\n")]);
    }
    text
}

/// Each file with its digest and its size, and the record itself without.
fn record(files: &Files, own: &str) -> String {
    let mut text = String::new();
    for (path, entry) in files.iter() {
        let digest = base64(&sha256::digest(&entry.data));
        text.extend([format!("{path},sha256={digest},{}\n", entry.data.len())]);
    }
    text + own + ",,\n"
}

/// For names in addresses, without padding, as RFC 4648 has it in its fifth section.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number = (0..3).fold(0_usize, |number, at| {
            number << 8 | usize::from(group.get(at).copied().unwrap_or(0))
        });
        for digit in 0..=group.len() {
            text.push(char::from(DIGITS[number >> (18 - 6 * digit) & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, want) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
        ] {
            assert_eq!(base64(text.as_bytes()), want, "{text}");
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "-__-");
    }
}
