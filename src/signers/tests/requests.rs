//! Callers' own signing requests: what is taken and what is not.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    PublicKeyData, SignatureAlgorithm,
};

use super::intent;
use crate::signers::local_ca::mint;
use crate::signers::signing_request::{SigningRequest, SigningRequestError};
use crate::signers::x509::{certificates, subject};

/// An RSA key of 1024 bits signed this with SHA-256, one of 2048 bits the next, the last with SHA-1.
const RSA_1024: &str = include_str!("rsa-1024.csr.pem");
const RSA_2048: &str = include_str!("rsa-2048.csr.pem");
const RSA_SHA1: &str = include_str!("rsa-sha1.csr.pem");
/// P-521 is beyond what the verifier knows.
const P521: &str = include_str!("p521.csr.pem");

fn request(algorithm: &'static SignatureAlgorithm) -> (KeyPair, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = subject("anybody", None);
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    (key, pem)
}

/// The same with one bit of its contents turned.
fn turned(pem: &str, at: usize, label: &str) -> String {
    let block = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let mut der = block.contents;
    let at = at % der.len();
    der[at] ^= 1;
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

#[test]
fn usual_keys_are_taken() {
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let (key, pem) = request(algorithm);
        let read = SigningRequest::parse(&pem).unwrap();
        assert_eq!(read.key().subject_public_key_info(), key.subject_public_key_info());
    }
    assert!(SigningRequest::parse(RSA_2048).is_ok());
}

#[test]
fn a_certificate_holds_exactly_the_key_of_the_request() {
    for pem in [request(&PKCS_ED25519).1, RSA_2048.to_owned()] {
        let mut own = intent();
        own.signing_request = Some(pem.clone());
        let signed = mint::credential(&own).unwrap();
        assert!(signed.private_key.is_none());
        let ders = certificates(signed.certificate.pem.as_bytes()).unwrap();
        let (_, leaf) = x509_parser::parse_x509_certificate(&ders[0]).unwrap();
        let wanted = SigningRequest::parse(&pem).unwrap().key().subject_public_key_info();
        assert_eq!(leaf.public_key().raw, wanted);
        assert_eq!(
            leaf.subject().to_string(),
            "O=system:masters, CN=system:customer-break-glass:alice"
        );
    }
}

#[test]
fn what_is_weak_or_something_else_is_refused() {
    let (key, good) = request(&PKCS_ECDSA_P256_SHA256);
    for (text, error) in [
        (RSA_1024.to_owned(), SigningRequestError::Key),
        (P521.to_owned(), SigningRequestError::Key),
        (RSA_SHA1.to_owned(), SigningRequestError::Algorithm),
        (String::new(), SigningRequestError::Form),
        ("none".to_owned(), SigningRequestError::Form),
        (format!("{good}{good}"), SigningRequestError::Form),
        (super::leaf(), SigningRequestError::Form),
        (key.serialize_pem(), SigningRequestError::Form),
        ("x".repeat(17 * 1024), SigningRequestError::TooLong),
        // The last bytes are the signature's.
        (turned(&good, usize::MAX - 8, "CERTIFICATE REQUEST"), SigningRequestError::Signature),
    ] {
        let found = SigningRequest::parse(&text).map(drop);
        if error == SigningRequestError::Signature {
            assert!(found.is_err());
            continue;
        }
        assert_eq!(found, Err(error), "{text}");
    }
}

#[test]
fn a_signer_that_copies_names_gets_the_right_ones_only() {
    let key = KeyPair::generate().unwrap();
    let named = |common_name, group, names: Vec<String>| {
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = subject(common_name, group);
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        SigningRequest::parse(&pem).unwrap().names_only("a", Some("g"))
    };
    assert_eq!(named("a", Some("g"), vec![]), Ok(()));
    for (common_name, group) in [("b", Some("g")), ("a", Some("h")), ("a", None)] {
        assert_eq!(named(common_name, group, vec![]), Err(SigningRequestError::Subject));
    }
    let names = vec!["localhost".to_owned()];
    assert_eq!(named("a", Some("g"), names), Err(SigningRequestError::AlternativeNames));
}

proptest! {
    /// A request with one bit turned is refused, or holds the very same key: the signature covers everything.
    #[test]
    fn one_bit_more_or_less_is_seen(at in any::<prop::sample::Index>()) {
        let (key, good) = request(&PKCS_ECDSA_P256_SHA256);
        let bad = turned(&good, at.index(100_000), "CERTIFICATE REQUEST");
        if let Ok(read) = SigningRequest::parse(&bad) {
            prop_assert_eq!(
                read.key().subject_public_key_info(), key.subject_public_key_info()
            );
        }
    }
}
