//! Replicas: who owns what, what is claimed, what the dead leave behind.

use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::ids::{CallToken, ReplicaId};
use hyperfleet_credentials::state::pull_secret::{Call, Command};
use hyperfleet_credentials::store::{Claimed, Commit, OwnedBy, Store, StoreError};
use hyperfleet_credentials::time::Timestamp;
use uuid::Uuid;

use super::backends::{self, conforms};
use super::script::{MINUTE, Script, refused, served, start};

conforms!(
    an_owner_that_changed_guards_every_write,
    what_is_given_back_is_anybodys,
    a_replica_without_a_row_is_told_so,
);

pub fn replica(number: u128) -> ReplicaId {
    ReplicaId(Uuid::from_u128(number))
}

async fn joined(store: &Arc<dyn Store>, number: u128) -> ReplicaId {
    let id = replica(number);
    store.join(id, &[format!("key-{number}")], start()).await.unwrap();
    id
}

/// A record that is due.
async fn due(store: &Arc<dyn Store>, id: &str) -> Script {
    let mut script = Script::new(id, 1);
    let (_, after) = script.decide(&script.issue()).unwrap();
    let mut commit = Commit::new(&script.cluster_id, 0, None, after.as_ref(), script.now);
    commit.due_at = Some(start());
    store.commit(commit).await.unwrap();
    script.last = after;
    script.version = 1;
    script
}

async fn take(store: &Arc<dyn Store>, now: Timestamp, taker: ReplicaId) -> Vec<Claimed> {
    store.due(now, 9, now.plus(MINUTE), taker).await.unwrap()
}

async fn an_owner_that_changed_guards_every_write(store: Arc<dyn Store>) {
    let me = joined(&store, 1).await;
    let script = served(&store, "cls-a").await;
    let (id, state) = (&script.cluster_id, script.state());
    let commit = |version, ownership| Commit {
        ownership,
        owner: Some(me),
        ..Commit::new(id, version, state.as_ref(), state.as_ref(), script.now)
    };
    let none = OwnedBy::default();
    let version = store.commit(commit(script.version, none)).await.unwrap();
    let owned = store.load(id).await.unwrap().ownership;
    assert_eq!(owned, OwnedBy { owner: Some(me), epoch: 1 });
    assert_eq!(refused(&store, commit(version, none)).await, StoreError::Conflict);
    assert_eq!(store.reschedule(id, version, None, none).await, Ok(false));
    assert_eq!(store.load(id).await.unwrap().version, version, "nothing was written");
    assert_eq!(store.owned_count(me).await, Ok(1));
    // Given back and taken again: another epoch.
    let free = OwnedBy { owner: None, ..owned };
    assert_eq!(store.reschedule(id, version, Some(start()), free).await, Ok(true));
    assert_eq!(store.load(id).await.unwrap().ownership, free);
    let taken = take(&store, start(), me).await;
    assert_eq!(taken[0].ownership, OwnedBy { owner: Some(me), epoch: 2 });
    assert_eq!((taken[0].version, taken[0].from), (version, None));
    assert_eq!(refused(&store, commit(version, owned)).await, StoreError::Conflict);
    store.commit(commit(version, taken[0].ownership)).await.unwrap();
}

async fn what_is_given_back_is_anybodys(store: Arc<dyn Store>) {
    let me = joined(&store, 1).await;
    due(&store, "cls-a").await;
    let mut open = due(&store, "cls-b").await;
    assert_eq!(take(&store, start(), me).await.len(), 2);
    assert_eq!(store.owned_count(me).await, Ok(2));
    // One of them has a call under way.
    open.ownership = store.load(&open.cluster_id).await.unwrap().ownership;
    let account_id = open.last.as_ref().unwrap().accounts[0].id;
    let token = CallToken(open.uuid());
    let announce = Command::Announce { account_id, call: Call::Create, token };
    assert!(open.command(&[Arc::clone(&store)], &announce).await);
    // Before the call that is under way is given up.
    let now = start().plus(Duration::from_secs(5));
    store.release(me, now).await.unwrap();
    let free = store.load(&"cls-a".parse().unwrap()).await.unwrap().ownership;
    assert_eq!(free, OwnedBy { owner: None, epoch: 1 });
    assert_eq!(store.owned_count(me).await, Ok(1), "what is under way stays");
    let taken = take(&store, now, me).await;
    assert!(taken.iter().any(|it| it.cluster_id.as_str() == "cls-a"), "it is due at once");
    store.leave(me, now).await.unwrap();
    let next = joined(&store, 2).await;
    let orphans = store.orphans(9, now, next).await.unwrap();
    let ids: Vec<_> = orphans.iter().map(|it| (it.cluster_id.as_str(), it.from)).collect();
    assert_eq!(ids, [("cls-b", Some(me))]);
    assert_eq!(store.orphans(9, now, next).await, Ok(Vec::new()), "once");
}

async fn a_replica_without_a_row_is_told_so(store: Arc<dyn Store>) {
    let me = joined(&store, 1).await;
    let rows = store.beat(me, &["key-1".to_owned()], start()).await.unwrap().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].replica_id, rows[0].key_ids.as_slice()),
        (me, ["key-1".to_owned()].as_slice())
    );
    assert_eq!(store.bury(me, rows[0].counter + 1).await, Ok(false), "it was seen to live");
    assert_eq!(store.bury(me, rows[0].counter).await, Ok(true));
    assert_eq!(store.beat(me, &[], start()).await, Ok(None));
    joined(&store, 1).await;
    assert!(store.beat(me, &[], start()).await.unwrap().is_some());
}

/// SQLite is one process: these are for the others.
async fn several() -> [Arc<dyn Store>; 2] {
    [backends::memory().await.store, backends::postgres().await.store]
}

#[tokio::test]
async fn only_its_owner_or_anybody_once_that_is_dead_gets_work() {
    for store in several().await {
        let (a, b) = (joined(&store, 1).await, joined(&store, 2).await);
        due(&store, "cls-a").await;
        let taken = take(&store, start(), a).await;
        assert_eq!((taken.len(), taken[0].ownership.epoch), (1, 1));
        let later = start().plus(2 * MINUTE);
        assert_eq!(take(&store, later, b).await, [], "its owner lives");
        assert_eq!(store.orphans(9, later, b).await, Ok(Vec::new()));
        let again = take(&store, later, a).await;
        assert_eq!((again.len(), again[0].ownership.epoch), (1, 1), "its owner goes on");
        let rows = store.beat(b, &[], later).await.unwrap().unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(store.bury(a, rows[0].counter).await, Ok(true));
        let much_later = later.plus(2 * MINUTE);
        let over = take(&store, much_later, b).await;
        assert_eq!((over.len(), over[0].from, over[0].ownership.epoch), (1, Some(a), 2));
    }
}

#[tokio::test]
async fn a_counter_is_raised_by_each_beat_and_keys_are_published() {
    for store in several().await {
        let (a, b) = (joined(&store, 1).await, joined(&store, 2).await);
        let before = store.beat(a, &["x".to_owned()], start()).await.unwrap().unwrap();
        let after = store.beat(b, &["y".to_owned()], start()).await.unwrap().unwrap();
        assert_eq!(before[0].counter, after[0].counter, "a did not beat in between");
        assert_eq!(before[1].counter + 1, after[1].counter);
        let keys: Vec<_> = after.iter().map(|row| row.key_ids.join(",")).collect();
        assert_eq!(keys, ["x", "y"]);
    }
}
