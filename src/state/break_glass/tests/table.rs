//! The reviewed table: each state by each command, and what follows. A change of behaviour is a changed line.

use std::fmt::Write as _;

use strum::VariantArray;

use super::super::command::CommandName;
use super::super::*;
use super::told::*;
use crate::ids::{CallToken, CredentialId, RevocationId};

fn then(
    (mut told, id): (Told, CredentialId),
    steps: fn(&mut Told, CredentialId),
) -> (Told, CredentialId) {
    steps(&mut told, id);
    told.pass(MINUTE);
    (told, id)
}

/// Every state, each reached by a history.
fn places() -> Vec<(&'static str, Told, CredentialId)> {
    let nothing = CredentialId(uuid::Uuid::nil());
    let accepted = |mut told: Told| {
        let id = told.request();
        (told, id)
    };
    let rows = [
        ("no record", (Told::blind(), nothing)),
        ("requested", then(Told::requested(), |_, _| {})),
        ("accepted", then(accepted(Told::blind()), |_, _| {})),
        (
            "issuing, submitting",
            then(accepted(Told::csr()), |told, _| {
                told.announce(Call::Submit);
            }),
        ),
        (
            "issuing, submit lost",
            then(accepted(Told::csr()), |told, _| {
                told.call(Answer::lost(Call::Submit, "lost"));
            }),
        ),
        (
            "issuing, endorsing",
            then(accepted(Told::csr()), |told, _| {
                told.call(Answer::Submit(SubmitAnswer::Submitted));
            }),
        ),
        ("issuing, collecting", then(Told::collecting(), |_, _| {})),
        (
            "issuing, probing",
            then(accepted(Told::local()), |told, _| {
                told.make();
                let signed = told.signed();
                told.call(signed);
            }),
        ),
        ("active, blind", then(Told::active_blind(), |_, _| {})),
        ("active, one of all", then(Told::active_csr(), |_, _| {})),
        (
            "awaiting revocation",
            then(Told::active_csr(), |told, _| {
                told.revoke_all().unwrap();
            }),
        ),
        ("revoking, rotating", then(Told::rotating(), |_, _| {})),
        (
            "revoking, blind",
            then(Told::active_blind(), |told, id| {
                told.revoke_one(id).unwrap();
            }),
        ),
        (
            "revoking, proving",
            then(Told::active_local(), |told, _| {
                told.revoke_all().unwrap();
            }),
        ),
        (
            "revoked",
            then(Told::active_csr(), |told, _| {
                told.revoke_all().unwrap();
                told.call(Answer::Rotate(RotateAnswer::Begun));
                told.call(Answer::Check(CheckAnswer::Done { cut_off: None }));
            }),
        ),
        (
            "denied",
            then(Told::requested(), |told, credential_id| {
                let by = "bob".to_owned();
                told.tell(&Command::Deny { credential_id, by, reason: None }).unwrap();
            }),
        ),
        (
            "failed",
            then(Told::collecting(), |told, _| {
                told.call(Answer::Collect(CollectAnswer::Broken("wrong key".to_owned())));
            }),
        ),
        (
            "expired",
            then(Told::active_blind(), |told, _| {
                told.pass(DAY);
            }),
        ),
        (
            "quarantined",
            then(Told::active_blind(), |told, _| {
                let retry_at = told.now.plus(HOUR);
                told.tell(&Command::Quarantine { retry_at }).unwrap();
            }),
        ),
    ];
    rows.into_iter().map(|(place, (told, id))| (place, told, id)).collect()
}

/// What each command says in the table. A new command does not compile until it is here.
fn commands(name: CommandName, told: &mut Told, id: CredentialId) -> Vec<(&'static str, Command)> {
    let (fresh, token) = (told.uuid(), CallToken(told.uuid()));
    let cluster_id = told.cluster_id();
    let (bob, alice) = ("bob".to_owned(), "alice".to_owned());
    let now = told.now;
    let some = Subject::Credential(id);
    match name {
        CommandName::Request => {
            let request = |username: Option<String>| Command::Request {
                cluster_id: cluster_id.clone(),
                credential_id: CredentialId(fresh),
                username,
                expires_at: now.plus(DAY),
                signing_request: None,
                by: alice.clone(),
                reason: None,
            };
            let taken = told.state.as_ref().and_then(|record| record.credential(id));
            let taken = taken.map(|credential| credential.username.clone());
            vec![("", request(None)), (" same name", request(taken.or(Some("new".to_owned()))))]
        }
        CommandName::Approve => vec![
            ("", Command::Approve { credential_id: id, by: bob }),
            (" own", Command::Approve { credential_id: id, by: alice }),
        ],
        CommandName::Deny => vec![
            ("", Command::Deny { credential_id: id, by: bob, reason: None }),
            (" own", Command::Deny { credential_id: id, by: alice, reason: None }),
        ],
        CommandName::RevokeAll => {
            let revocation_id = RevocationId(fresh);
            vec![("", Command::RevokeAll { cluster_id, revocation_id, by: bob, reason: None })]
        }
        CommandName::RevokeOne => {
            let (credential_id, revocation_id) = (id, RevocationId(fresh));
            vec![("", Command::RevokeOne { credential_id, revocation_id, by: bob, reason: None })]
        }
        CommandName::WantBundle => vec![("", Command::WantBundle { cluster_id })],
        CommandName::ConfirmBundle => {
            let version = told.state.as_ref().map_or(0, |record| record.bundle_version);
            vec![
                ("", Command::ConfirmBundle { version }),
                (" unknown", Command::ConfirmBundle { version: version + 1 }),
            ]
        }
        CommandName::Announce => {
            let due = told.due();
            let all = Call::VARIANTS.iter().map(|call| {
                let wanted = due.iter().find(|effect| effect.call == *call);
                let subject = wanted.map_or(some, |effect| effect.subject);
                (<&'static str>::from(*call), Command::Announce { subject, call: *call, token })
            });
            all.collect()
        }
        CommandName::Defer => {
            let subject = told.due().first().map_or(some, |effect| effect.subject);
            let (until, reason) = (now.plus(MINUTE), "busy".to_owned());
            vec![("", Command::Defer { subject, until, reason })]
        }
        CommandName::Answer => {
            let answer = Answer::lost(Call::Submit, "lost");
            vec![(" stale", Command::Answer { subject: some, token, answer })]
        }
        CommandName::TakeOver => vec![("", Command::TakeOver)],
        CommandName::Tick => vec![("", Command::Tick)],
        CommandName::Quarantine => vec![("", Command::Quarantine { retry_at: now.plus(HOUR) })],
        CommandName::Release => vec![("", Command::Release)],
    }
}

/// What every answer does to a subject that awaits it.
fn answers(call: Call, told: &Told) -> Vec<Answer> {
    let no = || "no".to_owned();
    let not_after = told.now.plus(DAY);
    let failed = |blocked| Answer::failed(call, trouble(blocked));
    let mut all = match call {
        Call::Submit => vec![
            Answer::Submit(SubmitAnswer::Submitted),
            Answer::Submit(SubmitAnswer::Signed { not_after }),
            Answer::Submit(SubmitAnswer::Refused(no())),
            Answer::Submit(SubmitAnswer::Broken(no())),
        ],
        Call::Endorse => vec![
            Answer::Endorse(EndorseAnswer::Endorsed),
            Answer::Endorse(EndorseAnswer::Refused(no())),
        ],
        Call::Collect => vec![
            Answer::Collect(CollectAnswer::Signed { not_after }),
            Answer::Collect(CollectAnswer::Pending),
            Answer::Collect(CollectAnswer::Refused(no())),
            Answer::Collect(CollectAnswer::Broken(no())),
        ],
        Call::Probe => vec![
            seen(Verdict::Accepted, Verdict::Accepted),
            seen(Verdict::Rejected, Verdict::Accepted),
            seen(Verdict::Rejected, Verdict::Rejected),
            seen(Verdict::Rejected, silent()),
            seen(silent(), Verdict::Accepted),
        ],
        Call::Rotate => {
            vec![Answer::Rotate(RotateAnswer::Begun), Answer::Rotate(RotateAnswer::Lost(no()))]
        }
        Call::Check => vec![
            Answer::Check(CheckAnswer::Running { progress: no() }),
            Answer::Check(CheckAnswer::Done { cut_off: Some(told.now) }),
            Answer::Check(CheckAnswer::Lost(no())),
        ],
        Call::Make => vec![Answer::Make(MakeAnswer::Made { not_after })],
    };
    all.extend([failed(false), failed(true)]);
    all
}

fn row(told: &Told, command: &Command) -> String {
    match told.clone().tell(command) {
        Ok(events) if events.is_empty() => "nothing".to_owned(),
        Ok(events) => names(&events).join(", "),
        Err(rejection) => {
            let word: String =
                format!("{rejection:?}").chars().take_while(|c| c.is_alphanumeric()).collect();
            format!("! {word}")
        }
    }
}

#[test]
fn each_state_by_each_command() {
    let mut table = String::new();
    for (place, mut told, id) in places() {
        writeln!(table, "{place}").unwrap();
        for name in CommandName::VARIANTS {
            for (variant, command) in commands(*name, &mut told, id) {
                let what = format!("{name:?} {}", variant.trim());
                writeln!(table, "  {what:<24} {}", row(&told, &command)).unwrap();
            }
        }
    }
    insta::assert_snapshot!("states_by_commands", table);
}

#[test]
fn each_wanted_call_by_each_answer() {
    let mut table = String::new();
    for (place, told, _) in places() {
        let mut wanted = told.due();
        wanted.dedup_by_key(|effect| effect.call);
        for effect in wanted {
            let mut told = told.clone();
            let (subject, token) = told.announce(effect.call);
            writeln!(table, "{place}: {}", effect.call).unwrap();
            for answer in answers(effect.call, &told) {
                let what = format!("{answer:?}").replace("endpoint: \"https://api-0:6443\", ", "");
                let what = what.replace("message: \"trouble\", retry_after: None, ", "");
                let command = Command::Answer { subject, token, answer };
                writeln!(table, "  {what:<90} {}", row(&told, &command)).unwrap();
            }
        }
    }
    insta::assert_snapshot!("calls_by_answers", table);
}

#[test]
fn every_state_is_in_the_table() {
    let places = places();
    for state in StateName::VARIANTS {
        let has = |(_, told, id): &(_, Told, CredentialId)| {
            told.state
                .as_ref()
                .and_then(|r| r.credential(*id))
                .is_some_and(|c| c.state.name() == *state)
        };
        assert!(places.iter().any(has), "{state} has no place");
    }
    for step in IssueStep::VARIANTS {
        let has = |(_, told, id): &(_, Told, CredentialId)| {
            let credential = told.state.as_ref().and_then(|record| record.credential(*id));
            credential.is_some_and(|c| c.state == CredentialState::Issuing { step: *step })
        };
        assert!(places.iter().any(has), "{step} has no place");
    }
}
