//! The trust bundle: what a kube-apiserver's client CA file has to hold.
//!
//! Pure text. Which authorities are live, and which version of the bundle an API server runs with, is the
//! machine's affair.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use super::x509::{PemError, certificate_pem, certificates};

/// Why there is no bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The cluster's own client CAs are not known, and nobody said that ours are enough.
    #[error(
        "the cluster has neither base_client_ca_file nor bundle_only: true; a bundle without the cluster's own \
         client CAs would lock out kubelets, controllers and admins"
    )]
    NoBase,
    /// The base file is not usable.
    #[error("base_client_ca_file {0}")]
    Base(#[from] BaseError),
    /// A stored authority is not a certificate.
    #[error("a stored authority {0}")]
    Authority(PemError),
    /// It would be empty, which an API server does not load.
    #[error("the bundle would be empty; it needs at least a placeholder")]
    Empty,
}

/// Why a file of client CAs is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    /// Its form.
    #[error("{0}")]
    Pem(#[from] PemError),
    /// An API server would never find what this one signed.
    #[error("holds a certificate that is no authority (block {0})")]
    NotAnAuthority(usize),
}

/// The cluster's own client CAs: those that were there before this service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base(Vec<Vec<u8>>);

impl Base {
    /// Reads a file's content.
    ///
    /// # Errors
    /// When it holds no certificate, or anything but authorities' certificates.
    pub fn parse(pem: &[u8]) -> Result<Self, BaseError> {
        let found = certificates(pem)?;
        match found.iter().position(|der| !is_authority(der)) {
            Some(i) => Err(BaseError::NotAnAuthority(i + 1)),
            None => Ok(Self(found)),
        }
    }
}

/// The extension says so; certificates from before there were extensions cannot.
fn is_authority(der: &[u8]) -> bool {
    X509Certificate::from_der(der)
        .is_ok_and(|(_, found)| found.is_ca() || found.version() == X509Version::V1)
}

/// What the live authorities stand beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside<'a> {
    /// The cluster's own client CAs.
    Base(&'a Base),
    /// Nothing: the entry says `bundle_only: true`, whoever distributes the bundle adds the rest.
    Nothing,
}

impl<'a> Beside<'a> {
    /// What an entry of the clusters file says.
    ///
    /// # Errors
    /// [`BundleError::NoBase`] when it says nothing.
    pub const fn of(base: Option<&'a Base>, bundle_only: bool) -> Result<Self, BundleError> {
        match (base, bundle_only) {
            (Some(base), _) => Ok(Self::Base(base)),
            (None, true) => Ok(Self::Nothing),
            (None, false) => Err(BundleError::NoBase),
        }
    }
}

/// A bundle, and a name that follows from its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The certificates (PEM).
    pub pem: String,
    /// 32 hexadecimal digits of the content's digest: equal content, equal tag.
    pub tag: String,
}

/// The base in its own order, then the live authorities in the order of their digests. None twice.
///
/// # Errors
/// [`BundleError`] when an authority is not a certificate, or there would be nothing in it.
pub fn compose<A: AsRef<str>>(
    beside: Beside<'_>,
    authorities: &[A],
) -> Result<Bundle, BundleError> {
    let mut ders: Vec<&[u8]> = Vec::new();
    if let Beside::Base(base) = beside {
        for der in &base.0 {
            if !ders.contains(&der.as_slice()) {
                ders.push(der);
            }
        }
    }
    let live = live(authorities)?;
    for der in live.values() {
        if !ders.contains(&der.as_slice()) {
            ders.push(der);
        }
    }
    if ders.is_empty() {
        return Err(BundleError::Empty);
    }
    let pem: String = ders.into_iter().map(certificate_pem).collect();
    let tag = Sha256::digest(pem.as_bytes());
    let tag = tag.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(Bundle { pem, tag })
}

fn live<A: AsRef<str>>(authorities: &[A]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, BundleError> {
    let mut live = BTreeMap::new();
    for pem in authorities {
        for der in certificates(pem.as_ref().as_bytes()).map_err(BundleError::Authority)? {
            live.insert(Sha256::digest(&der).to_vec(), der);
        }
    }
    Ok(live)
}
