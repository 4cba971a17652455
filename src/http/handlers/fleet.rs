//! The whole fleet: pull secrets without secrets, rotations, and what needs a person.

use actix_web::http::StatusCode;
use actix_web::web::Data;

use super::backend::{Backend, Work, store};
use super::rotations::list_of;
use crate::http::answer::{self, Answer};
use crate::http::extract::{Faults, Query};
use crate::http::problem::{ApiError, FieldError};
use crate::http::resource::{self, AttentionList, Pagination, PullSecretList};
use crate::ids::RegistryId;
use crate::store::{AttentionFilter, AttentionKind, Page, PullSecretFilter};

/// `GET /v1/pull-secrets`.
pub async fn pull_secrets(backend: Data<Backend>, query: Query) -> Answer {
    let work = backend.get()?;
    let mut faults = Faults::default();
    let filter = PullSecretFilter {
        state: faults.take(single(&query, "state")),
        registry_id: faults.take(registry(work, &query)),
        overdue: faults.take(query.flag("overdue")).unwrap_or(false),
        now: work.deps.clock.now(),
    };
    let (from, limit) = (faults.take(query.cursor()), faults.take(query.limit()));
    faults.none()?;
    let listed = work.deps.store.list_pull_secrets(&filter, from.as_ref(), limit).await;
    let Page { items, next, total_count } = listed.map_err(|error| store(&error))?;
    let pull_secrets = items.iter().map(resource::pull_secret_row).collect();
    let pagination = Pagination::new(next.as_ref(), total_count);
    answer::json(StatusCode::OK, &PullSecretList { pull_secrets, pagination })
}

/// At most one word of a list.
pub(super) fn single<T>(query: &Query, name: &str) -> Result<Option<T>, ApiError>
where
    T: std::str::FromStr + strum::VariantArray + Copy + Into<&'static str>,
{
    let words: Vec<T> = query.words(name)?;
    match words.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        [_, _, ..] => {
            let all: Vec<&'static str> = T::VARIANTS.iter().map(|word| (*word).into()).collect();
            Err(ApiError::query(FieldError::not_one_of(name, "several", &all)))
        }
    }
}

fn registry(work: &Work, query: &Query) -> Result<Option<RegistryId>, ApiError> {
    let Some(text) = query.text("registry")? else { return Ok(None) };
    let known: Vec<&str> = work.hosts.keys().map(RegistryId::as_str).collect();
    match text.parse::<RegistryId>().ok().filter(|id| work.hosts.contains_key(id)) {
        Some(id) => Ok(Some(id)),
        None => Err(ApiError::query(FieldError::not_one_of("registry", text, &known))),
    }
}

/// `GET /v1/rotations`.
pub async fn rotations(backend: Data<Backend>, query: Query) -> Answer {
    list_of(backend.get()?, None, &query).await
}

/// `GET /v1/attention`.
pub async fn attention(backend: Data<Backend>, query: Query) -> Answer {
    let work = backend.get()?;
    let mut faults = Faults::default();
    let filter = AttentionFilter {
        kind: faults.take(single::<AttentionKind>(&query, "kind")),
        now: work.deps.clock.now(),
        stuck_after: work.deps.stuck_after(),
    };
    let (from, limit) = (faults.take(query.cursor()), faults.take(query.limit()));
    faults.none()?;
    let listed = work.deps.store.attention(&filter, from.as_ref(), limit).await;
    let Page { items, next, total_count } = listed.map_err(|error| store(&error))?;
    let items = items.into_iter().map(Into::into).collect();
    let pagination = Pagination::new(next.as_ref(), total_count);
    answer::json(StatusCode::OK, &AttentionList { items, pagination })
}
