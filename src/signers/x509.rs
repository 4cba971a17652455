//! Reading and writing what certificates are made of: PEM, times, names.
//!
//! Knows the forms only; what a certificate is good for is decided by whoever asks.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, date_time_ymd};
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

use crate::time::Timestamp;

/// The last second that a certificate can name (RFC 5280, 4.1.2.5).
const LAST_SECOND: u64 = 253_402_300_799;
const LINE: usize = 64;

/// Why a text does not hold certificates. Never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// No block at all.
    #[error("holds no certificate")]
    Empty,
    /// A block that is not one.
    #[error("holds a broken block (number {0})")]
    Broken(usize),
    /// A private key.
    #[error("holds a private key (block {0}), which must not be there")]
    PrivateKey(usize),
    /// Something else.
    #[error("holds something that is not a certificate (block {0})")]
    Foreign(usize),
}

/// The certificates (DER) of a PEM text, in their order; at least one.
///
/// # Errors
/// [`PemError`], with the number of the block, counted from 1.
pub fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, PemError> {
    let mut found = Vec::new();
    for (number, block) in (1..).zip(Pem::iter_from_buffer(pem)) {
        let block = block.map_err(|_| PemError::Broken(number))?;
        match block.label.as_str() {
            "CERTIFICATE" => {}
            label if label.ends_with("PRIVATE KEY") => return Err(PemError::PrivateKey(number)),
            _ => return Err(PemError::Foreign(number)),
        }
        let Ok((rest, _)) = X509Certificate::from_der(&block.contents) else {
            return Err(PemError::Broken(number));
        };
        if !rest.is_empty() {
            return Err(PemError::Broken(number));
        }
        found.push(block.contents);
    }
    if found.is_empty() { Err(PemError::Empty) } else { Ok(found) }
}

/// One block of PEM, with lines of 64 characters.
#[must_use]
pub fn certificate_pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut pem = String::with_capacity(encoded.len() + encoded.len() / LINE + 64);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// Sets both ends, to the second: rcgen's own default ends in the year 4096.
pub(super) fn set_validity(
    params: &mut CertificateParams,
    not_before: Timestamp,
    not_after: Timestamp,
) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + seconds(not_before);
    params.not_after = epoch + seconds(not_after);
}

/// The instant as a certificate can say it: no fractions, nothing after the year 9999.
pub(super) fn certificate_time(at: Timestamp) -> Timestamp {
    Timestamp::EPOCH.plus(seconds(at))
}

fn seconds(at: Timestamp) -> Duration {
    Duration::from_secs(at.since(Timestamp::EPOCH).as_secs().min(LAST_SECOND))
}

pub(super) fn timestamp(time: ASN1Time) -> Timestamp {
    Timestamp::from_micros(time.timestamp().saturating_mul(1_000_000))
}

/// A subject of a group, where there is one, and a common name.
pub(super) fn subject(common_name: &str, group: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// The only common name; none when there are several, or it is no text.
pub(super) fn common_name<'a>(name: &'a X509Name<'_>) -> Option<&'a str> {
    let mut values = name.iter_common_name();
    match (values.next(), values.next()) {
        (Some(value), None) => value.as_str().ok(),
        _ => None,
    }
}

/// Whether a name holds this common name, this group (or none) and nothing else.
pub(super) fn is_subject(name: &X509Name<'_>, expected: &str, group: Option<&str>) -> bool {
    let groups: Vec<_> = name.iter_organization().map(|value| value.as_str().ok()).collect();
    let wanted: Vec<_> = group.into_iter().map(Some).collect();
    common_name(name) == Some(expected)
        && groups == wanted
        && name.iter_attributes().count() == 1 + wanted.len()
}
