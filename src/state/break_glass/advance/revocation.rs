//! How a revocation goes on.

use std::time::Duration;

use super::super::bundle::bundle_etag;
use super::super::effects::all_proved;
use super::super::model::{BreakGlass, Credential, Revocation, RevocationState, Signer, Subject};
use super::super::{Context, Event};
use super::changed;
use crate::ids::CredentialId;

/// A control lives for so long; another one follows as long as it is needed.
const CONTROL_LIFE: Duration = Duration::from_secs(3600);

pub(super) fn step(
    record: &BreakGlass,
    revocation: &Revocation,
    context: &mut Context<'_>,
) -> Option<Event> {
    match (revocation.state, revocation.signer) {
        // Its authorities have left the bundle with the request.
        (RevocationState::Pending, Signer::LocalCa) => Some(proving(record, revocation, context)),
        (RevocationState::Proving, _) => prove(record, revocation, context),
        (RevocationState::Pending, Signer::KubernetesCsr)
        | (
            RevocationState::Rotating | RevocationState::Completed | RevocationState::Superseded,
            _,
        ) => None,
    }
}

/// From now on the API servers have to say so, or where none can be asked, an adapter or the signer.
pub(in super::super) fn proving(
    record: &BreakGlass,
    revocation: &Revocation,
    context: &Context<'_>,
) -> Event {
    let endpoints = changed(&[], configured(record, revocation, context)).unwrap_or_default();
    let message = if is_signed(record, revocation)
        && endpoints.is_empty()
        && revocation.signer == Signer::LocalCa
    {
        let etag = bundle_etag(&record.cluster_id, revocation.bundle_version);
        format!(
            "waits for an adapter to confirm that the API servers run with trust bundle {etag} or a later one"
        )
    } else {
        String::new()
    };
    Event::ProvingBegan { revocation_id: revocation.id, endpoints, message, at: context.now }
}

fn configured<'a>(
    record: &BreakGlass,
    revocation: &Revocation,
    context: &Context<'a>,
) -> &'a [String] {
    let asked = record.revoked_by(revocation.id).any(|c| c.can_be_probed());
    if asked { &context.rules.endpoints } else { &[] }
}

fn is_signed(record: &BreakGlass, revocation: &Revocation) -> bool {
    record.revoked_by(revocation.id).any(|credential| credential.certificate.is_some())
}

/// With a signer that has one authority for all, a control is a credential of the new one: nobody's, and
/// without rights.
fn control(
    record: &BreakGlass,
    revocation: &Revocation,
    context: &mut Context<'_>,
) -> Option<Event> {
    let pending = |c: &Credential| c.control && c.state.name().is_pending();
    if revocation.endpoints.is_empty()
        || record.has_control(revocation.signer)
        || record.credentials.iter().any(pending)
    {
        return None;
    }
    let id = CredentialId(context.entropy.uuid(context.now));
    let control = Credential {
        username: format!("control-{}", context.entropy.letters(10)),
        expires_at: context.now.plus(CONTROL_LIFE),
        control: true,
        ..Credential::new(id, revocation.signer, "the service", context.now)
    };
    Some(Event::CredentialRequested { credential: Box::new(control) })
}

fn prove(record: &BreakGlass, revocation: &Revocation, context: &mut Context<'_>) -> Option<Event> {
    let (revocation_id, at) = (revocation.id, context.now);
    let Some(next) = record.revoked_by(revocation_id).next() else {
        return Some(Event::RevocationCompleted { revocation_id, at });
    };
    // Once everybody has agreed, a change of the configuration comes too late.
    let agreed = !revocation.endpoints.is_empty() && all_proved(&revocation.endpoints);
    if !agreed
        && let Some(endpoints) =
            changed(&revocation.endpoints, configured(record, revocation, context))
    {
        return Some(Event::EndpointsSet {
            subject: Subject::Revocation(revocation_id),
            endpoints,
        });
    }
    if !agreed && let Some(event) = control(record, revocation, context) {
        return Some(event);
    }
    let proved = match (revocation.endpoints.is_empty(), revocation.signer) {
        (false, _) => agreed,
        (true, _) if !is_signed(record, revocation) => true,
        (true, Signer::LocalCa) => record.confirmed_version >= revocation.bundle_version,
        // The signer has said that what it signed before is void.
        (true, Signer::KubernetesCsr) => true,
    };
    let credential_id = next.id;
    proved.then_some(Event::CredentialRevoked { credential_id, revocation_id, at })
}
