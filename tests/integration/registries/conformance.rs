//! What holds of every registry. The fixture tells the truth; the registry is asked only through
//! the trait.

use std::time::Duration;

use async_trait::async_trait;
use hyperfleet_credentials::ids::Generation;
use hyperfleet_credentials::registries::*;
use secrecy::{ExposeSecret, SecretString};

use crate::support::calls::{TestFence, call, call_within, fenced};

/// One registry under test, and the truth about it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The one under test.
    fn registry(&self) -> &dyn Registry;
    /// Another one over the same accounts, as a second replica has it.
    fn twin(&self) -> Box<dyn Registry>;
    /// An account of somebody else.
    fn add_foreign(&self, name: &str, secret: &SecretString);
    /// The login name of an account.
    fn username(&self, name: &str) -> String;
    /// The names of all accounts that exist.
    fn live(&self) -> Vec<String>;
    /// Everything that is stored: equal before and after means that nothing was written.
    fn everything(&self) -> Vec<u8>;
    /// Whether a login works.
    async fn login(&self, username: &str, secret: &SecretString) -> bool;
    /// From now on the registry is misconfigured.
    fn break_down(&self);
    /// All is well again.
    fn heal(&self);
}

/// Runs every test of the suite over each fixture, in a module named for it.
macro_rules! conformance {
    ($($flavour:ident: $fixture:expr;)+) => {$(
        mod $flavour {
            use super::*;
            conformance!(@tests $fixture =>
                life_of_an_account,
                an_existing_name_is_never_taken_over,
                accounts_of_others_stay,
                a_listing_knows_the_exact_prefix,
                an_overtaken_call_changes_nothing,
                a_late_call_changes_nothing,
                a_wrong_secret_is_invalid,
                trouble_is_told_and_passes,
                creates_at_the_same_time_lose_nothing,
            );
        }
    )+};
    (@tests $fixture:expr => $($test:ident,)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::conformance::$test(&$fixture).await;
        }
    )+};
}

pub fn marker() -> Marker {
    let cluster_id = Some("cls-1".parse().unwrap());
    Marker { installation: "lab".to_owned(), cluster_id, generation: Generation(1) }
}

/// An intent as the service makes it for this registry.
pub fn intent(registry: &dyn Registry, name: &str) -> CreateIntent {
    let secret = format!("chosen for {name} and long enough");
    let secret = registry.capabilities().own_secret.then(|| SecretString::from(secret));
    CreateIntent { name: name.parse().unwrap(), marker: marker(), secret }
}

/// Creates an account; its login name and secret.
pub async fn create(registry: &dyn Registry, name: &str) -> (String, SecretString) {
    let intent = intent(registry, name);
    match registry.create(&call(), &intent).await {
        CreateOutcome::Created { username, secret, .. } => {
            assert_eq!(secret.is_none(), registry.capabilities().own_secret);
            (username, secret.or(intent.secret).unwrap())
        }
        other => panic!("{name}: {other:?}"),
    }
}

pub async fn is_valid(registry: &dyn Registry, username: &str, secret: &SecretString) -> bool {
    match registry.verify(&call(), username, secret).await {
        VerifyOutcome::Valid { can_pull } => {
            assert!(can_pull);
            true
        }
        VerifyOutcome::Invalid => false,
        VerifyOutcome::Unavailable(trouble) => panic!("{trouble:?}"),
    }
}

async fn listed(registry: &dyn Registry, prefix: &str) -> Vec<String> {
    let listed = registry.list(&call(), prefix).await.unwrap();
    let mut names: Vec<String> = listed.into_iter().map(|account| account.name).collect();
    names.sort();
    names
}

pub async fn life_of_an_account(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    let name = "hyp-cls-1-g1-aaaa".parse().unwrap();
    let before = registry.lookup(&call(), &name, &marker()).await;
    assert!(matches!(before, LookupOutcome::Absent), "{before:?}");

    let (username, secret) = create(registry, name.as_str()).await;
    assert_eq!(username, fixture.username(name.as_str()));
    assert!(fixture.login(&username, &secret).await);
    assert!(is_valid(registry, &username, &secret).await);

    let found = registry.lookup(&call(), &name, &marker()).await;
    let LookupOutcome::Present { username: found, secret: readable, ownership, remote_id } = found
    else {
        panic!("{found:?}")
    };
    assert_eq!(found, username);
    let capabilities = registry.capabilities();
    let expected = if capabilities.marker { Ownership::ThisIntent } else { Ownership::NoMarker };
    assert_eq!(ownership, expected);
    assert_eq!(readable.is_some(), capabilities.secret_readable);
    if let Some(readable) = readable {
        assert_eq!(readable.expose_secret(), secret.expose_secret());
    }
    assert_eq!(listed(registry, "hyp").await, [name.as_str()]);

    let revoked = registry.revoke(&call(), &name, remote_id.as_deref()).await;
    assert!(matches!(revoked, RevokeOutcome::Done), "{revoked:?}");
    assert!(!fixture.login(&username, &secret).await);
    assert!(!is_valid(registry, &username, &secret).await);
    let after = registry.lookup(&call(), &name, &marker()).await;
    assert!(matches!(after, LookupOutcome::Absent), "{after:?}");
    let again = registry.revoke(&call(), &name, remote_id.as_deref()).await;
    assert!(matches!(again, RevokeOutcome::AlreadyGone), "{again:?}");
    assert_eq!(fixture.live(), Vec::<String>::new());
}

pub async fn an_existing_name_is_never_taken_over(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    let (username, secret) = create(registry, "hyp-a").await;
    let before = fixture.everything();
    let mut other = intent(registry, "hyp-a");
    other.secret = other.secret.map(|_| SecretString::from("another one"));
    let outcome = registry.create(&call(), &other).await;
    assert!(matches!(outcome, CreateOutcome::AlreadyExists), "{outcome:?}");
    assert_eq!(fixture.everything(), before);
    assert!(fixture.login(&username, &secret).await);
}

pub async fn accounts_of_others_stay(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    let theirs = SecretString::from("somebody else's");
    fixture.add_foreign("somebody", &theirs);
    fixture.add_foreign("hyp-a-too", &theirs);
    let (_, _) = create(registry, "hyp-a").await;
    let gone = registry.revoke(&call(), &"hyp-a".parse().unwrap(), None).await;
    assert!(matches!(gone, RevokeOutcome::Done), "{gone:?}");
    let mut live = fixture.live();
    live.sort();
    assert_eq!(live, ["hyp-a-too", "somebody"]);
    for name in live {
        assert!(fixture.login(&fixture.username(&name), &theirs).await, "{name}");
    }

    let name = "somebody".parse().unwrap();
    let found = registry.lookup(&call(), &name, &marker()).await;
    let LookupOutcome::Present { ownership, .. } = found else { panic!("{found:?}") };
    let expected =
        if registry.capabilities().marker { Ownership::Foreign } else { Ownership::NoMarker };
    assert_eq!(ownership, expected);
}

pub async fn a_listing_knows_the_exact_prefix(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    for name in ["hyp-a", "hyp-b", "hypx-a", "hyp.c", "a-hyp-a", "hyp"] {
        fixture.add_foreign(name, &"theirs".into());
    }
    assert_eq!(listed(registry, "hyp").await, ["hyp-a", "hyp-b"]);
    assert_eq!(listed(registry, "hypx").await, ["hypx-a"]);
    assert_eq!(listed(registry, "hy").await, Vec::<String>::new());
}

pub async fn an_overtaken_call_changes_nothing(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    let (_, _) = create(registry, "hyp-a").await;
    let before = fixture.everything();
    let fence = TestFence::closed();
    let call = fenced(fence.clone());
    let create = registry.create(&call, &intent(registry, "hyp-b")).await;
    let CreateOutcome::Unavailable(trouble) = create else { panic!("{create:?}") };
    assert_eq!(trouble.kind, TroubleKind::NotCurrent);
    let revoke = registry.revoke(&call, &"hyp-a".parse().unwrap(), None).await;
    let RevokeOutcome::Unavailable(trouble) = revoke else { panic!("{revoke:?}") };
    assert_eq!(trouble.kind, TroubleKind::NotCurrent);
    assert_eq!(fence.asked(), 2);
    assert_eq!(fixture.everything(), before);
}

pub async fn a_late_call_changes_nothing(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    let (_, _) = create(registry, "hyp-a").await;
    let before = fixture.everything();
    let late = call_within(Duration::ZERO);
    let create = registry.create(&late, &intent(registry, "hyp-b")).await;
    let CreateOutcome::Unavailable(trouble) = create else { panic!("{create:?}") };
    assert_eq!(trouble.kind, TroubleKind::Timeout);
    let revoke = registry.revoke(&late, &"hyp-a".parse().unwrap(), None).await;
    let RevokeOutcome::Unavailable(trouble) = revoke else { panic!("{revoke:?}") };
    assert_eq!(trouble.kind, TroubleKind::Timeout);
    assert_eq!(fixture.everything(), before);
}

pub async fn a_wrong_secret_is_invalid(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    let (username, secret) = create(registry, "hyp-a").await;
    assert!(!is_valid(registry, &username, &"wrong".into()).await);
    assert!(!is_valid(registry, &fixture.username("hyp-nobody"), &secret).await);
    assert!(is_valid(registry, &username, &secret).await);
}

pub async fn trouble_is_told_and_passes(fixture: &dyn Fixture) {
    let registry = fixture.registry();
    let (username, secret) = create(registry, "hyp-a").await;
    let name = "hyp-a".parse().unwrap();
    fixture.break_down();
    let broken = fixture.everything();
    let kinds = [
        match registry.create(&call(), &intent(registry, "hyp-b")).await {
            CreateOutcome::Unavailable(trouble) => trouble.kind,
            other => panic!("{other:?}"),
        },
        match registry.revoke(&call(), &name, None).await {
            RevokeOutcome::Unavailable(trouble) => trouble.kind,
            other => panic!("{other:?}"),
        },
        match registry.lookup(&call(), &name, &marker()).await {
            LookupOutcome::Unavailable(trouble) => trouble.kind,
            other => panic!("{other:?}"),
        },
        match registry.verify(&call(), &username, &secret).await {
            VerifyOutcome::Unavailable(trouble) => trouble.kind,
            other => panic!("{other:?}"),
        },
        registry.list(&call(), "hyp").await.unwrap_err().0.kind,
    ];
    assert_eq!(kinds, [TroubleKind::Misconfigured; 5]);
    assert_eq!(fixture.everything(), broken);
    fixture.heal();
    assert!(is_valid(registry, &username, &secret).await);
    let (_, _) = create(registry, "hyp-b").await;
}

pub async fn creates_at_the_same_time_lose_nothing(fixture: &dyn Fixture) {
    let twin = fixture.twin();
    let registries: [&dyn Registry; 2] = [fixture.registry(), &*twin];
    let names: Vec<String> = (0..24).map(|number| format!("hyp-many-{number:02}")).collect();
    let creates = names.iter().zip(registries.into_iter().cycle());
    let made =
        futures_util::future::join_all(creates.map(|(name, registry)| create(registry, name)))
            .await;
    let mut live = fixture.live();
    live.sort();
    assert_eq!(live, names);
    for (username, secret) in &made {
        assert!(fixture.login(username, secret).await, "{username}");
    }
}
