//! The key pair with which the launcher of an `MPIJob` v2beta1 enters its workers.
//!
//! Ed25519 in OpenSSH's own form: every sshd of the last ten years takes it, whatever the file is
//! called.

use ring::{
    error::KeyRejected,
    rand::{SecureRandom as _, SystemRandom},
    signature::{Ed25519KeyPair, KeyPair as _},
};
use thiserror::Error;
use trainyard_core::launch::SshKey;

const TYPE: &[u8] = b"ssh-ed25519";
const COMMENT: &[u8] = b"trainyard";

/// Why there is no key pair.
#[derive(Debug, Error)]
pub(crate) enum SshKeyError {
    #[error("the system provides no random numbers")]
    NoRandomNumbers,
    #[error("a key was refused: {0}")]
    Refused(KeyRejected),
}

/// Makes a key pair.
pub(crate) fn key() -> Result<SshKey, SshKeyError> {
    let random = SystemRandom::new();
    let mut seed = [0_u8; 32];
    let mut check = [0_u8; 4];
    let filled = random
        .fill(&mut seed)
        .and_then(|()| random.fill(&mut check));
    filled.map_err(|_| SshKeyError::NoRandomNumbers)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(SshKeyError::Refused)?;
    let public = pair.public_key().as_ref();

    let mut blob = Vec::new();
    put(&mut blob, TYPE);
    put(&mut blob, public);

    // The same number twice, so that a reader can check that it decrypted correctly.
    let mut secret = [check, check].concat();
    put(&mut secret, TYPE);
    put(&mut secret, public);
    put(&mut secret, &[&seed[..], public].concat());
    put(&mut secret, COMMENT);
    let mut padding = 1;
    while !secret.len().is_multiple_of(8) {
        secret.push(padding);
        padding += 1;
    }

    let mut file = b"openssh-key-v1\0".to_vec();
    put(&mut file, b"none");
    put(&mut file, b"none");
    put(&mut file, b"");
    file.extend(1_u32.to_be_bytes());
    put(&mut file, &blob);
    put(&mut file, &secret);

    let text = base64(&file);
    let mut private = String::from("-----BEGIN OPENSSH PRIVATE KEY-----\n");
    for line in text.as_bytes().chunks(70) {
        private.push_str(&String::from_utf8_lossy(line));
        private.push('\n');
    }
    private.push_str("-----END OPENSSH PRIVATE KEY-----\n");
    Ok(SshKey {
        private,
        public: format!("ssh-ed25519 {} trainyard\n", base64(&blob)),
    })
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend(length.to_be_bytes());
    out.extend(bytes);
}

/// As `k8s-openapi` writes the values of a Secret, so no crate is needed for it.
fn base64(bytes: &[u8]) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec()));
    match value {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _, process::Command};

    use super::*;

    #[test]
    fn ssh_keygen_reads_it_and_finds_the_same_public_key() {
        if Command::new("ssh-keygen").arg("-?").output().is_err() {
            // Without it the form is still checked below.
            assert!(key().unwrap().private.starts_with("-----BEGIN OPENSSH"));
            return;
        }
        let key = key().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("id");
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .unwrap()
            .write_all(key.private.as_bytes())
            .unwrap();
        let output = Command::new("ssh-keygen")
            .arg("-y")
            .arg("-f")
            .arg(&path)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let public = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            public.split_whitespace().nth(1),
            key.public.split_whitespace().nth(1)
        );
    }

    #[test]
    fn two_keys_differ() {
        assert_ne!(key().unwrap().public, key().unwrap().public);
    }
}
