//! What the audit is told: every call and its outcome, every read of a pull secret.

use std::collections::BTreeMap;
use std::time::Duration;

use hyperfleet_credentials::actors::audit::Caller;
use hyperfleet_credentials::actors::reads::{ReadLog, UnreadableError};
use hyperfleet_credentials::config::AuditReads;
use hyperfleet_credentials::ids::{Generation, RotationId};
use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Verb};
use hyperfleet_credentials::state::pull_secret::{
    Command, PullSecret, RotationPhase, RotationReason,
};
use hyperfleet_credentials::store::{AuditEvent, AuditFilter, Store};
use uuid::Uuid;

use super::world::{World, cluster};

const SOON: Duration = Duration::from_secs(30);

async fn all(store: &dyn Store, action: Option<&str>) -> Vec<AuditEvent> {
    let filter = AuditFilter { action: action.map(ToOwned::to_owned), ..AuditFilter::default() };
    let (mut events, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list_audit(&filter, cursor.as_ref(), 100).await.unwrap();
        events.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return events;
        }
    }
}

/// Announcements and answers by token.
async fn calls(world: &World) -> BTreeMap<String, (usize, usize)> {
    let mut calls: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for event in all(world.deps.store.as_ref(), None).await {
        let token = event.row.detail["token"].as_str().unwrap_or_default().to_owned();
        match event.row.action.as_str() {
            "call_announced" => calls.entry(token).or_default().0 += 1,
            "call_answered" => calls.entry(token).or_default().1 += 1,
            _ => {}
        }
    }
    calls
}

async fn assert_every_call_has_one_outcome(world: &World, what: &str) {
    let no_call = |record: Option<&PullSecret>| {
        record.is_none_or(|record| record.accounts.iter().all(|account| account.call.is_none()))
    };
    world.until("cls-1", no_call).await;
    let calls = calls(world).await;
    assert!(calls.len() >= 3, "{what}: {calls:?}");
    for (token, counted) in &calls {
        assert_eq!(*counted, (1, 1), "{what}: {token}");
    }
}

fn is_dual(record: Option<&PullSecret>) -> bool {
    let phase = record.and_then(|record| record.rotation()).map(|rotation| &rotation.phase);
    matches!(phase, Some(RotationPhase::DualCredentialPeriod { .. }))
}

#[actix_rt::test]
async fn every_announced_call_has_exactly_one_outcome() {
    let faults = [
        (Verb::Create, Fault::LostAfter),
        (Verb::Create, Fault::LostBefore),
        (Verb::Create, Fault::HangAfter),
        (Verb::Create, Fault::PanicAfter),
        (Verb::Create, Fault::Contrary),
        (Verb::Create, Fault::RateLimited(None)),
        (Verb::Verify, Fault::ServerError),
        (Verb::Verify, Fault::StaleInvalid),
        (Verb::Verify, Fault::Panic),
        (Verb::Lookup, Fault::Connect),
        (Verb::Revoke, Fault::LostAfter),
        (Verb::Revoke, Fault::Hang),
    ];
    for flavour in [Flavour::Readable, Flavour::ShownOnce, Flavour::Chosen] {
        let world = World::start(flavour).await;
        world.issued("cls-1").await;
        world.heartbeat("cls-1").await;
        for generation in 2..6 {
            for (verb, fault) in faults.iter().skip(generation % 3).step_by(3) {
                world.registry.next(*verb, fault.clone());
            }
            world.rotate("cls-1").await;
            world.until("cls-1", is_dual).await;
            world.heartbeat("cls-1").await;
            let ended = |record: Option<&PullSecret>| {
                record.is_some_and(|record| record.rotation().is_none())
            };
            world.until("cls-1", ended).await;
        }
        assert_every_call_has_one_outcome(&world, &format!("{flavour:?}")).await;
    }
}

#[actix_rt::test]
async fn overtaken_and_orphaned_calls_have_one_outcome_as_well() {
    let world = World::start(Flavour::Readable).await;
    world.issued("cls-1").await;
    // A compromise takes a rotation's place while its create hangs.
    world.registry.next(Verb::Create, Fault::HangAfter);
    world.rotate("cls-1").await;
    let rotation_id = RotationId(Uuid::now_v7());
    let reason = RotationReason::Compromise;
    let command = Command::Rotate { rotation_id, reason, force_immediate: true };
    world.execute("cls-1", command).await.unwrap();
    world.until("cls-1", |record| record.is_some_and(|it| it.rotation().is_none())).await;
    // The process ends during a deletion; the next one closes the call.
    world.registry.next(Verb::Revoke, Fault::HangAfter);
    let deletions = world.registry.calls(Verb::Revoke);
    world.execute("cls-1", Command::Revoke).await.unwrap();
    while world.registry.calls(Verb::Revoke) == deletions {
        tokio::task::yield_now().await;
    }
    let world = world.die_and_start_again().await;
    let gone = |record: Option<&PullSecret>| {
        record.is_none_or(|record| record.state.name().to_string() == "revoked")
    };
    world.until("cls-1", gone).await;
    assert_every_call_has_one_outcome(&world, "overtaken").await;
}

fn caller(n: usize) -> Caller {
    Caller {
        actor: format!("caller-{n}"),
        reason: None,
        request_id: Some(format!("req-{n}")),
        trace_id: None,
    }
}

#[actix_rt::test]
async fn reads_are_written_in_order_and_none_is_lost() {
    let world = World::start(Flavour::Readable).await;
    let reads = ReadLog::start(world.deps.clone(), AuditReads::Batched, 2000);
    for n in 0..1500 {
        reads.note(&cluster("cls-1"), Generation(7), caller(n)).await.unwrap();
    }
    assert!(reads.flush(SOON).await);
    let mut told = all(world.deps.store.as_ref(), Some("pull_secret_read")).await;
    told.reverse();
    assert_eq!(told.len(), 1500);
    for (n, event) in told.iter().enumerate() {
        assert_eq!(event.sequence, u64::try_from(n + 1).unwrap());
        assert_eq!(event.row.actor, format!("caller-{n}"));
        assert_eq!(event.row.generation, Some(Generation(7)));
        assert!(event.row.stream.starts_with("reads/"));
    }
}

#[actix_rt::test]
async fn a_read_is_stored_without_anybody_asking_for_it() {
    let world = World::start(Flavour::Readable).await;
    let reads = ReadLog::start(world.deps.clone(), AuditReads::Batched, 10);
    reads.note(&cluster("cls-1"), Generation(1), caller(1)).await.unwrap();
    let written = async {
        while all(world.deps.store.as_ref(), Some("pull_secret_read")).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, written).await.unwrap();
}

#[actix_rt::test]
async fn what_the_audit_cannot_take_is_refused() {
    let world = World::start(Flavour::Readable).await;
    let reads = ReadLog::start(world.deps.clone(), AuditReads::Batched, 4);
    world.deps.store.close().await;
    let id = cluster("cls-1");
    // One batch is being tried again and again, and four more fit behind it.
    let mut taken = 0;
    let refused = loop {
        match reads.note(&id, Generation(1), caller(taken)).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 2000, "the buffer has an end");
        tokio::task::yield_now().await;
    };
    assert!(matches!(refused, UnreadableError::Full), "{refused:?}");
    assert!(!reads.flush(Duration::from_millis(10)).await, "it says that something is missing");
}

#[actix_rt::test]
async fn a_read_before_the_answer_or_not_at_all() {
    let world = World::start(Flavour::Readable).await;
    let store = world.deps.store.clone();
    let off = ReadLog::start(world.deps.clone(), AuditReads::Off, 1);
    let sync = ReadLog::start(world.deps.clone(), AuditReads::Sync, 1);
    for n in 0..3 {
        off.note(&cluster("cls-1"), Generation(1), caller(n)).await.unwrap();
        assert_eq!(all(store.as_ref(), Some("pull_secret_read")).await.len(), n);
        sync.note(&cluster("cls-1"), Generation(1), caller(n)).await.unwrap();
    }
    store.close().await;
    let refused = sync.note(&cluster("cls-1"), Generation(1), caller(9)).await;
    assert!(matches!(refused, Err(UnreadableError::Store(_))), "{refused:?}");
}
