//! `Announce` and `Defer`: the owner is about to make a call, or cannot make it now.

use super::super::effects::effects;
use super::super::model::{BreakGlass, Call, Subject};
use super::super::{Context, Event, Rejection};
use crate::ids::CallToken;
use crate::time::Timestamp;

/// Only a call that the state wants now may be announced.
pub(super) fn announce(
    record: &BreakGlass,
    subject: Subject,
    call: Call,
    token: CallToken,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let wanted = effects(record, context.now).into_iter().any(|effect| {
        effect.subject == subject && effect.call == call && effect.due <= context.now
    });
    if !wanted {
        return Err(Rejection::NotCurrent);
    }
    Ok(vec![Event::CallAnnounced { subject, call, token, at: context.now }])
}

/// The other side is blocked or busy: the subject waits and loses no attempt.
pub(super) fn defer(
    record: &BreakGlass,
    subject: Subject,
    until: Timestamp,
    reason: &str,
    context: &Context<'_>,
) -> Result<Vec<Event>, Rejection> {
    let wanted = effects(record, context.now).into_iter().find(|effect| effect.subject == subject);
    let effect = wanted.ok_or(Rejection::NotCurrent)?;
    let trouble = record.trouble_of(subject).put_off(reason, context.now);
    Ok(vec![Event::CallDeferred { subject, call: effect.call, trouble, next_attempt_at: until }])
}
