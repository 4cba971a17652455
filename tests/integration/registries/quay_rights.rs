//! What only Quay has: rights beside the robot, a token that is read anew, a leaking listing, evidence of use.

use std::time::Duration;

use hyperfleet_credentials::ids::Generation;
use hyperfleet_credentials::registries::quay::{QuaySettings, UsageSource};
use hyperfleet_credentials::registries::*;
use hyperfleet_credentials::time::Timestamp;

use super::conformance::{create, intent, is_valid, marker};
use super::quay_fixture::{QuayFixture, quay};
use crate::support::calls::{TestFence, call, fenced};
use crate::support::fake_quay::{Fault, Op, Reply, duplicate_key, read_only, shape_a, shape_b};

use super::quay::{NAME, created, looked_up, name, revoked};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_race_is_an_existing_name() {
    let fixture = QuayFixture::new();
    fixture.fake.add_robot(&fixture.fake.full(NAME), "theirs", "");
    fixture.fake.next(Op::CreateRobot, Fault::Instead(duplicate_key(&fixture.fake.full(NAME))));
    assert_eq!(created(&fixture, &call()).await, "exists");
    // What is there decides, not what the text says.
    fixture.fake.next(Op::CreateRobot, Fault::Instead(shape_b(400, "words of a later release")));
    assert_eq!(created(&fixture, &call()).await, "exists");
    fixture.fake.next(Op::CreateRobot, Fault::Instead(shape_b(400, "words of a later release")));
    fixture.fake.next(Op::GetRobot, Fault::Instead(Reply::server_error()));
    assert_eq!(created(&fixture, &call()).await, "not applied: ServerError");
    assert_eq!(looked_up(&fixture).await, "present: Foreign");
    let full = fixture.fake.full(NAME);
    assert!(!fixture.fake.is_member(&full, "pullers") && !fixture.fake.may_read(&full, "tools"));
    // It was there a moment ago, so the name is spent although it is gone by now.
    fixture.fake.next(Op::CreateRobot, Fault::Instead(duplicate_key(&full)));
    fixture.fake.delete_behind_the_back(&full);
    assert_eq!(created(&fixture, &call()).await, "exists");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_intents_marker_is_foreign() {
    let fixture = QuayFixture::new();
    create(&fixture.registry, NAME).await;
    let mut other = marker();
    other.generation = Generation(2);
    let found = fixture.registry.lookup(&call(), &name(), &other).await;
    let LookupOutcome::Present { ownership, .. } = found else { panic!("{found:?}") };
    assert_eq!(ownership, Ownership::Foreign);
    let listed = fixture.registry.list(&call(), "hyp").await.unwrap();
    let text = listed[0].marker.clone().unwrap();
    assert_eq!(text, "hyperfleet-credentials/1 installation=lab cluster=cls-1 generation=1");
    assert_eq!(Marker::parse(&text), Some(marker()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_were_lost_are_given_at_the_lookup() {
    for (op, fault, expected) in [
        (Op::JoinTeam, Fault::LoseBefore, "unknown: ServerError"),
        (Op::JoinTeam, Fault::LoseAfter, "unknown: ServerError"),
        (Op::JoinTeam, Fault::Instead(Reply::rate_limited()), "unknown: RateLimited"),
        (Op::JoinTeam, Fault::Instead(read_only()), "unknown: ServerError"),
        (Op::Grant, Fault::LoseBefore, "unknown: ServerError"),
        (Op::Grant, Fault::LoseAfter, "unknown: ServerError"),
    ] {
        let fixture = QuayFixture::new();
        let shown = format!("{op:?} {fault:?}");
        fixture.fake.next(op, fault.clone());
        assert_eq!(created(&fixture, &call()).await, expected, "{shown}");
        let full = fixture.fake.full(NAME);
        // The lookup may meet the same trouble; it says "present" only once all is given.
        fixture.fake.next(op, Fault::Instead(Reply::server_error()));
        assert_eq!(looked_up(&fixture).await, "ServerError", "{shown}");
        assert_eq!(looked_up(&fixture).await, "present: ThisIntent", "{shown}");
        assert!(fixture.fake.is_member(&full, "pullers"), "{shown}");
        assert!(fixture.fake.may_read(&full, "tools"), "{shown}");
        assert_eq!(fixture.fake.live("").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_team_or_repository_is_everybodys_trouble() {
    for change in [
        |settings: &mut QuaySettings| settings.team = Some("nobody".to_owned()),
        |settings: &mut QuaySettings| settings.repositories = vec!["nothing".to_owned()],
    ] {
        let fixture = QuayFixture::with(change);
        assert_eq!(created(&fixture, &call()).await, "unknown: Misconfigured");
        assert_eq!(looked_up(&fixture).await, "Misconfigured");
        fixture.fake.add_team("nobody");
        fixture.fake.add_repository("nothing", &[]);
        assert_eq!(looked_up(&fixture).await, "present: ThisIntent");
    }
    let fixture = QuayFixture::with(|settings| settings.organization = "nobody".to_owned());
    assert_eq!(created(&fixture, &call()).await, "not applied: Misconfigured");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_asks_the_fence() {
    let fixture = QuayFixture::new();
    let fence = std::sync::Arc::new(TestFence::default());
    let made =
        fixture.registry.create(&fenced(fence.clone()), &intent(&fixture.registry, NAME)).await;
    assert!(matches!(made, CreateOutcome::Created { .. }), "{made:?}");
    // The robot, the team, one repository twice.
    assert_eq!(fence.asked(), 4);
    let closed = fenced(TestFence::closed());
    let found = fixture.registry.lookup(&closed, &name(), &marker()).await;
    let LookupOutcome::Unavailable(trouble) = found else { panic!("{found:?}") };
    assert_eq!(trouble.kind, TroubleKind::NotCurrent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_is_read_anew_once() {
    let mut fixture = QuayFixture::new();
    assert_eq!(looked_up(&fixture).await, "absent");
    fixture.fake.replace_token();
    // The file still holds the old one: one request, and no second.
    let before = fixture.fake.requests(Op::CreateRobot);
    assert_eq!(created(&fixture, &call()).await, "not applied: OwnCredential");
    assert_eq!(fixture.fake.requests(Op::CreateRobot), before + 1);
    assert_eq!(looked_up(&fixture).await, "OwnCredential");
    // A change is told by 403, a reading by 401; both lead to the file.
    std::fs::write(fixture.token_file(), &fixture.fake.token).unwrap();
    assert_eq!(created(&fixture, &call()).await, "created");
    fixture.fake.replace_token();
    std::fs::write(fixture.token_file(), &fixture.fake.token).unwrap();
    assert_eq!(looked_up(&fixture).await, "present: ThisIntent");
    std::fs::write(fixture.token_file(), "wrong").unwrap();
    fixture.fake.replace_token();
    assert_eq!(revoked(&fixture, &call()).await, "not applied: OwnCredential");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_of_other_organisations_are_never_listed() {
    let fixture = QuayFixture::with(|settings| {
        settings.organization = "a_b".to_owned();
        settings.team = None;
        settings.repositories = Vec::new();
    });
    fixture.fake.add_organization("a_b", true);
    for name in ["a_b+hyp-one", "axb+hyp-two", "A_B+hyp-three", "a_b+hypx-four"] {
        fixture.fake.add_robot(name, "secret", "");
    }
    let listed = fixture.registry.list(&call(), "hyp").await.unwrap();
    let names: Vec<&str> = listed.iter().map(|account| account.name.as_str()).collect();
    assert_eq!(names, ["hyp-one"]);
    // Nor is anybody's secret asked for on the way.
    assert_eq!(fixture.fake.secrets_listed(), 0);
    assert_eq!(listed[0].marker, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_have_a_size() {
    let fixture = QuayFixture::new();
    let large = || Reply::text(200, "application/json", "x".repeat(1024 * 1024 + 1));
    fixture.fake.next(Op::GetRobot, Fault::Instead(large()));
    assert_eq!(looked_up(&fixture).await, "ServerError");
    fixture.fake.next(Op::CreateRobot, Fault::InsteadAfter(large()));
    assert_eq!(created(&fixture, &call()).await, "unknown: ServerError");
    assert_eq!(looked_up(&fixture).await, "present: ThisIntent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_shows_in_a_message() {
    let fixture = QuayFixture::new();
    let secret = "GEHEIM";
    for status in [200, 400, 401, 403, 404, 429, 500, 503] {
        let reply = shape_a("h", status, "invalid_request", secret);
        fixture.fake.break_down(Fault::Instead(reply));
        let outcomes = format!(
            "{:?} {:?} {:?} {:?} {:?}",
            fixture.registry.create(&call(), &intent(&fixture.registry, NAME)).await,
            fixture.registry.lookup(&call(), &name(), &marker()).await,
            fixture.registry.revoke(&call(), &name(), None).await,
            fixture.registry.verify(&call(), "acme+ab", &secret.into()).await,
            fixture.registry.list(&call(), "hyp").await,
        );
        assert!(!outcomes.contains(secret), "{outcomes}");
        assert!(!outcomes.contains(&fixture.fake.token), "{outcomes}");
    }
}

/// The last use of the one robot, in seconds after `since`.
async fn used(fixture: &QuayFixture, since: Timestamp) -> Option<u64> {
    let usage = fixture.registry.usage(&call(), &[name()], since).await.unwrap();
    assert!(usage.len() <= 1);
    usage.first().map(|usage| {
        assert_eq!(usage.name, name());
        usage.last_used_at.since(since).as_secs()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_login_is_no_use() {
    let fixture = QuayFixture::with(|settings| settings.repositories = Vec::new());
    let since = fixture.fake.clock().now().minus(Duration::from_secs(1));
    let (username, secret) = create(&fixture.registry, NAME).await;
    let somebody = fixture.login_as_somebody(&username, &secret);
    assert_eq!(used(&fixture, since).await, None);
    assert!(is_valid(&fixture.registry, &username, &secret).await);
    assert_eq!(used(&fixture, since).await, None);
    // Written down a minute after the first, and so within the margin of our second: it could be
    // ours, by another clock.
    fixture.fake.advance(Duration::from_secs(40));
    assert!(is_valid(&fixture.registry, &username, &secret).await);
    fixture.fake.advance(Duration::from_secs(30));
    somebody().await;
    assert_eq!(used(&fixture, since).await, None);
    fixture.fake.advance(Duration::from_secs(61));
    somebody().await;
    assert!(used(&fixture, since).await.unwrap() >= 131);
    // What was before `since` is not asked for; a new login of ours hides what it hides.
    assert_eq!(used(&fixture, fixture.fake.clock().now().plus(Duration::from_secs(1))).await, None);
    assert!(is_valid(&fixture.registry, &username, &secret).await);
    assert_eq!(used(&fixture, since).await, None);
    // Another replica has not seen our logins; its caller's `since` has to.
    let twin = quay(&fixture.settings, &fixture.fake);
    assert_eq!(twin.usage(&call(), &[name()], since).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_tells_real_pulls_over_many_pages() {
    let fixture = QuayFixture::with(|settings| settings.usage = UsageSource::Log);
    let since = fixture.fake.clock().now().minus(Duration::from_secs(1));
    let (username, secret) = create(&fixture.registry, NAME).await;
    let (other, other_secret) = create(&fixture.registry, "hyp-other").await;
    assert!(is_valid(&fixture.registry, &username, &secret).await);
    assert_eq!(used(&fixture, since).await, None);
    fixture.fake.advance(Duration::from_secs(10));
    fixture.pull(&username, &secret).await;
    fixture.fake.advance(Duration::from_secs(90));
    for _ in 0..30 {
        fixture.pull(&other, &other_secret).await;
    }
    let before = fixture.fake.requests(Op::OrgLog);
    let at = used(&fixture, since).await.unwrap();
    assert!((10..90).contains(&at), "{at}");
    assert!(fixture.fake.requests(Op::OrgLog) - before > 1);
    // Newest first, so what is older than asked for is not read to its end.
    let later = fixture.fake.clock().now().plus(Duration::from_secs(1));
    let before = fixture.fake.requests(Op::OrgLog);
    assert_eq!(used(&fixture, later).await, None);
    assert_eq!(fixture.fake.requests(Op::OrgLog) - before, 1);

    // A part of the log is no answer.
    fixture.fake.next_well(Op::OrgLog);
    fixture.fake.next(Op::OrgLog, Fault::Instead(Reply::rate_limited()));
    let error = fixture.registry.usage(&call(), &[name()], since).await.unwrap_err();
    assert_eq!(error.0.kind, TroubleKind::RateLimited);
    let circle = serde_json::json!({ "logs": [], "next_page": "again" });
    fixture.fake.break_down(Fault::Instead(Reply::json(200, &circle)));
    let error = fixture.registry.usage(&call(), &[name()], since).await.unwrap_err();
    assert_eq!(error.0.kind, TroubleKind::Misconfigured);
    fixture.fake.heal();

    let silent = QuayFixture::with(|settings| settings.usage = UsageSource::None);
    assert_eq!(used(&silent, since).await, None);
    assert_eq!(silent.fake.requests(Op::OrgLog) + silent.fake.requests(Op::ListRobots), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_quay_would_not_take_is_never_sent() {
    let fixture = QuayFixture::with(|settings| settings.organization = "o".repeat(240));
    assert_eq!(fixture.registry.capabilities().max_name_length, 14);
    assert_eq!(created(&fixture, &call()).await, "refused");
    assert_eq!(looked_up(&fixture).await, "absent");
    assert_eq!(revoked(&fixture, &call()).await, "gone");
    let mut chosen = intent(&fixture.registry, "hyp-a");
    chosen.secret = Some("chosen".into());
    let outcome = fixture.registry.create(&call(), &chosen).await;
    assert!(matches!(outcome, CreateOutcome::Refused(_)), "{outcome:?}");
    let mut long = intent(&fixture.registry, "hyp-a");
    long.marker.installation = "i".repeat(300);
    let outcome = fixture.registry.create(&call(), &long).await;
    let CreateOutcome::Unavailable(trouble) = outcome else { panic!("{outcome:?}") };
    assert_eq!(trouble.kind, TroubleKind::Misconfigured);
    assert_eq!(fixture.fake.log(), []);
}
