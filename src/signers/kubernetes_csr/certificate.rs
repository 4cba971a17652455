//! What became of a request, and whether a certificate is the one that was asked for.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use rcgen::PublicKeyData;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::super::signing_request::SigningRequest;
use super::super::x509::{certificates, is_subject, timestamp};
use super::super::{Certificate, CollectOutcome, Draft, Intent};
use super::common_name;
use super::failure::safe_reason;

/// The certificate (PEM), or what there is instead.
pub(super) fn of(request: &CertificateSigningRequest) -> Result<String, CollectOutcome> {
    let status = request.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let find = |kind: &str| {
        // A condition without a status is true.
        let holds = |status: &str| status.is_empty() || status == "True";
        conditions.iter().find(|condition| condition.type_ == kind && holds(&condition.status))
    };
    if let Some(denied) = find("Denied") {
        let reason = safe_reason(denied.reason.as_deref().unwrap_or_default());
        return Err(CollectOutcome::Refused(format!("the request was denied ({reason})")));
    }
    if let Some(failed) = find("Failed") {
        let reason = safe_reason(failed.reason.as_deref().unwrap_or_default());
        return Err(CollectOutcome::Broken(format!("the signer failed ({reason})")));
    }
    let signed = status.and_then(|status| status.certificate.as_ref());
    match signed.map(|bytes| &bytes.0).filter(|bytes| !bytes.is_empty()) {
        Some(bytes) => String::from_utf8(bytes.clone())
            .map_err(|_| CollectOutcome::Broken("the certificate is not PEM".to_owned())),
        None if find("Approved").is_some() => {
            Err(CollectOutcome::Pending("approved, not signed yet".to_owned()))
        }
        None => Err(CollectOutcome::Pending("not approved yet".to_owned())),
    }
}

/// Everything that has to hold before anybody gets it. `NotBefore` is not looked at: the signer writes the year 1.
pub(super) fn check(
    pem: &str,
    intent: &Intent,
    draft: &Draft,
    authorities: &[Vec<u8>],
) -> CollectOutcome {
    let broken = |why: &str| CollectOutcome::Broken(format!("the certificate {why}"));
    let ders = match certificates(pem.as_bytes()) {
        Ok(ders) => ders,
        Err(error) => return broken(&error.to_string()),
    };
    let Some(Ok((_, leaf))) = ders.first().map(|der| X509Certificate::from_der(der)) else {
        return broken("cannot be read");
    };
    let request = draft.signing_request.as_deref().map(SigningRequest::parse);
    let Some(Ok(request)) = request else {
        return CollectOutcome::Broken("the signing request was not stored".to_owned());
    };
    if leaf.public_key().raw != request.key().subject_public_key_info() {
        return broken("is for another key");
    }
    if !is_subject(leaf.subject(), &common_name(intent), intent.group.as_deref()) {
        return broken("names another subject");
    }
    let for_clients = leaf.extended_key_usage().ok().flatten();
    if !for_clients.is_some_and(|usage| usage.value.client_auth) {
        return broken("is not for client authentication");
    }
    let not_after = timestamp(leaf.validity().not_after);
    if not_after <= intent.now {
        return broken("has ended already");
    }
    // The operator may have renewed its authority a moment ago: that passes, or the deadline does.
    if !authorities.iter().any(|authority| signed_by(&leaf, authority)) {
        let reason = "the certificate's chain does not lead to the signer that is published";
        return CollectOutcome::Pending(reason.to_owned());
    }
    CollectOutcome::Signed(Certificate { pem: pem.to_owned(), not_after })
}

fn signed_by(leaf: &X509Certificate<'_>, authority: &[u8]) -> bool {
    let Ok((_, authority)) = X509Certificate::from_der(authority) else { return false };
    leaf.issuer() == authority.subject()
        && authority.is_ca()
        && leaf.verify_signature(Some(authority.public_key())).is_ok()
}
