//! Makes the certificates. An authority's private key lives in one function call and is never returned.
//!
//! What each holds: `PROVIDERS` section 11, `local_ca`.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use uuid::Uuid;
use zeroize::Zeroize;

use super::super::signing_request::{SigningRequest, SigningRequestError};
use super::super::x509::{certificate_time, set_validity, subject};
use super::super::{
    AuthorityIntent, AuthorityKind, COMMON_NAME_PREFIX, Certificate, Identity, Intent, Signed,
};
use crate::time::Timestamp;

/// How far `NotBefore` lies back, for clocks that are behind.
const BACKDATED: Duration = Duration::from_secs(30);
/// No user of this name has any rights, and nobody else gets it: the id is a UUID.
const PROBE: &str = "system:break-glass-probe:";
const CONTROL: &str = "system:break-glass-control:";

/// Nothing was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The caller's signing request is not usable.
    #[error("certificate_signing_request {0}")]
    SigningRequest(#[from] SigningRequestError),
    /// No key could be made.
    #[error("no key could be made")]
    NoRandomness,
}

impl From<rcgen::Error> for MintError {
    /// Everything else that rcgen can say is ruled out by how it is called here.
    fn from(_: rcgen::Error) -> Self {
        Self::NoRandomness
    }
}

/// A key that is wiped when it goes.
struct Key(KeyPair);

impl Key {
    fn generate() -> Result<Self, MintError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    fn pem(&self) -> SecretString {
        SecretString::from(self.0.serialize_pem())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// An authority that may still sign; it ends with the function that holds it.
struct Authority {
    params: CertificateParams,
    key: Key,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Authority {
    /// The subject holds the key's own digest, so that two that were made for one id differ, too.
    fn new(id: Uuid, now: Timestamp, not_after: Timestamp) -> Result<Self, MintError> {
        let key = Key::generate()?;
        let digest = Sha256::digest(key.0.der_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(&format!("break-glass-{}-{digest}", id.simple()), None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let not_before = now.minus(BACKDATED);
        set_validity(&mut params, not_before, not_after);
        Ok(Self { params, key, not_before, not_after })
    }

    fn pem(&self) -> Result<String, MintError> {
        Ok(self.params.self_signed(&self.key.0)?.pem())
    }

    fn sign(
        &self,
        common_name: &str,
        group: Option<&str>,
        key: &impl PublicKeyData,
    ) -> Result<String, MintError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(common_name, group);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, self.not_before, self.not_after);
        let issuer = Issuer::from_params(&self.params, &self.key.0);
        Ok(params.signed_by(key, &issuer)?.pem())
    }

    fn login(&self, common_name: &str) -> Result<Identity, MintError> {
        let key = Key::generate()?;
        Ok(Identity { certificate: self.sign(common_name, None, &key.0)?, private_key: key.pem() })
    }
}

/// The credential, its authority and its probe.
pub fn credential(intent: &Intent) -> Result<Signed, MintError> {
    let authority = Authority::new(intent.id, intent.now, intent.not_after)?;
    let common_name = format!("{COMMON_NAME_PREFIX}{}", intent.username);
    let group = intent.group.as_deref();
    let (pem, private_key) = match &intent.signing_request {
        Some(request) => {
            let request = SigningRequest::parse(request)?;
            (authority.sign(&common_name, group, request.key())?, None)
        }
        None => {
            let key = Key::generate()?;
            (authority.sign(&common_name, group, &key.0)?, Some(key.pem()))
        }
    };
    Ok(Signed {
        certificate: Certificate { pem, not_after: certificate_time(intent.not_after) },
        private_key,
        authority: authority.pem()?,
        probe: authority.login(&format!("{PROBE}{}", intent.id.simple()))?,
    })
}

/// An authority that is no credential's, and what it signed.
pub fn authority(intent: &AuthorityIntent) -> Result<(String, Option<Identity>), MintError> {
    let authority = Authority::new(intent.id, intent.now, intent.not_after)?;
    let identity = match intent.kind {
        AuthorityKind::Control => {
            Some(authority.login(&format!("{CONTROL}{}", intent.id.simple()))?)
        }
        AuthorityKind::Placeholder => None,
    };
    Ok((authority.pem()?, identity))
}
