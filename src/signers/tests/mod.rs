//! What is computed without anybody outside: certificates, requests, bundles, kubeconfigs.

mod bundle;
mod certificates;
mod kubeconfig;
mod requests;

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use uuid::Uuid;

use super::{Cluster, Intent};
use crate::time::Timestamp;

/// An instant in the middle of a second.
fn at() -> Timestamp {
    "2026-11-30T20:01:34.5Z".parse().unwrap()
}

fn intent() -> Intent {
    Intent {
        cluster: Cluster { cluster_id: "cls-1".parse().unwrap(), namespace: None },
        id: Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_00ab),
        username: "alice".to_owned(),
        group: Some("system:masters".to_owned()),
        now: at(),
        not_after: at().plus(Duration::from_secs(86_400)),
        signing_request: None,
    }
}

/// Some authority's certificate.
fn authority(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// A certificate that is no authority.
fn leaf() -> String {
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}
