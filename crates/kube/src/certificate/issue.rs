//! Making a certificate and the authority that vouches for it.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use thiserror::Error;

use super::Bundle;

/// How long a certificate and its authority are valid.
const VALID_DAYS: i32 = 365;
/// It is renewed when it is valid for no longer than this.
const RENEW_DAYS: i32 = 120;

/// Why no certificate was made.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct IssueError(String);

/// A certificate that was made.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) bundle: Bundle,
    /// The first day on which it is to be replaced.
    pub(super) renew_on: Date,
}

/// Issues a certificate for `names`. The authority of `before` stays trusted beside the new one.
pub(super) fn issue(
    names: &[String],
    now: Timestamp,
    before: Option<&Bundle>,
) -> Result<Issued, IssueError> {
    let failed = |error: rcgen::Error| IssueError(error.to_string());
    let today = today(now);
    // Since yesterday: clocks of other machines are not ours.
    let from = today.saturating_sub(1.day());
    let until = today.saturating_add(VALID_DAYS.days());

    let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
    authority.distinguished_name = called("trainyard-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let day = |date: Date| {
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        rcgen::date_time_ymd(date.year().into(), month, day)
    };
    (authority.not_before, authority.not_after) = (day(from), day(until));
    let authority_key = KeyPair::generate().map_err(failed)?;
    let authority_certificate = authority.self_signed(&authority_key).map_err(failed)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut leaf = CertificateParams::new(names.to_vec()).map_err(failed)?;
    leaf.distinguished_name = called(names.first().map_or("trainyard", String::as_str));
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    (leaf.not_before, leaf.not_after) = (day(from), day(until));
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = leaf.signed_by(&key, &issuer).map_err(failed)?;

    let mut trusted = text("CERTIFICATE", authority_certificate.der());
    if let Some(before) = before.and_then(|before| first_certificate(&before.authority)) {
        trusted.push_str(&before);
    }
    Ok(Issued {
        bundle: Bundle {
            certificate: text("CERTIFICATE", certificate.der()),
            key: text("PRIVATE KEY", key.serialized_der()),
            authority: trusted,
        },
        renew_on: until.saturating_sub(RENEW_DAYS.days()),
    })
}

/// The day of `now`, by UTC.
pub(super) fn today(now: Timestamp) -> Date {
    now.to_zoned(TimeZone::UTC).date()
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::OrganizationName, "trainyard");
    // A common name has at most 64 characters; the names that count are the alternative ones.
    let short: String = name.chars().take(64).collect();
    called.push(DnType::CommonName, short);
    called
}

fn text(tag: &str, der: &[u8]) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(tag, der), config)
}

/// The newest of the authorities in a bundle: the first.
fn first_certificate(authority: &str) -> Option<String> {
    let first = pem::parse_many(authority).ok()?.into_iter().next()?;
    Some(text(first.tag(), first.contents()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pem: &str) -> usize {
        pem.matches("BEGIN CERTIFICATE").count()
    }

    #[test]
    fn renewed_bundle_trusts_previous_certificate() {
        let names = ["trainyard.n.svc".to_owned()];
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let first = issue(&names, now, None).unwrap();
        assert_eq!(first.renew_on.to_string(), "2026-11-01");
        assert_eq!(count(&first.bundle.authority), 1);
        let second = issue(&names, now, Some(&first.bundle)).unwrap();
        assert!(second.bundle.authority.ends_with(&first.bundle.authority));
        let third = issue(&names, now, Some(&second.bundle)).unwrap();
        assert_eq!(count(&third.bundle.authority), 2);
        assert!(!third.bundle.authority.contains(&first.bundle.authority));
        super::super::certified(&third.bundle).unwrap();
    }

    #[test]
    fn keys_are_in_no_debug_output() {
        let issued = issue(&["a.svc".to_owned()], Timestamp::UNIX_EPOCH, None);
        assert!(!format!("{issued:?}").contains("BEGIN"));
    }
}
