//! The double has to be right before anything is judged by it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::time::Instant;

use super::*;
use crate::ids::Generation;
use crate::registries::*;

struct Fixed(bool);

#[async_trait]
impl Fence for Fixed {
    async fn is_current(&self) -> bool {
        self.0
    }
}

fn call() -> CallContext {
    let deadline = (Instant::now() + Duration::from_secs(2)).into_std();
    CallContext { deadline, fence: Arc::new(Fixed(true)) }
}

fn intent(name: &str) -> CreateIntent {
    let cluster_id = Some("cls-1".parse().unwrap());
    let marker = Marker { installation: "lab".to_owned(), cluster_id, generation: Generation(1) };
    CreateIntent { name: name.parse().unwrap(), marker, secret: None }
}

fn names(registry: &Scripted) -> Vec<String> {
    registry.live().into_iter().map(|account| account.name).collect()
}

#[tokio::test(start_paused = true)]
async fn faults_tell_what_they_did_and_did_not() {
    let lost = Answer::Unknown(TroubleKind::Timeout);
    for (fault, answer, applied) in [
        (Fault::LostAfter, lost, true),
        (Fault::LostBefore, lost, false),
        (Fault::Hang, lost, false),
        (Fault::HangAfter, lost, true),
        (Fault::Connect, Answer::Unavailable(TroubleKind::Connect), false),
        (Fault::RateLimited(None), Answer::Unavailable(TroubleKind::RateLimited), false),
        (Fault::ServerError, Answer::Unavailable(TroubleKind::ServerError), false),
        (Fault::OwnCredential, Answer::Unavailable(TroubleKind::OwnCredential), false),
        (Fault::Misconfigured, Answer::Unavailable(TroubleKind::Misconfigured), false),
        (Fault::Refuse("quota".to_owned()), Answer::Refused, false),
        (Fault::Contrary, Answer::AlreadyExists, false),
        (Fault::Hold(When::After(Duration::from_secs(1))), Answer::Created, true),
        (
            Fault::Hold(When::After(Duration::from_secs(3))),
            Answer::Unavailable(TroubleKind::Timeout),
            false,
        ),
    ] {
        let registry = Scripted::new(Flavour::Readable);
        registry.next(Verb::Create, fault.clone());
        registry.create(&call(), &intent("hyp-a")).await;
        let last = registry.log().pop().unwrap().what;
        assert_eq!(last, What::End { answer }, "{fault:?}");
        assert_eq!(!registry.live().is_empty(), applied, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn panics_are_written_down_and_break_nothing() {
    for (fault, applied) in [(Fault::Panic, false), (Fault::PanicAfter, true)] {
        let registry = Scripted::new(Flavour::Readable);
        registry.next(Verb::Create, fault);
        let panicked = std::panic::AssertUnwindSafe(registry.create(&call(), &intent("hyp-a")))
            .catch_unwind()
            .await;
        assert!(panicked.is_err());
        let last = registry.log().pop().unwrap().what;
        assert_eq!(last, What::End { answer: Answer::Panicked });
        assert_eq!(!registry.live().is_empty(), applied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_change_comes_when_the_test_says() {
    let registry = Scripted::new(Flavour::Readable);
    let gate = Gate::new();
    registry.next(Verb::Create, Fault::AppliedLate(When::Opened(gate.clone())));
    let lost = registry.create(&call(), &intent("hyp-a")).await;
    assert!(matches!(lost, CreateOutcome::Unknown(_)), "{lost:?}");
    let gone = registry.revoke(&call(), &intent("hyp-a").name, None).await;
    assert!(matches!(gone, RevokeOutcome::AlreadyGone), "{gone:?}");
    gate.open();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(names(&registry), ["hyp-a"]);
}

#[tokio::test(start_paused = true)]
async fn the_log_is_the_truth() {
    let registry = Scripted::new(Flavour::ShownOnce);
    let made = registry.create(&call(), &intent("hyp-a")).await;
    let CreateOutcome::Created { username, secret: Some(secret), .. } = made else {
        panic!("{made:?}")
    };
    assert!(registry.secret_works(&username, &secret));
    registry.next(Verb::Verify, Fault::StaleInvalid);
    assert!(matches!(registry.verify(&call(), &username, &secret).await, VerifyOutcome::Invalid));
    assert!(matches!(
        registry.verify(&call(), &username, &secret).await,
        VerifyOutcome::Valid { can_pull: true }
    ));
    registry.delete_behind_the_back("hyp-a");
    assert!(!registry.secret_works(&username, &secret));
    assert!(registry.reused_names().is_empty());
    registry.create(&call(), &intent("hyp-a")).await;
    assert_eq!(registry.reused_names(), ["hyp-a"]);
    assert_eq!(registry.calls(Verb::Verify), 2);
    assert_eq!(registry.most_at_once(), 1);
    let sequence: Vec<u64> = registry.log().iter().map(|entry| entry.seq).collect();
    assert_eq!(sequence, (1..=sequence.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn queue_first_then_script_until_healed() {
    let registry = Scripted::new(Flavour::Readable);
    registry.break_down(Fault::ServerError);
    registry.next_well(Verb::List);
    registry.next(Verb::List, Fault::Connect);
    assert!(registry.list(&call(), "hyp").await.is_ok());
    let kind = |result: Result<Vec<ListedAccount>, ListError>| result.unwrap_err().0.kind;
    assert_eq!(kind(registry.list(&call(), "hyp").await), TroubleKind::Connect);
    assert_eq!(kind(registry.list(&call(), "hyp").await), TroubleKind::ServerError);
    registry.heal();
    assert!(registry.list(&call(), "hyp").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_is_seen() {
    let registry = Scripted::new(Flavour::Readable);
    registry.next(Verb::Create, Fault::Hold(When::Opened(Gate::new())));
    let wait = Duration::from_millis(10);
    let intent = intent("hyp-a");
    assert!(tokio::time::timeout(wait, registry.create(&call(), &intent)).await.is_err());
    assert_eq!(registry.log().pop().unwrap().what, What::End { answer: Answer::Dropped });
}
