//! What is in the certificates that the embedded signer makes.

use std::collections::HashSet;
use std::time::Duration;

use secrecy::ExposeSecret;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{at, intent};
use crate::signers::local_ca::mint;
use crate::signers::x509::{certificates, common_name, timestamp};
use crate::signers::{AuthorityIntent, AuthorityKind};
use crate::time::Timestamp;

fn with<T>(pem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let ders = certificates(pem.as_bytes()).unwrap();
    assert_eq!(ders.len(), 1);
    look(&X509Certificate::from_der(&ders[0]).unwrap().1)
}

fn ends(certificate: &X509Certificate<'_>) -> (Timestamp, Timestamp) {
    let validity = certificate.validity();
    (timestamp(validity.not_before), timestamp(validity.not_after))
}

#[test]
fn a_credential_is_what_was_asked_for() {
    let signed = mint::credential(&intent()).unwrap();
    let expected =
        ("2026-11-30T20:01:04Z".parse().unwrap(), "2026-12-01T20:01:34Z".parse().unwrap());
    assert_eq!(signed.certificate.not_after, expected.1);
    with(&signed.certificate.pem, |leaf| {
        assert_eq!(
            leaf.subject().to_string(),
            "O=system:masters, CN=system:customer-break-glass:alice"
        );
        assert_eq!(ends(leaf), expected);
        assert!(!leaf.is_ca());
        let usage = leaf.key_usage().unwrap().unwrap().value;
        assert_eq!(usage.flags, 1, "digital signature alone");
        let extended = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.client_auth && !extended.server_auth && !extended.any);
        assert!(extended.other.is_empty());
        assert!(leaf.subject_alternative_name().unwrap().is_none());
    });
    with(&signed.probe.certificate, |probe| {
        assert_eq!(probe.subject().iter_organization().count(), 0);
        assert!(common_name(probe.subject()).unwrap().starts_with("system:break-glass-probe:"));
        assert_eq!(ends(probe), expected);
    });
    with(&signed.authority, |authority| {
        let constraints = authority.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(0));
        assert!(authority.key_usage().unwrap().unwrap().value.key_cert_sign());
        assert_eq!(ends(authority), expected);
        assert!(authority.verify_signature(None).is_ok());
        for signed in [&signed.certificate.pem, &signed.probe.certificate] {
            with(signed, |leaf| {
                assert_eq!(leaf.issuer(), authority.subject());
                assert!(leaf.verify_signature(Some(authority.public_key())).is_ok());
            });
        }
    });
}

#[test]
fn no_two_authorities_are_alike_and_neither_are_their_keys() {
    let mut seen = HashSet::new();
    for _ in 0..20 {
        // The same intent again, as after a lost outcome.
        let signed = mint::credential(&intent()).unwrap();
        with(&signed.authority, |authority| {
            let id = authority.get_extension_unique(
                &x509_parser::oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER,
            );
            let id = id.unwrap().expect("a key id").value.to_vec();
            assert!(seen.insert(authority.subject().to_string().into_bytes()));
            assert!(seen.insert(id));
            assert!(seen.insert(authority.public_key().raw.to_vec()));
            let name = common_name(authority.subject()).unwrap();
            assert!(name.len() <= 64, "{name}");
        });
        for key in [signed.private_key.unwrap(), signed.probe.private_key] {
            assert!(seen.insert(key.expose_secret().as_bytes().to_vec()));
        }
    }
}

#[test]
fn one_authoritys_credential_is_not_anothers() {
    let (one, other) = (mint::credential(&intent()).unwrap(), mint::credential(&intent()).unwrap());
    with(&other.authority, |authority| {
        with(&one.certificate.pem, |leaf| {
            assert_ne!(leaf.issuer(), authority.subject());
            assert!(leaf.verify_signature(Some(authority.public_key())).is_err());
        });
    });
}

#[test]
fn a_name_fits_into_a_certificate() {
    let mut longest = intent();
    longest.username = "x".repeat(35);
    let signed = mint::credential(&longest).unwrap();
    with(&signed.certificate.pem, |leaf| {
        assert!(common_name(leaf.subject()).unwrap().len() <= 64);
    });
}

#[test]
fn without_a_group_there_is_none() {
    let mut plain = intent();
    plain.group = None;
    with(&mint::credential(&plain).unwrap().certificate.pem, |leaf| {
        assert_eq!(leaf.subject().iter_organization().count(), 0);
    });
}

#[test]
fn a_control_logs_in_without_rights_and_a_placeholder_not_at_all() {
    let mut wanted = AuthorityIntent {
        cluster: intent().cluster,
        id: intent().id,
        kind: AuthorityKind::Control,
        now: at(),
        not_after: at().plus(Duration::from_secs(3600)),
    };
    let (authority, identity) = mint::authority(&wanted).unwrap();
    with(&authority, |authority| {
        with(&identity.unwrap().certificate, |leaf| {
            assert!(leaf.verify_signature(Some(authority.public_key())).is_ok());
            assert!(
                common_name(leaf.subject()).unwrap().starts_with("system:break-glass-control:")
            );
            assert_eq!(leaf.subject().iter_organization().count(), 0);
        });
    });
    wanted.kind = AuthorityKind::Placeholder;
    let (authority, identity) = mint::authority(&wanted).unwrap();
    assert!(identity.is_none());
    with(&authority, |authority| assert!(authority.is_ca()));
}

#[test]
fn the_end_of_time_is_no_trouble() {
    let mut endless = intent();
    endless.not_after = Timestamp::from_micros(i64::MAX);
    let signed = mint::credential(&endless).unwrap();
    let last_second = Timestamp::from_micros(253_402_300_799_000_000);
    assert_eq!(signed.certificate.not_after, last_second);
    with(&signed.certificate.pem, |leaf| assert_eq!(ends(leaf).1, last_second));
}
