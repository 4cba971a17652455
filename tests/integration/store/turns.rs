//! Whose turn it is to rotate: exact, in order, and nobody is forgotten.

use std::sync::Arc;

use hyperfleet_credentials::state::pull_secret::RotationReason;
use hyperfleet_credentials::store::{Commit, Store, StoreError, Turn, TurnRank};
use hyperfleet_credentials::time::Timestamp;

use super::backends::conforms;
use super::replicas::replica;
use super::script::{HOUR, MINUTE, Script, refused, served};

/// A cluster whose rotation was asked for and waits.
async fn waiting(store: &Arc<dyn Store>, name: &str, rank: TurnRank, since: u32) -> Script {
    let mut script = served(store, name).await;
    let reason = match rank {
        TurnRank::Asked => RotationReason::Manual,
        TurnRank::Scheduled => RotationReason::Scheduled,
    };
    script.now = script.now.plus(MINUTE * since);
    script.may_start = false;
    script.turn = Some(Turn::Wait { rank });
    let rotate = script.rotate(reason, false);
    assert!(script.command(&[Arc::clone(store)], &rotate).await);
    assert!(script.state().unwrap().waits_for_turn());
    script
}

/// The commit in which a rotation begins.
async fn begin(script: &mut Script, store: &Arc<dyn Store>, rank: TurnRank, max: u32) {
    script.may_start = true;
    script.turn = Some(Turn::Take { rank, max });
    assert!(script.command(&[Arc::clone(store)], &tick()).await);
    script.turn = None;
}

async fn may_not_begin(script: &mut Script, store: &Arc<dyn Store>, rank: TurnRank, max: u32) {
    script.may_start = true;
    let (_, after) = script.decide(&tick()).unwrap();
    let before = script.state();
    let commit = Commit {
        turn: Some(Turn::Take { rank, max }),
        ..Commit::new(
            &script.cluster_id,
            script.version,
            before.as_ref(),
            after.as_ref(),
            script.now,
        )
    };
    assert_eq!(refused(store, commit).await, StoreError::NoTurn);
    assert_eq!(store.load(&script.cluster_id).await.unwrap(), script.loaded(), "nothing happened");
    script.may_start = false;
}

const fn tick() -> hyperfleet_credentials::state::pull_secret::Command {
    hyperfleet_credentials::state::pull_secret::Command::Tick
}

/// Who is due now, all of them.
async fn due(store: &Arc<dyn Store>, now: Timestamp) -> Vec<String> {
    let due = store.due(now, 100, now.plus(HOUR), replica(1)).await.unwrap();
    let mut due: Vec<_> = due.iter().map(|claimed| claimed.cluster_id.to_string()).collect();
    due.sort();
    due
}

async fn the_commit_has_the_last_word(store: Arc<dyn Store>) {
    use TurnRank::{Asked, Scheduled};
    let mut first = waiting(&store, "cls-1", Asked, 1).await;
    let mut second = waiting(&store, "cls-2", Asked, 2).await;
    let now = second.now;
    // Not called, so whoever waits comes first.
    may_not_begin(&mut second, &store, Asked, 1).await;
    assert!(!store.has_turn(&second.cluster_id, Asked, 1, now).await.unwrap());
    assert!(store.has_turn(&second.cluster_id, Asked, 2, now).await.unwrap());
    assert_eq!(store.call_turns(1, now, now.plus(MINUTE)).await, Ok(1));
    assert!(store.has_turn(&first.cluster_id, Asked, 1, now).await.unwrap());
    begin(&mut first, &store, Asked, 1).await;
    // One is at work: being called does not help.
    assert_eq!(store.call_turns(1, now, now.plus(MINUTE)).await, Ok(0));
    may_not_begin(&mut second, &store, Asked, 1).await;
    assert_eq!(store.call_turns(2, now, now.plus(MINUTE)).await, Ok(1));
    begin(&mut second, &store, Scheduled, 2).await;
    // Served, the first waits for its cluster and takes no place any more.
    first.settle(&[Arc::clone(&store)]).await;
    let mut third = waiting(&store, "cls-3", Scheduled, 3).await;
    may_not_begin(&mut third, &store, Scheduled, 1).await;
    begin(&mut third, &store, Scheduled, 2).await;
}

async fn they_are_called_in_order_and_made_due(store: Arc<dyn Store>) {
    use TurnRank::{Asked, Scheduled};
    assert_eq!(store.call_turns(8, super::script::start(), super::script::start()).await, Ok(0));
    let early = waiting(&store, "cls-a", Scheduled, 1).await;
    let _late = waiting(&store, "cls-b", Scheduled, 9).await;
    let _asked = waiting(&store, "cls-c", Asked, 5).await;
    let now = early.now.plus(HOUR);
    assert_eq!(due(&store, now).await, [""; 0], "who waits is not looked at");
    assert_eq!(store.call_turns(2, now, now.plus(MINUTE)).await, Ok(2));
    assert_eq!(due(&store, now).await, ["cls-a", "cls-c"], "asked for, then the oldest");
    assert_eq!(store.call_turns(2, now, now.plus(MINUTE)).await, Ok(0), "their places are kept");
    assert_eq!(store.call_turns(3, now, now.plus(MINUTE)).await, Ok(1));
    assert_eq!(due(&store, now).await, ["cls-b"]);
    // Nobody came: all are called again, in time.
    let later = now.plus(MINUTE * 2);
    assert_eq!(store.call_turns(1, later, later.plus(MINUTE)).await, Ok(1));
    assert_eq!(due(&store, later).await, ["cls-c"]);
}

async fn who_does_not_come_goes_to_the_end(store: Arc<dyn Store>) {
    use TurnRank::Asked;
    let stuck = waiting(&store, "cls-a", Asked, 1).await;
    let mut fine = waiting(&store, "cls-b", Asked, 2).await;
    let now = fine.now;
    assert_eq!(store.call_turns(1, now, now.plus(MINUTE)).await, Ok(1));
    assert_eq!(due(&store, now).await, ["cls-a"]);
    let later = now.plus(MINUTE);
    assert_eq!(store.call_turns(1, later, later.plus(MINUTE)).await, Ok(1));
    assert_eq!(due(&store, later).await, ["cls-b"]);
    fine.now = later;
    fine.ownership = store.load(&fine.cluster_id).await.unwrap().ownership;
    begin(&mut fine, &store, Asked, 1).await;
    // A call that came too early is given back and keeps its place in the line.
    let much_later = later.plus(HOUR);
    assert_eq!(store.call_turns(2, much_later, much_later.plus(MINUTE)).await, Ok(1));
    store.wait_for_turn(&stuck.cluster_id, Asked, much_later).await.unwrap();
    assert_eq!(store.call_turns(2, much_later, much_later.plus(MINUTE)).await, Ok(1));
}

async fn who_is_revoked_leaves_the_line(store: Arc<dyn Store>) {
    use TurnRank::Asked;
    let mut script = waiting(&store, "cls-a", Asked, 1).await;
    script.turn = None;
    let stores = [Arc::clone(&store)];
    assert!(
        script.command(&stores, &hyperfleet_credentials::state::pull_secret::Command::Revoke).await
    );
    assert_eq!(store.call_turns(8, script.now, script.now.plus(MINUTE)).await, Ok(0));
}

async fn a_due_deletion_is_work(store: Arc<dyn Store>) {
    use TurnRank::Asked;
    let stores = [Arc::clone(&store)];
    let mut deleting = served(&store, "cls-1").await;
    deleting.turn = Some(Turn::Take { rank: Asked, max: 1 });
    let rotate = deleting.rotate(RotationReason::Manual, true);
    assert!(deleting.command(&stores, &rotate).await);
    deleting.turn = None;
    deleting.trouble = false;
    // Created, verified, served, verified again: the old ones are to be deleted now.
    for _ in 0..12 {
        let phase = deleting.last.as_ref().unwrap().accounts.iter();
        use hyperfleet_credentials::state::pull_secret::AccountPhase;
        if phase.into_iter().any(|account| account.phase == AccountPhase::Deleting) {
            break;
        }
        deleting.work(&stores).await;
    }
    let mut other = waiting(&store, "cls-2", Asked, 0).await;
    other.now = deleting.now;
    assert!(!store.has_turn(&other.cluster_id, Asked, 1, deleting.now).await.unwrap());
    may_not_begin(&mut other, &store, Asked, 1).await;
    deleting.settle(&stores).await;
    begin(&mut other, &store, Asked, 1).await;
}

conforms!(
    the_commit_has_the_last_word,
    they_are_called_in_order_and_made_due,
    who_does_not_come_goes_to_the_end,
    who_is_revoked_leaves_the_line,
    a_due_deletion_is_work,
);
