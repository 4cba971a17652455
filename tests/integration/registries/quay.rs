//! What each answer of Quay means, and what is done when one is lost.

use std::time::Duration;

use hyperfleet_credentials::ids::AccountName;
use hyperfleet_credentials::registries::quay::Quay;
use hyperfleet_credentials::registries::*;
use secrecy::{ExposeSecret, SecretString};

use super::conformance::{create, intent, is_valid, marker};
use super::quay_fixture::{QuayFixture, quay};
use crate::support::calls::{call, call_within};
use crate::support::fake_quay::{
    Entry, Fault, Gate, Op, Reply, What, When, read_only, shape_a, shape_b,
};

pub const NAME: &str = "hyp-cls-1-g1-aaaa";

pub fn name() -> AccountName {
    NAME.parse().unwrap()
}

/// An outcome in a few letters, so that tables of them can be read.
pub fn word(trouble: &Trouble) -> String {
    let after = trouble.retry_after.map(|time| format!(" {}s", time.as_secs()));
    format!("{:?}{}", trouble.kind, after.unwrap_or_default())
}

pub async fn created(fixture: &QuayFixture, call: &CallContext) -> String {
    match fixture.registry.create(call, &intent(&fixture.registry, NAME)).await {
        CreateOutcome::Created { .. } => "created".to_owned(),
        CreateOutcome::AlreadyExists => "exists".to_owned(),
        CreateOutcome::Refused(_) => "refused".to_owned(),
        CreateOutcome::Unavailable(trouble) => format!("not applied: {}", word(&trouble)),
        CreateOutcome::Unknown(trouble) => format!("unknown: {}", word(&trouble)),
    }
}

pub async fn looked_up(fixture: &QuayFixture) -> String {
    match fixture.registry.lookup(&call(), &name(), &marker()).await {
        LookupOutcome::Absent => "absent".to_owned(),
        LookupOutcome::Present { secret, ownership, username, .. } => {
            let secret = secret.unwrap();
            assert!(fixture.fake.secret_works(&username, secret.expose_secret()));
            format!("present: {ownership:?}")
        }
        LookupOutcome::Unavailable(trouble) => word(&trouble),
    }
}

pub async fn revoked(fixture: &QuayFixture, call: &CallContext) -> String {
    match fixture.registry.revoke(call, &name(), None).await {
        RevokeOutcome::Done => "done".to_owned(),
        RevokeOutcome::AlreadyGone => "gone".to_owned(),
        RevokeOutcome::Refused(_) => "refused".to_owned(),
        RevokeOutcome::Unavailable(trouble) => format!("not applied: {}", word(&trouble)),
        RevokeOutcome::Unknown(trouble) => format!("unknown: {}", word(&trouble)),
    }
}

pub async fn verified(fixture: &QuayFixture, username: &str, secret: &SecretString) -> String {
    match fixture.registry.verify(&call(), username, secret).await {
        VerifyOutcome::Valid { can_pull } => format!("valid: {can_pull}"),
        VerifyOutcome::Invalid => "invalid".to_owned(),
        VerifyOutcome::Unavailable(trouble) => word(&trouble),
    }
}

/// Faults that say the same of every change, and what that is. Nothing is applied by any of them.
fn refusals() -> Vec<(Reply, &'static str)> {
    let envoy = "upstream connect error or disconnect/reset before headers. reset reason: \
                 connection termination";
    vec![
        (
            shape_a("h", 401, "invalid_token", "Requires authentication"),
            "not applied: OwnCredential",
        ),
        (
            Reply::html(403, r#"{"error": "CSRF token was invalid or missing."}"#),
            "not applied: OwnCredential",
        ),
        (shape_a("h", 403, "insufficient_scope", "Unauthorized"), "not applied: Misconfigured"),
        (Reply::gateway(403), "not applied: Misconfigured"),
        (shape_a("h", 404, "not_found", "Not Found"), "not applied: Misconfigured"),
        (Reply::gateway(404), "not applied: Misconfigured"),
        (Reply::gateway(405), "not applied: Misconfigured"),
        (Reply::gateway(302).with("Location", "http://elsewhere/"), "not applied: Misconfigured"),
        (shape_b(400, "a deadlock was detected"), "not applied: ServerError"),
        (Reply::gateway(413), "not applied: ServerError"),
        (Reply::rate_limited(), "not applied: RateLimited"),
        (Reply::locked_out(7), "not applied: RateLimited 7s"),
        (read_only(), "not applied: ServerError"),
        (Reply::gateway(503).with("Retry-After", "9"), "not applied: ServerError 9s"),
        (Reply::text(503, "text/plain", envoy), "unknown: ServerError"),
        (Reply::server_error(), "unknown: ServerError"),
        (Reply::gateway(502), "unknown: ServerError"),
        (Reply::gateway(504), "unknown: ServerError"),
        (Reply::text(200, "application/json", "{}"), "unknown: ServerError"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_answer_means_to_a_create() {
    let fixture = QuayFixture::new();
    for (reply, expected) in refusals() {
        let shown = format!("{reply:?}");
        fixture.fake.next(Op::CreateRobot, Fault::Instead(reply));
        assert_eq!(created(&fixture, &call()).await, expected, "{shown}");
    }
    assert_eq!(fixture.fake.changes(), []);
    // The account is not there, so these are about its name or its description.
    for reply in [
        shape_a("h", 400, "invalid_request", "The name for the robot 'x' is invalid: ..."),
        shape_a("h", 400, "invalid_request", "'...' is too long\n\nFailed validating 'maxLength'"),
        shape_b(400, "value too long for type character varying(255)\n"),
    ] {
        fixture.fake.next(Op::CreateRobot, Fault::Instead(reply));
        assert_eq!(created(&fixture, &call()).await, "refused");
    }
    fixture.fake.disallow_robots(true);
    assert_eq!(created(&fixture, &call()).await, "not applied: Misconfigured");
    fixture.fake.disallow_robots(false);
    fixture.fake.set_read_only(true);
    assert_eq!(created(&fixture, &call()).await, "not applied: ServerError");
    fixture.fake.set_read_only(false);
    assert_eq!(created(&fixture, &call()).await, "created");
    assert_eq!(created(&fixture, &call()).await, "exists");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_answer_means_to_a_revoke() {
    let fixture = QuayFixture::new();
    create(&fixture.registry, NAME).await;
    let before = fixture.fake.changes();
    for (reply, expected) in refusals() {
        let shown = format!("{reply:?}");
        fixture.fake.next(Op::DeleteRobot, Fault::Instead(reply));
        assert_eq!(revoked(&fixture, &call()).await, expected, "{shown}");
    }
    let missing = || shape_b(400, "Could not find robot with specified username");
    fixture.fake.next(Op::DeleteRobot, Fault::Instead(missing()));
    assert_eq!(revoked(&fixture, &call()).await, "not applied: ServerError");
    assert_eq!(fixture.fake.changes(), before);

    fixture.fake.let_mirror(&fixture.fake.full(NAME), true);
    assert_eq!(revoked(&fixture, &call()).await, "refused");
    fixture.fake.let_mirror(&fixture.fake.full(NAME), false);
    assert_eq!(revoked(&fixture, &call()).await, "done");
    fixture.fake.next(Op::GetRobot, Fault::Instead(Reply::server_error()));
    assert_eq!(revoked(&fixture, &call()).await, "not applied: ServerError");
    assert_eq!(revoked(&fixture, &call()).await, "gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_answer_means_to_reading_calls() {
    let fixture = QuayFixture::new();
    create(&fixture.registry, NAME).await;
    for (reply, expected) in refusals() {
        let expected = expected.split_once(": ").unwrap().1;
        let shown = format!("{reply:?}");
        fixture.fake.next(Op::GetRobot, Fault::Instead(reply.clone()));
        assert_eq!(looked_up(&fixture).await, expected, "{shown}");
        fixture.fake.next(Op::ListRobots, Fault::Instead(reply));
        let error = fixture.registry.list(&call(), "hyp").await.unwrap_err();
        assert_eq!(word(&error.0), expected, "{shown}");
    }
    for fault in [Fault::LoseBefore, Fault::LoseAfter, Fault::Truncated] {
        fixture.fake.next(Op::GetRobot, fault);
        assert_eq!(looked_up(&fixture).await, "ServerError");
    }
    assert_eq!(looked_up(&fixture).await, "present: ThisIntent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_answer_means_to_a_login() {
    let fixture = QuayFixture::new();
    let (username, secret) = create(&fixture.registry, NAME).await;
    for (reply, expected) in [
        (Reply::gateway(401), "Misconfigured"),
        (Reply::gateway(404), "Misconfigured"),
        (Reply::gateway(302), "Misconfigured"),
        (Reply::gateway(400), "Misconfigured"),
        (Reply::rate_limited(), "RateLimited"),
        (Reply::locked_out(5), "RateLimited 5s"),
        (Reply::server_error(), "ServerError"),
        (Reply::gateway(503).with("Retry-After", "9"), "ServerError 9s"),
        (Reply::text(200, "application/json", r#"{"token":"no token"}"#), "ServerError"),
        (Reply::text(200, "application/json", "<html>"), "ServerError"),
    ] {
        let shown = format!("{reply:?}");
        fixture.fake.next(Op::Auth, Fault::Instead(reply));
        assert_eq!(verified(&fixture, &username, &secret).await, expected, "{shown}");
    }
    fixture.fake.next(Op::Auth, Fault::LoseAfter);
    assert_eq!(verified(&fixture, &username, &secret).await, "ServerError");
    assert_eq!(verified(&fixture, &username, &secret).await, "valid: true");
    assert_eq!(verified(&fixture, &username, &"wrong".into()).await, "invalid");
    assert_eq!(verified(&fixture, "acme+nobody", &secret).await, "invalid");
    assert_eq!(verified(&fixture, "acme+a:b", &secret).await, "invalid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_to_pull_stands_in_the_token() {
    let fixture = QuayFixture::new();
    let (username, secret) = create(&fixture.registry, NAME).await;
    assert_eq!(verified(&fixture, &username, &secret).await, "valid: true");
    // Somebody else's robot has no grant.
    fixture.fake.add_robot("acme+theirs", "theirs", "");
    assert_eq!(verified(&fixture, "acme+theirs", &"theirs".into()).await, "valid: false");
    // By the team alone.
    let mut settings = fixture.settings.clone();
    settings.repositories = vec!["app".to_owned(), "tools".to_owned()];
    let both = quay(&settings, &fixture.fake);
    assert!(is_valid(&both, &username, &secret).await);
    settings.repositories = vec!["app".to_owned(), "missing".to_owned()];
    let one = quay(&settings, &fixture.fake);
    let outcome = one.verify(&call(), &username, &secret).await;
    assert!(matches!(outcome, VerifyOutcome::Valid { can_pull: false }), "{outcome:?}");
    settings.repositories = Vec::new();
    let none = quay(&settings, &fixture.fake);
    let theirs = "theirs".into();
    assert!(is_valid(&none, "acme+theirs", &theirs).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_create_is_adopted_or_absent() {
    for (fault, afterwards) in [
        (Fault::LoseBefore, "absent"),
        (Fault::LoseAfter, "present: ThisIntent"),
        (Fault::Truncated, "present: ThisIntent"),
        (Fault::InsteadAfter(Reply::gateway(502)), "present: ThisIntent"),
        (
            Fault::InsteadAfter(Reply::text(201, "application/json", "garbage")),
            "present: ThisIntent",
        ),
        (Fault::InsteadAfter(Reply::html(201, "<html>")), "present: ThisIntent"),
        (
            Fault::InsteadAfter(Reply::json(
                201,
                &serde_json::json!({ "name": "acme+x", "token": "t" }),
            )),
            "present: ThisIntent",
        ),
    ] {
        let fixture = QuayFixture::new();
        let shown = format!("{fault:?}");
        // On a connection that was in use before: nothing below us may send it a second time.
        assert_eq!(looked_up(&fixture).await, "absent");
        fixture.fake.next(Op::CreateRobot, fault);
        assert_eq!(created(&fixture, &call()).await, "unknown: ServerError", "{shown}");
        assert_eq!(fixture.fake.requests(Op::CreateRobot), 1, "{shown}");
        assert_eq!(looked_up(&fixture).await, afterwards, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_revoke_is_done_or_not() {
    for (fault, afterwards) in [
        (Fault::LoseBefore, "done"),
        (Fault::LoseAfter, "gone"),
        (Fault::Truncated, "gone"),
        (Fault::InsteadAfter(Reply::gateway(504)), "gone"),
    ] {
        let fixture = QuayFixture::new();
        let shown = format!("{fault:?}");
        create(&fixture.registry, NAME).await;
        fixture.fake.next(Op::DeleteRobot, fault);
        assert_eq!(revoked(&fixture, &call()).await, "unknown: ServerError", "{shown}");
        assert_eq!(revoked(&fixture, &call()).await, afterwards, "{shown}");
        assert_eq!(fixture.fake.live(""), Vec::<String>::new(), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_create_appears_late() {
    let fixture = QuayFixture::new();
    let gate = Gate::default();
    fixture.fake.next(Op::CreateRobot, Fault::AppliedLate(When::Opened(gate.clone())));
    assert_eq!(created(&fixture, &call()).await, "unknown: ServerError");
    assert_eq!(looked_up(&fixture).await, "absent");
    gate.open();
    let is_made = |entry: &Entry| matches!(entry.what, What::Created { .. });
    fixture.fake.reached(move |log| log.iter().any(is_made)).await;
    assert_eq!(looked_up(&fixture).await, "present: ThisIntent");
    assert_eq!(revoked(&fixture, &call()).await, "done");
    assert_eq!(fixture.fake.reused_names(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_is_a_total_and_tells_before_from_after() {
    let fixture = QuayFixture::new();
    let held = |op| {
        let gate = Gate::default();
        fixture.fake.next(op, Fault::Before(When::Opened(gate.clone())));
        gate
    };
    let short = || call_within(Duration::from_millis(200));
    let gate = held(Op::CreateRobot);
    assert_eq!(created(&fixture, &short()).await, "unknown: Timeout");
    gate.open();
    // Applied although nobody waits any more; the rights are what is left of the time's trouble.
    let is_made = |entry: &Entry| matches!(entry.what, What::Created { .. });
    fixture.fake.reached(move |log| log.iter().any(is_made)).await;
    fixture.fake.next(Op::DeleteRobot, Fault::After(When::After(Duration::from_secs(1))));
    assert_eq!(revoked(&fixture, &short()).await, "unknown: Timeout");
    assert_eq!(looked_up(&fixture).await, "absent");
    assert_eq!(revoked(&fixture, &call_within(Duration::ZERO)).await, "not applied: Timeout");

    fixture.fake.next(Op::GetRobot, Fault::Drip(Duration::from_millis(20)));
    let slow = fixture.registry.lookup(&short(), &name(), &marker()).await;
    let LookupOutcome::Unavailable(trouble) = slow else { panic!("{slow:?}") };
    assert_eq!(trouble.kind, TroubleKind::Timeout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_no_connection() {
    let fixture = QuayFixture::new();
    let QuayFixture { fake, registry, .. } = &fixture;
    let gone = crate::support::fake_quay::start();
    let mut settings = fixture.settings.clone();
    settings.url = gone.url.parse().unwrap();
    let lonely = quay(&settings, fake);
    drop(gone);
    let outcome = lonely.create(&call(), &intent(registry, NAME)).await;
    let CreateOutcome::Unavailable(trouble) = outcome else { panic!("{outcome:?}") };
    assert_eq!(trouble.kind, TroubleKind::Connect);
    assert!(!trouble.message.contains("127.0.0.1"), "{}", trouble.message);

    // A client that may not speak plain http sends nothing.
    let strict = reqwest::Client::builder().https_only(true).no_proxy().build().unwrap();
    let strict = Quay::new(fixture.settings.clone(), strict).unwrap();
    let outcome = strict.create(&call(), &intent(registry, NAME)).await;
    let CreateOutcome::Unavailable(trouble) = outcome else { panic!("{outcome:?}") };
    assert_eq!(trouble.kind, TroubleKind::Misconfigured);
    assert_eq!(fake.log(), []);
}
