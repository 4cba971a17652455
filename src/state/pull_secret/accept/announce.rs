//! `Announce` and `Defer`: the owner is about to make a call, or cannot make it now.

use super::super::effects::effects;
use super::super::model::{Call, PullSecret};
use super::super::{Context, Event, Rejection};
use crate::ids::{AccountId, CallToken};
use crate::time::Timestamp;

/// Only a call that the state wants now may be announced.
pub(super) fn announce(
    record: &PullSecret,
    account_id: AccountId,
    call: Call,
    token: CallToken,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let wanted = effects(record, context.now).into_iter().any(|effect| {
        effect.account_id == account_id && effect.call == call && effect.due <= context.now
    });
    if !wanted {
        return Err(Rejection::NotCurrent);
    }
    Ok(vec![Event::CallAnnounced { account_id, call, token, at: context.now }])
}

/// The registry is blocked or busy: the account waits and loses no attempt.
pub(super) fn defer(
    record: &PullSecret,
    account_id: AccountId,
    until: Timestamp,
    reason: &str,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let wanted =
        effects(record, context.now).into_iter().find(|effect| effect.account_id == account_id);
    let (Some(effect), Some(account)) = (wanted, record.account(account_id)) else {
        return Err(Rejection::NotCurrent);
    };
    let trouble = account.trouble.put_off(reason, context.now);
    Ok(vec![Event::CallDeferred { account_id, call: effect.call, trouble, next_attempt_at: until }])
}
