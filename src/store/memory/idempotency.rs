//! Requests that may be repeated.

use uuid::Uuid;

use super::super::idempotency::StoredRequest;
use super::super::{
    IdempotencyAnswer, IdempotencyKey, IdempotencyStart, IdempotencyState, StoreError,
};
use super::Tables;

impl Tables {
    pub(super) fn begin(&mut self, start: &IdempotencyStart) -> IdempotencyState {
        let known = self.requests.get(&start.key);
        let state = known.map_or(IdempotencyState::Begun, |request| request.meets(start));
        if state == IdempotencyState::Begun {
            self.requests.insert(start.key.clone(), StoredRequest::begun(start));
        }
        state
    }

    /// The request, while this attempt holds it and it has no answer.
    fn held(&mut self, key: &IdempotencyKey, holder: Uuid) -> Option<&mut StoredRequest> {
        let held =
            |request: &&mut StoredRequest| request.holder == holder && request.answer.is_none();
        self.requests.get_mut(key).filter(held)
    }

    pub(super) fn answer(&mut self, answer: &IdempotencyAnswer) -> Result<(), StoreError> {
        let request = self.held(&answer.key, answer.holder).ok_or(StoreError::LeaseLost)?;
        request.answer = Some((answer.status, answer.location.clone(), answer.resource_id.clone()));
        Ok(())
    }

    pub(super) fn release(&mut self, key: &IdempotencyKey, holder: Uuid) {
        if self.held(key, holder).is_some() {
            self.requests.remove(key);
        }
    }

    pub(super) fn correct(&mut self, key: &IdempotencyKey, holder: Uuid, status: Option<u16>) {
        let Some(request) = self.requests.get_mut(key).filter(|it| it.holder == holder) else {
            return;
        };
        match (status, &mut request.answer) {
            (Some(status), Some(answer)) => answer.0 = status,
            (Some(_), None) => {}
            (None, _) => {
                self.requests.remove(key);
            }
        }
    }
}
