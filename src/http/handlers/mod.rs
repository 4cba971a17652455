//! The handlers: each turns a checked request into a command or a query, and what comes back into a resource.
//!
//! Nothing is decided here. One file per subject; the table of routes says who may call what.

mod audit;
mod backend;
pub mod break_glass;
mod campaigns;
mod evidence;
mod fleet;
mod once;
mod operate;
mod pull_secrets;
mod registries;
mod residue;
mod rotations;
mod schedule;

use actix_web::web;

pub use backend::{Backend, Work};
pub use once::Repeats;

use super::routes::{Op, bind};

/// Binds every operation to its handler. An operation without an arm here does not compile.
pub fn handlers(backend: Backend) -> impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static {
    move |config| {
        config.app_data(web::Data::new(backend.clone()));
        for op in <Op as strum::VariantArray>::VARIANTS {
            match op {
                Op::IssuePullSecret => bind(config, *op, pull_secrets::issue),
                Op::ReadPullSecret => bind(config, *op, pull_secrets::read),
                Op::RevokePullSecret => bind(config, *op, pull_secrets::revoke),
                Op::ChangeSchedule => bind(config, *op, schedule::change),
                Op::ConfirmGeneration => bind(config, *op, evidence::confirm_generation),
                Op::Heartbeat => bind(config, *op, evidence::heartbeat),
                Op::StartRotation => bind(config, *op, rotations::start),
                Op::ListRotations => bind(config, *op, rotations::list),
                Op::ReadRotation => bind(config, *op, rotations::read),
                Op::ConfirmRotation => bind(config, *op, evidence::confirm_rotation),
                Op::CompleteRotation => bind(config, *op, operate::complete),
                Op::ExtendRotation => bind(config, *op, operate::extend),
                Op::RollbackRotation => bind(config, *op, operate::rollback),
                Op::CancelRotation => bind(config, *op, operate::cancel),
                Op::ListPullSecrets => bind(config, *op, fleet::pull_secrets),
                Op::ListAllRotations => bind(config, *op, fleet::rotations),
                Op::ListAttention => bind(config, *op, fleet::attention),
                Op::ListRegistries => bind(config, *op, registries::list),
                Op::SweepRegistry => bind(config, *op, registries::sweep),
                Op::AcknowledgeRestore => bind(config, *op, registries::acknowledge),
                Op::ListAuditEvents => bind(config, *op, audit::list),
                Op::GiveUpResidue => bind(config, *op, residue::give_up),
                Op::CreateCampaign => bind(config, *op, campaigns::create),
                Op::ListCampaigns => bind(config, *op, campaigns::list),
                Op::ReadCampaign => bind(config, *op, campaigns::read),
                Op::ListCampaignClusters => bind(config, *op, campaigns::clusters),
                Op::PauseCampaign => bind(config, *op, campaigns::pause),
                Op::ResumeCampaign => bind(config, *op, campaigns::resume),
                Op::AbortCampaign => bind(config, *op, campaigns::abort),
                Op::MgmtListCredentials | Op::AroListCredentials => {
                    bind(config, *op, break_glass::ocm::list);
                }
                Op::MgmtRequestCredential | Op::AroRequestCredential => {
                    bind(config, *op, break_glass::ocm::request);
                }
                Op::MgmtRevokeCredentials | Op::AroRevokeCredentials => {
                    bind(config, *op, break_glass::ocm::revoke_all);
                }
                Op::MgmtReadCredential | Op::AroReadCredential => {
                    bind(config, *op, break_glass::ocm::read);
                }
                Op::MgmtReadCredentialStatus | Op::AroReadCredentialStatus => {
                    bind(config, *op, break_glass::ocm::status);
                }
                Op::MgmtRevokeCredential | Op::AroRevokeCredential => {
                    bind(config, *op, break_glass::ocm::revoke_one);
                }
                Op::ListRevocations => bind(config, *op, break_glass::operate::revocations),
                Op::ReadRevocation => bind(config, *op, break_glass::operate::revocation),
                Op::ReadTrustBundle => bind(config, *op, break_glass::bundle::read),
                Op::ConfirmTrustBundle => bind(config, *op, break_glass::bundle::confirm),
                Op::ApproveCredential => bind(config, *op, break_glass::operate::approve),
                Op::DenyCredential => bind(config, *op, break_glass::operate::deny),
                // The frame of the application answers these.
                Op::Healthz | Op::Readyz => {}
            }
        }
    }
}
