//! A caller's own signing request: PKCS#10 in PEM, with a signature that proves the key.
//!
//! Only the key is taken from it where the service signs itself. Nothing of the text is ever repeated.

use rcgen::{
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData,
    SignatureAlgorithm,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION,
    OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_SIG_ED25519,
};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::DraftError;
use super::x509::is_subject;

/// A request of a 4096-bit key with many names is a tenth of this.
const MOST_BYTES: usize = 16 * 1024;
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// Why a signing request is not usable, as its sender may read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningRequestError {
    /// Too long.
    #[error("must be at most 16 KiB")]
    TooLong,
    /// Not what it should be.
    #[error("must be one PEM block CERTIFICATE REQUEST (PKCS#10)")]
    Form,
    /// An algorithm that is not (or no longer) good enough, or not known here.
    #[error("must be signed with SHA-256 or better")]
    Algorithm,
    /// It does not prove that the sender holds the key.
    #[error("has a signature that does not match its public key")]
    Signature,
    /// A key that is not taken.
    #[error(
        "must have an ECDSA key (P-256 or P-384), an Ed25519 key, or an RSA key of 2048 to 4096 bits"
    )]
    Key,
    /// The signer copies the subject, so it has to be the right one.
    #[error(
        "must have the subject CN=system:customer-break-glass:<username> and O=<group>, and no more"
    )]
    Subject,
    /// The signer takes no other names.
    #[error("must not ask for subject alternative names")]
    AlternativeNames,
}

impl From<SigningRequestError> for DraftError {
    fn from(error: SigningRequestError) -> Self {
        Self::SigningRequest(error.to_string())
    }
}

/// A request whose signature and key were looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SigningRequest {
    der: Vec<u8>,
    key: RequestedKey,
}

/// The public key of a request, to be put into a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestedKey {
    algorithm: &'static SignatureAlgorithm,
    bits: Vec<u8>,
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl SigningRequest {
    pub(super) fn parse(pem: &str) -> Result<Self, SigningRequestError> {
        if pem.len() > MOST_BYTES {
            return Err(SigningRequestError::TooLong);
        }
        let mut blocks = Pem::iter_from_buffer(pem.as_bytes());
        let (Some(Ok(block)), None) = (blocks.next(), blocks.next()) else {
            return Err(SigningRequestError::Form);
        };
        if !matches!(block.label.as_str(), "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") {
            return Err(SigningRequestError::Form);
        }
        let key = read(&block.contents)?;
        Ok(Self { der: block.contents, key })
    }

    /// The key.
    pub(super) const fn key(&self) -> &RequestedKey {
        &self.key
    }

    /// For a signer that copies the request's own names.
    pub(super) fn names_only(
        &self,
        common_name: &str,
        group: Option<&str>,
    ) -> Result<(), SigningRequestError> {
        let (_, request) =
            X509CertificationRequest::from_der(&self.der).map_err(|_| SigningRequestError::Form)?;
        if !is_subject(&request.certification_request_info.subject, common_name, group) {
            return Err(SigningRequestError::Subject);
        }
        let names = request.requested_extensions().into_iter().flatten().any(|extension| {
            matches!(extension, x509_parser::extensions::ParsedExtension::SubjectAlternativeName(_))
        });
        if names { Err(SigningRequestError::AlternativeNames) } else { Ok(()) }
    }
}

fn read(der: &[u8]) -> Result<RequestedKey, SigningRequestError> {
    let Ok((rest, request)) = X509CertificationRequest::from_der(der) else {
        return Err(SigningRequestError::Form);
    };
    if !rest.is_empty() {
        return Err(SigningRequestError::Form);
    }
    let key = requested_key(&request.certification_request_info.subject_pki)?;
    let signed_with = &request.signature_algorithm.algorithm;
    if *signed_with == OID_PKCS1_SHA1WITHRSA || *signed_with == OID_SHA1_WITH_RSA {
        return Err(SigningRequestError::Algorithm);
    }
    match request.verify_signature() {
        Ok(()) => Ok(key),
        Err(x509_parser::error::X509Error::SignatureUnsupportedAlgorithm) => {
            Err(SigningRequestError::Algorithm)
        }
        Err(_) => Err(SigningRequestError::Signature),
    }
}

fn requested_key(info: &SubjectPublicKeyInfo<'_>) -> Result<RequestedKey, SigningRequestError> {
    let algorithm = algorithm(info).ok_or(SigningRequestError::Key)?;
    Ok(RequestedKey { algorithm, bits: info.subject_public_key.data.to_vec() })
}

fn algorithm(info: &SubjectPublicKeyInfo<'_>) -> Option<&'static SignatureAlgorithm> {
    let kind = &info.algorithm.algorithm;
    if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = info.algorithm.parameters.as_ref()?.as_oid().ok()?;
        return match curve {
            curve if curve == OID_EC_P256 => Some(&PKCS_ECDSA_P256_SHA256),
            curve if curve == OID_NIST_EC_P384 => Some(&PKCS_ECDSA_P384_SHA384),
            _ => None,
        };
    }
    if *kind == OID_SIG_ED25519 {
        return Some(&PKCS_ED25519);
    }
    match (*kind == OID_PKCS1_RSAENCRYPTION, info.parsed().ok()?) {
        (true, PublicKey::RSA(key)) if RSA_BITS.contains(&key.key_size()) => Some(&PKCS_RSA_SHA256),
        _ => None,
    }
}
