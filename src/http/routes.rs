//! The one table of routes: path, method, who may, and the name that metrics use.
//!
//! A handler is bound to a row with [`bind`] and runs only when the gate has chosen that very row, so
//! none can be reached without the checks that its row asks for. Must not know what handlers do.

use std::sync::LazyLock;

use actix_web::dev::ServiceRequest;
use actix_web::guard::{self, Guard};
use actix_web::http::Method;
use actix_web::{FromRequest, Handler, HttpMessage, Responder, web};
use strum::VariantArray;

use crate::config::Role;
use crate::ids::ClusterId;

/// A row of the table of permissions: a verb on a subresource of `clusters` in `hyperfleet.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
#[expect(missing_docs, reason = "named as subresource and verb")]
pub enum Permission {
    PullSecretsCreate,
    PullSecretsGet,
    PullSecretsDelete,
    MetadataGet,
    MetadataList,
    RotationsGet,
    RotationsList,
    RotationsCreate,
    RotationsConfirm,
    RotationsUpdate,
    RotationsForce,
    FleetGet,
    FleetList,
    FleetCreate,
    FleetUpdate,
    AuditList,
    CredentialsCreate,
    CredentialsGet,
    CredentialsList,
    CredentialsDelete,
    CredentialsApprove,
    TrustBundleGet,
    TrustBundleConfirm,
}

/// Everybody who gets the pull secret itself.
const HOLDERS: &[Role] = &[Role::Adapter, Role::Operator, Role::Admin];
/// Everybody who gives orders.
const OPERATORS: &[Role] = &[Role::Operator, Role::Admin];
/// Everybody who looks after the fleet.
const WATCHERS: &[Role] = &[Role::Operator, Role::Admin, Role::Viewer];
const CREDENTIALS: &str = "break-glass-credentials";
const TRUST_BUNDLE: &str = "break-glass-credentials/trust-bundle";
const EVERYBODY: &[Role] = &[Role::Adapter, Role::Operator, Role::Admin, Role::Viewer];

impl Permission {
    /// Subresource, verb and roles.
    const fn row(self) -> (&'static str, &'static str, &'static [Role]) {
        match self {
            Self::PullSecretsCreate => ("pull-secrets", "create", HOLDERS),
            Self::PullSecretsGet => ("pull-secrets", "get", HOLDERS),
            Self::PullSecretsDelete => ("pull-secrets", "delete", HOLDERS),
            Self::MetadataGet => ("pull-secrets/metadata", "get", EVERYBODY),
            Self::MetadataList => ("pull-secrets/metadata", "list", EVERYBODY),
            Self::RotationsGet => ("pull-secrets/rotations", "get", EVERYBODY),
            Self::RotationsList => ("pull-secrets/rotations", "list", EVERYBODY),
            Self::RotationsCreate => ("pull-secrets/rotations", "create", HOLDERS),
            Self::RotationsConfirm => ("pull-secrets/rotations", "confirm", HOLDERS),
            Self::RotationsUpdate => ("pull-secrets/rotations", "update", OPERATORS),
            Self::RotationsForce => ("pull-secrets/rotations", "force", &[Role::Admin]),
            Self::FleetGet => ("credentials-fleet", "get", WATCHERS),
            Self::FleetList => ("credentials-fleet", "list", WATCHERS),
            Self::FleetCreate => ("credentials-fleet", "create", OPERATORS),
            Self::FleetUpdate => ("credentials-fleet", "update", OPERATORS),
            // A subresource of its own, so that a reviewer can tell it from the rest of the fleet.
            Self::AuditList => ("credentials-fleet/audit", "list", OPERATORS),
            Self::CredentialsCreate => (CREDENTIALS, "create", OPERATORS),
            Self::CredentialsGet => (CREDENTIALS, "get", OPERATORS),
            Self::CredentialsList => (CREDENTIALS, "list", WATCHERS),
            Self::CredentialsDelete => (CREDENTIALS, "delete", OPERATORS),
            // Whether it is the caller's own request is known to the machine only.
            Self::CredentialsApprove => (CREDENTIALS, "approve", OPERATORS),
            Self::TrustBundleGet => (TRUST_BUNDLE, "get", EVERYBODY),
            Self::TrustBundleConfirm => (TRUST_BUNDLE, "confirm", HOLDERS),
        }
    }

    /// What the permission is about.
    #[must_use]
    pub const fn subresource(self) -> &'static str {
        self.row().0
    }

    /// What may be done.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        self.row().1
    }

    /// Which roles have it, where roles decide.
    #[must_use]
    pub const fn roles(self) -> &'static [Role] {
        self.row().2
    }
}

/// What a row asks of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing; answered in every stage of the process.
    Probe,
    /// A proof that the handler looks at itself.
    OwnProof,
    /// A bearer with at least one of these. What needs more than the row says is asked for by the
    /// handler, with [`Caller::require`](super::auth::Caller::require).
    AnyOf(&'static [Permission]),
}

/// One operation of the surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
#[expect(missing_docs, reason = "the table says what each is")]
pub enum Op {
    IssuePullSecret,
    ReadPullSecret,
    RevokePullSecret,
    ChangeSchedule,
    ConfirmGeneration,
    Heartbeat,
    StartRotation,
    ListRotations,
    ReadRotation,
    ConfirmRotation,
    CompleteRotation,
    ExtendRotation,
    RollbackRotation,
    CancelRotation,
    ListPullSecrets,
    ListAllRotations,
    ListAttention,
    ListRegistries,
    SweepRegistry,
    AcknowledgeRestore,
    ListAuditEvents,
    GiveUpResidue,
    CreateCampaign,
    ListCampaigns,
    ReadCampaign,
    ListCampaignClusters,
    PauseCampaign,
    ResumeCampaign,
    AbortCampaign,
    MgmtListCredentials,
    MgmtRequestCredential,
    MgmtRevokeCredentials,
    MgmtReadCredential,
    MgmtReadCredentialStatus,
    MgmtRevokeCredential,
    AroListCredentials,
    AroRequestCredential,
    AroRevokeCredentials,
    AroReadCredential,
    AroReadCredentialStatus,
    AroRevokeCredential,
    ListRevocations,
    ReadRevocation,
    ReadTrustBundle,
    ConfirmTrustBundle,
    ApproveCredential,
    DenyCredential,
    Healthz,
    Readyz,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The operation.
    pub op: Op,
    /// Its method. `HEAD` goes where `GET` goes.
    pub method: Verb,
    /// The path's template, which is also its name in metrics.
    pub path: &'static str,
    /// Who may.
    pub access: Access,
    /// Whether repeating it is harmless without an `Idempotency-Key`.
    pub idempotent: bool,
}

/// The methods that routes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
#[expect(missing_docs, reason = "RFC 9110")]
pub enum Verb {
    Get,
    Post,
    Patch,
    Delete,
}

const CAMPAIGNS: &str = "/v1/rotation-campaigns";
const CAMPAIGN: &str = "/v1/rotation-campaigns/{campaign_id}";
const CAMPAIGN_CLUSTERS: &str = "/v1/rotation-campaigns/{campaign_id}/clusters";
const CAMPAIGN_PAUSE: &str = "/v1/rotation-campaigns/{campaign_id}/pause";
const CAMPAIGN_RESUME: &str = "/v1/rotation-campaigns/{campaign_id}/resume";
const CAMPAIGN_ABORT: &str = "/v1/rotation-campaigns/{campaign_id}/abort";
const RESIDUE: &str = "/v1/clusters/{cluster_id}/pull-secrets/residue";
const SECRETS: &str = "/v1/clusters/{cluster_id}/pull-secrets";
const SCHEDULE: &str = "/v1/clusters/{cluster_id}/pull-secrets/schedule";
const CONFIRM: &str = "/v1/clusters/{cluster_id}/pull-secrets/confirm";
const HEARTBEATS: &str = "/v1/clusters/{cluster_id}/pull-secrets/heartbeats";
const ROTATIONS: &str = "/v1/clusters/{cluster_id}/pull-secrets/rotations";
const ROTATION: &str = "/v1/clusters/{cluster_id}/pull-secrets/rotations/{rotation_id}";
const SWEEPS: &str = "/v1/registries/{registry_id}/sweeps";
const ACKNOWLEDGE: &str = "/v1/restored/acknowledge";
const ROTATION_CONFIRM: &str =
    "/v1/clusters/{cluster_id}/pull-secrets/rotations/{rotation_id}/confirm";
const ROTATION_COMPLETE: &str =
    "/v1/clusters/{cluster_id}/pull-secrets/rotations/{rotation_id}/complete";
const ROTATION_EXTEND: &str =
    "/v1/clusters/{cluster_id}/pull-secrets/rotations/{rotation_id}/extend";
const ROTATION_ROLLBACK: &str =
    "/v1/clusters/{cluster_id}/pull-secrets/rotations/{rotation_id}/rollback";
const ROTATION_CANCEL: &str =
    "/v1/clusters/{cluster_id}/pull-secrets/rotations/{rotation_id}/cancel";

const MGMT_CREDENTIALS: &str =
    "/api/clusters_mgmt/v1/clusters/{cluster_id}/break_glass_credentials";
const MGMT_CREDENTIAL: &str =
    "/api/clusters_mgmt/v1/clusters/{cluster_id}/break_glass_credentials/{credential_id}";
const MGMT_STATUS: &str =
    "/api/clusters_mgmt/v1/clusters/{cluster_id}/break_glass_credentials/{credential_id}/status";
const ARO_CREDENTIALS: &str = "/api/aro_hcp/v1alpha1/clusters/{cluster_id}/break_glass_credentials";
const ARO_CREDENTIAL: &str =
    "/api/aro_hcp/v1alpha1/clusters/{cluster_id}/break_glass_credentials/{credential_id}";
const ARO_STATUS: &str =
    "/api/aro_hcp/v1alpha1/clusters/{cluster_id}/break_glass_credentials/{credential_id}/status";
const REVOCATIONS: &str = "/v1/clusters/{cluster_id}/break-glass/revocations";
const REVOCATION: &str = "/v1/clusters/{cluster_id}/break-glass/revocations/{revocation_id}";
const BUNDLE: &str = "/v1/clusters/{cluster_id}/break-glass/trust-bundle";
const BUNDLE_CONFIRM: &str = "/v1/clusters/{cluster_id}/break-glass/trust-bundle/confirm";
const APPROVE: &str = "/v1/clusters/{cluster_id}/break-glass/{credential_id}/approve";
const DENY: &str = "/v1/clusters/{cluster_id}/break-glass/{credential_id}/deny";

impl Op {
    /// The operation's row.
    #[must_use]
    pub const fn route(self) -> Route {
        use Access::{AnyOf, OwnProof, Probe};
        use Permission as May;
        use Verb::{Delete, Get, Patch, Post};
        let (method, path, access, idempotent) = match self {
            Self::IssuePullSecret => (Post, SECRETS, AnyOf(&[May::PullSecretsCreate]), true),
            Self::ReadPullSecret => {
                (Get, SECRETS, AnyOf(&[May::PullSecretsGet, May::MetadataGet]), true)
            }
            Self::RevokePullSecret => (Delete, SECRETS, AnyOf(&[May::PullSecretsDelete]), true),
            Self::ChangeSchedule => (Patch, SCHEDULE, AnyOf(&[May::RotationsUpdate]), true),
            Self::ConfirmGeneration => (Post, CONFIRM, AnyOf(&[May::RotationsConfirm]), true),
            Self::Heartbeat => (Post, HEARTBEATS, OwnProof, true),
            Self::StartRotation => {
                (Post, ROTATIONS, AnyOf(&[May::RotationsCreate, May::RotationsUpdate]), false)
            }
            Self::ListRotations => (Get, ROTATIONS, AnyOf(&[May::RotationsList]), true),
            Self::ReadRotation => (Get, ROTATION, AnyOf(&[May::RotationsGet]), true),
            Self::ConfirmRotation => {
                (Post, ROTATION_CONFIRM, AnyOf(&[May::RotationsConfirm]), true)
            }
            Self::CompleteRotation => {
                (Post, ROTATION_COMPLETE, AnyOf(&[May::RotationsUpdate]), false)
            }
            Self::ExtendRotation => (Post, ROTATION_EXTEND, AnyOf(&[May::RotationsUpdate]), false),
            Self::RollbackRotation => {
                (Post, ROTATION_ROLLBACK, AnyOf(&[May::RotationsUpdate]), false)
            }
            Self::CancelRotation => (Post, ROTATION_CANCEL, AnyOf(&[May::RotationsUpdate]), false),
            Self::ListPullSecrets => (Get, "/v1/pull-secrets", AnyOf(&[May::MetadataList]), true),
            Self::ListAllRotations => (Get, "/v1/rotations", AnyOf(&[May::RotationsList]), true),
            Self::ListAttention => (Get, "/v1/attention", AnyOf(&[May::FleetList]), true),
            Self::ListRegistries => (Get, "/v1/registries", AnyOf(&[May::FleetList]), true),
            Self::SweepRegistry => (Post, SWEEPS, AnyOf(&[May::FleetCreate]), true),
            Self::AcknowledgeRestore => (Post, ACKNOWLEDGE, AnyOf(&[May::FleetUpdate]), true),
            Self::ListAuditEvents => (Get, "/v1/audit-events", AnyOf(&[May::AuditList]), true),
            Self::GiveUpResidue => (Delete, RESIDUE, AnyOf(&[May::RotationsForce]), true),
            Self::CreateCampaign => (Post, CAMPAIGNS, AnyOf(&[May::FleetCreate]), false),
            Self::ListCampaigns => (Get, CAMPAIGNS, AnyOf(&[May::FleetList]), true),
            Self::ReadCampaign => (Get, CAMPAIGN, AnyOf(&[May::FleetGet]), true),
            Self::ListCampaignClusters => (Get, CAMPAIGN_CLUSTERS, AnyOf(&[May::FleetList]), true),
            Self::PauseCampaign => (Post, CAMPAIGN_PAUSE, AnyOf(&[May::FleetUpdate]), false),
            Self::ResumeCampaign => (Post, CAMPAIGN_RESUME, AnyOf(&[May::FleetUpdate]), false),
            Self::AbortCampaign => (Post, CAMPAIGN_ABORT, AnyOf(&[May::FleetUpdate]), false),
            Self::MgmtListCredentials => {
                (Get, MGMT_CREDENTIALS, AnyOf(&[May::CredentialsList]), true)
            }
            Self::MgmtRequestCredential => {
                (Post, MGMT_CREDENTIALS, AnyOf(&[May::CredentialsCreate]), false)
            }
            Self::MgmtRevokeCredentials => {
                (Delete, MGMT_CREDENTIALS, AnyOf(&[May::CredentialsDelete]), true)
            }
            Self::MgmtReadCredential => (Get, MGMT_CREDENTIAL, AnyOf(&[May::CredentialsGet]), true),
            Self::MgmtReadCredentialStatus => {
                (Get, MGMT_STATUS, AnyOf(&[May::CredentialsGet]), true)
            }
            Self::MgmtRevokeCredential => {
                (Delete, MGMT_CREDENTIAL, AnyOf(&[May::CredentialsDelete]), true)
            }
            Self::AroListCredentials => {
                (Get, ARO_CREDENTIALS, AnyOf(&[May::CredentialsList]), true)
            }
            Self::AroRequestCredential => {
                (Post, ARO_CREDENTIALS, AnyOf(&[May::CredentialsCreate]), false)
            }
            Self::AroRevokeCredentials => {
                (Delete, ARO_CREDENTIALS, AnyOf(&[May::CredentialsDelete]), true)
            }
            Self::AroReadCredential => (Get, ARO_CREDENTIAL, AnyOf(&[May::CredentialsGet]), true),
            Self::AroReadCredentialStatus => (Get, ARO_STATUS, AnyOf(&[May::CredentialsGet]), true),
            Self::AroRevokeCredential => {
                (Delete, ARO_CREDENTIAL, AnyOf(&[May::CredentialsDelete]), true)
            }
            Self::ListRevocations => (Get, REVOCATIONS, AnyOf(&[May::CredentialsList]), true),
            Self::ReadRevocation => (Get, REVOCATION, AnyOf(&[May::CredentialsGet]), true),
            Self::ReadTrustBundle => (Get, BUNDLE, AnyOf(&[May::TrustBundleGet]), true),
            Self::ConfirmTrustBundle => {
                (Post, BUNDLE_CONFIRM, AnyOf(&[May::TrustBundleConfirm]), true)
            }
            Self::ApproveCredential => (Post, APPROVE, AnyOf(&[May::CredentialsApprove]), false),
            Self::DenyCredential => (Post, DENY, AnyOf(&[May::CredentialsApprove]), false),
            Self::Healthz => (Get, "/healthz", Probe, true),
            Self::Readyz => (Get, "/readyz", Probe, true),
        };
        Route { op: self, method, path, access, idempotent }
    }
}

/// All rows.
pub static ROUTES: LazyLock<Vec<Route>> =
    LazyLock::new(|| Op::VARIANTS.iter().map(|op| op.route()).collect());

/// What the table says about a request.
#[derive(Debug, Clone)]
pub enum Selection {
    /// It is for this row.
    Row(Route),
    /// The path knows other methods only.
    WrongMethod {
        /// The path's template.
        path: &'static str,
        /// The header `Allow`.
        allow: String,
    },
    /// No row has this path.
    Unknown,
}

impl Selection {
    /// Looks a request up. `path` is the one that the framework routes by, so that both agree.
    #[must_use]
    pub fn find(method: &Method, path: &str) -> Self {
        let mut here = ROUTES.iter().filter(|route| fits(route.path, path)).peekable();
        let Some(template) = here.peek().map(|route| route.path) else { return Self::Unknown };
        let wanted = if method == Method::HEAD { Method::GET } else { method.clone() };
        let rows: Vec<Route> = here.copied().collect();
        let name = |route: &Route| -> &'static str { route.method.into() };
        match rows.iter().find(|route| wanted.as_str() == name(route)) {
            Some(route) => Self::Row(*route),
            None => {
                let mut methods: Vec<&str> = rows.iter().map(name).collect();
                if methods.contains(&"GET") {
                    methods.push("HEAD");
                }
                methods.sort_unstable();
                Self::WrongMethod { path: template, allow: methods.join(", ") }
            }
        }
    }

    /// The template for metrics and spans.
    #[must_use]
    pub const fn template(&self) -> Option<&'static str> {
        match self {
            Self::Row(route) => Some(route.path),
            Self::WrongMethod { path, .. } => Some(path),
            Self::Unknown => None,
        }
    }

    /// The selection that the frame made for this request.
    pub(super) fn of(request: &ServiceRequest) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or(Self::Unknown)
    }
}

fn fits(template: &str, path: &str) -> bool {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(part), Some(text)) => {
                let any = part.starts_with('{') && !text.is_empty();
                if !any && part != text {
                    return false;
                }
            }
            (None, Some(_)) | (Some(_), None) => return false,
        }
    }
}

/// The cluster that a path is about; none where its id is malformed, which a handler's extractor finds.
pub(super) fn cluster_in(template: &str, path: &str) -> Option<ClusterId> {
    let mut parts = template.split('/').zip(path.split('/'));
    parts.find(|(part, _)| *part == "{cluster_id}")?.1.parse().ok()
}

/// Lets a request through that the gate has admitted for this row.
fn admitted(op: Op) -> impl Guard {
    guard::fn_guard(move |request| request.req_data().get::<Admitted>() == Some(&Admitted(op)))
}

/// The gate's mark on a request whose caller may do this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admitted(pub(super) Op);

/// Binds a handler to its row.
pub fn bind<F, Args>(config: &mut web::ServiceConfig, op: Op, handler: F)
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    config.route(op.route().path, web::route().guard(admitted(op)).to(handler));
}
