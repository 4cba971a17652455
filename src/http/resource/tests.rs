//! One rotation's story, as clients see it.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use uuid::Uuid;

use super::*;
use crate::http::document::{Document, Entry};
use crate::ids::{AccountId, RotationId};
use crate::state::pull_secret::{
    Account, AccountPhase, Backoff, Consumer, End, EvidenceSource, OnDeadline, Policy, PullSecret,
    RecordState, Refusal, RetireReason, Rotation, RotationError, RotationPhase, RotationReason,
    Schedule, Scope, Served, Trouble,
};
use crate::store::RotationDetail;
use crate::time::Timestamp;

const HOUR: Duration = Duration::from_secs(3600);

fn at(hours: u32) -> Timestamp {
    "2026-11-30T00:00:00Z".parse::<Timestamp>().unwrap().plus(HOUR * hours)
}

fn account(registry: &str, generation: u32, phase: AccountPhase) -> Account {
    let seed = u128::from(generation) * 1000 + u128::from(registry.len() as u32);
    Account {
        id: AccountId(Uuid::from_u128(seed)),
        registry_id: registry.parse().unwrap(),
        name: format!("hyp-cls-1-g{generation}-k4t7mzq2ab").parse().unwrap(),
        born_generation: Generation(generation),
        phase,
        remote_id: None,
        username: Some(format!("org+hyp-cls-1-g{generation}-k4t7mzq2ab")),
        call: None,
        unanswered_create_at: None,
        trouble: Trouble::default(),
        next_attempt_at: at(0),
        planned_at: at(0),
        created_at: Some(at(generation)),
        verified_at: Some(at(generation)),
        last_used_at: None,
        gone_at: None,
        served_in: None,
        check_at: None,
        dead_looks: 0,
    }
}

fn rotation_in(phase: RotationPhase) -> Rotation {
    Rotation {
        id: RotationId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_00ab)),
        reason: RotationReason::Manual,
        force_immediate: false,
        scope: Scope::Whole,
        slot: None,
        from: Generation(3),
        to: Generation(4),
        phase,
        created_at: at(10),
        started_at: Some(at(10)),
        promoted_at: Some(at(11)),
        completed_at: None,
    }
}

fn dual(drifted: bool) -> RotationPhase {
    RotationPhase::DualCredentialPeriod {
        deadline: at(100),
        on_deadline: OnDeadline::Hold,
        drifted,
        rollback_at: None,
    }
}

fn record(state: RecordState, accounts: Vec<Account>) -> PullSecret {
    PullSecret {
        cluster_id: "cls-1".parse().unwrap(),
        state,
        state_since: at(11),
        registries: vec!["quay".parse().unwrap(), "rhit".parse().unwrap()],
        last_generation: Generation(4),
        accounts,
        consumers: vec![Consumer {
            source: EvidenceSource::Heartbeat,
            name: "default".to_owned(),
            generation: Generation(3),
            observed_at: at(12),
        }],
        ended: Vec::new(),
        created_at: at(0),
        last_rotated_at: None,
        next_rotation_at: Some(at(2000)),
        interval_from: None,
        schedule: Schedule::default(),
        slot: None,
        reissue_pause: None,
        waiting: None,
        quarantine: None,
    }
}

fn rotating(phase: RotationPhase, accounts: Vec<Account>) -> PullSecret {
    let served = Served { generation: Generation(4), since: at(11) };
    let rotation = Box::new(rotation_in(phase));
    record(RecordState::Rotating { served, rotation }, accounts)
}

fn both_generations() -> Vec<Account> {
    vec![
        account("quay", 3, AccountPhase::Retiring),
        account("rhit", 3, AccountPhase::Retiring),
        account("quay", 4, AccountPhase::Serving),
        account("rhit", 4, AccountPhase::Serving),
    ]
}

fn policy() -> Policy {
    Policy {
        interval: None,
        spread: 0.1,
        window: None,
        drift_interval: None,
        reissue: false,
        min_overlap: HOUR * 24,
        grace_period: HOUR * 168,
        on_deadline: OnDeadline::Hold,
        compromise_deadline: HOUR,
        quiet: HOUR,
        consumer_ttl: HOUR * 48,
        proof: vec![EvidenceSource::Heartbeat],
        retry: Backoff { initial: HOUR, factor: 2.0, max: HOUR, jitter: 0.0 },
        give_up_after: HOUR * 24,
        denied_after: HOUR * 48,
        failed_after: HOUR * 48,
        history_after: HOUR * 2000,
        registries: BTreeMap::new(),
    }
}

fn hosts() -> BTreeMap<RegistryId, String> {
    [("quay", "quay.io"), ("rhit", "registry.redhat.io")]
        .into_iter()
        .map(|(id, host)| (id.parse().unwrap(), host.to_owned()))
        .collect()
}

fn document() -> Document {
    let secret = SecretString::from("t");
    let hosts = ["quay.io".to_owned()];
    Document::render(&[Entry { hosts: &hosts, email: None, username: "u", secret: &secret }])
}

/// What the database says of a record's running rotation, or of another one of that cluster.
fn detail(record: &PullSecret, other: Option<Rotation>) -> RotationDetail {
    RotationDetail {
        rotation: other.unwrap_or_else(|| record.rotation().unwrap().clone()),
        accounts: record.accounts.clone(),
        consumers: record.consumers.clone(),
        served: record.served(),
    }
}

fn shown(record: &PullSecret, now: Timestamp) -> RotationResource {
    rotation(&record.cluster_id, &detail(record, None), Some(record), &policy(), now)
}

fn ended(end: End, record: &PullSecret) -> RotationResource {
    let mut ended = rotation_in(RotationPhase::Ended(end));
    (ended.id, ended.completed_at) = (RotationId(Uuid::from_u128(1)), Some(at(50)));
    rotation(&record.cluster_id, &detail(record, Some(ended)), Some(record), &policy(), at(60))
}

fn words(resource: &RotationResource) -> String {
    let word = |(id, word): (&RegistryId, &AccountWord)| {
        let word: &'static str = (*word).into();
        format!("{id} {word}")
    };
    resource.progress.registries.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_pull_secret_in_the_dual_period() {
    let record = rotating(dual(false), both_generations());
    let show = Show { document: Some(document()), credentials: true, hosts: &hosts() };
    insta::assert_json_snapshot!(pull_secret(&record, show));
}

#[test]
fn a_rotation_in_the_dual_period() {
    insta::assert_json_snapshot!(shown(&rotating(dual(false), both_generations()), at(12)));
}

#[test]
fn a_secret_is_shown_only_while_one_is_served() {
    for state in [
        RecordState::Issuing { generation: Some(Generation(4)) },
        RecordState::Revoking,
        RecordState::Denied(Refusal { registry_id: "quay".parse().unwrap(), message: "no".into() }),
    ] {
        let record = record(state, Vec::new());
        let show = Show { document: Some(document()), credentials: false, hosts: &hosts() };
        let value = serde_json::to_value(pull_secret(&record, show)).unwrap();
        assert!(value.get("pull_secret").is_none(), "{value}");
        assert!(value.get("credentials").is_none(), "{value}");
        assert_eq!(value["generation"], 0);
        assert_eq!(value["status"]["conditions"][0]["status"], "False");
        assert!(value["rotation"].is_null());
    }
}

#[test]
fn a_refusal_is_the_message() {
    let refusal = Refusal { registry_id: "quay".parse().unwrap(), message: "quota".into() };
    let record = record(RecordState::Denied(refusal), Vec::new());
    let show = Show { document: None, credentials: false, hosts: &hosts() };
    assert_eq!(pull_secret(&record, show).status_details.message, "quay: quota");
}

#[test]
fn overdue_begins_with_the_deadline() {
    let record = rotating(dual(false), both_generations());
    assert!(!shown(&record, at(99)).overdue);
    let late = shown(&record, at(100));
    assert!(late.overdue && !late.warnings.is_empty());
    assert_eq!(late.estimated_completion, Some(at(35)), "the switch and min_overlap");
}

#[test]
fn registries_follow_the_phase() {
    let denied = Account {
        trouble: Trouble { refused: true, ..Trouble::default() },
        ..account("rhit", 4, AccountPhase::Planned)
    };
    let creating = rotating(
        RotationPhase::CreatingCredentials,
        vec![account("quay", 4, AccountPhase::Creating), denied],
    );
    assert_eq!(words(&shown(&creating, at(12))), "quay creating, rhit denied");

    let burnt = rotating(
        RotationPhase::CreatingCredentials,
        vec![account("quay", 4, AccountPhase::Burnt), account("quay", 4, AccountPhase::Created)],
    );
    assert_eq!(words(&shown(&burnt, at(12))), "quay created");

    let phase = RotationPhase::RevokingOld {
        decided_at: at(40),
        why: RetireReason::Operator,
        deadline: at(100),
        on_deadline: OnDeadline::Hold,
    };
    let mut accounts = both_generations();
    accounts[0].phase = AccountPhase::Deleting;
    // What is gone is no longer in the record.
    accounts.remove(1);
    let revoking = shown(&rotating(phase, accounts), at(41));
    assert_eq!(words(&revoking), "quay revoking, rhit revoked");
    assert!(!revoking.progress.adopted && revoking.progress.new_credentials_verified);
}

fn active(accounts: Vec<Account>, seen_with: u32) -> PullSecret {
    let served = Served { generation: Generation(4), since: at(11) };
    let mut record = record(RecordState::Active { served }, accounts);
    record.consumers[0].generation = Generation(seen_with);
    record
}

#[test]
fn a_completed_rotation_is_about_what_went() {
    let serving = || {
        vec![account("quay", 4, AccountPhase::Serving), account("rhit", 4, AccountPhase::Serving)]
    };
    let clean = ended(End::Completed { old_credentials_revoked: true }, &active(serving(), 4));
    assert_eq!(words(&clean), "quay revoked, rhit revoked");
    assert!(clean.progress.adopted && clean.progress.old_credentials_revoked);
    assert_eq!((clean.estimated_completion, clean.warnings.len()), (None, 0));

    let left = serving().into_iter().chain([account("quay", 3, AccountPhase::Residue)]).collect();
    let residue = ended(End::Completed { old_credentials_revoked: false }, &active(left, 3));
    assert_eq!(words(&residue), "quay irrevocable, rhit revoked");
    assert!(!residue.progress.adopted && !residue.progress.old_credentials_revoked);
    assert_eq!(residue.warnings.len(), 1);
}

#[test]
fn a_rotation_that_did_not_complete_is_about_what_it_made() {
    let error = RotationError {
        code: "superseded".to_owned(),
        message: "by a compromise".to_owned(),
        registry_id: None,
    };
    let accounts = vec![
        account("quay", 3, AccountPhase::Serving),
        account("quay", 4, AccountPhase::Gone),
        account("rhit", 4, AccountPhase::Deleting),
    ];
    let cancelled = ended(End::Cancelled(Some(error)), &active(accounts, 4));
    assert_eq!(words(&cancelled), "quay revoked, rhit revoking");
    assert!(!cancelled.progress.adopted);
    assert_eq!(cancelled.error.unwrap().code, "superseded");
}

#[test]
fn a_revocation_has_one_word_per_registry() {
    let record = record(
        RecordState::Revoking,
        vec![
            account("quay", 3, AccountPhase::Residue),
            account("quay", 4, AccountPhase::Gone),
            account("old", 1, AccountPhase::Deleting),
        ],
    );
    let expected = serde_json::json!({
        "cluster_id": "cls-1", "state": "revoking",
        "registries": {"quay": "irrevocable", "rhit": "revoked", "old": "pending"},
    });
    assert_eq!(serde_json::to_value(revocation(&record)).unwrap(), expected);
}

#[test]
fn a_rollback_is_adopted_when_the_old_generation_is() {
    let back = RotationPhase::RollingBack { deadline: at(100), drifted: false, decided: None };
    let mut record = rotating(back, both_generations());
    let RecordState::Rotating { served, .. } = &mut record.state else { unreachable!() };
    *served = Served { generation: Generation(3), since: at(11) };
    assert!(shown(&record, at(60)).progress.adopted, "seen with what is served again");
    record.consumers[0].generation = Generation(4);
    assert!(!shown(&record, at(40)).progress.adopted);
    record.consumers[0].generation = Generation(3);
    assert!(ended(End::RolledBack, &active(Vec::new(), 3)).progress.adopted);
}

#[test]
fn a_warning_names_whom_it_waits_for() {
    let mut record = rotating(dual(false), both_generations());
    let waits = "waits for consumer default (heartbeat), last seen with generation 3";
    assert_eq!(shown(&record, at(13)).warnings, [waits]);
    let other = Consumer { name: "pool-b".to_owned(), ..record.consumers[0].clone() };
    record.consumers.insert(0, other);
    assert_eq!(shown(&record, at(13)).warnings, [format!("{waits}, and for 1 more")]);
    record.consumers.iter_mut().for_each(|consumer| consumer.generation = Generation(4));
    assert!(shown(&record, at(13)).warnings.is_empty());
}

#[test]
fn what_only_adds_is_about_the_new_account() {
    let kept =
        Account { served_in: Some(Generation(4)), ..account("quay", 3, AccountPhase::Serving) };
    let accounts = vec![kept, account("rhit", 4, AccountPhase::Serving)];
    let scope = Scope::Registries { added: vec!["rhit".parse().unwrap()], removed: Vec::new() };
    let record = active(accounts, 4);
    let mut added =
        rotation_in(RotationPhase::Ended(End::Completed { old_credentials_revoked: true }));
    (added.scope, added.completed_at) = (scope, Some(at(50)));
    let detail = detail(&record, Some(added));
    let shown = rotation(&record.cluster_id, &detail, Some(&record), &policy(), at(60));
    assert_eq!(words(&shown), "rhit verified");
    let show = Show { document: None, credentials: true, hosts: &hosts() };
    let credentials = pull_secret(&record, show).credentials.unwrap();
    assert!(credentials.iter().all(|credential| credential.generation == Generation(4)));
}
