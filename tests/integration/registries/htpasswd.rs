//! What only the htpasswd file has: its text, its lock, its whole replacement.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyperfleet_credentials::registries::htpasswd::HtpasswdSettings;
use hyperfleet_credentials::registries::*;
use secrecy::ExposeSecret;

use super::conformance::{Fixture, create, intent, marker};
use super::fixtures::{HtpasswdFixture, htpasswd};
use crate::support::calls::{call, call_within, fenced};
use crate::support::talkative::{Mood, Talkative};

/// Comments, blank lines, odd white space, other hashes, bytes that are no text, no end of line.
const FOREIGN: &[u8] =
    b"# people\n\n  spaced :$apr1$x \r\nbob:{SHA}x:y\n\xff\xfe:z\nhyp-ab:1\n:\nlast:x\n";

fn trouble(outcome: CreateOutcome) -> Trouble {
    match outcome {
        CreateOutcome::Unavailable(trouble) => trouble,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn lines_of_others_keep_every_byte() {
    let fixture = HtpasswdFixture::file();
    std::fs::write(fixture.path(), FOREIGN).unwrap();
    create(fixture.registry(), "hyp-a").await;
    assert!(std::fs::read(fixture.path()).unwrap().starts_with(FOREIGN));
    fixture.registry().revoke(&call(), &"hyp-a".parse().unwrap(), None).await;
    assert_eq!(std::fs::read(fixture.path()).unwrap(), FOREIGN);
}

#[tokio::test]
async fn every_duplicate_of_an_account_goes() {
    let fixture = HtpasswdFixture::file();
    fixture.put("hyp-a:1\nbob:x\n hyp-a:2 \nhyp-a:3");
    let outcome = fixture.registry().revoke(&call(), &"hyp-a".parse().unwrap(), None).await;
    assert!(matches!(outcome, RevokeOutcome::Done), "{outcome:?}");
    assert_eq!(fixture.text(), "bob:x\n");
}

#[tokio::test]
async fn a_malformed_line_is_named_by_its_number_only() {
    let fixture = HtpasswdFixture::file();
    fixture.put("bob:x\n# fine\n$2y$05$ahashwithoutauser\n");
    let registry = fixture.registry();
    let trouble = trouble(registry.create(&call(), &intent(registry, "hyp-a")).await);
    assert_eq!(trouble.kind, TroubleKind::Misconfigured);
    assert_eq!(trouble.message, "line 3 of the htpasswd file is malformed");
}

#[tokio::test]
async fn a_missing_file_is_made_by_a_create_and_taken_for_nothing_else() {
    let fixture = HtpasswdFixture::file();
    std::fs::remove_file(fixture.path()).unwrap();
    let (registry, name) = (fixture.registry(), "hyp-a".parse().unwrap());
    let lookup = registry.lookup(&call(), &name, &marker()).await;
    assert!(matches!(lookup, LookupOutcome::Unavailable(_)), "{lookup:?}");
    let revoke = registry.revoke(&call(), &name, None).await;
    assert!(matches!(revoke, RevokeOutcome::Unavailable(_)), "{revoke:?}");
    assert!(registry.list(&call(), "hyp").await.is_err());
    create(registry, "hyp-a").await;
    assert_eq!(std::fs::metadata(fixture.path()).unwrap().mode() & 0o777, 0o600);

    let nowhere = htpasswd(&HtpasswdSettings::new(fixture.path().join("no/such/htpasswd")));
    let trouble = trouble(nowhere.create(&call(), &intent(&nowhere, "hyp-a")).await);
    assert!(matches!(trouble.kind, TroubleKind::Misconfigured | TroubleKind::ServerError));
    let directory = fixture.path().parent().unwrap();
    let nowhere = htpasswd(&HtpasswdSettings::new(directory.join("no/htpasswd")));
    let outcome = nowhere.create(&call(), &intent(&nowhere, "hyp-a")).await;
    assert_eq!(self::trouble(outcome).kind, TroubleKind::Misconfigured);
}

#[tokio::test]
async fn a_file_that_vanished_is_not_made_anew() {
    let fixture = HtpasswdFixture::file();
    let registry = fixture.registry();
    create(registry, "hyp-a").await;
    // As when a volume is not mounted for a while: its accounts are not gone.
    create(registry, "hyp-b").await;
    std::fs::remove_file(fixture.path()).unwrap();
    let refused = trouble(registry.create(&call(), &intent(registry, "hyp-c")).await);
    assert_eq!(refused.kind, TroubleKind::ServerError);
    assert!(!fixture.path().exists());
}

#[tokio::test]
async fn the_file_is_replaced_and_its_mode_kept() {
    let fixture = HtpasswdFixture::file();
    std::fs::set_permissions(fixture.path(), PermissionsExt::from_mode(0o640)).unwrap();
    let old = std::fs::metadata(fixture.path()).unwrap();
    let mut reader = File::open(fixture.path()).unwrap();
    create(fixture.registry(), "hyp-a").await;
    let new = std::fs::metadata(fixture.path()).unwrap();
    assert_eq!(new.mode(), old.mode());
    assert_ne!(new.ino(), old.ino());
    assert!(new.modified().unwrap() > old.modified().unwrap());
    // Who had it open goes on reading the old one.
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut reader, &mut seen).unwrap();
    assert_eq!(seen, "");
    let mut names: Vec<_> = std::fs::read_dir(fixture.path().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["htpasswd", "htpasswd.lock"]);
}

#[tokio::test]
async fn a_link_stays_a_link() {
    let fixture = HtpasswdFixture::file();
    let link = fixture.path().with_file_name("link");
    std::os::unix::fs::symlink("htpasswd", &link).unwrap();
    let registry = htpasswd(&HtpasswdSettings::new(link.clone()));
    create(&registry, "hyp-a").await;
    assert!(link.is_symlink());
    assert_eq!(fixture.live(), ["hyp-a"]);
}

#[tokio::test]
async fn a_lock_that_is_never_given_back_costs_no_more_than_the_deadline() {
    let fixture = HtpasswdFixture::file();
    let lock = fixture.path().with_file_name("htpasswd.lock");
    let lock = OpenOptions::new().create(true).append(true).open(lock).unwrap();
    lock.lock().unwrap();
    let registry = fixture.registry();
    let short = call_within(Duration::from_millis(200));
    let trouble = trouble(registry.create(&short, &intent(registry, "hyp-a")).await);
    assert_eq!(trouble.kind, TroubleKind::Timeout);
    drop(lock);
    assert_eq!(fixture.text(), "");
    create(registry, "hyp-a").await;
}

/// Does something while the call holds the lock, and lets it go on.
struct Meanwhile<F>(F);

#[async_trait]
impl<F: Fn() + Send + Sync> Fence for Meanwhile<F> {
    async fn is_current(&self) -> bool {
        (self.0)();
        true
    }
}

#[tokio::test]
async fn the_fence_is_asked_under_the_lock() {
    let fixture = HtpasswdFixture::file();
    let path = fixture.path().with_file_name("htpasswd.lock");
    let call = fenced(Arc::new(Meanwhile(move || {
        let lock = File::open(&path).unwrap();
        assert!(matches!(lock.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    })));
    let registry = fixture.registry();
    let outcome = registry.create(&call, &intent(registry, "hyp-a")).await;
    assert!(matches!(outcome, CreateOutcome::Created { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_change_by_an_editor_without_a_lock_is_not_lost() {
    let fixture = Arc::new(HtpasswdFixture::file());
    let editor = Arc::clone(&fixture);
    let call = fenced(Arc::new(Meanwhile(move || editor.put("bob:x\n"))));
    let registry = fixture.registry();
    let trouble = trouble(registry.create(&call, &intent(registry, "hyp-a")).await);
    assert_eq!(trouble.kind, TroubleKind::ServerError);
    assert_eq!(fixture.text(), "bob:x\n");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the fence is slow; that is the story")]
async fn a_fence_that_answers_too_late_changes_nothing() {
    let fixture = HtpasswdFixture::file();
    let mut call = call_within(Duration::from_millis(100));
    // Longer than the call has; the answer itself is yes.
    call.fence = Arc::new(Meanwhile(|| std::thread::sleep(Duration::from_millis(120))));
    let registry = fixture.registry();
    let trouble = trouble(registry.create(&call, &intent(registry, "hyp-a")).await);
    assert_eq!(trouble.kind, TroubleKind::Timeout);
    assert_eq!(fixture.text(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_leave_a_whole_file_and_no_lock() {
    let fixture = HtpasswdFixture::file();
    let registry = fixture.registry();
    for number in 0..60_u64 {
        let intent = intent(registry, &format!("hyp-{number}"));
        let patience = Duration::from_micros(number * 150);
        let call = call();
        let _ = tokio::time::timeout(patience, registry.create(&call, &intent)).await;
    }
    // The one that comes last gets the lock, and finds a file that every line of is whole.
    create(registry, "hyp-last").await;
    for line in fixture.text().lines() {
        let (user, hash) = line.split_once(':').unwrap();
        assert!(user.starts_with("hyp-") && hash.len() == 60, "{line}");
    }
}

const SHARED_FILE: &str = "HTPASSWD_SHARED_FILE";
const SHARED_NAME: &str = "HTPASSWD_SHARED_NAME";

/// The part of the other process in the next test.
#[tokio::test]
#[ignore = "started by two_processes_lose_nothing"]
async fn second_process() {
    let Some(file) = std::env::var_os(SHARED_FILE) else { return };
    let registry = htpasswd(&HtpasswdSettings::new(file.into()));
    let name = std::env::var(SHARED_NAME).unwrap();
    for number in 0..20 {
        create(&registry, &format!("hyp-{name}-{number:02}")).await;
    }
}

#[test]
fn two_processes_lose_nothing() {
    let fixture = HtpasswdFixture::file();
    let start = |name: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "registries::htpasswd::second_process"])
            .env(SHARED_FILE, fixture.path())
            .env(SHARED_NAME, name)
            .spawn()
            .unwrap()
    };
    let processes = [start("a"), start("b"), start("c")];
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    let mut live = fixture.live();
    live.sort();
    let all = ["a", "b", "c"].map(|name| (0..20).map(move |n| format!("hyp-{name}-{n:02}")));
    assert_eq!(live, all.into_iter().flatten().collect::<Vec<_>>());
}

#[tokio::test]
async fn no_secret_is_in_the_file_or_in_any_words() {
    let fixture = HtpasswdFixture::file();
    let registry = fixture.registry();
    let intent = intent(registry, "hyp-a");
    let secret = intent.secret.clone().unwrap();
    let outcome = registry.create(&call(), &intent).await;
    let words = format!("{intent:?} {outcome:?} {}", fixture.text());
    assert!(!words.contains(secret.expose_secret()), "{words}");
}

/// A registry that lets everybody in accepts every credential, today or from some day on.
#[tokio::test]
async fn a_registry_that_turns_open_proves_nothing() {
    let registry = Talkative::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("htpasswd");
    File::create(&file).unwrap();
    let settings =
        HtpasswdSettings { file, verify_url: Some(registry.url.parse().unwrap()), bcrypt_cost: 4 };
    let htpasswd = htpasswd(&settings);
    let secret = "a-secret".to_owned().into();
    let asks = htpasswd.verify(&call(), "hyp-a", &secret).await;
    assert!(matches!(asks, VerifyOutcome::Valid { can_pull: true }), "{asks:?}");
    registry.turn(Mood::Open);
    let open = htpasswd.verify(&call(), "hyp-a", &secret).await;
    let VerifyOutcome::Unavailable(trouble) = open else { panic!("{open:?}") };
    assert_eq!(trouble.kind, TroubleKind::Misconfigured);
}
