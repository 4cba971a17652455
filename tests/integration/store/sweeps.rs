//! Sweeps: whose turn it is, what is remembered, what may be deleted, and the latch.

use std::sync::Arc;

use hyperfleet_credentials::ids::{CallToken, ClusterId, Generation, RegistryId};
use hyperfleet_credentials::state::pull_secret::{AccountPhase, Command};
use hyperfleet_credentials::state::sweep::{Beyond, Comparison, Standing, Unknown, Whose};
use hyperfleet_credentials::store::{
    AttentionFilter, AttentionKind, AuditFilter, AuditRow, DeletionAnswer, DeletionCall, Store,
    StoreError, SweepCommit, UnknownAccount,
};
use hyperfleet_credentials::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::backends::conforms;
use super::script::{HOUR, MINUTE, STUCK_AFTER, Script, served, start};

conforms!(
    a_registry_is_compared_by_one_at_a_time,
    a_result_is_stored_by_whoever_holds_the_registry,
    what_is_unknown_keeps_its_first_time_until_it_is_settled,
    a_deletion_is_announced_once_and_answered_once,
    what_a_row_wants_is_never_decided_nor_announced,
    names_that_are_gone_are_known_for_ever,
    a_restore_raises_the_counters_wakes_everybody_and_holds_deletions,
    slugs_stand_for_the_clusters_that_have_them,
    a_timeline_is_noted,
);

fn quay() -> RegistryId {
    "quay".parse().unwrap()
}

fn row(action: &str) -> AuditRow {
    AuditRow {
        stream: "sweep/quay".to_owned(),
        at: start(),
        actor: "service:sweeper".to_owned(),
        action: action.to_owned(),
        cluster_id: None,
        rotation_id: None,
        account: None,
        registry_id: Some(quay()),
        generation: None,
        detail: json!({}),
        reason: None,
        request_id: None,
    }
}

const NAME: &str = "hyp-cls-a-g1-aaaaaaaaaa";

fn leftover(name: &str, first_seen_at: Timestamp) -> Unknown {
    Unknown {
        name: name.parse().unwrap(),
        remote_id: Some("7".to_owned()),
        cluster_id: Some("cls-a".parse().unwrap()),
        generation: Some(Generation(1)),
        recorded: false,
        first_seen_at,
        deletable_at: first_seen_at.plus(HOUR),
        delete: true,
    }
}

fn found(unknown: Vec<Unknown>) -> Comparison {
    Comparison { listed: 9, ours: 5, foreign: 3, unknown, ..Comparison::default() }
}

/// A whole sweep that found this, and the names that were decided.
async fn sweep(
    store: &Arc<dyn Store>,
    at: Timestamp,
    found: &Comparison,
    delete: &[&str],
) -> Vec<String> {
    let holder = Uuid::now_v7();
    assert_eq!(store.begin_sweep(&quay(), holder, at, at.plus(MINUTE), false).await, Ok(true));
    let id = quay();
    let commit = SweepCommit {
        registry_id: &id,
        holder,
        started_at: at,
        at,
        due_at: at.plus(HOUR),
        found,
        audit: vec![row("swept")],
        decisions: delete.iter().map(|name| ((*name).to_owned(), row("decided"))).collect(),
        restored: (!found.beyond.is_empty()).then(|| ("accounts".to_owned(), row("restored"))),
    };
    store.end_sweep(&commit).await.unwrap().decided
}

fn call(name: &str, at: Timestamp) -> DeletionCall {
    let token = CallToken(Uuid::now_v7());
    DeletionCall { registry_id: quay(), name: name.to_owned(), token, at, lost_at: at.plus(MINUTE) }
}

async fn told(store: &Arc<dyn Store>, action: &str) -> usize {
    let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
    store.list_audit(&filter, None, 100).await.unwrap().items.len()
}

async fn remembered(store: &Arc<dyn Store>) -> Vec<UnknownAccount> {
    store.unknown_accounts(&quay(), "", 100).await.unwrap()
}

async fn a_registry_is_compared_by_one_at_a_time(store: Arc<dyn Store>) {
    let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
    let now = start();
    store.plan_sweeps(&[(quay(), now.plus(HOUR))]).await.unwrap();
    store.plan_sweeps(&[(quay(), now.plus(MINUTE))]).await.unwrap();
    let states = store.sweep_states().await.unwrap();
    assert_eq!((states.len(), states[0].due_at), (1, now.plus(HOUR)), "a start moves nothing");
    assert_eq!(store.due_sweeps(now).await, Ok(vec![]));
    let until = now.plus(MINUTE);
    assert_eq!(store.begin_sweep(&quay(), one, now, until, true).await, Ok(false), "not due");
    assert_eq!(store.begin_sweep(&quay(), one, now, until, false).await, Ok(true));
    assert_eq!(store.begin_sweep(&quay(), other, now, until, false).await, Ok(false));
    let due = now.plus(HOUR);
    assert_eq!(store.due_sweeps(due).await, Ok(vec![quay()]), "its holder is taken for dead");
    assert_eq!(store.begin_sweep(&quay(), other, due, due.plus(MINUTE), true).await, Ok(true));
    assert_eq!(store.due_sweeps(due).await, Ok(vec![]));
    // Whoever lost it changes nothing any more.
    store.abandon_sweep(&quay(), one, due, Some((due, "late"))).await.unwrap();
    assert_eq!(store.begin_sweep(&quay(), one, due, due.plus(MINUTE), false).await, Ok(false));
    store.abandon_sweep(&quay(), other, due, Some((due.plus(HOUR), "503"))).await.unwrap();
    let state = store.sweep_states().await.unwrap().remove(0);
    assert_eq!(state.failed, Some((due, "503".to_owned())));
    assert_eq!((state.due_at, state.lease_until, state.last), (due.plus(HOUR), None, None));
}

async fn a_result_is_stored_by_whoever_holds_the_registry(store: Arc<dyn Store>) {
    let now = start();
    sweep(&store, now, &found(vec![leftover(NAME, now)]), &[]).await;
    let state = store.sweep_states().await.unwrap().remove(0);
    let last = state.last.unwrap();
    assert_eq!((last.listed, last.ours, last.unknown, last.foreign), (9, 5, 1, 3));
    assert_eq!((last.started_at, last.finished_at, state.due_at), (now, now, now.plus(HOUR)));
    let id = quay();
    let comparison = found(Vec::new());
    let commit = SweepCommit {
        registry_id: &id,
        holder: Uuid::now_v7(),
        started_at: now,
        at: now,
        due_at: now,
        found: &comparison,
        audit: vec![row("swept")],
        decisions: vec![(NAME.to_owned(), row("decided"))],
        restored: None,
    };
    assert_eq!(store.end_sweep(&commit).await, Err(StoreError::LeaseLost));
    assert_eq!((told(&store, "swept").await, told(&store, "decided").await), (1, 0));
}

async fn what_is_unknown_keeps_its_first_time_until_it_is_settled(store: Arc<dyn Store>) {
    let now = start();
    sweep(&store, now, &found(vec![leftover(NAME, now)]), &[]).await;
    let later = now.plus(HOUR);
    // Another replica takes it for new.
    sweep(&store, later, &found(vec![leftover(NAME, later)]), &[]).await;
    let known = remembered(&store).await;
    assert_eq!((known.len(), known[0].first_seen_at), (1, now));
    assert_eq!(known[0].remote_id.as_deref(), Some("7"));
    assert_eq!(known[0].cluster_id, Some("cls-a".parse().unwrap()));
    assert_eq!((known[0].generation, known[0].deletion.clone()), (Some(Generation(1)), None));
    let settled = Comparison { settled: vec![NAME.to_owned()], ..found(Vec::new()) };
    sweep(&store, later, &settled, &[]).await;
    assert_eq!(remembered(&store).await, []);
    sweep(&store, later, &found(vec![leftover(NAME, later)]), &[]).await;
    assert_eq!(remembered(&store).await[0].first_seen_at, later, "it begins anew");
}

async fn a_deletion_is_announced_once_and_answered_once(store: Arc<dyn Store>) {
    let now = start();
    let first = call(NAME, now);
    sweep(&store, now, &found(vec![leftover(NAME, now)]), &[]).await;
    assert_eq!(store.announce_deletion(&first, &row("call_announced")).await, Ok(false));
    assert_eq!(store.due_deletions(&quay(), now, 10).await, Ok(vec![]), "nobody has decided");
    assert_eq!(sweep(&store, now, &found(vec![leftover(NAME, now)]), &[NAME]).await, [NAME]);
    let again = sweep(&store, now, &found(vec![leftover(NAME, now)]), &[NAME]).await;
    assert_eq!(again, Vec::<String>::new(), "it is decided already");
    assert_eq!(store.due_deletions(&quay(), now, 10).await.unwrap().len(), 1);
    assert_eq!(store.announce_deletion(&first, &row("call_announced")).await, Ok(true));
    let second = call(NAME, now);
    assert_eq!(store.announce_deletion(&second, &row("call_announced")).await, Ok(false));
    assert_eq!(store.is_deletion_current(&quay(), NAME, first.token).await, Ok(true));
    assert_eq!(store.is_deletion_current(&quay(), NAME, second.token).await, Ok(false));
    // While it runs it is not forgotten, even when it is not listed any more.
    let settled = Comparison { settled: vec![NAME.to_owned()], ..found(Vec::new()) };
    sweep(&store, now, &settled, &[]).await;
    assert_eq!(store.due_deletions(&quay(), now, 10).await, Ok(vec![]));
    let lost = store.due_deletions(&quay(), first.lost_at, 10).await.unwrap().remove(0);
    let deletion = lost.deletion.unwrap();
    assert_eq!((deletion.call, deletion.attempts), (Some((first.token, now)), 1));
    let later = now.plus(HOUR);
    let again = DeletionAnswer::Again { at: later, error: "lost".to_owned() };
    assert_eq!(store.answer_deletion(&first, &again, &row("call_answered")).await, Ok(true));
    let gone = DeletionAnswer::Gone;
    let late = store.answer_deletion(&first, &gone, &row("call_answered")).await;
    assert_eq!(late, Ok(false), "its token is not current any more");
    let third = call(NAME, later);
    assert_eq!(store.announce_deletion(&third, &row("call_announced")).await, Ok(true));
    let known = remembered(&store).await.remove(0).deletion.unwrap();
    assert_eq!((known.attempts, known.last_error.as_deref()), (2, Some("lost")));
    assert_eq!(store.answer_deletion(&third, &gone, &row("call_answered")).await, Ok(true));
    assert_eq!(remembered(&store).await, []);
    assert_eq!(told(&store, "call_announced").await, 2);
    assert_eq!(told(&store, "call_answered").await, 2);
}

/// The served account of a cluster at Quay.
fn account_of(script: &Script) -> String {
    let accounts = &script.last.as_ref().unwrap().accounts;
    accounts.iter().find(|account| account.registry_id == quay()).unwrap().name.to_string()
}

async fn what_a_row_wants_is_never_decided_nor_announced(store: Arc<dyn Store>) {
    let now = start();
    let script = served(&store, "cls-a").await;
    let name = account_of(&script);
    let unknown = || found(vec![leftover(&name, now)]);
    sweep(&store, now, &unknown(), &[]).await;
    assert_eq!(sweep(&store, now, &unknown(), &[&name]).await, Vec::<String>::new());
    assert_eq!(store.due_deletions(&quay(), now, 10).await, Ok(vec![]));
    // Nor when the row is of another registry: it may have got another id.
    let accounts = &script.last.as_ref().unwrap().accounts;
    let other = accounts.iter().find(|it| it.registry_id != quay()).unwrap().name.to_string();
    let unknown = || found(vec![leftover(&other, now)]);
    let named = store.named_accounts(&quay(), std::slice::from_ref(&other)).await.unwrap();
    assert_eq!((named.len(), named[0].standing), (1, Standing::Wanted));
    sweep(&store, now, &unknown(), &[]).await;
    assert_eq!(sweep(&store, now, &unknown(), &[&other]).await, Vec::<String>::new());
    let (stores, mut script) = ([Arc::clone(&store)], Script::new("cls-b", 9));
    sweep(&store, now, &found(vec![leftover(NAME, now)]), &[]).await;
    assert_eq!(sweep(&store, now, &found(vec![leftover(NAME, now)]), &[NAME]).await, [NAME]);
    assert!(script.command(&stores, &script.issue()).await);
    let first = call(NAME, now);
    assert_eq!(store.announce_deletion(&first, &row("call_announced")).await, Ok(true));
    assert_eq!(told(&store, "call_announced").await, 1 + told_by_steps(&store).await);
}

/// Announcements of the machine's own.
async fn told_by_steps(store: &Arc<dyn Store>) -> usize {
    let filter =
        AuditFilter { action: Some("call_announced".to_owned()), ..AuditFilter::default() };
    let rows = store.list_audit(&filter, None, 100).await.unwrap().items;
    rows.iter().filter(|event| event.row.stream != "sweep/quay").count()
}

async fn names_that_are_gone_are_known_for_ever(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    let mut script = served(&store, "cls-a").await;
    let name = account_of(&script);
    let ask = [name.clone(), "hyp-nobody-g1-aaaaaaaaaa".to_owned()];
    let named = store.named_accounts(&quay(), &ask).await.unwrap();
    assert_eq!((named.len(), named[0].standing), (1, Standing::Wanted));
    let serving = store.serving_accounts(&quay(), "", 10).await.unwrap();
    assert_eq!((serving.len(), serving[0].name.as_str()), (1, name.as_str()));
    assert!(serving[0].created_at.is_some() && serving[0].verified_at.is_some());
    assert_eq!(store.serving_accounts(&quay(), &name, 10).await, Ok(vec![]));
    script.command(&stores, &Command::Revoke).await;
    script.settle(&stores).await;
    assert_eq!(store.serving_accounts(&quay(), "", 10).await, Ok(vec![]));
    script.now = script.now.plus(91 * 24 * HOUR);
    script.command(&stores, &Command::Tick).await;
    assert_eq!(script.last, None, "the record is removed");
    let named = store.named_accounts(&quay(), &ask).await.unwrap();
    assert!(matches!(named[0].standing, Standing::Gone { at: Some(_) }), "{named:?}");
    assert_eq!(named[0].cluster_id, script.cluster_id);
    // So a zombie of that name may be deleted.
    let now = script.now;
    sweep(&store, now, &found(vec![leftover(&name, now)]), &[]).await;
    assert_eq!(sweep(&store, now, &found(vec![leftover(&name, now)]), &[&name]).await, [name]);
}

async fn a_restore_raises_the_counters_wakes_everybody_and_holds_deletions(store: Arc<dyn Store>) {
    let script = served(&store, "cls-a").await;
    let now = script.now;
    sweep(&store, now, &found(vec![leftover(NAME, now)]), &[]).await;
    assert_eq!(sweep(&store, now, &found(vec![leftover(NAME, now)]), &[NAME]).await, [NAME]);
    assert_eq!(store.restored().await, Ok(None));
    let of = |id: &str, generation| Beyond {
        whose: Whose::Cluster(id.parse().unwrap()),
        generation: Generation(generation),
    };
    let beyond = vec![of("cls-a", 7), of("cls-new", 3)];
    let other = "hyp-cls-a-g7-bbbbbbbbbb";
    let comparison = Comparison { beyond, ..found(vec![leftover(other, now)]) };
    assert_eq!(sweep(&store, now, &comparison, &[other]).await, Vec::<String>::new());

    let ids: Vec<ClusterId> = ["cls-a", "cls-new", "cls-none"].map(|id| id.parse().unwrap()).into();
    let mut counters = store.generation_counters(&ids).await.unwrap();
    counters.sort();
    assert_eq!(counters, [(ids[0].clone(), Generation(7)), (ids[1].clone(), Generation(3))]);
    let loaded = store.load(&ids[0]).await.unwrap();
    assert_eq!((loaded.last_generation, loaded.version), (Generation(7), script.version + 1));
    assert_eq!(loaded.record.unwrap().last_generation, Generation(7));
    let new = store.load(&ids[1]).await.unwrap();
    assert_eq!((new.record, new.last_generation), (None, Generation(3)));
    assert_eq!(store.due_count(now).await, Ok(1), "who was at rest is woken");
    assert_eq!(store.due_sweeps(now).await, Ok(vec![quay()]), "and registries are compared");

    let restored = store.restored().await.unwrap().unwrap();
    assert!(restored.is_latched());
    assert_eq!((restored.restored_at, restored.reason.as_str()), (now, "accounts"));
    let filter = |kind| AttentionFilter { kind, now, stuck_after: STUCK_AFTER };
    let items = store.attention(&filter(Some(AttentionKind::Restored)), None, 10).await.unwrap();
    assert_eq!((items.items.len(), items.items[0].since), (1, now));
    assert_eq!(items.items[0].cluster_id, None);
    assert_eq!(store.attention(&filter(None), None, 10).await.unwrap().total_count, Some(1));
    let first = call(NAME, now);
    assert_eq!(store.announce_deletion(&first, &row("call_announced")).await, Ok(false));
    assert!(!store.latch_restored(now, "again", &row("restored")).await.unwrap());

    let later = now.plus(HOUR);
    let done = store.acknowledge_restore(later, "ops", &row("acknowledged")).await.unwrap();
    let done = done.unwrap();
    assert_eq!((done.acknowledged_at, done.acknowledged_by.as_deref()), (Some(later), Some("ops")));
    let twice = store.acknowledge_restore(later, "ops", &row("acknowledged")).await;
    assert_eq!(twice, Ok(None));
    assert_eq!((told(&store, "restored").await, told(&store, "acknowledged").await), (1, 1));
    let first = call(NAME, later);
    assert_eq!(store.announce_deletion(&first, &row("call_announced")).await, Ok(true));
    assert!(store.latch_restored(later, "again", &row("restored")).await.unwrap());
    assert_eq!(store.is_deletion_current(&quay(), NAME, first.token).await, Ok(false));
    let accounts = store.load(&ids[0]).await.unwrap().record.unwrap().accounts;
    assert!(accounts.iter().all(|account| account.phase == AccountPhase::Serving));
}

async fn slugs_stand_for_the_clusters_that_have_them(store: Arc<dyn Store>) {
    for id in ["cls-a", "production-cluster-1", "production-cluster-2"] {
        served(&store, id).await;
    }
    let slugs = ["cls-a", "cls", "production-clust"].map(str::to_owned);
    let mut counters = store.slug_counters(&slugs).await.unwrap();
    counters.sort();
    let one = Generation(1);
    assert_eq!(counters, [("cls-a".to_owned(), one), ("production-clust".to_owned(), one)]);
    let whose = Whose::Slug("production-clust".to_owned());
    let beyond = vec![Beyond { whose, generation: Generation(5) }];
    sweep(&store, start(), &Comparison { beyond, ..found(Vec::new()) }, &[]).await;
    counters = store.slug_counters(&slugs).await.unwrap();
    counters.sort();
    assert_eq!(counters[1].1, Generation(5));
    assert_eq!(counters[0].1, one);
}

async fn a_timeline_is_noted(store: Arc<dyn Store>) {
    store.plan_sweeps(&[(quay(), start().plus(HOUR))]).await.unwrap();
    assert_eq!(store.noted_timeline().await, Ok(None));
    store.note_timeline("7/1", None).await.unwrap();
    assert_eq!(store.due_sweeps(start()).await, Ok(vec![]));
    store.note_timeline("7/2", Some(start())).await.unwrap();
    assert_eq!(store.noted_timeline().await, Ok(Some("7/2".to_owned())));
    assert_eq!(store.due_sweeps(start()).await, Ok(vec![quay()]));
    // Only a database that counts its lives has one.
    if let Some(own) = store.timeline().await.unwrap() {
        let own: hyperfleet_credentials::state::sweep::Timeline = own.parse().unwrap();
        assert_eq!(own.number, 1);
    }
}
