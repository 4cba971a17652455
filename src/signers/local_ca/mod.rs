//! The embedded signer: an authority of its own for each credential, so that each can be revoked alone.
//!
//! Signing is computation; nothing happens outside until a trust bundle is published. Knows nothing of where
//! what it makes is kept.

pub(super) mod mint;

use async_trait::async_trait;

use super::probe::ProbeClient;
use super::signing_request::SigningRequest;
use super::{
    AuthorityIntent, CallContext, Capabilities, CheckOutcome, CollectOutcome, Draft, DraftError,
    EndorseOutcome, Endpoint, Identity, Intent, MakeOutcome, ProbeOutcome, RotateOutcome, Rotation,
    Signer, SubmitOutcome, Trouble, TroubleKind,
};

/// The most credentials of one cluster: each is a certificate in a file that every API server reads.
pub const MOST_LIVE: usize = 64;

/// The embedded signer.
#[derive(Debug, Clone, Default)]
pub struct LocalCa {
    probe: ProbeClient,
}

impl LocalCa {
    /// A signer; it needs nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// What a signer that signs at once is never asked for.
fn nothing_to_do() -> Trouble {
    Trouble::new(TroubleKind::Misconfigured, "the embedded signer has no requests of its own")
}

#[async_trait]
impl Signer for LocalCa {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            signs_at_once: true,
            revokes_one: true,
            own_probe: true,
            needs_endorsement: false,
            most_live: Some(MOST_LIVE),
        }
    }

    fn vet(&self, intent: &Intent) -> Result<(), DraftError> {
        match &intent.signing_request {
            Some(pem) => Ok(SigningRequest::parse(pem).map(drop)?),
            None => Ok(()),
        }
    }

    fn draft(&self, intent: &Intent) -> Result<Draft, DraftError> {
        self.vet(intent)?;
        Ok(Draft { private_key: None, signing_request: None })
    }

    /// Each repetition makes everything anew; what an earlier one made was never published, so it is worth
    /// nothing.
    async fn submit(&self, call: &CallContext, intent: &Intent, _draft: &Draft) -> SubmitOutcome {
        if let Err(trouble) = call.may_act().await {
            return SubmitOutcome::Unavailable(trouble);
        }
        match mint::credential(intent) {
            Ok(signed) => SubmitOutcome::Signed(Box::new(signed)),
            Err(mint::MintError::SigningRequest(error)) => {
                SubmitOutcome::Refused(error.to_string())
            }
            Err(mint::MintError::NoRandomness) => SubmitOutcome::Unavailable(no_randomness()),
        }
    }

    async fn endorse(&self, _call: &CallContext, _intent: &Intent) -> EndorseOutcome {
        EndorseOutcome::Unavailable(nothing_to_do())
    }

    async fn collect(
        &self,
        _call: &CallContext,
        _intent: &Intent,
        _draft: &Draft,
    ) -> CollectOutcome {
        CollectOutcome::Unavailable(nothing_to_do())
    }

    async fn rotate(&self, _call: &CallContext, _rotation: &Rotation) -> RotateOutcome {
        RotateOutcome::Unavailable(nothing_to_do())
    }

    async fn check(&self, _call: &CallContext, _rotation: &Rotation) -> CheckOutcome {
        CheckOutcome::Unavailable(nothing_to_do())
    }

    async fn make(&self, call: &CallContext, intent: &AuthorityIntent) -> MakeOutcome {
        if let Err(trouble) = call.may_act().await {
            return MakeOutcome::Unavailable(trouble);
        }
        match mint::authority(intent) {
            Ok((authority, identity)) => MakeOutcome::Made { authority, identity },
            Err(_) => MakeOutcome::Unavailable(no_randomness()),
        }
    }

    async fn probe(
        &self,
        call: &CallContext,
        endpoint: &Endpoint,
        identity: &Identity,
    ) -> ProbeOutcome {
        self.probe.ask(call, endpoint, identity).await
    }
}

fn no_randomness() -> Trouble {
    Trouble::new(TroubleKind::Internal, "no key could be made")
}
