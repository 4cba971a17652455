//! Whatever the machine does: what is read equals what was committed, and every database says what the model says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::state::pull_secret::{PullSecret, RotationStatus, StateName};
use hyperfleet_credentials::store::{
    AttentionFilter, AuditFilter, PullSecretFilter, PurgeBefore, RotationFilter, Store,
};
use hyperfleet_credentials::time::Timestamp;
use proptest::prelude::*;

use super::backends;
use super::replicas::replica;
use super::script::{HOUR, STUCK_AFTER, Script};

const CLUSTERS: [&str; 3] = ["cls-a", "cls-b", "cls-c"];

/// Asks all stores the same and compares.
macro_rules! same {
    ($stores:expr, |$store:ident| $ask:expr) => {{
        let mut answers = Vec::new();
        for $store in $stores {
            answers.push($ask.await);
        }
        for answer in &answers[1..] {
            assert_eq!(*answer, answers[0], "{}", stringify!($ask));
        }
        answers.swap_remove(0)
    }};
}

async fn compare_cluster(stores: &[Arc<dyn Store>], script: &Script) {
    let id = &script.cluster_id;
    let loaded = same!(stores, |store| store.load(id)).unwrap();
    assert_eq!(loaded, script.loaded());
    let described = same!(stores, |store| store.described(id)).unwrap();
    assert_eq!(described.loaded, loaded);
    let view = same!(stores, |store| store.served(id)).unwrap();
    let version = same!(stores, |store| store.version_of(id)).unwrap();
    let state = loaded.record.as_ref().map(|record| record.state.name());
    assert_eq!(version, state.map(|state| (loaded.version, state)));
    assert_eq!(view.as_ref().map(|view| (view.version, view.state)), version);
    if let Some(view) = view.filter(|view| view.served.is_some()) {
        assert!(!view.credentials.is_empty(), "something is served, but nothing is handed out");
    }
    let accounts = script.last.iter().flat_map(|record| &record.accounts);
    for account in accounts {
        same!(stores, |store| store.secret(account.id)).unwrap();
        if let Some(username) = &account.username {
            same!(stores, |store| store.presented(id, username, "pool-1")).unwrap();
        }
        if let Some(call) = account.call {
            assert_eq!(same!(stores, |store| store.is_current(account.id, call.token)), Ok(true));
        }
    }
}

async fn compare_fleet(stores: &[Arc<dyn Store>], now: Timestamp) {
    let kinds = AttentionFilter { kind: None, now, stuck_after: STUCK_AFTER };
    let mut cursor = None;
    loop {
        let page = same!(stores, |store| store.attention(&kinds, cursor.as_ref(), 2)).unwrap();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let all = RotationFilter::all(now);
    let statuses = vec![RotationStatus::Failed, RotationStatus::InProgress];
    let filters = [
        RotationFilter { overdue: true, ..all.clone() },
        RotationFilter { statuses: statuses.clone(), ..all.clone() },
        RotationFilter { cluster_id: Some(CLUSTERS[0].parse().unwrap()), ..all.clone() },
        RotationFilter {
            cluster_id: Some(CLUSTERS[1].parse().unwrap()),
            statuses,
            since: Some(now.minus(100 * HOUR)),
            history_since: Some(now.minus(48 * HOUR)),
            ..all.clone()
        },
        all,
    ];
    for filter in filters {
        let mut cursor = None;
        loop {
            let page =
                same!(stores, |store| store.list_rotations(&filter, cursor.as_ref(), 2)).unwrap();
            for row in page.items {
                same!(stores, |store| store.rotation(&row.cluster_id, row.rotation.id)).unwrap();
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    let all = PullSecretFilter::all(now);
    let filters = [
        PullSecretFilter { overdue: true, ..all.clone() },
        PullSecretFilter { state: Some(StateName::Active), ..all.clone() },
        PullSecretFilter { registry_id: Some("quay".parse().unwrap()), ..all.clone() },
        all,
    ];
    for filter in filters {
        same!(stores, |store| store.list_pull_secrets(&filter, None, 2)).unwrap();
    }
    same!(stores, |store| store.state_counts()).unwrap();
    same!(stores, |store| store.phase_counts()).unwrap();
    same!(stores, |store| store.key_census()).unwrap();
    same!(stores, |store| store.due_count(now)).unwrap();
    same!(stores, |store| store.owned_count(replica(2))).unwrap();
    let filter = AuditFilter { since: Some(now.minus(HOUR)), ..AuditFilter::default() };
    same!(stores, |store| store.list_audit(&filter, None, 20)).unwrap();
}

async fn history(seed: u128, steps: usize) {
    let sqlite = backends::sqlite().await;
    let memory = backends::memory().await;
    let postgres = backends::postgres().await;
    let stores = [&memory, &sqlite, &postgres].map(|backend| Arc::clone(&backend.store));
    let mut scripts = CLUSTERS.map(|cluster| Script::new(cluster, seed));
    scripts.iter_mut().for_each(|script| script.owners = true);
    let mut now = scripts[0].now;
    same!(&stores, |store| store.join(replica(1), &[], now)).unwrap();
    for step in 0..steps {
        let script = &mut scripts[step % CLUSTERS.len()];
        script.now = script.now.max(now);
        script.step(&stores).await;
        now = script.now;
        compare_cluster(&stores, script).await;
        if step % 10 == 9 {
            compare_fleet(&stores, now).await;
            let limit = 2;
            let push = now.plus(Duration::from_secs(30));
            // The second one never joined, so what it owns is anybody's.
            let mut taken =
                same!(&stores, |store| store.due(now, limit, push, replica(1))).unwrap();
            taken.extend(same!(&stores, |store| store.orphans(1, push, replica(1))).unwrap());
            if step % 20 == 9 {
                same!(&stores, |store| store.release(replica(1), now)).unwrap();
            }
            for script in &mut scripts {
                let claimed = taken.iter().rfind(|it| it.cluster_id == script.cluster_id);
                let owned = stores[0].load(&script.cluster_id).await.unwrap().ownership;
                if let Some(claimed) = claimed {
                    assert_eq!(owned.epoch, claimed.ownership.epoch);
                }
                script.ownership = owned;
            }
        }
    }
    let before = PurgeBefore {
        rotations: now.minus(HOUR),
        secrets: now.minus(HOUR),
        idempotency_keys: now,
        batch: 3,
    };
    same!(&stores, |store| store.purge(before)).unwrap();
    compare_fleet(&stores, now).await;
    for script in &scripts {
        for store in &stores {
            assert_eq!(store.load(&script.cluster_id).await, Ok(script.loaded()));
        }
    }
    for store in stores {
        store.close().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_was_committed(seed: u128) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(history(seed, 120));
    }
}

/// Announcements and outcomes of each call, by token.
async fn calls(store: &Arc<dyn Store>, script: &Script) -> BTreeMap<String, (usize, usize)> {
    let mut calls: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let stream = format!("pull-secret/{}", script.cluster_id);
    for event in store.walk_audit(&stream, 0, u32::MAX).await.unwrap() {
        let token = event.row.detail["token"].as_str().unwrap_or_default().to_owned();
        match event.row.action.as_str() {
            "call_announced" => calls.entry(token).or_default().0 += 1,
            "call_answered" => calls.entry(token).or_default().1 += 1,
            _ => {}
        }
    }
    calls
}

/// Every call that ended has exactly one outcome, whatever overtook it; one that runs has none yet.
async fn every_call_has_one_outcome(store: &Arc<dyn Store>, script: &Script) -> usize {
    let accounts = script.last.iter().flat_map(|record| &record.accounts);
    let open: Vec<_> =
        accounts.filter_map(|account| Some(account.call?.token.0.to_string())).collect();
    let calls = calls(store, script).await;
    for (token, counted) in &calls {
        let expected = if open.contains(token) { (1, 0) } else { (1, 1) };
        assert_eq!(*counted, expected, "{}: {token}", script.cluster_id);
    }
    calls.len()
}

/// The property above is worth something only if the histories go everywhere.
#[tokio::test]
async fn the_histories_reach_every_state_and_every_call_has_one_outcome() {
    let stores = [backends::memory().await.store];
    let mut states = std::collections::BTreeSet::new();
    let mut phases = std::collections::BTreeSet::new();
    let mut calls = 0;
    for seed in 0..60 {
        let mut script = Script::new(&format!("cls-{seed}"), seed);
        for _ in 0..120 {
            script.step(&stores).await;
            let state = script.state();
            states.insert(state.as_ref().map(|record| record.state.name().to_string()));
            phases.extend(state.as_ref().and_then(PullSecret::rotation).map(|r| r.phase.name()));
        }
        calls += every_call_has_one_outcome(&stores[0], &script).await;
    }
    for name in ["issuing", "active", "rotating", "revoking", "revoked", "denied", "failed"] {
        assert!(states.contains(&Some(name.to_owned())), "{name} was never reached: {states:?}");
    }
    assert!(calls > 1000, "{calls}");
    assert!(states.contains(&None), "no record was ever removed");
    for name in ["dual_credential_period", "revoking_old", "rolling_back", "removing_new"] {
        assert!(phases.contains(name), "{name} was never reached: {phases:?}");
    }
}
