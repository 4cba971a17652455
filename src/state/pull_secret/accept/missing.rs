//! `Missing`: a listing of a registry does not hold an account that is handed out.

use super::super::model::{AccountPhase, PullSecret};
use super::super::{Context, Event};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// What is not served any more, or known to be dead, or was alive after the listing, is no news.
pub(super) fn missing(
    record: &PullSecret,
    account_id: AccountId,
    listed_at: Timestamp,
    context: &Context<'_>,
) -> Vec<Event> {
    let served = record.account(account_id).filter(|it| it.phase == AccountPhase::Serving);
    let verified_at = served.and_then(|account| account.verified_at);
    match verified_at {
        Some(verified_at) if verified_at < listed_at => {
            vec![Event::DriftFound { account_id, at: context.now }]
        }
        Some(_) | None => Vec::new(),
    }
}
