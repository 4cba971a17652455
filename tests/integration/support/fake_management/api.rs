//! The resources, their rules, and what is written down.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::fake_quay::wire::{HttpRequest, Reply};
use super::Fault;
use super::operator::{Operator, Verdict};

/// The resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `CertificateSigningRequest`
    Requests,
    /// `CertificateSigningRequestApproval`
    Approvals,
    /// `CertificateRevocationRequest`
    Revocations,
    /// `ConfigMap`
    ConfigMaps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Create,
    Get,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub verb: Verb,
    /// None: no such resource or namespace.
    pub kind: Option<Kind>,
    pub name: String,
    /// Whether it changed something.
    pub applied: bool,
    /// None: nobody heard.
    pub status: Option<u16>,
}

pub struct World {
    namespace: String,
    objects: BTreeMap<(Kind, String), Value>,
    pub operator: Operator,
    pub faults: VecDeque<(Verb, Fault)>,
    pub log: Vec<Entry>,
}

const STEPS: [&str; 5] = [
    "SignerClassValid",
    "RootCertificatesRegenerated",
    "NewCertificatesTrusted",
    "LeafCertificatesRegenerated",
    "PreviousCertificatesRevoked",
];

impl World {
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            objects: BTreeMap::new(),
            operator: Operator::new(namespace),
            faults: VecDeque::new(),
            log: Vec::new(),
        }
    }

    /// None: the connection is closed without an answer.
    pub fn handle(&mut self, request: &HttpRequest, known: bool) -> Option<Reply> {
        let path: Vec<&str> = request.segments.iter().map(String::as_str).collect();
        let kind = self.kind(&path);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (verb, name) = match request.method.as_str() {
            "POST" => (Verb::Create, body["metadata"]["name"].as_str().unwrap_or_default()),
            _ => (Verb::Get, *path.last().unwrap()),
        };
        let fault = match self.faults.front() {
            Some((of, _)) if *of == verb => self.faults.pop_front().map(|(_, fault)| fault),
            _ => None,
        };
        let before = self.objects.len();
        let reply = match (&fault, kind) {
            (Some(Fault::LoseBefore), _) => None,
            (Some(Fault::Instead(code)), _) => Some(failure(*code, None)),
            (Some(Fault::Later(code, seconds)), _) => Some(failure(*code, Some(*seconds))),
            (_, _) if !known => Some(failure(401, None)),
            (_, None) => Some(failure(404, None)),
            (_, Some(kind)) => Some(match verb {
                Verb::Create => self.create(kind, name, &body),
                Verb::Get => self.get(kind, name),
            }),
        };
        let reply = reply.filter(|_| fault != Some(Fault::LoseAfter));
        self.log.push(Entry {
            verb,
            kind,
            name: name.to_owned(),
            applied: self.objects.len() > before,
            status: reply.as_ref().map(|reply| reply.status),
        });
        reply
    }

    fn kind(&self, path: &[&str]) -> Option<Kind> {
        let here = |namespace: &str| namespace == self.namespace;
        match path {
            ["apis", "certificates.k8s.io", "v1", "certificatesigningrequests", ..] => {
                Some(Kind::Requests)
            }
            ["api", "v1", "namespaces", namespace, "configmaps", ..] if here(namespace) => {
                Some(Kind::ConfigMaps)
            }
            [
                "apis",
                "certificates.hypershift.openshift.io",
                "v1alpha1",
                "namespaces",
                namespace,
                resource,
                ..,
            ] if here(namespace) => match *resource {
                "certificatesigningrequestapprovals" => Some(Kind::Approvals),
                "certificaterevocationrequests" => Some(Kind::Revocations),
                _ => None,
            },
            _ => None,
        }
    }

    fn create(&mut self, kind: Kind, name: &str, body: &Value) -> Reply {
        let key = (kind, name.to_owned());
        if self.objects.contains_key(&key) {
            return failure(409, None);
        }
        if kind == Kind::Requests {
            let seconds = body["spec"]["expirationSeconds"].as_i64();
            if seconds.is_some_and(|seconds| seconds < 600) || body["spec"]["request"].is_null() {
                return failure(422, None);
            }
        }
        self.objects.insert(key, body.clone());
        if matches!(kind, Kind::Requests | Kind::Approvals) {
            self.reconcile(name);
        }
        Reply::json(201, body)
    }

    fn get(&self, kind: Kind, name: &str) -> Reply {
        if kind == Kind::ConfigMaps && name == "customer-system-admin-signer-ca" {
            let data = json!({"ca-bundle.crt": self.operator.authorities()});
            return Reply::json(
                200,
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}),
            );
        }
        match self.objects.get(&(kind, name.to_owned())) {
            Some(object) => Reply::json(200, object),
            None => failure(404, None),
        }
    }

    pub fn reconcile_all(&mut self) {
        let of = |(kind, name): &(Kind, String)| (*kind == Kind::Requests).then(|| name.clone());
        let names: Vec<String> = self.objects.keys().filter_map(of).collect();
        let unsigned = |world: &Self, name: &str| {
            let request = world.object(Kind::Requests, name).unwrap_or_default();
            request["status"]["certificate"].is_null()
        };
        for name in names {
            if unsigned(self, &name) {
                self.reconcile(&name);
            }
        }
    }

    /// The operator's turn: what is approved is signed, or not.
    fn reconcile(&mut self, name: &str) {
        if !self.objects.contains_key(&(Kind::Approvals, name.to_owned())) {
            return;
        }
        let Some(request) = self.objects.get_mut(&(Kind::Requests, name.to_owned())) else {
            return;
        };
        let approved = condition("Approved", "True", "ApprovalPresent");
        match self.operator.judge(request) {
            Verdict::Silent => {}
            Verdict::ApprovedOnly => request["status"] = json!({"conditions": [approved]}),
            Verdict::Invalid => {
                let failed = condition("Failed", "True", "SignerValidationFailure");
                request["status"] = json!({"conditions": [approved, failed]});
            }
            Verdict::Signed { pem, quiet } => {
                // A condition without a status is true.
                let approved = if quiet { condition("Approved", "", "") } else { approved };
                request["status"] =
                    json!({"conditions": [approved], "certificate": STANDARD.encode(pem)});
            }
        }
    }

    pub fn signed(&self) -> Vec<String> {
        let requests = self.objects.iter().filter(|((kind, _), _)| *kind == Kind::Requests);
        let signed = requests.filter(|(_, object)| !object["status"]["certificate"].is_null());
        signed.map(|((_, name), _)| name.clone()).collect()
    }

    pub fn collect(&mut self) {
        self.objects.retain(|(kind, _), object| {
            *kind != Kind::Requests || object["status"]["conditions"].is_null()
        });
    }

    pub fn deny(&mut self) {
        for ((kind, _), object) in &mut self.objects {
            if *kind == Kind::Requests && object["status"]["certificate"].is_null() {
                // Its status is left out, as old clients do.
                let mut denied = condition("Denied", "", "PolicyViolation");
                denied.as_object_mut().unwrap().remove("status");
                object["status"] = json!({"conditions": [denied]});
            }
        }
    }

    pub fn step(&mut self) {
        let known = self.operator.knows_class;
        let operator = &mut self.operator;
        for ((kind, _), object) in &mut self.objects {
            if *kind != Kind::Revocations || object["gaveUp"] == true {
                continue;
            }
            if !known || object["spec"]["signerClass"] != "customer-break-glass" {
                let unknown = condition("SignerClassValid", "False", "SignerClassUnknown");
                object["status"] = json!({"conditions": [unknown]});
                continue;
            }
            let done = object["status"]["done"].as_u64().unwrap_or(0) + 1;
            let conditions: Vec<Value> = (1..)
                .zip(STEPS)
                .filter_map(|(i, step)| {
                    if i <= done {
                        Some(condition(step, "True", "AsExpected"))
                    } else {
                        (i == done + 1).then(|| condition(step, "False", "WaitingForAvailable"))
                    }
                })
                .collect();
            match done {
                2 => operator.refresh(),
                5 => operator.prune(),
                _ => {}
            }
            object["status"] = json!({
                "done": done, "revocationTimestamp": "2026-11-30T20:01:34Z", "conditions": conditions,
            });
        }
    }

    pub fn time_out(&mut self) {
        for ((kind, _), object) in &mut self.objects {
            if *kind == Kind::Revocations {
                let last = "PreviousCertificatesRevoked";
                let given_up = condition(last, "False", "RevocationVerificationTimeout");
                let before = STEPS.iter().filter(|step| **step != last);
                let mut conditions: Vec<Value> =
                    before.map(|step| condition(step, "True", "AsExpected")).collect();
                conditions.push(given_up);
                object["gaveUp"] = json!(true);
                object["status"] = json!({
                    "revocationTimestamp": "2026-11-30T20:01:34Z", "conditions": conditions,
                });
            }
        }
    }

    pub fn remove_all(&mut self, kind: Kind) {
        self.objects.retain(|(of, _), _| *of != kind);
    }

    pub fn plant(&mut self, kind: Kind, name: &str, object: Value) {
        self.objects.insert((kind, name.to_owned()), object);
    }

    pub fn object(&self, kind: Kind, name: &str) -> Option<Value> {
        self.objects.get(&(kind, name.to_owned())).cloned()
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "the operator's words",
        "lastTransitionTime": "2026-11-30T20:01:34Z",
    })
}

fn failure(code: u16, retry_after: Option<u32>) -> Reply {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "AlreadyExists",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "words of the management cluster", "reason": reason, "code": code,
    });
    if let Some(seconds) = retry_after {
        body["details"] = json!({"retryAfterSeconds": seconds});
    }
    Reply::json(code, &body)
}
