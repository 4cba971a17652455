//! The objects on the management cluster: their names and forms. No calls.
//!
//! Forms: `PROVIDERS` section 11, `kubernetes_csr`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use uuid::Uuid;

use super::super::{Intent, Rotation};

/// The key of the config map that holds the signer's authorities.
pub(super) const AUTHORITIES_KEY: &str = "ca-bundle.crt";
const GROUP: &str = "certificates.hypershift.openshift.io";
const VERSION: &str = "v1alpha1";
const USAGES: [&str; 2] = ["client auth", "digital signature"];
/// What the API server lets a request ask for.
const SECONDS: (i32, i32) = (600, 86_400);

/// The name of a credential's request, and of its approval.
pub(super) fn request_name(id: Uuid) -> String {
    format!("break-glass-{}", id.simple())
}

/// The name of a revocation's request; one that can never succeed is followed by another.
pub(super) fn rotation_name(rotation: &Rotation) -> String {
    format!("break-glass-revocation-{}-{}", rotation.id.simple(), rotation.attempt)
}

pub(super) fn approval_resource() -> ApiResource {
    resource("CertificateSigningRequestApproval", "certificatesigningrequestapprovals")
}

pub(super) fn rotation_resource() -> ApiResource {
    resource("CertificateRevocationRequest", "certificaterevocationrequests")
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

fn labels() -> BTreeMap<String, String> {
    let (key, value) = ("app.kubernetes.io/managed-by", "hyperfleet-credentials");
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

pub(super) fn request(intent: &Intent, pem: &str, signer: String) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(request_name(intent.id)),
            labels: Some(labels()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            expiration_seconds: Some(seconds(intent)),
            request: ByteString(pem.as_bytes().to_vec()),
            signer_name: signer,
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// Counted from the call, not from the request of the credential: an approval may have taken its time.
fn seconds(intent: &Intent) -> i32 {
    let left = intent.not_after.since(intent.now).as_secs();
    i32::try_from(left).unwrap_or(i32::MAX).clamp(SECONDS.0, SECONDS.1)
}

/// Whether they would be signed alike; the time that is left differs with every repetition.
pub(super) fn same_request(
    found: &CertificateSigningRequest,
    wanted: &CertificateSigningRequest,
) -> bool {
    let (found, wanted) = (&found.spec, &wanted.spec);
    found.request == wanted.request
        && found.signer_name == wanted.signer_name
        && found.usages == wanted.usages
}

pub(super) fn approval(intent: &Intent) -> DynamicObject {
    let mut approval = DynamicObject::new(&request_name(intent.id), &approval_resource());
    approval.metadata.labels = Some(labels());
    approval.data = json!({"spec": {}});
    approval
}

pub(super) fn rotation(rotation: &Rotation, signer_class: &str) -> DynamicObject {
    let mut wanted = DynamicObject::new(&rotation_name(rotation), &rotation_resource());
    wanted.metadata.labels = Some(labels());
    wanted.data = json!({"spec": {"signerClass": signer_class}});
    wanted
}
