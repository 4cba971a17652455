//! Steps: the guard, what a commit writes along, what is due, what survives removal.

use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::ids::{AccountId, Generation};
use hyperfleet_credentials::state::pull_secret::{
    Account, AccountPhase, Command, GoneHow, RotationReason, StateName,
};
use hyperfleet_credentials::store::{
    AuditFilter, Claimed, Commit, Cursor, IdempotencyAnswer, IdempotencyKey, IdempotencyStart,
    IdempotencyState, Loaded, OutboxRow, Store, StoreError,
};
use hyperfleet_credentials::time::Timestamp;
use uuid::Uuid;

use super::backends::conforms;
use super::replicas::replica;
use super::script::{HOUR, MINUTE, Script, refused, sealed, served, start};

conforms!(
    a_cluster_that_nobody_heard_of_has_version_zero,
    a_lost_race_writes_nothing,
    a_second_first_commit_is_a_lost_race,
    counter_and_version_outlive_the_record,
    concurrent_commits_lose_nothing,
    due_work_is_handed_out_once_and_comes_back,
    a_new_version_is_not_rescheduled_by_an_old_word,
    a_name_is_never_given_twice,
    rows_do_not_get_lost,
    a_secret_needs_its_account,
    an_outbox_event_is_stored_once,
    the_audit_of_a_lost_race_is_lost_with_it,
    an_idempotent_answer_is_committed_with_its_command,
    a_request_runs_once_and_is_answered_again,
    an_answer_that_turned_out_otherwise_is_corrected,
    after_a_day_a_key_is_new_again,
    the_first_installation_keeps_the_database,
);

async fn a_cluster_that_nobody_heard_of_has_version_zero(store: Arc<dyn Store>) {
    let id = "cls-new".parse().unwrap();
    assert_eq!(store.load(&id).await, Ok(Loaded::default()));
    assert_eq!(store.version_of(&id).await, Ok(None));
    assert_eq!(store.served(&id).await, Ok(None));
    assert!(store.ping().await.is_ok());
    assert!(store.check_schema().await.is_ok());
}

async fn a_lost_race_writes_nothing(store: Arc<dyn Store>) {
    let mut script = served(&store, "cls-a").await;
    let before = script.loaded();
    let rotate = script.rotate(RotationReason::Manual, false);
    let (_, after) = script.decide(&rotate).unwrap();
    for version in [0, before.version - 1, before.version + 1] {
        let record = before.record.as_ref();
        let commit = Commit::new(&script.cluster_id, version, record, after.as_ref(), script.now);
        assert_eq!(refused(&store, commit).await, StoreError::Conflict);
    }
    assert_eq!(store.load(&script.cluster_id).await, Ok(before));
}

async fn a_second_first_commit_is_a_lost_race(store: Arc<dyn Store>) {
    let mut script = Script::new("cls-a", 1);
    let (_, after) = script.decide(&script.issue()).unwrap();
    let commit = Commit::new(&script.cluster_id, 0, None, after.as_ref(), script.now);
    assert_eq!(store.commit(commit.clone()).await, Ok(1));
    assert_eq!(refused(&store, commit).await, StoreError::Conflict);
}

async fn counter_and_version_outlive_the_record(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    let mut script = served(&store, "cls-a").await;
    let account = script.last.as_ref().unwrap().accounts[0].clone();
    let username = account.username.clone().unwrap();
    script.command(&stores, &Command::Revoke).await;
    script.settle(&stores).await;
    let version = script.version;
    assert_eq!(store.version_of(&script.cluster_id).await, Ok(Some((version, StateName::Revoked))));

    script.now = script.now.plus(91 * 24 * HOUR);
    assert!(script.command(&stores, &Command::Tick).await);
    let loaded = store.load(&script.cluster_id).await.unwrap();
    assert_eq!((loaded.record, loaded.version), (None, version + 1));
    assert_eq!(loaded.last_generation, Generation(1));
    // The tombstone still tells whose credential somebody presents.
    let presented = store.presented(&script.cluster_id, &username, "default").await.unwrap();
    let [presented] = presented.as_slice() else { panic!("{presented:?}") };
    assert_eq!((presented.account_id, presented.phase), (account.id, AccountPhase::Gone));
    assert_eq!((presented.state, presented.served), (None, None));
    assert!(presented.gone_at.is_some());

    script.command(&stores, &script.issue()).await;
    script.settle(&stores).await;
    let loaded = store.load(&script.cluster_id).await.unwrap();
    assert_eq!(loaded.record.unwrap().generation(), Generation(2));
    assert!(loaded.version > version + 1);
}

/// Many tasks raise the counter of one cluster; each retries until its own step is in.
async fn concurrent_commits_lose_nothing(store: Arc<dyn Store>) {
    const TASKS: u32 = 8;
    const STEPS: u32 = 5;
    let script = served(&store, "cls-a").await;
    let base = script.version;
    let raise = async |store: Arc<dyn Store>, id| {
        for _ in 0..STEPS {
            loop {
                let loaded = store.load(&id).await.unwrap();
                let before = loaded.record.unwrap();
                let mut after = before.clone();
                after.last_generation = after.last_generation.next();
                let (before, after) = (Some(&before), Some(&after));
                let commit = Commit::new(&id, loaded.version, before, after, start());
                match store.commit(commit).await {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error, StoreError::Conflict),
                }
            }
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(raise(Arc::clone(&store), script.cluster_id.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let loaded = store.load(&script.cluster_id).await.unwrap();
    assert_eq!(loaded.version, base + u64::from(TASKS * STEPS));
    assert_eq!(loaded.last_generation, Generation(1 + TASKS * STEPS));
}

async fn due_work_is_handed_out_once_and_comes_back(store: Arc<dyn Store>) {
    for (minute, id) in [(3, "cls-c"), (1, "cls-b"), (2, "cls-a"), (60, "cls-d")] {
        let mut script = Script::new(id, 1);
        let (_, after) = script.decide(&script.issue()).unwrap();
        let mut commit = Commit::new(&script.cluster_id, 0, None, after.as_ref(), script.now);
        commit.due_at = Some(start().plus(minute * MINUTE));
        store.commit(commit).await.unwrap();
    }
    let now = start().plus(10 * MINUTE);
    let push = now.plus(MINUTE);
    let me = replica(1);
    store.join(me, &[], now).await.unwrap();
    let names =
        |taken: Vec<Claimed>| taken.iter().map(|it| it.cluster_id.to_string()).collect::<Vec<_>>();
    assert_eq!(store.due_count(now).await, Ok(3));
    assert_eq!(names(store.due(now, 2, push, me).await.unwrap()), ["cls-b", "cls-a"]);
    assert_eq!(names(store.due(now, 2, push, me).await.unwrap()), ["cls-c"]);
    assert_eq!(store.due(now, 2, push, me).await, Ok(Vec::new()));
    assert_eq!(store.due_count(now).await, Ok(0));
    // Whoever took it died: it is due again.
    assert_eq!(names(store.due(push, 9, push, me).await.unwrap()).len(), 3);
}

async fn a_new_version_is_not_rescheduled_by_an_old_word(store: Arc<dyn Store>) {
    let script = served(&store, "cls-a").await;
    let id = &script.cluster_id;
    let (soon, owned) = (Some(script.now), script.ownership);
    assert_eq!(store.reschedule(id, script.version - 1, soon, owned).await, Ok(false));
    assert_eq!(store.due_count(script.now).await, Ok(0));
    assert_eq!(store.reschedule(id, script.version, soon, owned).await, Ok(true));
    assert_eq!(store.due_count(script.now).await, Ok(1));
    assert_eq!(store.reschedule(id, script.version, None, owned).await, Ok(true));
    assert_eq!(store.due_count(script.now.plus(9999 * HOUR)).await, Ok(0));
    assert_eq!(store.load(id).await, Ok(script.loaded()), "the version stays");
}

fn named(script: &mut Script, like: &Account) -> Account {
    let phase = AccountPhase::Planned;
    Account { id: AccountId(script.uuid()), phase, ..like.clone() }
}

async fn a_name_is_never_given_twice(store: Arc<dyn Store>) {
    let mut script = served(&store, "cls-a").await;
    let before = script.state().unwrap();
    let twin = named(&mut script, &before.accounts[0]);
    let mut after = before.clone();
    after.accounts.push(twin);
    let (id, version) = (&script.cluster_id, script.version);
    let commit = Commit::new(id, version, Some(&before), Some(&after), script.now);
    let error = refused(&store, commit).await;
    assert!(matches!(error, StoreError::Duplicate { .. }), "{error:?}");
    assert_eq!(store.load(id).await, Ok(script.loaded()));
}

async fn rows_do_not_get_lost(store: Arc<dyn Store>) {
    let script = served(&store, "cls-a").await;
    let before = script.state().unwrap();
    let mut after = before.clone();
    let lost = after.accounts.remove(0);
    let (id, version, now) = (&script.cluster_id, script.version, script.now);
    for after in [Some(&after), None] {
        let commit = Commit::new(id, version, Some(&before), after, now);
        let error = refused(&store, commit).await;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
    // But the last account may go in the step that removes the record.
    let mut commit = Commit::new(id, version, Some(&before), None, now);
    let all = before.accounts.iter().map(|account| (account.id, GoneHow::Deleted));
    commit.gone_how = all.collect();
    assert_eq!(store.commit(commit).await, Ok(version + 1));
    let username = lost.username.unwrap();
    let presented = store.presented(id, &username, "default").await.unwrap();
    assert_eq!(presented[0].gone_at, Some(now));
}

async fn a_secret_needs_its_account(store: Arc<dyn Store>) {
    let script = served(&store, "cls-a").await;
    let state = script.state();
    let (id, version) = (&script.cluster_id, script.version);
    let mut commit = Commit::new(id, version, state.as_ref(), state.as_ref(), script.now);
    let nobody = AccountId(Uuid::from_u128(1));
    commit.secrets = vec![(nobody, sealed(nobody, "k1"))];
    let error = refused(&store, commit).await;
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert_eq!(store.secret(nobody).await, Ok(None));
    assert_eq!(store.load(id).await, Ok(script.loaded()));
}

async fn an_outbox_event_is_stored_once(store: Arc<dyn Store>) {
    let script = served(&store, "cls-a").await;
    let state = script.state();
    let event = OutboxRow {
        event_id: Uuid::from_u128(7),
        kind: "served".to_owned(),
        subject: "cls-a".to_owned(),
        at: script.now,
        data: serde_json::json!({"generation": 1}),
    };
    let (id, version) = (&script.cluster_id, script.version);
    let mut commit = Commit::new(id, version, state.as_ref(), state.as_ref(), script.now);
    commit.outbox = vec![event];
    assert_eq!(store.commit(commit.clone()).await, Ok(version + 1));
    commit.expected_version += 1;
    let error = refused(&store, commit).await;
    assert!(matches!(error, StoreError::Duplicate { .. }), "{error:?}");
}

async fn the_audit_of_a_lost_race_is_lost_with_it(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    let mut script = served(&store, "cls-a").await;
    let all = AuditFilter::default();
    let told = |cursor: Option<Cursor>| {
        let (store, all) = (Arc::clone(&store), all.clone());
        async move { store.list_audit(&all, cursor.as_ref(), 100).await.unwrap() }
    };
    let before = told(None).await;
    let state = script.state();
    let row = before.items[0].row.clone();
    let (id, now) = (&script.cluster_id, script.now);
    let mut commit = Commit::new(id, 1, state.as_ref(), state.as_ref(), now);
    commit.audit = vec![row];
    assert_eq!(refused(&store, commit).await, StoreError::Conflict);
    assert_eq!(told(None).await, before);
    let rotate = script.rotate(RotationReason::Manual, false);
    script.command(&stores, &rotate).await;
    let after = told(None).await;
    let sequences: Vec<_> = after.items.iter().map(|event| event.sequence).rev().collect();
    let expected: Vec<_> = (1..).take(sequences.len()).collect();
    assert_eq!(sequences, expected, "a stream has no gaps");
    assert!(after.items.len() > before.items.len());
}

fn request(holder: u128, body: &[u8], now: Timestamp) -> IdempotencyStart {
    IdempotencyStart {
        key: IdempotencyKey { key_hash: b"key".to_vec(), caller_hash: b"caller".to_vec() },
        body_hash: body.to_vec(),
        holder: Uuid::from_u128(holder),
        now,
        lease_until: now.plus(MINUTE),
    }
}

fn answer(start: &IdempotencyStart) -> IdempotencyAnswer {
    IdempotencyAnswer {
        key: start.key.clone(),
        holder: start.holder,
        status: 201,
        location: Some("/v1/there".to_owned()),
        resource_id: Some("it".to_owned()),
    }
}

fn answered() -> IdempotencyState {
    let (location, resource_id) = (Some("/v1/there".to_owned()), Some("it".to_owned()));
    IdempotencyState::Answered { status: 201, location, resource_id }
}

async fn an_idempotent_answer_is_committed_with_its_command(store: Arc<dyn Store>) {
    let script = served(&store, "cls-a").await;
    let state = script.state();
    let (id, version, now) = (&script.cluster_id, script.version, script.now);
    let first = request(1, b"body", now);
    assert_eq!(store.begin_idempotent(&first).await, Ok(IdempotencyState::Begun));
    let mut commit = Commit::new(id, version, state.as_ref(), state.as_ref(), now);
    // Somebody else's attempt may not answer, and its command is undone with it.
    commit.idempotency = Some(answer(&request(2, b"body", now)));
    assert_eq!(refused(&store, commit.clone()).await, StoreError::LeaseLost);
    assert_eq!(store.load(id).await, Ok(script.loaded()));
    commit.idempotency = Some(answer(&first));
    assert_eq!(store.commit(commit).await, Ok(version + 1));
    assert_eq!(store.begin_idempotent(&request(3, b"body", now)).await, Ok(answered()));
}

async fn a_request_runs_once_and_is_answered_again(store: Arc<dyn Store>) {
    let now = start();
    let first = request(1, b"body", now);
    let second = request(2, b"body", now.plus(Duration::from_secs(1)));
    let late = request(3, b"body", now.plus(2 * MINUTE));
    assert_eq!(store.begin_idempotent(&first).await, Ok(IdempotencyState::Begun));
    assert_eq!(store.begin_idempotent(&second).await, Ok(IdempotencyState::Running));
    let other = request(2, b"other", now);
    assert_eq!(store.begin_idempotent(&other).await, Ok(IdempotencyState::OtherBody));
    // The lease is over: another attempt takes over, and the first one's word counts no more.
    assert_eq!(store.begin_idempotent(&late).await, Ok(IdempotencyState::Begun));
    assert_eq!(store.answer_idempotent(&answer(&first)).await, Err(StoreError::LeaseLost));
    assert_eq!(store.release_idempotent(&first.key, first.holder).await, Ok(()));
    assert_eq!(store.answer_idempotent(&answer(&late)).await, Ok(()));
    assert_eq!(store.begin_idempotent(&second).await, Ok(answered()));
    // An answer is not released any more; a request without one is.
    assert_eq!(store.release_idempotent(&late.key, late.holder).await, Ok(()));
    assert_eq!(store.begin_idempotent(&second).await, Ok(answered()));
    let mut elsewhere = request(4, b"body", now);
    elsewhere.key.caller_hash = b"somebody else".to_vec();
    assert_eq!(store.begin_idempotent(&elsewhere).await, Ok(IdempotencyState::Begun));
    assert_eq!(store.release_idempotent(&elsewhere.key, elsewhere.holder).await, Ok(()));
    elsewhere.holder = Uuid::from_u128(5);
    assert_eq!(store.begin_idempotent(&elsewhere).await, Ok(IdempotencyState::Begun));
}

async fn an_answer_that_turned_out_otherwise_is_corrected(store: Arc<dyn Store>) {
    let first = request(1, b"body", start());
    assert_eq!(store.begin_idempotent(&first).await, Ok(IdempotencyState::Begun));
    // Nothing to correct yet.
    assert_eq!(store.correct_idempotent(&first.key, first.holder, Some(200)).await, Ok(()));
    assert_eq!(store.answer_idempotent(&answer(&first)).await, Ok(()));
    let other = Uuid::from_u128(9);
    assert_eq!(store.correct_idempotent(&first.key, other, Some(200)).await, Ok(()));
    assert_eq!(store.begin_idempotent(&first).await, Ok(answered()));
    assert_eq!(store.correct_idempotent(&first.key, first.holder, Some(200)).await, Ok(()));
    let corrected = store.begin_idempotent(&first).await.unwrap();
    assert!(matches!(corrected, IdempotencyState::Answered { status: 200, .. }), "{corrected:?}");
    assert_eq!(store.correct_idempotent(&first.key, other, None).await, Ok(()));
    assert_eq!(store.begin_idempotent(&first).await, Ok(corrected));
    assert_eq!(store.correct_idempotent(&first.key, first.holder, None).await, Ok(()));
    assert_eq!(store.begin_idempotent(&first).await, Ok(IdempotencyState::Begun));
}

async fn after_a_day_a_key_is_new_again(store: Arc<dyn Store>) {
    let first = request(1, b"body", start());
    assert_eq!(store.begin_idempotent(&first).await, Ok(IdempotencyState::Begun));
    assert_eq!(store.answer_idempotent(&answer(&first)).await, Ok(()));
    let almost = start().plus(24 * HOUR - MINUTE);
    assert_eq!(store.begin_idempotent(&request(2, b"body", almost)).await, Ok(answered()));
    let later = request(3, b"other", start().plus(24 * HOUR));
    assert_eq!(store.begin_idempotent(&later).await, Ok(IdempotencyState::Begun));
    assert_eq!(store.answer_idempotent(&answer(&later)).await, Ok(()));
    assert_eq!(store.begin_idempotent(&later).await, Ok(answered()));
}

async fn the_first_installation_keeps_the_database(store: Arc<dyn Store>) {
    assert_eq!(store.claim_installation("prod-1", start()).await, Ok(()));
    assert_eq!(store.claim_installation("prod-1", start()).await, Ok(()));
    let other = StoreError::InstallationMismatch {
        stored: "prod-1".to_owned(),
        configured: "test-1".to_owned(),
    };
    assert_eq!(store.claim_installation("test-1", start()).await, Err(other));
}
