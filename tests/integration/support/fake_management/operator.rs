//! The operator: its authorities, its rules, and its certificates' odd times.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyperfleet_credentials::time::{Clock, SystemClock};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
    date_time_ymd,
};
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, ParsedExtension};

/// What the operator makes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// It signs.
    Normal,
    /// The same; its conditions have no status.
    QuietConditions,
    /// It says nothing at all: it could not read it, or its authority has ended.
    Silent,
    /// It approves and does not come to signing.
    ApprovesOnly,
    /// It finds it bad.
    Invalid,
    /// It signs for another key.
    WrongKey,
    /// It signs for another name.
    WrongSubject,
    /// It signs with an authority that it does not publish.
    WrongAuthority,
    /// It signs for servers.
    WrongUsage,
    /// What it signs has ended.
    Ended,
}

pub enum Verdict {
    Silent,
    ApprovedOnly,
    Invalid,
    Signed { pem: String, quiet: bool },
}

struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new(number: usize) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let name = format!("customer-break-glass-signer@{number}");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }
}

pub struct Operator {
    pub signing: Signing,
    pub knows_class: bool,
    signer_name: String,
    authorities: Vec<Authority>,
    made: usize,
}

impl Operator {
    pub fn new(namespace: &str) -> Self {
        Self {
            signing: Signing::Normal,
            knows_class: true,
            signer_name: format!("hypershift.openshift.io/{namespace}.customer-break-glass"),
            authorities: vec![Authority::new(0)],
            made: 1,
        }
    }

    pub fn authorities(&self) -> String {
        self.authorities.iter().map(|authority| authority.pem.as_str()).collect()
    }

    /// A new one signs; the old ones are trusted on.
    pub fn refresh(&mut self) {
        self.authorities.push(Authority::new(self.made));
        self.made += 1;
    }

    /// The old ones are forgotten.
    pub fn prune(&mut self) {
        let last = self.authorities.pop().unwrap();
        self.authorities = vec![last];
    }

    pub fn judge(&self, request: &Value) -> Verdict {
        let spec = &request["spec"];
        let Some(wanted) = Wanted::read(spec) else { return Verdict::Silent };
        // A foreign signer's request is nobody's.
        if spec["signerName"] != self.signer_name.as_str() {
            return Verdict::Silent;
        }
        let usages = spec["usages"].as_array().cloned().unwrap_or_default();
        let allowed = ["client auth", "digital signature", "key encipherment"];
        let good = usages.iter().any(|usage| usage == "client auth")
            && usages.iter().all(|usage| allowed.iter().any(|allowed| usage == allowed))
            && !wanted.alternative_names;
        if !good {
            return Verdict::Invalid;
        }
        match self.signing {
            Signing::Silent => Verdict::Silent,
            Signing::ApprovesOnly => Verdict::ApprovedOnly,
            Signing::Invalid => Verdict::Invalid,
            Signing::Normal
            | Signing::QuietConditions
            | Signing::WrongKey
            | Signing::WrongSubject
            | Signing::WrongAuthority
            | Signing::WrongUsage
            | Signing::Ended => Verdict::Signed {
                pem: self.certificate(wanted, spec["expirationSeconds"].as_u64().unwrap()),
                quiet: self.signing == Signing::QuietConditions,
            },
        }
    }

    fn certificate(&self, wanted: Wanted, seconds: u64) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = wanted.subject;
        if self.signing == Signing::WrongSubject {
            params.distinguished_name.push(DnType::CommonName, "system:admin");
        }
        params.extended_key_usages = vec![match self.signing {
            Signing::WrongUsage => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.not_before = date_time_ymd(1, 1, 1);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(self.end(seconds));
        let other;
        let authority = if self.signing == Signing::WrongAuthority {
            other = Authority::new(usize::MAX);
            &other
        } else {
            self.authorities.last().unwrap()
        };
        let issuer = Issuer::from_params(&authority.params, &authority.key);
        if self.signing == Signing::WrongKey {
            let stranger = KeyPair::generate().unwrap();
            return params.signed_by(&stranger, &issuer).unwrap().pem();
        }
        params.signed_by(&wanted.key, &issuer).unwrap().pem()
    }

    /// Seconds since 1970. Long ones end five minutes early: the operator dates them back by as much.
    fn end(&self, seconds: u64) -> u64 {
        let now = u64::try_from(SystemClock.now().as_micros()).unwrap() / 1_000_000;
        let life = if seconds > 30_000 { seconds - 300 } else { seconds };
        if self.signing == Signing::Ended { now - 60 } else { now + life }
    }
}

/// What a request asks for.
struct Wanted {
    subject: DistinguishedName,
    key: Key,
    alternative_names: bool,
}

struct Key(Vec<u8>);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Wanted {
    /// None: it cannot be read, or its signature is bad.
    fn read(spec: &Value) -> Option<Self> {
        let pem = STANDARD.decode(spec["request"].as_str()?).ok()?;
        let block = Pem::iter_from_buffer(&pem).next()?.ok()?;
        let (_, request) = X509CertificationRequest::from_der(&block.contents).ok()?;
        request.verify_signature().ok()?;
        let info = &request.certification_request_info;
        let mut subject = DistinguishedName::new();
        for group in info.subject.iter_organization() {
            subject.push(DnType::OrganizationName, group.as_str().ok()?);
        }
        subject.push(DnType::CommonName, info.subject.iter_common_name().next()?.as_str().ok()?);
        let named = |extension: &ParsedExtension<'_>| {
            matches!(extension, ParsedExtension::SubjectAlternativeName(_))
        };
        let alternative_names =
            request.requested_extensions().is_some_and(|mut all| all.any(named));
        let key = Key(info.subject_pki.subject_public_key.data.to_vec());
        Some(Self { subject, key, alternative_names })
    }
}
