//! What happened. An event is a fact: `apply` never refuses one.

use strum::{AsRefStr, EnumDiscriminants, IntoStaticStr, VariantArray};

use super::model::{
    Account, Call, Consumer, End, GoneHow, Pause, Quarantine, Refusal, RetireReason, Rotation,
    Schedule, Slot, Trouble,
};
use super::policy::OnDeadline;
use crate::ids::{AccountId, CallToken, ClusterId, Generation, RegistryId};
use crate::time::Timestamp;

/// One fact about a cluster's pull secret. Each becomes one audit row and one log line.
#[derive(Debug, Clone, PartialEq, EnumDiscriminants, AsRefStr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(name(EventName), derive(VariantArray, Hash))]
pub enum Event {
    /// A pull secret was asked for. The first one makes the record.
    IssueAccepted {
        /// The cluster.
        cluster_id: ClusterId,
        /// The set from now on.
        registries: Vec<RegistryId>,
        /// The counter as it stood, for a record that is new.
        last_generation: Generation,
        /// When.
        at: Timestamp,
    },
    /// The first set, not served yet, grows.
    RegistriesAdded {
        /// The set from now on.
        registries: Vec<RegistryId>,
        /// When.
        at: Timestamp,
    },
    /// A generation begins: its number is spent.
    GenerationStarted {
        /// The number.
        generation: Generation,
        /// When.
        at: Timestamp,
    },
    /// An account was named.
    AccountPlanned {
        /// The account, in phase `planned`.
        account: Box<Account>,
    },
    /// A call will be made.
    CallAnnounced {
        /// For which account.
        account_id: AccountId,
        /// Which call.
        call: Call,
        /// Its token.
        token: CallToken,
        /// When.
        at: Timestamp,
    },
    /// A call ended without saying anything final about the account.
    CallFailed {
        /// Of which account.
        account_id: AccountId,
        /// Which call.
        call: Call,
        /// The trouble from now on.
        trouble: Trouble,
        /// When the next call is due.
        next_attempt_at: Timestamp,
    },
    /// A call could not be made: its registry is blocked or busy.
    CallDeferred {
        /// Of which account.
        account_id: AccountId,
        /// Which call.
        call: Call,
        /// The trouble from now on.
        trouble: Trouble,
        /// When it is tried again.
        next_attempt_at: Timestamp,
    },
    /// The answer of a call was lost; for a create the account is marked as unanswered.
    CallLost {
        /// Of which account.
        account_id: AccountId,
        /// Which call.
        call: Call,
        /// The trouble from now on.
        trouble: Trouble,
        /// When the next call is due.
        next_attempt_at: Timestamp,
    },
    /// The registry said that the name is taken; whose it is has to be looked up.
    NameTaken {
        /// Of which account.
        account_id: AccountId,
        /// When.
        at: Timestamp,
    },
    /// The account exists and its secret is stored.
    AccountCreated {
        /// Which account.
        account_id: AccountId,
        /// The registry's own id.
        remote_id: Option<String>,
        /// The full login name.
        username: String,
        /// Found by a lookup after a lost answer.
        adopted: bool,
        /// When.
        at: Timestamp,
    },
    /// A login with it succeeded.
    AccountVerified {
        /// Which account.
        account_id: AccountId,
        /// The announcement of the call that proved it.
        at: Timestamp,
        /// When it is verified again while it is served.
        check_at: Option<Timestamp>,
    },
    /// The registry refused it for good.
    AccountRefused {
        /// Which account.
        account_id: AccountId,
        /// The registry's words, made safe.
        message: String,
        /// When.
        at: Timestamp,
    },
    /// Its name is spoilt.
    AccountBurnt {
        /// Which account.
        account_id: AccountId,
        /// When.
        at: Timestamp,
    },
    /// Its deletion is decided.
    DeletionDecided {
        /// Which account.
        account_id: AccountId,
        /// When.
        at: Timestamp,
    },
    /// It is gone.
    AccountGone {
        /// Which account.
        account_id: AccountId,
        /// How.
        how: GoneHow,
        /// When.
        at: Timestamp,
    },
    /// The registry does not let it go.
    AccountResidue {
        /// Which account.
        account_id: AccountId,
        /// The registry's words, made safe.
        message: String,
        /// The next daily try.
        next_attempt_at: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// A generation is handed out from now on. What was handed out before retires.
    GenerationServed {
        /// Which.
        generation: Generation,
        /// When the deadline of the dual-credential period that begins now is.
        deadline: Timestamp,
        /// What the deadline does.
        on_deadline: OnDeadline,
        /// When its accounts are verified again.
        check_at: Option<Timestamp>,
        /// When.
        at: Timestamp,
    },
    /// A rotation was accepted.
    RotationRequested {
        /// It, in phase `pending`.
        rotation: Box<Rotation>,
    },
    /// A partial rotation was accepted and waits for the running one, or one that waits takes more on.
    RotationQueued {
        /// It, in phase `pending`; its generations are known only when it begins.
        rotation: Box<Rotation>,
    },
    /// The rotation that waited will not begin.
    WaitingEnded {
        /// How it ends.
        end: End,
        /// When.
        at: Timestamp,
    },
    /// The cluster's own schedule changed.
    ScheduleChanged {
        /// What it is now.
        schedule: Box<Schedule>,
        /// The failed slot that is still to be tried again.
        slot: Option<Slot>,
        /// When.
        at: Timestamp,
    },
    /// The schedule wants the next rotation at another time.
    NextRotationMoved {
        /// Then.
        next_rotation_at: Option<Timestamp>,
        /// When.
        at: Timestamp,
    },
    /// All new accounts exist.
    AllCreated {
        /// When.
        at: Timestamp,
    },
    /// Somebody was seen with a generation.
    ConsumerSeen {
        /// Who, with what.
        consumer: Consumer,
        /// The account that was presented, where one was.
        account_id: Option<AccountId>,
        /// A consumer that makes room because it was not seen for long.
        forgotten: Option<(super::model::EvidenceSource, String)>,
    },
    /// The generation that is no longer served is to be deleted, after one more verification of the served.
    RetirementDecided {
        /// By whom or what.
        why: RetireReason,
        /// When.
        at: Timestamp,
    },
    /// The credential that was to be deleted was seen in use again: back to the dual-credential period.
    AdoptionWithdrawn {
        /// When.
        at: Timestamp,
    },
    /// A verification says that a served account is dead. Registries answer stale: it is asked again.
    DriftSuspected {
        /// Which account.
        account_id: AccountId,
        /// When.
        at: Timestamp,
    },
    /// A served account was found dead; nothing is deleted.
    DriftFound {
        /// Which account.
        account_id: AccountId,
        /// When.
        at: Timestamp,
    },
    /// All served accounts are alive again.
    DriftCleared {
        /// When.
        at: Timestamp,
    },
    /// An operator moved the deadline.
    DeadlineMoved {
        /// To.
        deadline: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// The old generation is wanted back; its accounts are verified first.
    RollbackRequested {
        /// When.
        at: Timestamp,
    },
    /// The old generation is dead: no rollback. The deadline holds from now on.
    RollbackRefused {
        /// The dead account.
        account_id: AccountId,
        /// When.
        at: Timestamp,
    },
    /// The new generation is to be deleted.
    RemovalDecided {
        /// How the rotation ends then.
        end: End,
        /// When.
        at: Timestamp,
    },
    /// The rotation is over.
    RotationEnded {
        /// How.
        end: End,
        /// A scheduled slot that has to be tried again.
        slot: Option<Slot>,
        /// Until when dead accounts are not tried to be replaced.
        reissue_pause: Option<Pause>,
        /// When.
        at: Timestamp,
    },
    /// A registry refused: the record is `denied`.
    IssueDenied {
        /// Which, and its words.
        refusal: Refusal,
        /// When.
        at: Timestamp,
    },
    /// Trouble lasted too long: the record is `failed`.
    IssueFailed {
        /// Which, and the trouble.
        refusal: Refusal,
        /// When.
        at: Timestamp,
    },
    /// Every account is to be deleted.
    RevocationRequested {
        /// When.
        at: Timestamp,
    },
    /// Every account is gone.
    Revoked {
        /// When.
        at: Timestamp,
    },
    /// The registry said "gone" too early after a lost create to be believed; it is asked again.
    GoneUnsettled {
        /// Which account.
        account_id: AccountId,
        /// When its word will count.
        again_at: Timestamp,
    },
    /// The database was restored: no account from before is taken at its row's word.
    Doubted {
        /// When the restore was noticed.
        restored_at: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// Accounts that wait for a late or daily look are tried again at once.
    RetryRequested {
        /// When.
        at: Timestamp,
    },
    /// The record goes; its generation counter stays.
    Removed {
        /// When.
        at: Timestamp,
    },
    /// The credential stands still.
    Quarantined {
        /// Since when, until when.
        quarantine: Quarantine,
    },
    /// It goes on.
    Released {
        /// When.
        at: Timestamp,
    },
}

impl Event {
    /// The account that it is about, where it is about one.
    #[must_use]
    pub fn account_id(&self) -> Option<AccountId> {
        match self {
            Self::AccountPlanned { account } => Some(account.id),
            Self::ConsumerSeen { account_id, .. } => *account_id,
            Self::CallAnnounced { account_id, .. }
            | Self::CallFailed { account_id, .. }
            | Self::CallDeferred { account_id, .. }
            | Self::CallLost { account_id, .. }
            | Self::NameTaken { account_id, .. }
            | Self::AccountCreated { account_id, .. }
            | Self::AccountVerified { account_id, .. }
            | Self::AccountRefused { account_id, .. }
            | Self::AccountBurnt { account_id, .. }
            | Self::DeletionDecided { account_id, .. }
            | Self::AccountGone { account_id, .. }
            | Self::GoneUnsettled { account_id, .. }
            | Self::AccountResidue { account_id, .. }
            | Self::DriftSuspected { account_id, .. }
            | Self::DriftFound { account_id, .. }
            | Self::RollbackRefused { account_id, .. } => Some(*account_id),
            Self::IssueAccepted { .. }
            | Self::GenerationStarted { .. }
            | Self::GenerationServed { .. }
            | Self::RotationRequested { .. }
            | Self::RegistriesAdded { .. }
            | Self::RotationQueued { .. }
            | Self::WaitingEnded { .. }
            | Self::ScheduleChanged { .. }
            | Self::NextRotationMoved { .. }
            | Self::AllCreated { .. }
            | Self::RetirementDecided { .. }
            | Self::AdoptionWithdrawn { .. }
            | Self::DriftCleared { .. }
            | Self::DeadlineMoved { .. }
            | Self::RollbackRequested { .. }
            | Self::RemovalDecided { .. }
            | Self::RotationEnded { .. }
            | Self::IssueDenied { .. }
            | Self::IssueFailed { .. }
            | Self::RevocationRequested { .. }
            | Self::Revoked { .. }
            | Self::Doubted { .. }
            | Self::RetryRequested { .. }
            | Self::Removed { .. }
            | Self::Quarantined { .. }
            | Self::Released { .. } => None,
        }
    }

    /// The generation that it names itself.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        if let Self::GenerationStarted { generation, .. }
        | Self::GenerationServed { generation, .. } = self
        {
            return Some(*generation);
        }
        if let Self::RotationRequested { rotation } = self {
            return Some(rotation.to);
        }
        if let Self::ConsumerSeen { consumer, .. } = self {
            return Some(consumer.generation);
        }
        None
    }
}
