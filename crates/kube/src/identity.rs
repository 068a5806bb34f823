//! What the pods of a job show each other, where the agent starts the ranks of an `MPIJob`, or supervisors restart programs in place.
//!
//! One authority for each job, one certificate for all its pods. The authority's key is forgotten at
//! once, so nobody can ever join a job by a certificate of another. It is valid for longer than any
//! job runs: it lives as long as the Secret that holds it, and clocks that differ lock nobody out.

use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use trainyard_core::launch::{AgentIdentity, agent::SERVER_NAME};

/// Makes an identity.
pub(crate) fn make() -> Result<AgentIdentity, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name = called("job");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let (from, until) = (
        rcgen::date_time_ymd(2020, 1, 1),
        rcgen::date_time_ymd(2200, 1, 1),
    );
    (authority.not_before, authority.not_after) = (from, until);
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
    leaf.distinguished_name = called("pod");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    (leaf.not_before, leaf.not_after) = (from, until);
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &issuer)?;
    Ok(AgentIdentity {
        authority: text("CERTIFICATE", authority_certificate.der()),
        certificate: text("CERTIFICATE", certificate.der()),
        key: text("PRIVATE KEY", key.serialized_der()),
    })
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::OrganizationName, "trainyard");
    called.push(DnType::CommonName, name);
    called
}

fn text(tag: &str, der: &[u8]) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(tag, der), config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_jobs_have_nothing_in_common() {
        let (one, other) = (make().unwrap(), make().unwrap());
        assert_ne!(one.authority, other.authority);
        assert_ne!(one.certificate, other.certificate);
        assert_ne!(one.key, other.key);
        assert!(one.key.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    }
}
