//! Lists: pages that stay right while rows are added, filters, cursors of other lists.

use std::sync::Arc;

use hyperfleet_credentials::state::pull_secret::{Command, RotationReason, StateName};
use hyperfleet_credentials::store::{
    AttentionFilter, AttentionKind, AuditFilter, CursorError, PullSecretFilter, RotationFilter,
    Store, StoreError,
};
use strum::VariantArray as _;

use super::backends::conforms;
use super::script::{HOUR, MINUTE, STUCK_AFTER, Script, served};

conforms!(
    pages_are_stable_while_rows_are_added,
    the_fleet_is_listed_by_cluster,
    an_overdue_rotation_is_found,
    what_needs_a_person_is_listed_by_kind,
    a_cursor_of_another_list_is_refused,
    the_audit_is_filtered,
);

/// Rotates and cancels, so that many ended rotations are left.
async fn rotations(script: &mut Script, store: &Arc<dyn Store>, times: usize) {
    let stores = [Arc::clone(store)];
    for _ in 0..times {
        script.now = script.now.plus(MINUTE);
        let rotate = script.rotate(RotationReason::Manual, false);
        assert!(script.command(&stores, &rotate).await);
        let rotation_id = script.last.as_ref().unwrap().rotation().unwrap().id;
        assert!(script.command(&stores, &Command::Cancel { rotation_id }).await);
        script.settle(&stores).await;
    }
}

async fn pages_are_stable_while_rows_are_added(store: Arc<dyn Store>) {
    let mut script = served(&store, "cls-a").await;
    rotations(&mut script, &store, 5).await;
    let filter = RotationFilter::all(script.now);
    let first = store.list_rotations(&filter, None, 2).await.unwrap();
    assert_eq!((first.items.len(), first.total_count), (2, Some(5)));
    rotations(&mut script, &store, 2).await;
    let mut seen = first.items;
    let mut cursor = first.next;
    while let Some(from) = cursor {
        // A client gets and gives it as text.
        let from = from.to_string().parse().unwrap();
        let page = store.list_rotations(&filter, Some(&from), 2).await.unwrap();
        assert_eq!(page.total_count, Some(7));
        seen.extend(page.items);
        cursor = page.next;
    }
    let times: Vec<_> = seen.iter().map(|row| row.rotation.created_at).collect();
    assert!(times.is_sorted_by(|a, b| a > b), "newest first, each once: {times:?}");
    assert_eq!(times.len(), 5);
}

async fn the_fleet_is_listed_by_cluster(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    for id in ["cls-c", "cls-a", "cls-b"] {
        served(&store, id).await;
    }
    let mut script = Script::new("cls-d", 1);
    script.command(&stores, &script.issue()).await;
    let all = PullSecretFilter::all(script.now);
    let page = store.list_pull_secrets(&all, None, 3).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|row| row.cluster_id.as_str()).collect();
    assert_eq!((names, page.total_count), (vec!["cls-a", "cls-b", "cls-c"], Some(4)));
    let rest = store.list_pull_secrets(&all, page.next.as_ref(), 3).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    assert_eq!(rest.items[0].state, StateName::Issuing);
    let registry = |id: &str| PullSecretFilter {
        registry_id: Some(id.parse().unwrap()),
        state: Some(StateName::Active),
        ..all.clone()
    };
    let page = store.list_pull_secrets(&registry("quay"), None, 9).await.unwrap();
    assert_eq!(page.total_count, Some(3));
    let page = store.list_pull_secrets(&registry("elsewhere"), None, 9).await.unwrap();
    assert_eq!((page.items.len(), page.total_count), (0, Some(0)));
}

async fn an_overdue_rotation_is_found(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    let mut script = served(&store, "cls-a").await;
    served(&store, "cls-b").await;
    let rotate = script.rotate(RotationReason::Manual, false);
    script.command(&stores, &rotate).await;
    script.settle(&stores).await;
    let deadline = script.last.as_ref().unwrap().rotation().unwrap().deadline().unwrap();
    for (now, found) in [(deadline.minus(MINUTE), 0), (deadline, 1)] {
        let filter = RotationFilter { overdue: true, ..RotationFilter::all(now) };
        let page = store.list_rotations(&filter, None, 9).await.unwrap();
        assert_eq!((page.items.len(), page.total_count), (found, Some(found as u64)));
        let filter = PullSecretFilter { overdue: true, ..PullSecretFilter::all(now) };
        let page = store.list_pull_secrets(&filter, None, 9).await.unwrap();
        assert_eq!((page.items.len(), page.total_count), (found, Some(found as u64)));
        let kind = Some(AttentionKind::Overdue);
        let filter = AttentionFilter { kind, now, stuck_after: STUCK_AFTER };
        let page = store.attention(&filter, None, 9).await.unwrap();
        assert_eq!(page.items.len(), found);
        assert!(page.items.iter().all(|item| item.since == deadline));
        let counts = store.trouble_counts(now, STUCK_AFTER).await.unwrap();
        assert_eq!(counts.attention["overdue"], found as u64);
    }
}

async fn what_needs_a_person_is_listed_by_kind(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    for id in ["cls-a", "cls-b", "cls-c"] {
        let mut script = served(&store, id).await;
        let retry_at = script.now.plus(HOUR);
        script.command(&stores, &Command::Quarantine { retry_at }).await;
    }
    let script = Script::new("cls-a", 1);
    let filter = AttentionFilter { kind: None, now: script.now, stuck_after: STUCK_AFTER };
    let page = store.attention(&filter, None, 2).await.unwrap();
    assert_eq!((page.items.len(), page.total_count), (2, Some(3)));
    assert!(page.items.iter().all(|item| item.kind == AttentionKind::Quarantined));
    assert!(page.items.iter().all(|item| item.next_attempt_at.is_some()));
    let rest = store.attention(&filter, page.next.as_ref(), 2).await.unwrap();
    assert_eq!(
        (rest.items[0].cluster_id.as_ref().map(ToString::to_string), rest.next),
        (Some("cls-c".to_owned()), None)
    );
    let kind = Some(AttentionKind::Failed);
    let page = store.attention(&AttentionFilter { kind, ..filter }, None, 2).await.unwrap();
    assert_eq!(page.items, Vec::new());
    let counts = store.trouble_counts(script.now, STUCK_AFTER).await.unwrap();
    assert_eq!((counts.attention["quarantined"], counts.burnt), (3, 0));
    assert_eq!(counts.attention.values().sum::<u64>(), 3);
    assert_eq!(counts.attention.len(), AttentionKind::VARIANTS.len());
}

async fn a_cursor_of_another_list_is_refused(store: Arc<dyn Store>) {
    let mut script = served(&store, "cls-a").await;
    rotations(&mut script, &store, 2).await;
    let rotations = RotationFilter::all(script.now);
    let page = store.list_rotations(&rotations, None, 1).await.unwrap();
    let cursor = page.next.as_ref();
    assert!(cursor.is_some());
    let other = StoreError::Cursor(CursorError::OtherList);
    let fleet = PullSecretFilter::all(script.now);
    assert_eq!(store.list_pull_secrets(&fleet, cursor, 1).await, Err(other.clone()));
    let filter = AttentionFilter { kind: None, now: script.now, stuck_after: STUCK_AFTER };
    assert_eq!(store.attention(&filter, cursor, 1).await, Err(other.clone()));
    let audit = AuditFilter::default();
    assert_eq!(store.list_audit(&audit, cursor, 1).await, Err(other.clone()));
    let page = store.list_audit(&audit, None, 1).await.unwrap();
    let cursor = page.next.as_ref();
    assert_eq!(store.list_rotations(&rotations, cursor, 1).await, Err(other));
}

async fn the_audit_is_filtered(store: Arc<dyn Store>) {
    for id in ["cls-a", "cls-b"] {
        served(&store, id).await;
    }
    let all = store.list_audit(&AuditFilter::default(), None, 500).await.unwrap().items;
    let cluster = Some("cls-b".parse().unwrap());
    let of_cluster = AuditFilter { cluster_id: cluster, ..AuditFilter::default() };
    let by_actor = AuditFilter { actor: Some("system".to_owned()), ..AuditFilter::default() };
    let served = Some("generation_served".to_owned());
    let by_action = AuditFilter { action: served.clone(), ..AuditFilter::default() };
    let both = AuditFilter { action: served, ..of_cluster.clone() };
    let nobody = AuditFilter { actor: Some("nobody".to_owned()), ..both.clone() };
    let late = AuditFilter { since: Some(all[0].row.at.plus(HOUR)), ..AuditFilter::default() };
    let cases = [(of_cluster, all.len() / 2), (by_actor, all.len()), (by_action, 2), (both, 1)];
    for (filter, count) in cases.into_iter().chain([(nobody, 0), (late, 0)]) {
        let page = store.list_audit(&filter, None, 500).await.unwrap();
        assert_eq!(page.items.len(), count, "{filter:?}");
    }
}
