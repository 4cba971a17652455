//! Break-glass credentials: what every backend keeps, finds, lists and lets pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::ids::{CallToken, CredentialId, ReplicaId};
use hyperfleet_credentials::state::break_glass::{
    Answer, Call, Command, Credential, Signer, StateName, Subject, Surface, removable_at,
};
use hyperfleet_credentials::store::break_glass::{
    BreakGlassCommit, BreakGlassPurge, BreakGlassStore, CertificateKind, CredentialQuery,
    KeyPurpose, Material,
};
use hyperfleet_credentials::store::search::{parse_order, parse_search};
use hyperfleet_credentials::store::{
    MemoryStore, OwnedBy, PgStore, SqliteStore, Store as _, StoreError,
};
use hyperfleet_credentials::time::Timestamp;
use uuid::Uuid;

mod attention;
mod script;

use self::script::{DAY, MINUTE, Script, key};
use super::backends::{migrated_database, url};
use super::replicas::replica;

macro_rules! conforms {
    ($($name:ident),+ $(,)?) => {
        mod over_memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(std::sync::Arc::new(super::MemoryStore::new())).await;
            })+
        }
        mod over_sqlite {
            $(#[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(super::sqlite(&dir).await).await;
            })+
        }
        mod over_postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::postgres().await).await;
            })+
        }
    };
}

conforms!(
    every_step_comes_back_as_it_was,
    a_lost_race_writes_nothing,
    lists_find_what_the_search_says_in_the_order_that_was_asked_for,
    keys_go_as_soon_as_nothing_needs_them_and_are_sealed_anew,
    what_has_ended_passes_by_the_machines_rule,
    revocations_are_listed_newest_first,
    a_cluster_is_due_once,
    an_owner_that_changed_guards_every_write,
    what_is_in_trouble_for_long_is_counted,
);

async fn sqlite(dir: &tempfile::TempDir) -> Arc<dyn BreakGlassStore> {
    let store = SqliteStore::open(&url(dir), 2).await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}

async fn postgres() -> Arc<dyn BreakGlassStore> {
    Arc::new(PgStore::open(&migrated_database().await, 4).await.unwrap())
}

async fn every_step_comes_back_as_it_was(store: Arc<dyn BreakGlassStore>) {
    let scripts = [
        ("cls-a", Signer::LocalCa, &["https://api-0:6443"][..], false),
        ("cls-b", Signer::KubernetesCsr, &[][..], true),
        ("cls-c", Signer::KubernetesCsr, &["https://api-0:6443", "https://api-1:6443"][..], false),
    ];
    for (cluster, signer, endpoints, approval) in scripts {
        let mut script = Script::new(&store, cluster, signer, endpoints);
        script.policy.approval_required = approval;
        for _ in 0..300 {
            let command = script.any();
            let _ = script.tell(&command).await;
            let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
            assert_eq!(loaded.version, script.version);
            assert_eq!(loaded.record, script.record, "{command:?}");
        }
        for (id, row) in script.rows.iter().filter(|(_, row)| !row.control) {
            let found = store.credential(&script.cluster_id, *id).await.unwrap();
            assert_eq!(found.as_ref(), Some(row));
        }
        assert!(script.rows.len() > 3, "{cluster}: hardly anything happened");
        // Only open calls are current.
        let calls: Vec<_> = script.record.as_ref().unwrap().calls().collect();
        for (subject, running) in calls {
            assert!(store.is_current_break_glass(subject, running.token).await.unwrap());
            let other = CallToken(script.uuid());
            assert!(!store.is_current_break_glass(subject, other).await.unwrap());
        }
    }
}

async fn a_lost_race_writes_nothing(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    let mut other = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.request("anna").await;
    let id = CredentialId(other.uuid());
    let command = other.request_command(id, Some("bert"));
    let after = other.decide(&command).unwrap().unwrap();
    for expected in [0, 7] {
        let mut commit =
            BreakGlassCommit::new(&other.cluster_id, expected, None, &after, other.now);
        commit.keys = vec![(Uuid::from_u128(1), KeyPurpose::Probe, key("k1", "lost"))];
        assert_eq!(store.commit_break_glass(commit).await, Err(StoreError::Conflict));
    }
    let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
    assert_eq!((loaded.version, loaded.record), (1, script.record));
    assert_eq!(store.sealed_key(Uuid::from_u128(1), KeyPurpose::Probe).await, Ok(None));
}

async fn lists_find_what_the_search_says_in_the_order_that_was_asked_for(
    store: Arc<dyn BreakGlassStore>,
) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    for name in ["anna", "Bert", "b_rt", "b%rt", "x[1]", "zoe*", "o'hara"] {
        script.now = script.now.plus(MINUTE / 60);
        let id = script.request(name).await;
        if name.len() == 4 {
            script.sign(id).await;
        }
    }
    // One of another cluster, which no list of this one shows.
    Script::new(&store, "cls-b", Signer::LocalCa, &[]).request("anna").await;
    let list = async |search: &str, order: &str, offset: u64, limit: Option<u32>| {
        let surface = Surface::ClustersMgmt;
        let search = parse_search(search, surface).unwrap();
        let order = parse_order(order).unwrap();
        let cluster_id = script.cluster_id.clone();
        let query = CredentialQuery { cluster_id, surface, search, order, offset, limit };
        let list = store.list_credentials(&query).await.unwrap();
        let names: Vec<String> = list.items.iter().map(|item| item.username.clone()).collect();
        (names, list.total)
    };
    let (all, total) = list("", "", 0, None).await;
    assert_eq!((all.len(), total), (7, 7));
    assert_eq!(all[0], "anna", "in the order in which they were asked for");
    let (names, total) = list("", "username desc", 2, Some(2)).await;
    assert_eq!((names, total), (vec!["o'hara".to_owned(), "b_rt".to_owned()], 7));
    assert_eq!(list("", "", 100, Some(10)).await, (vec![], 7), "past the end");
    let (names, _) = list("status='issued'", "status, username", 0, None).await;
    assert_eq!(names, ["Bert", "anna", "b%rt", "b_rt", "x[1]", "zoe*"]);
    // Every search finds what its own rule says.
    for text in [
        "username = 'anna' or username = 'Bert'",
        "username like 'b_rt'",
        "username like 'B%'",
        "username like '%[1]'",
        "username like 'zoe*'",
        "username like 'b%rt'",
        "username = 'o''hara'",
        "username not in ('anna', 'Bert')",
        "not (username = 'anna' and status = 'issued')",
        "status != 'issued'",
        "status in ('issued', 'created')",
        "id like '%a%'",
        "id = 'nothing'",
        "id != 'nothing'",
        "username like '\\%'",
        "username like '%?%'",
    ] {
        let search = parse_search(text, Surface::ClustersMgmt).unwrap().unwrap();
        let mut expected: Vec<&Credential> =
            script.rows.values().filter(|row| search.matches(row)).collect();
        expected.sort_by_key(|row| row.id);
        let expected: Vec<String> = expected.iter().map(|row| row.username.clone()).collect();
        let (names, total) = list(text, "id", 0, None).await;
        assert_eq!(total, u64::try_from(expected.len()).unwrap(), "{text}");
        assert_eq!(names, expected, "{text}");
    }
    for order in
        ["creation_timestamp desc", "expiration_timestamp", "revocation_timestamp desc, id"]
    {
        assert_eq!(list("", order, 0, None).await.1, 7, "{order}");
    }
}

async fn keys_go_as_soon_as_nothing_needs_them_and_are_sealed_anew(
    store: Arc<dyn BreakGlassStore>,
) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    let id = script.request("anna").await;
    script.sign(id).await;
    let census = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(key, rows)| ((*key).to_owned(), *rows)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(store.break_glass_key_census().await, Ok(census(&[("k1", 2)])));
    let mut after = None;
    while let [old] = &store.break_glass_sealed_otherwise("k2", after, 1).await.unwrap()[..] {
        let new = key("k2", "anew");
        assert_eq!(store.break_glass_reseal(old, &new).await, Ok(true));
        assert_eq!(store.break_glass_reseal(old, &new).await, Ok(false), "it is another one now");
        after = Some((old.owner, old.purpose));
    }
    assert_eq!(store.break_glass_key_census().await, Ok(census(&[("k2", 2)])));
    assert_eq!(store.sealed_key(id.0, KeyPurpose::Probe).await, Ok(Some(key("k2", "anew"))));
    script.revoke_all().await;
    assert_eq!(store.break_glass_key_census().await, Ok(census(&[("k2", 2)])), "not proved yet");
    let version = script.record.as_ref().unwrap().bundle_version;
    script.tell(&Command::ConfirmBundle { version }).await.unwrap();
    assert_eq!(script.rows[&id].state.name(), StateName::Revoked);
    assert_eq!(store.break_glass_key_census().await, Ok(BTreeMap::new()));
}

async fn what_has_ended_passes_by_the_machines_rule(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.policy.approval_required = true;
    for round in 0..3 {
        let by = "bob".to_owned();
        let credential_id = script.request(&format!("denied-{round}")).await;
        script.now = script.now.plus(DAY / 3);
        script.tell(&Command::Deny { credential_id, by: by.clone(), reason: None }).await.unwrap();
        let credential_id = script.request(&format!("failed-{round}")).await;
        script.tell(&Command::Approve { credential_id, by: by.clone() }).await.unwrap();
        script.now = script.now.plus(11 * MINUTE);
        script.tell(&Command::Tick).await.unwrap();
    }
    let live = script.request("live").await;
    // From before it was written down.
    let mut old = script.record.clone().unwrap();
    let mut ancient = script.rows.values().next().unwrap().clone();
    ancient.id = CredentialId(script.uuid());
    ancient.created_at = None;
    old.credentials.push(ancient.clone());
    let commit = BreakGlassCommit {
        material: vec![Material {
            owner: ancient.id.0,
            kind: CertificateKind::Credential,
            pem: "pem".to_owned(),
        }],
        ..BreakGlassCommit::new(
            &script.cluster_id,
            script.version,
            script.record.as_ref(),
            &old,
            script.now,
        )
    };
    store.commit_break_glass(commit).await.unwrap();
    script.rows.insert(ancient.id, ancient.clone());
    let start = script.now;
    for hour in 0..120 {
        let now = start.plus(Duration::from_secs(3600 * hour));
        let policy = &script.policy;
        let before = BreakGlassPurge {
            denied_before: now.minus(policy.denied_after),
            failed_before: now.minus(policy.failed_after),
            history_before: now.minus(policy.history_after),
            batch: 100,
        };
        store.purge_break_glass(before).await.unwrap();
        for (id, row) in &script.rows {
            let gone = store.credential(&script.cluster_id, *id).await.unwrap().is_none();
            let may_go = removable_at(row, policy).is_some_and(|at| at <= now);
            assert_eq!(gone, may_go, "{row:?}");
        }
    }
    let left = |id| store.credential(&script.cluster_id, id);
    assert!(left(live).await.unwrap().is_some() && left(ancient.id).await.unwrap().is_some());
    assert_eq!(store.certificates(ancient.id.0).await.unwrap().len(), 1);
}

async fn revocations_are_listed_newest_first(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    for _ in 0..5 {
        script.now = script.now.plus(MINUTE);
        script.revoke_all().await;
    }
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list_revocations(&script.cluster_id, cursor.as_ref(), 2).await.unwrap();
        assert_eq!(page.total_count, Some(5));
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(all.len(), 5);
    assert!(all.windows(2).all(|pair| pair[0].created_at > pair[1].created_at));
    let found = store.revocation(&script.cluster_id, all[3].id).await.unwrap();
    assert_eq!(found.as_ref(), Some(&all[3]));
    let elsewhere = "cls-b".parse().unwrap();
    assert_eq!(store.revocation(&elsewhere, all[3].id).await, Ok(None));
    let before = BreakGlassPurge {
        denied_before: Timestamp::EPOCH,
        failed_before: Timestamp::EPOCH,
        history_before: all[2].created_at,
        batch: 2,
    };
    assert_eq!(store.purge_break_glass(before).await, Ok(2), "the batch");
    assert_eq!(store.purge_break_glass(before).await, Ok(1));
}

/// What this replica owns, as an actor of it would write.
async fn commit_as(
    script: &Script,
    ownership: OwnedBy,
    owner: Option<ReplicaId>,
) -> Result<u64, StoreError> {
    let (id, version, state) = (&script.cluster_id, script.version, script.record.as_ref());
    let after = state.unwrap();
    let commit = BreakGlassCommit::new(id, version, state, after, script.now);
    script.store.commit_break_glass(BreakGlassCommit { ownership, owner, ..commit }).await
}

async fn an_owner_that_changed_guards_every_write(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.request("anna").await;
    let later = script.now.plus(MINUTE);
    let taken = store.break_glass_due(script.now, 10, later, replica(1)).await.unwrap();
    let owned = taken[0].ownership;
    assert_eq!(commit_as(&script, OwnedBy::default(), None).await, Err(StoreError::Conflict));
    script.version = commit_as(&script, owned, owned.owner).await.unwrap();
    // Nobody has a row: what is owned was left behind.
    let over = store.break_glass_orphans(10, later, replica(2)).await.unwrap();
    assert_eq!((over[0].from, over[0].version), (Some(replica(1)), script.version));
    assert_eq!(over[0].ownership, OwnedBy { owner: Some(replica(2)), epoch: 2 });
    assert_eq!(commit_as(&script, owned, owned.owner).await, Err(StoreError::Conflict));
    script.version = commit_as(&script, over[0].ownership, None).await.unwrap();
    let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
    assert_eq!(loaded.ownership, OwnedBy { owner: None, epoch: 2 });
    assert_eq!(store.break_glass_orphans(10, later, replica(3)).await, Ok(vec![]), "nobody's");
}

async fn what_is_in_trouble_for_long_is_counted(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    let id = script.request("anna").await;
    assert_eq!(store.stuck_break_glass(script.now).await, Ok(0));
    let (subject, token) = (Subject::Credential(id), CallToken(script.uuid()));
    let announce = Command::Announce { subject, call: Call::Submit, token };
    script.tell(&announce).await.unwrap();
    let answer = Answer::lost(Call::Submit, "nobody answers");
    script.tell(&Command::Answer { subject, token, answer }).await.unwrap();
    assert_eq!(store.stuck_break_glass(script.now).await, Ok(1));
    assert_eq!(store.stuck_break_glass(script.now.minus(MINUTE)).await, Ok(0), "not yet");
}

async fn a_cluster_is_due_once(store: Arc<dyn BreakGlassStore>) {
    let mut script = Script::new(&store, "cls-a", Signer::LocalCa, &[]);
    script.request("anna").await;
    let (now, later) = (script.now, script.now.plus(MINUTE));
    let due = store.break_glass_due(now, 10, later, replica(1)).await.unwrap();
    let owned = OwnedBy { owner: Some(replica(1)), epoch: 1 };
    assert_eq!((&due[0].cluster_id, due[0].version), (&script.cluster_id, script.version));
    assert_eq!((due[0].ownership, due[0].from), (owned, None));
    assert_eq!(store.break_glass_due(now, 10, later, replica(1)).await, Ok(vec![]));
    let again = store.break_glass_due(later, 10, later, replica(1)).await.unwrap();
    assert_eq!((again.len(), again[0].ownership), (1, owned), "its owner goes on");
    let free = OwnedBy { owner: None, ..owned };
    let set = |version, ownership| {
        store.reschedule_break_glass(&script.cluster_id, version, Some(now), ownership)
    };
    assert_eq!(set(script.version + 1, free).await, Ok(false));
    assert_eq!(set(script.version, OwnedBy::default()).await, Ok(false), "an owner before it");
    assert_eq!(set(script.version, free).await, Ok(true));
    let loaded = store.load_break_glass(&script.cluster_id).await.unwrap();
    assert_eq!(loaded.ownership, free);
    let version = store.break_glass_version(&script.cluster_id).await;
    assert_eq!(version, Ok(Some(script.version)));
    assert_eq!(store.break_glass_version(&"cls-none".parse().unwrap()).await, Ok(None));
    let due = store.break_glass_due(now, 10, later, replica(1)).await.unwrap();
    assert_eq!(due[0].ownership.epoch, 2, "given back and taken again");
    let counts = store.credential_counts().await.unwrap();
    assert_eq!(counts.get("accepted"), Some(&1));
}
