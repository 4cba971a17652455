//! A revocation: the operator makes a new authority, waits until it is trusted and forgets the old one.

use kube::api::{Api, DynamicObject, PostParams};
use serde_json::Value;

use super::super::{CallContext, CheckOutcome, RotateOutcome, Rotation, Trouble, TroubleKind};
use super::failure::{self, Failure, safe_reason};
use super::objects::{rotation, rotation_name, rotation_resource};
use super::{KubernetesCsr, namespace, within};

/// In the order in which they come true.
const STEPS: [&str; 5] = [
    "SignerClassValid",
    "RootCertificatesRegenerated",
    "NewCertificatesTrusted",
    "LeafCertificatesRegenerated",
    "PreviousCertificatesRevoked",
];
/// The operator gave up; it never takes this one up again.
const TIMED_OUT: &str = "RevocationVerificationTimeout";

impl KubernetesCsr {
    fn rotations(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &rotation_resource())
    }

    pub(super) async fn begin_rotation(
        &self,
        call: &CallContext,
        wanted: &Rotation,
    ) -> RotateOutcome {
        let namespace = match namespace(&wanted.cluster) {
            Ok(namespace) => namespace,
            Err(trouble) => return RotateOutcome::Unavailable(trouble),
        };
        let object = rotation(wanted, &self.names.signer_class);
        if let Err(trouble) = call.may_act().await {
            return RotateOutcome::Unavailable(trouble);
        }
        let api = self.rotations(namespace);
        match within(call, api.create(&PostParams::default(), &object)).await {
            Ok(_) => RotateOutcome::Begun,
            Err(Failure::Exists) => self.begun_before(call, &api, &object).await,
            Err(Failure::Invalid(reason)) => RotateOutcome::Broken(reason),
            Err(Failure::Missing) => RotateOutcome::Unavailable(failure::no_such_resource()),
            Err(Failure::NotApplied(trouble)) => RotateOutcome::Unavailable(trouble),
            Err(Failure::Lost(trouble)) => RotateOutcome::Unknown(trouble),
        }
    }

    async fn begun_before(
        &self,
        call: &CallContext,
        api: &Api<DynamicObject>,
        wanted: &DynamicObject,
    ) -> RotateOutcome {
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        match within(call, api.get(name)).await {
            Ok(found) if found.data["spec"] == wanted.data["spec"] => RotateOutcome::Begun,
            Ok(_) => RotateOutcome::Broken("another request has this name".to_owned()),
            Err(failure) => RotateOutcome::Unknown(failure.trouble()),
        }
    }

    pub(super) async fn look_at_rotation(
        &self,
        call: &CallContext,
        rotation: &Rotation,
    ) -> CheckOutcome {
        let namespace = match namespace(&rotation.cluster) {
            Ok(namespace) => namespace,
            Err(trouble) => return CheckOutcome::Unavailable(trouble),
        };
        match within(call, self.rotations(namespace).get(&rotation_name(rotation))).await {
            Ok(found) => read(&found.data["status"]),
            Err(Failure::Missing) => {
                CheckOutcome::Lost("the revocation request is gone".to_owned())
            }
            Err(failure) => CheckOutcome::Unavailable(failure.trouble()),
        }
    }
}

fn read(status: &Value) -> CheckOutcome {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
    let open = STEPS.into_iter().find(|step| !find(step).is_some_and(|c| c["status"] == "True"));
    let Some(open) = open else {
        let cut_off = status["revocationTimestamp"].as_str().and_then(|text| text.parse().ok());
        return CheckOutcome::Done { cut_off };
    };
    let timed_out =
        |c: &Value| c["status"] != "True" && c["reason"] == TIMED_OUT || c["type"] == TIMED_OUT;
    if conditions.iter().any(timed_out) {
        return CheckOutcome::Lost(format!("the operator gave up ({TIMED_OUT})"));
    }
    let reason = find(open).and_then(|condition| condition["reason"].as_str());
    let reason = safe_reason(reason.unwrap_or_default());
    if open == STEPS[0] && find(open).is_some_and(|condition| condition["status"] == "False") {
        let message = format!("the operator does not know the signer class ({reason})");
        return CheckOutcome::Unavailable(Trouble::new(TroubleKind::Misconfigured, message));
    }
    CheckOutcome::Running { progress: format!("waits for {open} ({reason})") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": "words of others"})
    }

    #[test]
    fn it_is_done_only_when_every_step_is() {
        let mut conditions: Vec<Value> =
            STEPS.iter().map(|step| condition(step, "True", "AsExpected")).collect();
        let all = json!({"conditions": conditions, "revocationTimestamp": "2026-11-30T20:01:34Z"});
        let cut_off = "2026-11-30T20:01:34Z".parse().ok();
        assert_eq!(read(&all), CheckOutcome::Done { cut_off });

        conditions[2] = condition(STEPS[2], "False", "WaitingForAvailable");
        let progress = "waits for NewCertificatesTrusted (WaitingForAvailable)".to_owned();
        assert_eq!(read(&json!({"conditions": conditions})), CheckOutcome::Running { progress });
        conditions[2] = condition(STEPS[2], "Unknown", "<script>");
        let progress = "waits for NewCertificatesTrusted (no reason)".to_owned();
        assert_eq!(read(&json!({"conditions": conditions})), CheckOutcome::Running { progress });
    }

    #[test]
    fn nothing_yet_is_no_progress() {
        let progress = "waits for SignerClassValid (no reason)".to_owned();
        assert_eq!(read(&Value::Null), CheckOutcome::Running { progress });
    }
}
