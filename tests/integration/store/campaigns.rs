//! Campaigns and their members: counted exactly, begun once each, driven by one.

use std::sync::Arc;
use std::time::Duration;

use hyperfleet_credentials::actors::audit::Caller;
use hyperfleet_credentials::actors::campaigns::audit;
use hyperfleet_credentials::ids::{CampaignId, ClusterId, RotationId};
use hyperfleet_credentials::state::campaign::{
    CampaignState, Load, MemberStatus, Progress, Rules, result,
};
use hyperfleet_credentials::state::pull_secret::{Command, RotationReason};
use hyperfleet_credentials::store::{
    AuditFilter, Campaign, CampaignChange, CursorError, IdempotencyAnswer, IdempotencyKey,
    IdempotencyStart, IdempotencyState, MemberResult, NewCampaign, PurgeBefore, RotationFilter,
    Selector, Store, StoreError,
};
use hyperfleet_credentials::time::Timestamp;
use uuid::Uuid;

use super::backends::conforms;
use super::script::{HOUR, MINUTE, Script, served, start};

conforms!(
    a_campaign_is_kept_and_found,
    the_answer_of_its_request_is_kept_with_it,
    campaigns_are_listed_newest_first,
    members_are_listed_in_their_order,
    a_state_changes_only_from_the_one_it_was_decided_on,
    one_drives_it_and_a_dead_one_is_followed,
    members_begin_once_each_and_only_for_whoever_drives,
    results_are_counted_once,
    a_running_member_shows_its_rotation,
    a_rotation_that_ended_does_not_begin_again,
    all_with_a_registry_are_gathered_page_by_page,
    all_that_are_old_enough_are_gathered,
    room_is_taken_by_what_began_and_by_what_is_deleted,
    an_old_one_passes_with_its_members,
);

fn campaign(number: u64, selector: Selector, members: usize) -> Campaign {
    let now = start().plus(Duration::from_secs(number));
    let total = u32::try_from(members).unwrap();
    Campaign {
        id: CampaignId(Uuid::from_u128(u128::from(number) + 1)),
        state: CampaignState::Running,
        message: None,
        reason: RotationReason::Manual,
        gathered: selector == Selector::ClusterIds,
        gathered_to: String::new(),
        selector,
        rules: Rules {
            max_in_flight: 20,
            max_per_minute: 60,
            canary: 5,
            abort_failure_ratio: 0.125,
        },
        progress: Progress { total, pending: total, ..Progress::default() },
        created_by: "operator-1".to_owned(),
        created_at: now,
        state_since: now,
        completed_at: None,
    }
}

fn clusters(count: usize) -> Vec<ClusterId> {
    // Not in the order of their names.
    (0..count).rev().map(|number| format!("cls-{number:03}").parse().unwrap()).collect()
}

async fn create(store: &Arc<dyn Store>, campaign: &Campaign, members: &[ClusterId]) {
    let audit = audit(campaign, "campaign_created", &Caller::service("test"), campaign.created_at);
    let new = NewCampaign { campaign, members, audit, idempotency: None };
    store.create_campaign(new).await.unwrap();
}

/// One of named members.
async fn named(store: &Arc<dyn Store>, members: usize) -> Campaign {
    let campaign = campaign(0, Selector::ClusterIds, members);
    create(store, &campaign, &clusters(members)).await;
    campaign
}

async fn found(store: &Arc<dyn Store>, id: CampaignId) -> Campaign {
    store.campaign(id).await.unwrap().unwrap()
}

/// Takes all that are free until then.
async fn take(store: &Arc<dyn Store>, now: Timestamp, until: Timestamp) -> Vec<CampaignId> {
    let taken = store.claim_campaigns(now, until, 16).await.unwrap();
    taken.into_iter().map(|campaign| campaign.id).collect()
}

fn rotations(first: u128, count: u128) -> Vec<RotationId> {
    (first..first + count).map(|id| RotationId(Uuid::from_u128(id))).collect()
}

fn changed(of: &Campaign, from: CampaignState, to: CampaignState) -> CampaignChange {
    let at = of.created_at.plus(MINUTE);
    let audit = audit(of, "campaign_changed", &Caller::service("test"), at);
    CampaignChange { id: of.id, from, to, message: None, at, audit, idempotency: None }
}

fn ended(
    (cluster_id, rotation_id): &(ClusterId, RotationId),
    status: MemberStatus,
    detail: Option<&str>,
) -> MemberResult {
    let (cluster_id, rotation_id) = (cluster_id.clone(), *rotation_id);
    MemberResult { cluster_id, rotation_id, status, detail: detail.map(ToOwned::to_owned) }
}

async fn a_campaign_is_kept_and_found(store: Arc<dyn Store>) {
    let nobody = CampaignId(Uuid::from_u128(77));
    assert_eq!(store.campaign(nobody).await, Ok(None));
    let selectors = [
        Selector::ClusterIds,
        Selector::Registry("quay".parse().unwrap()),
        Selector::OlderThan(30 * 24 * HOUR),
    ];
    for (number, selector) in (0..).zip(selectors) {
        let campaign =
            Campaign { reason: RotationReason::Compromise, ..campaign(number, selector, 0) };
        create(&store, &campaign, &[]).await;
        assert_eq!(found(&store, campaign.id).await, campaign);
        let events = store.list_audit(&AuditFilter::default(), None, 10).await.unwrap();
        let told = &events.items[0].row;
        assert_eq!(told.stream, format!("campaign/{}", campaign.id), "a chain of its own");
        assert_eq!(told.action, "campaign_created");
    }
}

async fn the_answer_of_its_request_is_kept_with_it(store: Arc<dyn Store>) {
    let campaign = campaign(0, Selector::ClusterIds, 1);
    let key = IdempotencyKey { key_hash: vec![1; 32], caller_hash: vec![2; 32] };
    let holder = Uuid::from_u128(5);
    let now = campaign.created_at;
    let begin = IdempotencyStart {
        key: key.clone(),
        body_hash: vec![3; 32],
        holder,
        now,
        lease_until: now.plus(MINUTE),
    };
    let new = |holder| {
        let answer = IdempotencyAnswer {
            key: key.clone(),
            holder,
            status: 201,
            location: Some("/there".to_owned()),
            resource_id: Some(campaign.id.to_string()),
        };
        let audit = audit(&campaign, "campaign_created", &Caller::service("test"), now);
        (audit, Some(answer))
    };
    let members = clusters(1);
    let create = async |holder| {
        let (audit, idempotency) = new(holder);
        let new = NewCampaign { campaign: &campaign, members: &members, audit, idempotency };
        store.create_campaign(new).await
    };
    assert_eq!(store.begin_idempotent(&begin).await, Ok(IdempotencyState::Begun));
    // Whoever lost the key makes no campaign.
    assert_eq!(create(Uuid::from_u128(6)).await, Err(StoreError::LeaseLost));
    assert_eq!(store.campaign(campaign.id).await, Ok(None));
    assert_eq!(create(holder).await, Ok(()));
    let answered = IdempotencyState::Answered {
        status: 201,
        location: Some("/there".to_owned()),
        resource_id: Some(campaign.id.to_string()),
    };
    assert_eq!(store.begin_idempotent(&begin).await, Ok(answered));
}

async fn campaigns_are_listed_newest_first(store: Arc<dyn Store>) {
    for number in 0..5 {
        create(&store, &campaign(number, Selector::ClusterIds, 0), &[]).await;
    }
    let ids = |items: &[Campaign]| items.iter().map(|one| one.id.0.as_u128()).collect::<Vec<_>>();
    let first = store.list_campaigns(None, 2).await.unwrap();
    assert_eq!((ids(&first.items), first.total_count), (vec![5, 4], Some(5)));
    create(&store, &campaign(9, Selector::ClusterIds, 0), &[]).await;
    let cursor = first.next.unwrap().to_string().parse().unwrap();
    let rest = store.list_campaigns(Some(&cursor), 10).await.unwrap();
    assert_eq!((ids(&rest.items), rest.next), (vec![3, 2, 1], None));
    let filter = RotationFilter::all(start());
    let other = store.list_rotations(&filter, Some(&cursor), 10).await;
    assert_eq!(other, Err(StoreError::Cursor(CursorError::OtherList)));
}

async fn members_are_listed_in_their_order(store: Arc<dyn Store>) {
    let campaign = named(&store, 7).await;
    let page = store.list_campaign_members(campaign.id, None, None, 4).await.unwrap();
    let names = |items: &[hyperfleet_credentials::store::CampaignMember]| {
        items.iter().map(|member| member.cluster_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&page.items), ["cls-006", "cls-005", "cls-004", "cls-003"], "as named");
    let cursor = page.next.unwrap().to_string().parse().unwrap();
    let rest = store.list_campaign_members(campaign.id, None, Some(&cursor), 4).await.unwrap();
    assert_eq!(
        (names(&rest.items), rest.next),
        (clusters(3).iter().map(ToString::to_string).collect(), None)
    );
    let until = campaign.created_at.plus(MINUTE);
    take(&store, campaign.created_at, until).await;
    let begun = store.begin_members(campaign.id, until, &rotations(100, 2), until).await.unwrap();
    let running = Some(MemberStatus::Running);
    let running = store.list_campaign_members(campaign.id, running, None, 4).await.unwrap();
    assert_eq!(names(&running.items), ["cls-006", "cls-005"]);
    assert_eq!(running.items[0].rotation_id, Some(begun[0].1));
    assert_eq!(running.items[0].started_at, Some(until));
    let pending = Some(MemberStatus::Pending);
    let pending = store.list_campaign_members(campaign.id, pending, None, 10).await.unwrap();
    assert_eq!(pending.items.len(), 5);
}

async fn a_state_changes_only_from_the_one_it_was_decided_on(store: Arc<dyn Store>) {
    use CampaignState::{Aborted, Paused, Running};
    let campaign = named(&store, 1).await;
    assert_eq!(store.change_campaign(changed(&campaign, Running, Paused)).await, Ok(()));
    let paused = found(&store, campaign.id).await;
    assert_eq!((paused.state, paused.completed_at), (Paused, None));
    assert_eq!(paused.state_since, campaign.created_at.plus(MINUTE));
    let late = store.change_campaign(changed(&campaign, Running, Aborted)).await;
    assert_eq!(late, Err(StoreError::Conflict));
    let abort = CampaignChange {
        message: Some("3 of 5 failed".to_owned()),
        ..changed(&campaign, Paused, Aborted)
    };
    assert_eq!(store.change_campaign(abort.clone()).await, Ok(()));
    let aborted = found(&store, campaign.id).await;
    assert_eq!((aborted.state, aborted.completed_at), (Aborted, Some(abort.at)));
    assert_eq!(aborted.message.as_deref(), Some("3 of 5 failed"));
    let told = store.list_audit(&AuditFilter::default(), None, 10).await.unwrap();
    assert_eq!(told.items.len(), 3, "what was refused is not told");
}

async fn one_drives_it_and_a_dead_one_is_followed(store: Arc<dyn Store>) {
    use CampaignState::{Completed, Running};
    let campaign = named(&store, 0).await;
    let now = campaign.created_at;
    let until = now.plus(MINUTE);
    assert_eq!(take(&store, now.minus(MINUTE), until).await, []);
    assert_eq!(take(&store, now, until).await, [campaign.id]);
    assert_eq!(take(&store, now, until.plus(MINUTE)).await, [], "somebody has it");
    // Given back, it is free at once; by whoever has it no more, not.
    let mistaken = store.release_campaign(campaign.id, now, now).await;
    assert_eq!((mistaken, take(&store, now, until).await), (Ok(()), vec![]));
    store.release_campaign(campaign.id, until, now).await.unwrap();
    assert_eq!(take(&store, now, until).await, [campaign.id]);
    // Its driver dies.
    let later = until.plus(MINUTE);
    assert_eq!(take(&store, until, later).await, [campaign.id]);
    // Once nothing is left to do, nobody takes it.
    store.change_campaign(changed(&campaign, Running, Completed)).await.unwrap();
    store.release_campaign(campaign.id, later, now).await.unwrap();
    assert_eq!(take(&store, later.plus(HOUR), later.plus(2 * HOUR)).await, []);
}

async fn members_begin_once_each_and_only_for_whoever_drives(store: Arc<dyn Store>) {
    let campaign = named(&store, 3).await;
    let (now, until) = (campaign.created_at, campaign.created_at.plus(MINUTE));
    let begin = async |until, first, count| {
        let begun = store.begin_members(campaign.id, until, &rotations(first, count), now).await;
        begun
            .unwrap()
            .into_iter()
            .map(|(id, rotation)| (id.to_string(), rotation.0.as_u128()))
            .collect::<Vec<_>>()
    };
    assert_eq!(begin(until, 100, 2).await, [], "nobody has taken it");
    take(&store, now, until).await;
    assert_eq!(begin(now, 100, 2).await, [], "somebody else has");
    assert_eq!(
        begin(until, 100, 2).await,
        [("cls-002".to_owned(), 100), ("cls-001".to_owned(), 101)]
    );
    assert_eq!(begin(until, 200, 2).await, [("cls-000".to_owned(), 200)]);
    assert_eq!(begin(until, 300, 2).await, []);
    let progress = found(&store, campaign.id).await.progress;
    assert_eq!((progress.pending, progress.running, progress.total), (0, 3, 3));
    // A paused one begins nothing, whoever has decided what a moment ago.
    let other = self::campaign(1, Selector::ClusterIds, 1);
    create(&store, &other, &clusters(1)).await;
    take(&store, other.created_at, other.created_at.plus(MINUTE)).await;
    let pause = changed(&other, CampaignState::Running, CampaignState::Paused);
    store.change_campaign(pause).await.unwrap();
    let taken = other.created_at.plus(MINUTE);
    let begun = store.begin_members(other.id, taken, &rotations(400, 1), now).await;
    assert_eq!(begun, Ok(vec![]));
}

async fn results_are_counted_once(store: Arc<dyn Store>) {
    use MemberStatus::{Failed, Skipped, Succeeded};
    let campaign = named(&store, 5).await;
    let until = campaign.created_at.plus(MINUTE);
    take(&store, campaign.created_at, until).await;
    let begun = store.begin_members(campaign.id, until, &rotations(100, 4), until).await.unwrap();
    let results = [
        ended(&begun[0], Succeeded, None),
        ended(&begun[1], Failed, Some("denied")),
        ended(&begun[2], Skipped, Some("no_record")),
    ];
    let at = until.plus(MINUTE);
    assert_eq!(store.settle_members(campaign.id, &results, at).await, Ok(3));
    assert_eq!(store.settle_members(campaign.id, &results, at).await, Ok(0), "again");
    assert_eq!(store.settle_members(campaign.id, &[], at).await, Ok(0));
    // A word about another rotation of that cluster is not about this one.
    let other = (begun[3].0.clone(), RotationId(Uuid::from_u128(9)));
    assert_eq!(store.settle_members(campaign.id, &[ended(&other, Failed, None)], at).await, Ok(0));
    let progress = found(&store, campaign.id).await.progress;
    let expected =
        Progress { total: 5, pending: 1, running: 1, succeeded: 1, failed: 1, skipped: 1 };
    assert_eq!(progress, expected);
    let failed = store.list_campaign_members(campaign.id, Some(Failed), None, 9).await.unwrap();
    let failed = &failed.items[0];
    assert_eq!((failed.detail.as_deref(), failed.ended_at), (Some("denied"), Some(at)));
}

/// A served cluster as the only member of a campaign, begun with this rotation.
async fn begun(store: &Arc<dyn Store>, name: &str) -> (Script, Campaign, RotationId) {
    let script = served(store, name).await;
    let campaign = campaign(0, Selector::ClusterIds, 1);
    create(store, &campaign, std::slice::from_ref(&script.cluster_id)).await;
    let until = campaign.created_at.plus(MINUTE);
    take(store, campaign.created_at, until).await;
    let id = rotations(100, 1);
    store.begin_members(campaign.id, until, &id, until).await.unwrap();
    (script, campaign, id[0])
}

async fn a_running_member_shows_its_rotation(store: Arc<dyn Store>) {
    let (mut script, campaign, rotation_id) = begun(&store, "cls-1").await;
    let stores = [Arc::clone(&store)];
    let seen = async || {
        let members = store.running_members(campaign.id, 10).await.unwrap();
        assert_eq!((members.len(), members[0].rotation_id), (1, rotation_id));
        members.into_iter().next().unwrap().seen
    };
    assert_eq!(seen().await, None, "not asked for");
    let reason = RotationReason::Manual;
    let rotate = Command::Rotate { rotation_id, reason, force_immediate: false };
    assert!(script.command(&stores, &rotate).await);
    assert_eq!(result(&seen().await.unwrap()), None);
    script.settle(&stores).await;
    let served = seen().await.unwrap();
    assert!(served.promoted && !served.rolling_back, "{served:?}");
    assert_eq!(result(&served), Some((MemberStatus::Succeeded, None)));
    script.command(&stores, &Command::Rollback { rotation_id }).await;
    script.settle(&stores).await;
    let back = seen().await.unwrap();
    assert!(back.rolling_back, "{back:?}");
    script.command(&stores, &Command::Revoke).await;
    let over = seen().await.unwrap();
    assert_eq!(over.error_code.as_deref(), Some("revoked"), "{over:?}");
}

async fn a_rotation_that_ended_does_not_begin_again(store: Arc<dyn Store>) {
    let (mut script, _, rotation_id) = begun(&store, "cls-1").await;
    let stores = [Arc::clone(&store)];
    let reason = RotationReason::Manual;
    let rotate = Command::Rotate { rotation_id, reason, force_immediate: false };
    assert!(script.command(&stores, &rotate).await);
    script.command(&stores, &Command::Cancel { rotation_id }).await;
    script.settle(&stores).await;
    // Whoever asked and died before it knew asks once more.
    let (_, after) = script.decide(&rotate).unwrap();
    let before = script.state();
    let commit = hyperfleet_credentials::store::Commit::new(
        &script.cluster_id,
        script.version,
        before.as_ref(),
        after.as_ref(),
        script.now,
    );
    let refused = super::script::refused(&store, commit).await;
    assert!(matches!(refused, StoreError::Duplicate { .. }), "{refused}");
    assert_eq!(store.load(&script.cluster_id).await.unwrap(), script.loaded(), "nothing happened");
}

async fn gather(store: &Arc<dyn Store>, id: CampaignId, batch: u32) -> Vec<String> {
    for _ in 0..9 {
        let campaign = found(store, id).await;
        if store.gather_members(&campaign, batch).await.unwrap() {
            break;
        }
        // Another one that is about to do the same does nothing.
        let again = store.gather_members(&campaign, batch).await;
        assert_eq!(again, Err(StoreError::Conflict));
    }
    let campaign = found(store, id).await;
    assert!(campaign.gathered);
    let members = store.list_campaign_members(id, None, None, 100).await.unwrap();
    assert_eq!(members.items.len(), usize::try_from(campaign.progress.total).unwrap());
    assert_eq!(campaign.progress.pending, campaign.progress.total);
    members.items.iter().map(|member| member.cluster_id.to_string()).collect()
}

async fn all_with_a_registry_are_gathered_page_by_page(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    for name in ["cls-e", "cls-a", "cls-d", "cls-b"] {
        served(&store, name).await;
    }
    let mut only_quay = Script::new("cls-c", 1);
    let registries = Some(vec!["quay".parse().unwrap()]);
    let cluster_id = only_quay.cluster_id.clone();
    assert!(only_quay.command(&stores, &Command::Issue { cluster_id, registries }).await);
    only_quay.settle(&stores).await;
    let mut gone = served(&store, "cls-f").await;
    assert!(gone.command(&stores, &Command::Revoke).await);
    for (number, registry, wanted) in [
        (0, "harbor", vec!["cls-a", "cls-b", "cls-d", "cls-e"]),
        (1, "quay", vec!["cls-a", "cls-b", "cls-c", "cls-d", "cls-e"]),
        (2, "nexus", vec![]),
    ] {
        let campaign = campaign(number, Selector::Registry(registry.parse().unwrap()), 0);
        create(&store, &campaign, &[]).await;
        assert_eq!(gather(&store, campaign.id, 2).await, wanted, "{registry}");
    }
}

async fn all_that_are_old_enough_are_gathered(store: Arc<dyn Store>) {
    let stores = [Arc::clone(&store)];
    let old = served(&store, "cls-old").await;
    let mut rotated = served(&store, "cls-rotated").await;
    rotated.now = old.now.plus(50 * HOUR);
    let rotate = rotated.rotate(RotationReason::Manual, false);
    assert!(rotated.command(&stores, &rotate).await);
    rotated.settle(&stores).await;
    let at = old.now.plus(100 * HOUR);
    for (number, hours, wanted) in
        [(0, 70, vec!["cls-old"]), (1, 20, vec!["cls-old", "cls-rotated"]), (2, 101, vec![])]
    {
        let campaign =
            Campaign { created_at: at, ..campaign(number, Selector::OlderThan(hours * HOUR), 0) };
        create(&store, &campaign, &[]).await;
        assert_eq!(gather(&store, campaign.id, 10).await, wanted, "{hours}");
    }
}

async fn room_is_taken_by_what_began_and_by_what_is_deleted(store: Arc<dyn Store>) {
    let (mut script, campaign, rotation_id) = begun(&store, "cls-1").await;
    let stores = [Arc::clone(&store)];
    let started = campaign.created_at.plus(MINUTE);
    let load = async |at| store.campaign_load(campaign.id, at).await.unwrap();
    let just = started.plus(MINUTE - Duration::from_secs(1));
    assert_eq!(load(just).await, Load { begun: 1, deleting: 0 });
    assert_eq!(load(started.plus(MINUTE)).await, Load::default(), "a minute ago");
    let reason = RotationReason::Manual;
    let rotate = Command::Rotate { rotation_id, reason, force_immediate: true };
    assert!(script.command(&stores, &rotate).await);
    script.trouble = false;
    for _ in 0..12 {
        use hyperfleet_credentials::state::pull_secret::AccountPhase::Deleting;
        if script.last.iter().flat_map(|it| &it.accounts).any(|account| account.phase == Deleting) {
            break;
        }
        script.work(&stores).await;
    }
    let later = script.now.plus(HOUR);
    assert_eq!(load(later).await.deleting, 0, "it is counted among those that run");
    let member = (script.cluster_id.clone(), rotation_id);
    let settled = [ended(&member, MemberStatus::Succeeded, None)];
    store.settle_members(campaign.id, &settled, later).await.unwrap();
    assert_eq!(load(later).await.deleting, 1);
    script.settle(&stores).await;
    assert_eq!(load(later).await.deleting, 0);
}

async fn an_old_one_passes_with_its_members(store: Arc<dyn Store>) {
    use CampaignState::{Aborted, Running};
    let campaign = named(&store, 3).await;
    let until = campaign.created_at.plus(MINUTE);
    take(&store, campaign.created_at, until).await;
    let begun = store.begin_members(campaign.id, until, &rotations(100, 1), until).await.unwrap();
    store.change_campaign(changed(&campaign, Running, Aborted)).await.unwrap();
    let at = found(&store, campaign.id).await.completed_at.unwrap();
    let before = |rotations| PurgeBefore {
        rotations,
        secrets: start(),
        idempotency_keys: start(),
        batch: 100,
    };
    let purge = async |end| store.purge(before(end)).await.unwrap().campaigns;
    assert_eq!(purge(at.plus(HOUR)).await, 0, "one still runs");
    let results = [ended(&begun[0], MemberStatus::Succeeded, None)];
    store.settle_members(campaign.id, &results, at).await.unwrap();
    assert_eq!(purge(at).await, 0, "too young");
    assert_eq!(purge(at.plus(HOUR)).await, 1);
    assert_eq!(store.campaign(campaign.id).await, Ok(None));
    let members = store.list_campaign_members(campaign.id, None, None, 10).await.unwrap();
    assert_eq!(members.items, []);
}
