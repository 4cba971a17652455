//! Credentials and revocations exactly as clients get them.

use secrecy::SecretString;
use serde_json::{Value, json};
use strum::VariantArray;
use uuid::Uuid;

use super::*;
use crate::ids::{ClusterId, CredentialId, RevocationId};
use crate::state::break_glass::{
    Credential, CredentialState, EndpointProgress, IssueStep, Revocation, RevocationScope,
    RevocationState, Signer, Surface,
};
use crate::state::shared::Trouble;
use crate::time::Timestamp;

const REVOCATION: RevocationId = RevocationId(Uuid::from_u128(9));
const STATES: [(CredentialState, &str, &str); 10] = [
    (CredentialState::Requested, "created", "created"),
    (CredentialState::Accepted, "created", "created"),
    (CredentialState::Issuing { step: IssueStep::Collecting }, "created", "issuing"),
    (CredentialState::Active, "issued", "issued"),
    (
        CredentialState::AwaitingRevocation { revocation: REVOCATION },
        "awaiting_revocation",
        "awaiting_revocation",
    ),
    (CredentialState::Revoking { revocation: REVOCATION }, "awaiting_revocation", "revoking"),
    (CredentialState::Revoked { revocation: REVOCATION }, "revoked", "revoked"),
    (CredentialState::Denied, "failed", "denied"),
    (CredentialState::Failed, "failed", "failed"),
    (CredentialState::Expired, "expired", "expired"),
];

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cluster() -> ClusterId {
    "cls-1".parse().unwrap()
}

fn sample(state: CredentialState) -> Credential {
    let id = CredentialId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_00ab));
    let asked_at = at("2026-11-30T12:00:00.999999Z");
    Credential {
        username: "ada".to_owned(),
        state,
        state_since: at("2026-11-30T12:00:05.25Z"),
        message: "a word".to_owned(),
        expires_at: at("2026-12-01T12:00:00.75Z"),
        ..Credential::new(id, Signer::LocalCa, "operator", asked_at)
    }
}

fn shown(surface: Surface, credential: &Credential) -> Value {
    let kubeconfig = Some(SecretString::from("apiVersion: v1"));
    serde_json::to_value(super::credential(surface, &cluster(), credential, kubeconfig)).unwrap()
}

#[test]
fn each_state_on_each_surface() {
    for (state, on_mgmt, on_aro) in STATES {
        for surface in Surface::VARIANTS {
            let (base, word) = match surface {
                Surface::ClustersMgmt => ("/api/clusters_mgmt/v1", on_mgmt),
                Surface::AroHcp => ("/api/aro_hcp/v1alpha1", on_aro),
            };
            let id = "019300000000700080000000000000ab";
            let href = format!("{base}/clusters/cls-1/break_glass_credentials/{id}");
            let mut expected = json!({
                "kind": "BreakGlassCredential", "id": id, "href": href, "username": "ada",
                "status": word, "creation_timestamp": "2026-11-30T12:00:00Z",
                "expiration_timestamp": "2026-12-01T12:00:00Z",
                "status_details": {
                    "kind": "BreakGlassCredentialStatus", "id": id,
                    "href": format!("{href}/status"), "message": "a word",
                    "state": {"value": word, "last_updated_timestamp": "2026-11-30T12:00:05Z"},
                },
            });
            if state == CredentialState::Active {
                expected["kubeconfig"] = "apiVersion: v1".into();
            }
            let credential = sample(state);
            assert_eq!(shown(*surface, &credential), expected, "{state:?}");
            let status = credential_status(*surface, &cluster(), &credential);
            assert_eq!(serde_json::to_value(status).unwrap(), expected["status_details"]);
        }
    }
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut credential = sample(CredentialState::Revoked { revocation: REVOCATION });
    credential.created_at = None;
    credential.revoked_at = Some(at("2026-11-30T13:00:00.5Z"));
    let shown = shown(Surface::AroHcp, &credential);
    assert_eq!(shown.get("creation_timestamp"), None);
    assert_eq!(shown["revocation_timestamp"], "2026-11-30T13:00:00Z");
}

#[test]
fn a_list_counts_its_own_items_and_holds_no_kubeconfig() {
    let items = [sample(CredentialState::Active), sample(CredentialState::Expired)];
    let list = credential_list(Surface::ClustersMgmt, &cluster(), 3, 42, &items);
    let list = serde_json::to_value(list).unwrap();
    assert_eq!(list["kind"], "BreakGlassCredentialList");
    assert_eq!((&list["page"], &list["size"], &list["total"]), (&3.into(), &2.into(), &42.into()));
    assert_eq!(list["items"][0]["status"], "issued");
    assert_eq!(list["items"][0].get("kubeconfig"), None);
    let empty = credential_list(Surface::AroHcp, &cluster(), 9, 42, &[]);
    let expected = json!({
        "kind": "BreakGlassCredentialList", "page": 9, "size": 0, "total": 42, "items": [],
    });
    assert_eq!(serde_json::to_value(empty).unwrap(), expected);
}

fn sample_revocation(state: RevocationState) -> Revocation {
    Revocation {
        id: REVOCATION,
        scope: RevocationScope::All,
        state,
        state_since: at("2026-11-30T12:01:00Z"),
        signer: Signer::LocalCa,
        attempt: 1,
        progress: Some("waits for a confirmation of the trust bundle".to_owned()),
        cut_off: None,
        bundle_version: 4,
        endpoints: vec![EndpointProgress::new("https://10.0.0.1:6443".to_owned())],
        call: None,
        trouble: Trouble::default(),
        next_attempt_at: at("2026-11-30T12:01:10Z"),
        requested_by: "admin".to_owned(),
        reason: Some("leaked".to_owned()),
        created_at: at("2026-11-30T12:00:00Z"),
        ended_at: None,
    }
}

#[test]
fn a_revocation_tells_of_each_endpoint() {
    let mut revocation = sample_revocation(RevocationState::Proving);
    revocation.endpoints[0].rejections = 1;
    revocation.endpoints[0].seen_at = Some(at("2026-11-30T12:01:05Z"));
    let expected = json!({
        "revocation_id": "00000000-0000-0000-0000-000000000009", "cluster_id": "cls-1",
        "scope": "all", "state": "proving",
        "message": "waits for a confirmation of the trust bundle", "signer": "local_ca",
        "attempt": 1, "cut_off": null,
        "endpoints": [{
            "endpoint": "https://10.0.0.1:6443", "rejected": false, "rejections": 1,
            "proved_at": null, "last_asked_at": "2026-11-30T12:01:05Z", "last_error": null,
        }],
        "requested_by": "admin", "reason": "leaked", "created_at": "2026-11-30T12:00:00Z",
        "last_updated_at": "2026-11-30T12:01:00Z", "ended_at": null,
    });
    let shown = serde_json::to_value(credential_revocation(&cluster(), &revocation)).unwrap();
    assert_eq!(shown, expected);
    revocation.trouble.last_error = Some("connection refused".to_owned());
    assert_eq!(credential_revocation(&cluster(), &revocation).message, "connection refused");
}
