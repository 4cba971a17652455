//! What of break-glass credentials needs a person, beside what of pull secrets does; told alike by every backend.

use std::sync::Arc;

use hyperfleet_credentials::ids::{CallToken, CredentialId};
use hyperfleet_credentials::state::break_glass::{
    Answer, Call, Command, EndpointSeen, ProbeAnswer, Signer, Subject, Verdict,
};
use hyperfleet_credentials::store::break_glass::BreakGlassStore;
use hyperfleet_credentials::store::{
    AttentionFilter, AttentionItem, AttentionKind, MemoryStore, PgStore, SqliteStore, Store,
};
use hyperfleet_credentials::time::Timestamp;

use super::super::backends::{migrated_database, url};
use super::super::script::{HOUR, STUCK_AFTER};
use super::script::{DAY, MINUTE, Script};

#[tokio::test]
async fn over_memory() {
    told(Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn over_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&url(&directory), 2).await.unwrap();
    store.migrate().await.unwrap();
    told(Arc::new(store)).await;
}

#[tokio::test]
async fn over_postgres() {
    told(Arc::new(PgStore::open(&migrated_database().await, 4).await.unwrap())).await;
}

/// A credential whose signer does not answer.
async fn stuck(store: &Arc<dyn BreakGlassStore>) -> (Script, CredentialId) {
    let mut script = Script::new(store, "cls-stuck", Signer::LocalCa, &[]);
    let id = script.request("anna").await;
    let (subject, token) = (Subject::Credential(id), CallToken(script.uuid()));
    script.tell(&Command::Announce { subject, call: Call::Submit, token }).await.unwrap();
    let answer = Answer::lost(Call::Submit, "nobody answers");
    script.tell(&Command::Answer { subject, token, answer }).await.unwrap();
    (script, id)
}

/// One that a person said no to, one that did not come in time.
async fn refused(store: &Arc<dyn BreakGlassStore>) -> (Script, CredentialId, CredentialId) {
    let mut script = Script::new(store, "cls-refused", Signer::LocalCa, &[]);
    script.policy.approval_required = true;
    let by = "bob".to_owned();
    let denied = script.request("mallory").await;
    let reason = Some("not on a Friday".to_owned());
    script.tell(&Command::Deny { credential_id: denied, by: by.clone(), reason }).await.unwrap();
    let failed = script.request("ada").await;
    script.tell(&Command::Approve { credential_id: failed, by }).await.unwrap();
    script.now = script.now.plus(11 * MINUTE);
    script.tell(&Command::Tick).await.unwrap();
    (script, denied, failed)
}

/// A revocation that an API server does not confirm.
async fn unproved(store: &Arc<dyn BreakGlassStore>) -> Script {
    let endpoint = "https://10.0.0.1:6443";
    let mut script = Script::new(store, "cls-unproved", Signer::LocalCa, &[endpoint]);
    let saw = |verdict: Verdict| {
        let endpoint = endpoint.to_owned();
        let seen = vec![EndpointSeen { endpoint, verdict, control: Verdict::Accepted }];
        Answer::Probe(ProbeAnswer::Seen(seen))
    };
    let id = script.request("anna").await;
    script.sign(id).await;
    script.call(Call::Probe, saw(Verdict::Accepted), Vec::new()).await;
    script.revoke_all().await;
    script.call(Call::Probe, saw(Verdict::Unknown("no connection".to_owned())), Vec::new()).await;
    script
}

async fn told<S: Store + BreakGlassStore + 'static>(store: Arc<S>) {
    let as_break_glass: Arc<dyn BreakGlassStore> = store.clone();
    let (stuck, stuck_id) = stuck(&as_break_glass).await;
    let (refused, denied_id, failed_id) = refused(&as_break_glass).await;
    let unproved = unproved(&as_break_glass).await;
    let mut quarantined = Script::new(&as_break_glass, "cls-wild", Signer::LocalCa, &[]);
    quarantined.request("anna").await;
    let retry_at = quarantined.now.plus(HOUR);
    quarantined.tell(&Command::Quarantine { retry_at }).await.unwrap();

    let of = |kind: AttentionKind, now: Timestamp| {
        let filter = AttentionFilter { kind: Some(kind), now, stuck_after: STUCK_AFTER };
        let store = store.clone();
        async move { store.attention(&filter, None, 10).await.unwrap().items }
    };
    // Trouble is no news before it is old.
    assert_eq!(of(AttentionKind::Stuck, stuck.now.plus(HOUR - MINUTE)).await, []);
    let late = stuck.now.plus(DAY);
    let found = of(AttentionKind::Stuck, late).await;
    let [credential, revocation] = &found[..] else { panic!("{found:?}") };
    assert_eq!(credential.cluster_id.as_ref(), Some(&stuck.cluster_id));
    assert_eq!((credential.credential_id, credential.revocation_id), (Some(stuck_id), None));
    assert_eq!((credential.since, credential.attempts), (stuck.now, 1));
    assert_eq!(credential.last_error.as_deref(), Some("nobody answers"));
    assert!(credential.next_attempt_at.is_some());
    let running = &unproved.record.as_ref().unwrap().revocations[0];
    assert_eq!((revocation.credential_id, revocation.revocation_id), (None, Some(running.id)));
    let error = revocation.last_error.as_deref().unwrap();
    assert!(error.ends_with("https://10.0.0.1:6443: no connection"), "{error}");

    let found = of(AttentionKind::Denied, late).await;
    assert_eq!((found.len(), found[0].credential_id), (1, Some(denied_id)));
    assert!(found[0].last_error.as_deref().unwrap().contains("not on a Friday"), "{found:?}");
    let found = of(AttentionKind::Failed, late).await;
    assert_eq!((found.len(), found[0].credential_id), (1, Some(failed_id)));
    assert_eq!(found[0].since, refused.now);
    let found = of(AttentionKind::Quarantined, late).await;
    assert_eq!(found[0].cluster_id.as_ref(), Some(&quarantined.cluster_id));
    assert_eq!((found.len(), found[0].next_attempt_at), (1, Some(retry_at)));

    // Page by page the same, and as many as are counted.
    let filter = AttentionFilter { kind: None, now: late, stuck_after: STUCK_AFTER };
    let whole = store.attention(&filter, None, 10).await.unwrap();
    assert_eq!((whole.items.len(), whole.total_count), (5, Some(5)));
    let (mut paged, mut cursor): (Vec<AttentionItem>, _) = (Vec::new(), None);
    loop {
        let page = store.attention(&filter, cursor.as_ref(), 1).await.unwrap();
        paged.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole.items);
    let counts = store.trouble_counts(late, STUCK_AFTER).await.unwrap();
    for (kind, number) in [("stuck", 2), ("denied", 1), ("failed", 1), ("quarantined", 1)] {
        assert_eq!((counts.break_glass[kind], counts.attention[kind]), (number, 0), "{kind}");
    }
}
