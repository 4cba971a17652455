//! Approvals and revocations of break-glass credentials, as operators see them.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde::{Deserialize, Serialize};

use super::desk::{Desk, DeskError};
use super::why;
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{
    Body, Cluster, CredentialInPath, IdempotencyKey, Query, Reason, RevocationInPath,
};
use crate::http::handlers::backend::{Backend, caller};
use crate::http::handlers::once::{Asked, Ticket, once};
use crate::http::problem::ApiError;
use crate::http::resource::{self, CredentialRevocationList, Pagination};
use crate::ids::{ClusterId, CredentialId};
use crate::state::break_glass::{Command, Rejection};

/// `GET .../break-glass/revocations`: newest first, ended ones included.
pub async fn revocations(backend: Data<Backend>, cluster: Cluster, query: Query) -> Answer {
    let (desk, Cluster(cluster_id)) = (backend.desk()?, cluster);
    desk.offer(&cluster_id)?;
    let (from, limit) = (query.cursor()?, query.limit()?);
    let page = desk.break_glass.revocations(&cluster_id, from.as_ref(), limit).await;
    let page = page.map_err(|error| desk.refused(&cluster_id, &error))?;
    let shown = |revocation| resource::credential_revocation(&cluster_id, revocation);
    let revocations = page.items.iter().map(shown).collect();
    let pagination = Pagination::new(page.next.as_ref(), page.total_count);
    answer::json(StatusCode::OK, &CredentialRevocationList { revocations, pagination })
}

/// `GET .../break-glass/revocations/{revocation_id}`: with what each API server has said.
pub async fn revocation(
    backend: Data<Backend>,
    cluster: Cluster,
    revocation: RevocationInPath,
) -> Answer {
    let (desk, Cluster(cluster_id)) = (backend.desk()?, cluster);
    desk.offer(&cluster_id)?;
    let found = desk.break_glass.revocation(&cluster_id, revocation.0).await;
    match found.map_err(|error| desk.refused(&cluster_id, &error))? {
        Some(found) => {
            answer::json(StatusCode::OK, &resource::credential_revocation(&cluster_id, &found))
        }
        None => Err(ApiError::no_revocation(Some(cluster_id))),
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecisionBody {
    reason: Option<String>,
}

/// Who decides about which credential.
type Decision = (Caller, RequestContext, Cluster, CredentialInPath, Reason, IdempotencyKey);

/// `POST .../break-glass/{credential_id}/approve`: never by whoever asked for it.
pub async fn approve(
    backend: Data<Backend>,
    decision: Decision,
    body: Body<DecisionBody>,
) -> Answer {
    let (credential_id, by) = (decision.3.0, decision.0.principal.name.clone());
    let command = |_: &Option<String>| Command::Approve { credential_id, by };
    decide(backend.desk()?, decision, body.0, command).await
}

/// `POST .../break-glass/{credential_id}/deny`; the reason is shown to whoever asked for it.
pub async fn deny(backend: Data<Backend>, decision: Decision, body: Body<DecisionBody>) -> Answer {
    let (credential_id, by) = (decision.3.0, decision.0.principal.name.clone());
    let command =
        |reason: &Option<String>| Command::Deny { credential_id, by, reason: reason.clone() };
    decide(backend.desk()?, decision, body.0, command).await
}

async fn decide(
    desk: &Desk,
    decision: Decision,
    body: DecisionBody,
    command: impl FnOnce(&Option<String>) -> Command,
) -> Answer {
    let (who, context, Cluster(cluster_id), CredentialInPath(credential_id), reason, key) =
        decision;
    desk.offer(&cluster_id)?;
    let reason = why::reason(body.reason.as_deref(), reason)?;
    let run = async |ticket: &Ticket| {
        // The machine has forgotten one that has ended, but there it is.
        let state = desk.credential(&cluster_id, credential_id).await?.state.name();
        if state.is_ended() {
            let over = DeskError::Rejected(Rejection::State { state });
            return Err(desk.refused(&cluster_id, &over));
        }
        let command = command(&reason.0);
        let answer = ticket.answer(StatusCode::OK, None, credential_id);
        let caller = caller(&who, &context, reason);
        desk.execute(&cluster_id, command, caller, answer).await?;
        show(desk, &cluster_id, credential_id).await
    };
    let asked = Asked { key, who: &who, context: &context, body: &body };
    once(desk, asked, run, async |_| show(desk, &cluster_id, credential_id).await).await
}

async fn show(desk: &Desk, cluster_id: &ClusterId, id: CredentialId) -> Answer {
    let credential = desk.credential(cluster_id, id).await?;
    answer::json(StatusCode::OK, &resource::decided_credential(cluster_id, &credential))
}
