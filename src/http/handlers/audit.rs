//! `GET /v1/audit-events`: who did what, newest first.

use actix_web::http::StatusCode;
use actix_web::web::Data;

use super::backend::{Backend, store};
use crate::http::answer::{self, Answer};
use crate::http::extract::{Faults, Query};
use crate::http::resource::{AuditEventList, Pagination};
use crate::store::{AuditFilter, Page};

/// The events of the whole service, or of one cluster, actor or action.
pub async fn list(backend: Data<Backend>, query: Query) -> Answer {
    let work = backend.get()?;
    let mut faults = Faults::default();
    let filter = AuditFilter {
        cluster_id: faults.take(query.parsed("cluster_id")),
        actor: faults.take(query.text("actor")).map(ToOwned::to_owned),
        action: faults.take(query.text("action")).map(ToOwned::to_owned),
        since: faults.take(query.time("since")),
    };
    let (from, limit) = (faults.take(query.cursor()), faults.take(query.limit()));
    faults.none()?;
    let listed = work.deps.store.list_audit(&filter, from.as_ref(), limit).await;
    let Page { items, next, total_count } = listed.map_err(|error| store(&error))?;
    let audit_events = items.into_iter().map(Into::into).collect();
    let pagination = Pagination::new(next.as_ref(), total_count);
    answer::json(StatusCode::OK, &AuditEventList { audit_events, pagination })
}
