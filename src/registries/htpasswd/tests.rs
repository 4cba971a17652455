//! Settings, refused secrets, and what each answer of a registry means. The behaviour of the whole
//! is covered by the conformance suite of the integration tests.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use super::*;
use crate::ids::Generation;
use crate::registries::Fence;

struct Current;

#[async_trait]
impl Fence for Current {
    async fn is_current(&self) -> bool {
        true
    }
}

fn call() -> CallContext {
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    CallContext { deadline, fence: Arc::new(Current) }
}

fn client() -> Client {
    // A second installation in the same process is refused, and that is well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap()
}

fn htpasswd(settings: HtpasswdSettings) -> Htpasswd {
    Htpasswd::new(settings, client()).unwrap_or_else(|error| panic!("{error}"))
}

/// A server that gives these answers, one per connection, and the address of it.
fn server(answers: &'static [&'static str]) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/base/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 2048];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /base/v2/ HTTP/1.1\r\n"));
            let closing = "content-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(format!("HTTP/1.1 {answer}\r\n{closing}").as_bytes()).unwrap();
        }
    });
    url.parse().unwrap()
}

async fn verify(answers: &'static [&'static str]) -> VerifyOutcome {
    let mut settings = HtpasswdSettings::new("/nowhere/htpasswd".into());
    settings.verify_url = Some(server(answers));
    htpasswd(settings).verify(&call(), "hyp-a", &"secret".into()).await
}

const ASKS: &str = "401 Unauthorized\r\nwww-authenticate: Basic realm=\"lab\"";

#[test]
fn settings_that_cannot_work_are_refused() {
    let error = |change: fn(&mut HtpasswdSettings)| {
        let mut settings = HtpasswdSettings::new("/etc/registry/htpasswd".into());
        change(&mut settings);
        Htpasswd::new(settings, client()).err()
    };
    assert_eq!(error(|_| ()), None);
    assert_eq!(error(|settings| settings.file = "/".into()), Some(HtpasswdError::File));
    assert_eq!(error(|settings| settings.bcrypt_cost = 3), Some(HtpasswdError::BcryptCost));
    assert_eq!(error(|settings| settings.bcrypt_cost = 15), Some(HtpasswdError::BcryptCost));
    for url in ["ftp://host", "https://user@host", "https://user:pass@host"] {
        let mut settings = HtpasswdSettings::new("/etc/registry/htpasswd".into());
        settings.verify_url = Some(url.parse().unwrap());
        assert_eq!(Htpasswd::new(settings, client()).err(), Some(HtpasswdError::VerifyUrl));
    }
}

#[tokio::test]
async fn a_secret_that_bcrypt_would_cut_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let registry = htpasswd(HtpasswdSettings::new(directory.path().join("htpasswd")));
    let marker =
        Marker { installation: "lab".to_owned(), cluster_id: None, generation: Generation(1) };
    for secret in [None, Some(""), Some("a\0b"), Some("a\nb"), Some(&*"x".repeat(73))] {
        let name = "hyp-a".parse().unwrap();
        let secret = secret.map(SecretString::from);
        let intent = CreateIntent { name, marker: marker.clone(), secret };
        let outcome = registry.create(&call(), &intent).await;
        assert!(matches!(outcome, CreateOutcome::Refused(_)), "{outcome:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_login_is_believed_only_where_logins_are_asked_for() {
    assert!(matches!(verify(&["200 OK", ASKS]).await, VerifyOutcome::Valid { can_pull: true }));
    assert!(matches!(verify(&[ASKS]).await, VerifyOutcome::Invalid));
    let open = verify(&["200 OK", "200 OK"]).await;
    let VerifyOutcome::Unavailable(trouble) = open else { panic!("{open:?}") };
    assert_eq!(trouble.kind, TroubleKind::Misconfigured);
}

#[tokio::test]
async fn other_answers_say_nothing_about_the_credential() {
    let cases: [(&'static [&'static str], TroubleKind, Option<u64>); 8] = [
        (&["400 Bad Request"], TroubleKind::Misconfigured, None),
        (&["404 Not Found"], TroubleKind::Misconfigured, None),
        (&["302 Found\r\nlocation: /other"], TroubleKind::Misconfigured, None),
        (
            &["401 Unauthorized\r\nwww-authenticate: Bearer realm=\"x\""],
            TroubleKind::Misconfigured,
            None,
        ),
        (&["403 Forbidden"], TroubleKind::ServerError, None),
        (&["429 Too Many Requests\r\nretry-after: 7"], TroubleKind::RateLimited, Some(7)),
        (&["503 Service Unavailable\r\nretry-after: 9"], TroubleKind::ServerError, Some(9)),
        (&["no http"], TroubleKind::ServerError, None),
    ];
    for (answers, kind, seconds) in cases {
        let outcome = verify(answers).await;
        let VerifyOutcome::Unavailable(trouble) = outcome else {
            panic!("{answers:?} {outcome:?}")
        };
        assert_eq!(trouble.kind, kind, "{answers:?}");
        assert_eq!(trouble.retry_after, seconds.map(Duration::from_secs), "{answers:?}");
    }
}

#[tokio::test]
async fn no_connection_and_no_answer_are_told_apart() {
    let unavailable = |outcome: VerifyOutcome| match outcome {
        VerifyOutcome::Unavailable(trouble) => trouble.kind,
        VerifyOutcome::Valid { .. } | VerifyOutcome::Invalid => panic!("{outcome:?}"),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = HtpasswdSettings::new("/nowhere/htpasswd".into());
    let url = format!("http://{}", listener.local_addr().unwrap());
    settings.verify_url = Some(url.parse().unwrap());
    let registry = htpasswd(settings);
    let mut call = call();
    call.deadline = std::time::Instant::now() + Duration::from_millis(50);
    let outcome = registry.verify(&call, "hyp-a", &"secret".into()).await;
    assert_eq!(unavailable(outcome), TroubleKind::Timeout);

    drop(listener);
    call.deadline = std::time::Instant::now() + Duration::from_secs(5);
    let outcome = registry.verify(&call, "hyp-a", &"secret".into()).await;
    assert_eq!(unavailable(outcome), TroubleKind::Connect);
}
