//! Secrets: what they are read by, how they are sealed anew, when they pass; the audit's chain.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyperfleet_credentials::state::pull_secret::{AccountPhase, Command};
use hyperfleet_credentials::store::{
    AuditFilter, AuditSeal, MemoryStore, PgStore, PurgeBefore, Reseal, SealedSecret, SqliteStore,
    Store, canonical,
};

use super::backends::{conforms, migrated_database, url};
use super::script::{HOUR, MINUTE, sealed, served};

conforms!(
    what_is_served_comes_with_its_secrets,
    an_account_is_found_by_the_name_that_is_presented,
    secrets_are_sealed_anew_in_batches,
    secrets_of_the_gone_pass_after_a_while,
);

async fn what_is_served_comes_with_its_secrets(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    let mut script = served(&store, "cls-a").await;
    let view = store.served(&script.cluster_id).await.unwrap().unwrap();
    assert_eq!(view.credentials.len(), 2);
    for credential in &view.credentials {
        assert_eq!(credential.secret, sealed(credential.account_id, "k1"));
        assert_eq!(credential.username, format!("org+{}", credential.account_id));
    }
    let described = store.described(&script.cluster_id).await.unwrap();
    assert_eq!(described.secrets.len(), 2);
    script.command(&stores, &Command::Revoke).await;
    let view = store.served(&script.cluster_id).await.unwrap().unwrap();
    assert_eq!((view.served, view.credentials), (None, Vec::new()));
    assert_eq!(store.described(&script.cluster_id).await.unwrap().secrets, Vec::new());
}

async fn an_account_is_found_by_the_name_that_is_presented(store: Arc<dyn Store>) {
    let script = served(&store, "cls-a").await;
    let account = script.last.as_ref().unwrap().accounts[1].clone();
    let username = account.username.unwrap();
    let found = store.presented(&script.cluster_id, &username, "default").await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].account_id, found[0].phase), (account.id, AccountPhase::Serving));
    assert_eq!(found[0].served, script.last.as_ref().unwrap().served());
    assert_eq!(found[0].secret, sealed(account.id, "k1"));
    let elsewhere = "cls-b".parse().unwrap();
    assert_eq!(store.presented(&elsewhere, &username, "default").await, Ok(Vec::new()));
    assert_eq!(store.presented(&script.cluster_id, "nobody", "default").await, Ok(Vec::new()));
}

async fn secrets_are_sealed_anew_in_batches(store: Arc<dyn Store>) {
    for id in ["cls-a", "cls-b"] {
        served(&store, id).await;
    }
    let census = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(key, rows)| ((*key).to_owned(), *rows)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(store.key_census().await, Ok(census(&[("k1", 4)])));
    let mut after = None;
    loop {
        let page = store.sealed_otherwise("k2", after, 3).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        let anew =
            |(id, from): (_, SealedSecret)| Reseal { account_id: id, from, to: sealed(id, "k2") };
        let mut batch: Vec<_> = page.into_iter().map(anew).collect();
        let all = u64::try_from(batch.len()).unwrap();
        assert_eq!(store.reseal(&batch).await, Ok(all));
        // What changed meanwhile is left alone.
        batch[0].to.bytes = b"late".to_vec();
        assert_eq!(store.reseal(&batch).await, Ok(0));
    }
    assert_eq!(store.key_census().await, Ok(census(&[("k2", 4)])));
    assert_eq!(store.sealed_otherwise("k2", None, 9).await, Ok(Vec::new()));
}

async fn secrets_of_the_gone_pass_after_a_while(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    let mut script = served(&store, "cls-a").await;
    let ids: Vec<_> = script.last.as_ref().unwrap().accounts.iter().map(|a| a.id).collect();
    served(&store, "cls-b").await;
    script.command(&stores, &Command::Revoke).await;
    script.settle(&stores).await;
    let mut before = PurgeBefore {
        rotations: script.now,
        secrets: script.now.minus(MINUTE),
        idempotency_keys: script.now,
        batch: 1,
    };
    assert_eq!(store.purge(before).await.unwrap().secrets, 0);
    assert!(store.secret(ids[0]).await.unwrap().is_some());
    before.secrets = script.now.plus(HOUR);
    assert_eq!(store.purge(before).await.unwrap().secrets, 1);
    assert_eq!(store.purge(before).await.unwrap().secrets, 1);
    assert_eq!(store.purge(before).await.unwrap().secrets, 0);
    assert_eq!(store.secret(ids[0]).await, Ok(None));
    // Cluster b lives, and so do its secrets.
    assert_eq!(store.key_census().await.unwrap().get("k1"), Some(&2));
}

/// Not a keyed hash: enough to see what is covered.
#[derive(Debug)]
struct Echo;

impl AuditSeal for Echo {
    fn seal(&self, message: &[u8]) -> Vec<u8> {
        let sum = message
            .iter()
            .fold(17_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte));
        sum.to_be_bytes().to_vec()
    }
}

async fn the_chain_holds(store: Arc<dyn Store>) {
    served(&store, "cls-a").await;
    served(&store, "cls-b").await;
    let filter =
        AuditFilter { cluster_id: Some("cls-b".parse().unwrap()), ..AuditFilter::default() };
    let mut events = store.list_audit(&filter, None, 100).await.unwrap().items;
    events.reverse();
    let mut previous: Option<Vec<u8>> = None;
    for event in &events {
        assert_eq!(event.previous_hash, previous);
        let message = canonical(&event.row, event.sequence, previous.as_deref());
        assert_eq!(event.hash, Some(Echo.seal(&message)), "it can be made again from the row");
        previous = event.hash.clone();
    }
    assert!(events.len() > 5 && previous.is_some());
}

#[tokio::test]
async fn the_audit_is_a_chain_in_memory() {
    the_chain_holds(Arc::new(MemoryStore::new().with_audit_seal(Arc::new(Echo)))).await;
}

#[tokio::test]
async fn the_audit_is_a_chain_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&url(&dir), 1).await.unwrap();
    store.migrate().await.unwrap();
    the_chain_holds(Arc::new(store.with_audit_seal(Arc::new(Echo)))).await;
}

#[tokio::test]
async fn the_audit_is_a_chain_in_postgres() {
    let store = PgStore::open(&migrated_database().await, 2).await.unwrap();
    the_chain_holds(Arc::new(store.with_audit_seal(Arc::new(Echo)))).await;
}
