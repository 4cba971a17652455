//! Readings of the registries' own records of use: due once, kept, and about the accounts that matter.

use std::sync::Arc;

use hyperfleet_credentials::ids::RegistryId;
use hyperfleet_credentials::state::pull_secret::{AccountPhase, RotationReason};
use hyperfleet_credentials::store::{Store, UsageScope};

use super::backends::conforms;
use super::script::{HOUR, MINUTE, served, start};

conforms!(a_reading_is_taken_once, the_accounts_that_are_handed_out_are_asked_about);

fn quay() -> RegistryId {
    "quay".parse().unwrap()
}

async fn a_reading_is_taken_once(store: Arc<dyn Store>) {
    let (scope, now, pause) = (UsageScope::Rotating, start(), 5 * MINUTE);
    assert_eq!(store.claim_usage(&quay(), scope, now, pause).await, Ok(Some(None)));
    assert_eq!(store.claim_usage(&quay(), scope, now, pause).await, Ok(None), "taken");
    let other = store.claim_usage(&quay(), UsageScope::All, now, pause).await;
    assert_eq!(other, Ok(Some(None)), "each scope has its own time");
    store.usage_read(&quay(), scope, now).await.unwrap();
    let later = now.plus(pause);
    assert_eq!(store.claim_usage(&quay(), scope, later, pause).await, Ok(Some(Some(now))));
    assert_eq!(store.claim_usage(&quay(), scope, later, pause).await, Ok(None));
    // The clock went back: nobody waits until it is there again.
    let back = now.minus(24 * HOUR);
    assert_eq!(store.claim_usage(&quay(), scope, back, pause).await, Ok(Some(Some(now))));
}

async fn the_accounts_that_are_handed_out_are_asked_about(store: Arc<dyn Store>) {
    served(&store, "cls-a").await;
    let mut script = served(&store, "cls-b").await;
    let stores = [Arc::clone(&store)];
    let rotate = script.rotate(RotationReason::Manual, false);
    assert!(script.command(&stores, &rotate).await);
    script.settle(&stores).await;
    let of = |scope, after, limit| {
        let store = Arc::clone(&store);
        async move { store.usage_candidates(&quay(), scope, after, limit).await.unwrap() }
    };
    let all = of(UsageScope::All, None, 10).await;
    assert_eq!(all.len(), 3);
    let first = of(UsageScope::All, None, 1).await;
    let rest = of(UsageScope::All, Some(first[0].account_id), 10).await;
    assert_eq!([first, rest].concat(), all, "in pages");
    let rotating = of(UsageScope::Rotating, None, 10).await;
    assert!(rotating.iter().all(|candidate| candidate.cluster_id.as_str() == "cls-b"));
    let phases = |phase| rotating.iter().filter(|candidate| candidate.phase == phase).count();
    assert_eq!((phases(AccountPhase::Serving), phases(AccountPhase::Retiring)), (1, 1));
    let since = script.state().unwrap().served().unwrap().since;
    assert!(
        rotating.iter().all(|c| c.served_since == since && c.verified_at.is_some() && !c.unsure)
    );
    let elsewhere = "elsewhere".parse().unwrap();
    let none = store.usage_candidates(&elsewhere, UsageScope::All, None, 10).await;
    assert_eq!(none, Ok(Vec::new()));
}
