//! The layers below, behind the seam: their words for what these handlers ask, and their ways to fail.

use async_trait::async_trait;

use super::desk::{BreakGlass, Bundle, DeskError, Done, ListOf, Listed, Offer, Opened};
use crate::actors::audit;
use crate::actors::break_glass::service::{CommandError, Service, ServiceError};
use crate::actors::break_glass::step::StepError;
use crate::ids::{ClusterId, CredentialId, RevocationId};
use crate::state::break_glass::{Command, Credential, Revocation, bundle_version};
use crate::store::break_glass::CredentialQuery;
use crate::store::search::{SearchError, parse_order, parse_search};
use crate::store::{Cursor, IdempotencyAnswer, Page};

fn query(parameter: &'static str) -> impl Fn(SearchError) -> DeskError {
    move |error| DeskError::Query { parameter, reason: error.to_string() }
}

impl From<ServiceError> for DeskError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Command(CommandError::Step(StepError::Rejected(rejection))) => {
                Self::Rejected(rejection)
            }
            ServiceError::Command(CommandError::Step(StepError::Store(error)))
            | ServiceError::Store(error) => Self::Store(error),
            ServiceError::Command(CommandError::Step(StepError::Seal(_))) => {
                Self::Busy("secrets cannot be sealed at the moment")
            }
            ServiceError::Command(CommandError::Busy) => {
                Self::Busy("too many requests wait for this cluster")
            }
            ServiceError::Command(CommandError::Restarting) => {
                Self::Busy("this cluster's break-glass credentials are being restarted")
            }
            // It was named a moment ago.
            ServiceError::Command(CommandError::Step(StepError::Unnamed)) => {
                Self::Busy("the clusters file has just changed")
            }
            ServiceError::SigningRequest(reason) => Self::SigningRequest { reason },
            ServiceError::NotConfigured(reason) => Self::NotConfigured { reason },
            ServiceError::Open(error) => Self::Open(error),
            ServiceError::Missing(what) => Self::Internal(what.to_owned()),
        }
    }
}

#[async_trait]
impl BreakGlass for Service {
    fn offer(&self, cluster_id: &ClusterId) -> Option<Offer> {
        self.revokes_one(cluster_id).map(|revokes_one| Offer { revokes_one })
    }

    async fn list(&self, cluster_id: &ClusterId, of: &ListOf) -> Result<Listed, DeskError> {
        let search = of.search.as_deref().map(|text| parse_search(text, of.surface));
        let order = of.order.as_deref().map(parse_order);
        let query = CredentialQuery {
            cluster_id: cluster_id.clone(),
            surface: of.surface,
            search: search.transpose().map_err(query("search"))?.flatten(),
            order: order.transpose().map_err(query("order"))?.unwrap_or_default(),
            offset: of.offset,
            limit: of.limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        };
        let list = Service::list(self, &query).await?;
        Ok(Listed { items: list.items, total: list.total })
    }

    async fn credential(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
    ) -> Result<Option<Credential>, DeskError> {
        Ok(Service::credential(self, cluster_id, id).await?)
    }

    async fn opened(
        &self,
        cluster_id: &ClusterId,
        id: CredentialId,
        caller: audit::Caller,
    ) -> Result<Option<Opened>, DeskError> {
        let opened = Service::opened(self, cluster_id, id, &caller).await?;
        Ok(opened.map(|it| Opened { credential: it.credential, kubeconfig: it.kubeconfig }))
    }

    async fn settled(&self, cluster_id: &ClusterId, id: CredentialId) {
        Service::settled(self, cluster_id, id).await;
    }

    async fn execute(
        &self,
        cluster_id: &ClusterId,
        command: Command,
        caller: audit::Caller,
        answer: Option<IdempotencyAnswer>,
    ) -> Result<Done, DeskError> {
        let settled = Service::execute(self, cluster_id, command, caller, answer).await?;
        Ok(Done { settled })
    }

    async fn revocations(
        &self,
        cluster_id: &ClusterId,
        from: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Revocation>, DeskError> {
        Ok(Service::revocations(self, cluster_id, from, limit).await?)
    }

    async fn revocation(
        &self,
        cluster_id: &ClusterId,
        id: RevocationId,
    ) -> Result<Option<Revocation>, DeskError> {
        Ok(Service::revocation(self, cluster_id, id).await?)
    }

    async fn bundle(
        &self,
        cluster_id: &ClusterId,
        caller: audit::Caller,
    ) -> Result<Bundle, DeskError> {
        let published = Service::bundle(self, cluster_id, caller).await?;
        Ok(Bundle { pem: published.pem, etag: published.etag })
    }

    fn bundle_version(&self, cluster_id: &ClusterId, etag: &str) -> Option<u64> {
        bundle_version(cluster_id, etag)
    }
}
