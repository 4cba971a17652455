//! The fake's own certificate, and what it makes of its clients'.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Its own certificate, key and authority.
#[derive(Debug)]
pub struct Own {
    pub ca: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Own {
    pub fn new() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "kube-apiserver-serving");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let own = CertificateParams::new(names).unwrap();
        let own = own.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap();
        Self {
            ca: ca.self_signed(&ca_key).unwrap().pem(),
            certificate: own.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    }

    /// For one connection: what it tells the client follows from what it knows now.
    pub fn config(&self, trust: &Trust) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let asks = Asks { provider: Arc::clone(&provider), hints: trust.hints() };
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(asks))
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        Arc::new(config)
    }
}

/// Asks for a certificate, takes any whose key the client has. The chain is looked at per request.
#[derive(Debug)]
struct Asks {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for Asks {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A client CA file as it was read.
#[derive(Debug, Clone)]
pub struct Trust {
    ders: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
}

impl Default for Trust {
    fn default() -> Self {
        Self { ders: Vec::new(), roots: RootCertStore::empty() }
    }
}

impl Trust {
    pub fn of(pem: &str) -> Self {
        let mut trust = Self::default();
        trust.add(pem);
        trust
    }

    pub fn add(&mut self, pem: &str) {
        for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let der = der.expect("the client CA file is PEM");
            self.roots.add(der.clone()).expect("each certificate can be an anchor");
            self.ders.push(der);
        }
    }

    fn hints(&self) -> Vec<DistinguishedName> {
        self.roots.subjects()
    }

    /// Whether the chain leads to one of them, now, for client authentication.
    pub fn knows(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((end, intermediates)) = chain.split_first() else { return false };
        if self.knows_ancient(end) {
            return true;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(
            Arc::new(self.roots.clone()),
            Arc::new(default_provider()),
        );
        let Ok(verifier) = builder.build() else { return false };
        verifier.verify_client_cert(end, intermediates, UnixTime::now()).is_ok()
    }

    /// Go reads certificates from before 1970, webpki does not; one signer writes the year 1.
    fn knows_ancient(&self, end: &CertificateDer<'_>) -> bool {
        let Ok((_, leaf)) = X509Certificate::from_der(end) else { return false };
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap();
        let ancient = leaf.validity().not_before.timestamp() < 0;
        let for_clients = leaf.extended_key_usage().ok().flatten();
        ancient
            && leaf.validity().not_after.timestamp() >= now
            && for_clients.is_some_and(|usage| usage.value.client_auth)
            && self.ders.iter().any(|der| {
                let (_, root) = X509Certificate::from_der(der).unwrap();
                leaf.issuer() == root.subject()
                    && leaf.verify_signature(Some(root.public_key())).is_ok()
            })
    }
}

/// Whom a certificate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

impl User {
    pub fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().map(str::to_owned).ok()
        };
        let name = leaf.subject().iter_common_name().find_map(text)?;
        Some(Self { name, groups: leaf.subject().iter_organization().filter_map(text).collect() })
    }
}
