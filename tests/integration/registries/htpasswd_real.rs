//! The htpasswd file as a real registry reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyperfleet_credentials::registries::*;
use secrecy::{ExposeSecret, SecretString};

use super::conformance::{Fixture, create, intent, is_valid};
use super::fixtures::{HtpasswdFixture, client};
use crate::support::calls::call;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_72_bytes_counts_to_its_last_byte() {
    let fixture = HtpasswdFixture::docker_registry();
    let registry = fixture.registry();
    let mut longest = intent(registry, "hyp-a");
    let secret = SecretString::from("0123456789abcdef".repeat(5)[..72].to_owned());
    longest.secret = Some(secret.clone());
    let outcome = registry.create(&call(), &longest).await;
    assert!(matches!(outcome, CreateOutcome::Created { .. }), "{outcome:?}");
    assert!(is_valid(registry, "hyp-a", &secret).await);
    let cut = SecretString::from(secret.expose_secret()[..71].to_owned());
    assert!(!is_valid(registry, "hyp-a", &cut).await);

    longest.name = "hyp-b".parse().unwrap();
    longest.secret = Some(format!("{}x", secret.expose_secret()).into());
    let outcome = registry.create(&call(), &longest).await;
    assert!(matches!(outcome, CreateOutcome::Refused(_)), "{outcome:?}");
    assert_eq!(fixture.live(), ["hyp-a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_registry_ignores_lets_nobody_in_here_either() {
    let fixture = HtpasswdFixture::docker_registry();
    let mut alone = fixture.settings.clone();
    alone.verify_url = None;
    let alone = super::fixtures::htpasswd(&alone);
    let hash = bcrypt::hash("secret", 4).unwrap();
    let other = bcrypt::hash("other", 4).unwrap();
    fixture.put(&format!(
        "a:{hash}\nb:secret\nc:$apr1$x$y\n  d:{hash}  \r\n#e:{hash}\nf:{hash}\nf:{other}\ng:{}\n",
        hash.replacen("$2b$", "$2y$", 1)
    ));
    for (user, expected) in [
        ("a", true),
        ("b", false),
        ("c", false),
        ("d", true),
        ("#e", false),
        ("f", false),
        ("g", true),
    ] {
        let secret = SecretString::from("secret");
        assert_eq!(is_valid(fixture.registry(), user, &secret).await, expected, "{user}");
        assert_eq!(is_valid(&alone, user, &secret).await, expected, "{user} in the file");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_turned_away_while_the_file_is_replaced() {
    const LOGINS_PER_CHANGE: usize = 4;
    let fixture = HtpasswdFixture::docker_registry();
    // Many users, so that reading takes the registry a while.
    let hash = bcrypt::hash("theirs", 4).unwrap();
    fixture.put(&(0..3000).map(|number| format!("user{number}:{hash}\n")).collect::<String>());

    let url = format!("{}v2/", fixture.settings.verify_url.clone().unwrap());
    let (stop, logins) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let visitors: Vec<_> = (0..4)
        .map(|number| {
            let (url, stop, logins) = (url.clone(), Arc::clone(&stop), Arc::clone(&logins));
            tokio::spawn(async move {
                let client = client();
                while !stop.load(Ordering::SeqCst) {
                    let user = format!("user{}", number * 700);
                    let request = client.get(&url).basic_auth(user, Some("theirs"));
                    assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
                    logins.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for number in 0..30 {
        let seen = logins.load(Ordering::SeqCst);
        let name = format!("hyp-{number}");
        let (username, secret) = create(fixture.registry(), &name).await;
        assert!(is_valid(fixture.registry(), &username, &secret).await);
        if number % 2 == 0 {
            fixture.registry().revoke(&call(), &name.parse().unwrap(), None).await;
            assert!(!is_valid(fixture.registry(), &username, &secret).await);
        }
        while logins.load(Ordering::SeqCst) < seen + LOGINS_PER_CHANGE
            && visitors.iter().any(|visitor| !visitor.is_finished())
        {
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    for visitor in visitors {
        visitor.await.unwrap();
    }
    assert_eq!(fixture.live().len(), 3000 + 15);
}
