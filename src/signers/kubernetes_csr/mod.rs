//! HyperShift's control-plane-pki-operator: one authority for all credentials of a cluster.
//!
//! The objects live on the management cluster; names follow from ids, so that a repetition finds its own.
//! Knows nothing of when to ask again or when to give up.

mod certificate;
mod failure;
mod objects;
mod rotation;

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, PostParams};
use kube::{Client, Config};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use secrecy::SecretString;
use zeroize::Zeroize;

use self::failure::Failure;
use super::probe::ProbeClient;
use super::signing_request::SigningRequest;
use super::x509::subject;
use super::{
    AuthorityIntent, COMMON_NAME_PREFIX, CallContext, Capabilities, CheckOutcome, Cluster,
    CollectOutcome, Draft, DraftError, EndorseOutcome, Endpoint, Identity, Intent, MakeOutcome,
    ProbeOutcome, RotateOutcome, Rotation, Signer, SubmitOutcome, Trouble, TroubleKind,
};

/// How the operator names things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The signer, with `{namespace}` for the control plane's.
    pub signer: String,
    /// What a revocation names.
    pub signer_class: String,
    /// The config map in the control plane's namespace that holds the signer's authorities.
    pub authorities: String,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            signer: "hypershift.openshift.io/{namespace}.customer-break-glass".to_owned(),
            signer_class: "customer-break-glass".to_owned(),
            authorities: "customer-system-admin-signer-ca".to_owned(),
        }
    }
}

/// The management cluster cannot be reached at all.
#[derive(Debug, thiserror::Error)]
#[error(
    "the management cluster is not known: {0}; run in a pod of it, or set KUBECONFIG to a file that names it"
)]
pub struct ConnectError(String);

/// The signer.
#[derive(Clone)]
pub struct KubernetesCsr {
    client: Client,
    names: Names,
    probe: ProbeClient,
}

impl KubernetesCsr {
    /// A signer behind this client. It must not repeat requests by itself: each is announced.
    #[must_use]
    pub fn new(client: Client, names: Names) -> Self {
        Self { client, names, probe: ProbeClient::default() }
    }

    /// The management cluster that `KUBECONFIG` names, else the one that this process runs in.
    ///
    /// # Errors
    /// [`ConnectError`] when neither is there. Nothing is sent yet.
    pub async fn connect(connect_timeout: Duration) -> Result<Self, ConnectError> {
        let mut config = Config::infer().await.map_err(|error| ConnectError(error.to_string()))?;
        config.connect_timeout = Some(connect_timeout);
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| ConnectError(error.to_string()))?;
        Ok(Self::new(client, Names::default()))
    }

    fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.client.clone())
    }

    fn signer(&self, namespace: &str) -> String {
        self.names.signer.replace("{namespace}", namespace)
    }

    /// The authorities that the operator signs with, as it publishes them.
    async fn authorities(
        &self,
        call: &CallContext,
        namespace: &str,
    ) -> Result<Vec<Vec<u8>>, Trouble> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let map = match within(call, maps.get(&self.names.authorities)).await {
            Ok(map) => map,
            Err(Failure::Missing) => {
                let message = format!("the control plane has no {} yet", self.names.authorities);
                return Err(Trouble::new(TroubleKind::Misconfigured, message));
            }
            Err(failure) => return Err(failure.trouble()),
        };
        let pem = map.data.as_ref().and_then(|data| data.get(objects::AUTHORITIES_KEY));
        super::x509::certificates(pem.map_or("", String::as_str).as_bytes()).map_err(|error| {
            let message = format!("{} {error}", self.names.authorities);
            Trouble::new(TroubleKind::Misconfigured, message)
        })
    }
}

/// The control plane's namespace.
fn namespace(cluster: &Cluster) -> Result<&str, Trouble> {
    cluster.namespace.as_deref().ok_or_else(|| {
        let message = "the clusters file gives this cluster no namespace";
        Trouble::new(TroubleKind::Misconfigured, message)
    })
}

/// One request within the call's time.
async fn within<T>(
    call: &CallContext,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout_at(call.tokio_deadline(), request).await {
        Ok(answer) => answer.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::Lost(Trouble::timeout())),
    }
}

fn common_name(intent: &Intent) -> String {
    format!("{COMMON_NAME_PREFIX}{}", intent.username)
}

#[async_trait]
impl Signer for KubernetesCsr {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            signs_at_once: false,
            revokes_one: false,
            own_probe: false,
            needs_endorsement: true,
            most_live: None,
        }
    }

    /// The operator copies the request's subject, so a caller's own request has to have the right one.
    fn vet(&self, intent: &Intent) -> Result<(), DraftError> {
        let Some(pem) = &intent.signing_request else { return Ok(()) };
        let request = SigningRequest::parse(pem)?;
        Ok(request.names_only(&common_name(intent), intent.group.as_deref())?)
    }

    fn draft(&self, intent: &Intent) -> Result<Draft, DraftError> {
        self.vet(intent)?;
        if let Some(pem) = &intent.signing_request {
            return Ok(Draft { private_key: None, signing_request: Some(pem.clone()) });
        }
        own_request(intent).map_err(|_| DraftError::Internal("no key could be made".to_owned()))
    }

    async fn submit(&self, call: &CallContext, intent: &Intent, draft: &Draft) -> SubmitOutcome {
        let namespace = match namespace(&intent.cluster) {
            Ok(namespace) => namespace,
            Err(trouble) => return SubmitOutcome::Unavailable(trouble),
        };
        let Some(request) = &draft.signing_request else {
            return SubmitOutcome::Broken("the signing request was not stored".to_owned());
        };
        let wanted = objects::request(intent, request, self.signer(namespace));
        if let Err(trouble) = call.may_act().await {
            return SubmitOutcome::Unavailable(trouble);
        }
        let api = self.requests();
        match within(call, api.create(&PostParams::default(), &wanted)).await {
            Ok(_) => SubmitOutcome::Submitted,
            Err(Failure::Exists) => self.submitted_before(call, &wanted).await,
            Err(Failure::Invalid(reason)) => SubmitOutcome::Refused(reason),
            Err(Failure::Missing) => SubmitOutcome::Unavailable(failure::no_such_resource()),
            Err(Failure::NotApplied(trouble)) => SubmitOutcome::Unavailable(trouble),
            Err(Failure::Lost(trouble)) => SubmitOutcome::Unknown(trouble),
        }
    }

    async fn endorse(&self, call: &CallContext, intent: &Intent) -> EndorseOutcome {
        let namespace = match namespace(&intent.cluster) {
            Ok(namespace) => namespace,
            Err(trouble) => return EndorseOutcome::Unavailable(trouble),
        };
        if let Err(trouble) = call.may_act().await {
            return EndorseOutcome::Unavailable(trouble);
        }
        let kind = objects::approval_resource();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let approval = objects::approval(intent);
        match within(call, api.create(&PostParams::default(), &approval)).await {
            // Its name is the approval; there is nothing in it that could differ.
            Ok(_) | Err(Failure::Exists) => EndorseOutcome::Endorsed,
            Err(Failure::Invalid(reason)) => EndorseOutcome::Refused(reason),
            Err(Failure::Missing) => EndorseOutcome::Unavailable(failure::no_such_resource()),
            Err(Failure::NotApplied(trouble)) => EndorseOutcome::Unavailable(trouble),
            Err(Failure::Lost(trouble)) => EndorseOutcome::Unknown(trouble),
        }
    }

    async fn collect(&self, call: &CallContext, intent: &Intent, draft: &Draft) -> CollectOutcome {
        let namespace = match namespace(&intent.cluster) {
            Ok(namespace) => namespace,
            Err(trouble) => return CollectOutcome::Unavailable(trouble),
        };
        let name = objects::request_name(intent.id);
        let request = match within(call, self.requests().get(&name)).await {
            Ok(request) => request,
            Err(Failure::Missing) => {
                return CollectOutcome::Pending("the signer does not show the request".to_owned());
            }
            Err(failure) => return CollectOutcome::Unavailable(failure.trouble()),
        };
        let pem = match certificate::of(&request) {
            Ok(pem) => pem,
            Err(outcome) => return outcome,
        };
        match self.authorities(call, namespace).await {
            Ok(authorities) => certificate::check(&pem, intent, draft, &authorities),
            Err(trouble) => CollectOutcome::Unavailable(trouble),
        }
    }

    async fn rotate(&self, call: &CallContext, rotation: &Rotation) -> RotateOutcome {
        self.begin_rotation(call, rotation).await
    }

    async fn check(&self, call: &CallContext, rotation: &Rotation) -> CheckOutcome {
        self.look_at_rotation(call, rotation).await
    }

    async fn make(&self, _call: &CallContext, _intent: &AuthorityIntent) -> MakeOutcome {
        let message = "this signer keeps its authority to itself";
        MakeOutcome::Unavailable(Trouble::new(TroubleKind::Misconfigured, message))
    }

    async fn probe(
        &self,
        call: &CallContext,
        endpoint: &Endpoint,
        identity: &Identity,
    ) -> ProbeOutcome {
        self.probe.ask(call, endpoint, identity).await
    }
}

impl KubernetesCsr {
    /// The name is taken: by the same request, after a lost answer, or by another one.
    async fn submitted_before(
        &self,
        call: &CallContext,
        wanted: &CertificateSigningRequest,
    ) -> SubmitOutcome {
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        match within(call, self.requests().get(name)).await {
            Ok(found) if objects::same_request(&found, wanted) => SubmitOutcome::Submitted,
            Ok(_) => SubmitOutcome::Broken("another request has this name".to_owned()),
            Err(failure) => SubmitOutcome::Unknown(failure.trouble()),
        }
    }
}

fn own_request(intent: &Intent) -> Result<Draft, rcgen::Error> {
    let mut key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&common_name(intent), intent.group.as_deref());
    let request = params.serialize_request(&key).and_then(|request| request.pem());
    let private_key = SecretString::from(key.serialize_pem());
    key.zeroize();
    Ok(Draft { private_key: Some(private_key), signing_request: Some(request?) })
}
