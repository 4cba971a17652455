//! The reviewed table: each state by each command, and what follows. A change of behaviour is a changed line.

use std::fmt::Write as _;
use std::time::Duration;

use strum::VariantArray;

use super::super::command::CommandName;
use super::super::*;
use super::told::*;
use super::world::HOUR;
use crate::ids::{CallToken, Generation};

/// Every state and phase, each reached by a history.
fn places() -> Vec<(&'static str, Told)> {
    let from = |mut told: Told, steps: fn(&mut Told)| {
        steps(&mut told);
        told
    };
    let later = |told: Told, steps: fn(&mut Told)| {
        let mut told = from(told, steps);
        told.pass(MINUTE);
        told
    };
    vec![
        ("no record", Told::new()),
        (
            "issuing, waits",
            later(Told::lost_create(), |told| {
                told.call(Answer::Lookup(LookupAnswer::Absent));
                told.call(refused());
                told.issue().unwrap();
            }),
        ),
        (
            "issuing, planned",
            from(Told::new(), |told| {
                told.issue().unwrap();
            }),
        ),
        (
            "issuing, creating",
            from(Told::new(), |told| {
                told.issue().unwrap();
                told.announce(Call::Create);
            }),
        ),
        (
            "issuing, name taken",
            from(Told::new(), |told| {
                told.issue().unwrap();
                told.call(Answer::Create(CreateAnswer::AlreadyExists));
            }),
        ),
        ("issuing, lost", later(Told::lost_create(), |_| {})),
        ("active", later(Told::active(), |_| {})),
        (
            "pending",
            from(Told::active(), |told| {
                told.may_start = false;
                told.rotate().unwrap();
            }),
        ),
        (
            "creating",
            from(Told::active(), |told| {
                told.rotate().unwrap();
            }),
        ),
        (
            "verifying",
            from(Told::active(), |told| {
                told.rotate().unwrap();
                told.call(created());
            }),
        ),
        (
            "active, suspected",
            from(Told::watched(), |told| {
                told.pass(DAY);
                told.call_at("quay", invalid());
            }),
        ),
        (
            "active, dead",
            from(Told::watched(), |told| {
                told.policy.reissue = false;
                told.dies_at_quay();
            }),
        ),
        (
            "creating, one waits",
            from(Told::at_quay(), |told| {
                told.rotate().unwrap();
                told.rotate_partly(&["rhit"], &[]).unwrap();
            }),
        ),
        (
            "dual, one account replaced",
            later(Told::watched(), |told| {
                told.dies_at_quay();
                told.work();
            }),
        ),
        ("dual", later(Told::dual(), |_| {})),
        (
            "dual, overlap passed",
            later(Told::dual(), |told| {
                told.pass(DAY);
            }),
        ),
        (
            "dual, drifted",
            later(Told::dual(), |told| {
                told.complete().unwrap();
                told.call(invalid());
            }),
        ),
        (
            "dual, rollback asked",
            later(Told::dual(), |told| {
                told.rollback().unwrap();
            }),
        ),
        (
            "revoking old, unverified",
            later(Told::dual(), |told| {
                told.pass(DAY);
                told.heartbeat("pool", 2).unwrap();
            }),
        ),
        (
            "revoking old, deleting",
            later(Told::dual(), |told| {
                told.complete().unwrap();
                told.call(valid());
            }),
        ),
        ("rolling back", later(Told::rolling_back(), |_| {})),
        (
            "rolling back, drifted",
            later(Told::rolling_back(), |told| {
                told.complete().unwrap();
                told.call(invalid());
            }),
        ),
        (
            "rolling back, decided",
            later(Told::rolling_back(), |told| {
                told.complete().unwrap();
            }),
        ),
        (
            "removing new",
            from(Told::active(), |told| {
                told.rotate().unwrap();
                told.call(created());
                told.cancel().unwrap();
            }),
        ),
        (
            "revoking",
            from(Told::dual(), |told| {
                told.delete().unwrap();
            }),
        ),
        (
            "revoking, residue",
            from(Told::active(), |told| {
                told.delete().unwrap();
                told.call(not_deletable());
            }),
        ),
        (
            "revoked",
            from(Told::active(), |told| {
                told.delete().unwrap();
                told.work();
            }),
        ),
        (
            "denied",
            from(Told::new(), |told| {
                told.issue().unwrap();
                told.call(refused());
            }),
        ),
        (
            "failed",
            from(Told::new(), |told| {
                told.policy.give_up_after = HOUR;
                told.policy.retry.max = 2 * HOUR;
                told.issue().unwrap();
                told.call(Answer::Create(CreateAnswer::NotApplied(failure(false))));
                told.pass(2 * HOUR);
                told.call(Answer::Create(CreateAnswer::NotApplied(failure(false))));
            }),
        ),
        (
            "quarantined",
            later(Told::dual(), |told| {
                let retry_at = told.now.plus(HOUR);
                told.tell(&Command::Quarantine { retry_at }).unwrap();
            }),
        ),
    ]
}

/// What each command says in the table. A new command does not compile until it is here.
fn commands(name: CommandName, told: &mut Told) -> Vec<(&'static str, Command)> {
    told.policy.registries.remove(&registry("extra"));
    let rotation_id = told.rotation_id();
    let fresh = crate::ids::RotationId(told.uuid());
    let token = CallToken(told.uuid());
    let now = told.now;
    let accounts = told.state.as_ref().map(|r| r.accounts.clone()).unwrap_or_default();
    let some_id = accounts.first().map_or(crate::ids::AccountId(uuid::Uuid::nil()), |a| a.id);
    let rotate =
        |reason, force_immediate| Command::Rotate { rotation_id: fresh, reason, force_immediate };
    let evidence = |subject| {
        let (source, consumer) = (EvidenceSource::Heartbeat, "table".to_owned());
        Command::Observe(Evidence { source, consumer, subject, observed_at: now })
    };
    let seen = |phase| {
        let account = accounts.iter().find(|account| account.phase == phase);
        account.map(|account| evidence(EvidenceSubject::Account(account.id)))
    };
    match name {
        CommandName::Issue => {
            let cluster_id: crate::ids::ClusterId = "cls-table".parse().unwrap();
            let other = Some(vec![registry("other")]);
            vec![
                ("", Command::Issue { cluster_id: cluster_id.clone(), registries: None }),
                (" unknown registry", Command::Issue { cluster_id, registries: other }),
            ]
        }
        CommandName::Revoke => vec![("", Command::Revoke)],
        CommandName::Rotate => vec![
            (" manual", rotate(RotationReason::Manual, false)),
            (" compromise", rotate(RotationReason::Compromise, false)),
            (" by force", rotate(RotationReason::Manual, true)),
        ],
        CommandName::RotatePartly => {
            let quay = told.policy.registry(&registry("quay"));
            told.policy.registries.insert(registry("extra"), quay);
            let partly =
                |added, removed| Command::RotatePartly { rotation_id: fresh, added, removed };
            vec![
                (" add", partly(vec![registry("extra")], Vec::new())),
                (" swap", partly(vec![registry("extra")], vec![registry("quay")])),
                (" remove all", partly(Vec::new(), vec![registry("quay")])),
            ]
        }
        CommandName::Reschedule => {
            let at = |next_at| {
                let next_at = Change::To(next_at);
                let change = ScheduleChange { next_at, ..ScheduleChange::default() };
                Command::Reschedule(Box::new(change))
            };
            vec![("", at(now.plus(HOUR))), (" too early", at(now))]
        }
        CommandName::Complete => vec![
            ("", Command::Complete { rotation_id }),
            (" another rotation", Command::Complete { rotation_id: fresh }),
        ],
        CommandName::Extend => vec![("", Command::Extend { rotation_id, by: HOUR })],
        CommandName::Rollback => vec![("", Command::Rollback { rotation_id })],
        CommandName::Cancel => vec![("", Command::Cancel { rotation_id })],
        CommandName::Missing => {
            vec![("", Command::Missing { account_id: some_id, listed_at: now })]
        }
        CommandName::Observe => {
            let generation = EvidenceSubject::Generation(Generation(1));
            let mut all = vec![(" generation 1", evidence(generation))];
            all.extend(seen(AccountPhase::Serving).map(|command| (" the served", command)));
            all.extend(seen(AccountPhase::Retiring).map(|command| (" the retiring", command)));
            all
        }
        CommandName::Announce => {
            let wanted: Vec<_> = told.due();
            let all = Call::VARIANTS.iter().map(|call| {
                let account = wanted.iter().find(|effect| effect.call == *call);
                let account_id = account.map_or(some_id, |effect| effect.account_id);
                let command = Command::Announce { account_id, call: *call, token };
                match call {
                    Call::Create => (" create", command),
                    Call::Lookup => (" lookup", command),
                    Call::Verify => (" verify", command),
                    Call::Revoke => (" revoke", command),
                }
            });
            all.collect()
        }
        CommandName::Defer => {
            let account_id = told.due().first().map_or(some_id, |effect| effect.account_id);
            let until = now.plus(HOUR);
            vec![("", Command::Defer { account_id, until, reason: "busy".to_owned() })]
        }
        CommandName::Answer => {
            let running = accounts.iter().find_map(|account| Some((account.id, account.call?)));
            let stale = Command::Answer { account_id: some_id, token, answer: created() };
            let mut all = vec![(" stale", stale)];
            if let Some((account_id, running)) = running {
                let answer = Answer::lost(running.call, "lost");
                let lost = Command::Answer { account_id, token: running.token, answer };
                all.push((" lost", lost));
            }
            all
        }
        CommandName::TakeOver => vec![("", Command::TakeOver)],
        CommandName::Tick => vec![("", Command::Tick)],
        CommandName::Quarantine => vec![("", Command::Quarantine { retry_at: now.plus(HOUR) })],
        CommandName::Release => vec![("", Command::Release)],
        CommandName::ForceGone => vec![("", Command::ForceGone { account_id: some_id })],
    }
}

/// What every answer does to an account in the phase that awaits it, without and with a lost create.
fn answers(call: Call) -> Vec<Answer> {
    match call {
        Call::Create => vec![
            created(),
            Answer::Create(CreateAnswer::AlreadyExists),
            refused(),
            Answer::Create(CreateAnswer::NotApplied(failure(false))),
            Answer::Create(CreateAnswer::NotApplied(failure(true))),
            Answer::Create(CreateAnswer::Unknown(failure(false))),
        ],
        Call::Lookup => vec![
            Answer::Lookup(LookupAnswer::Absent),
            present(Ownership::ThisIntent, true),
            present(Ownership::ThisIntent, false),
            present(Ownership::NoMarker, true),
            present(Ownership::NoMarker, false),
            present(Ownership::Foreign, true),
            Answer::Lookup(LookupAnswer::Failed(failure(false))),
        ],
        Call::Verify => vec![
            valid(),
            invalid(),
            Answer::Verify(VerifyAnswer::CannotPull),
            Answer::Verify(VerifyAnswer::Failed(failure(false))),
        ],
        Call::Revoke => vec![
            deleted(),
            gone(),
            not_deletable(),
            Answer::Revoke(RevokeAnswer::Failed(failure(false))),
        ],
    }
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
    for (place, mut told) in places() {
        writeln!(table, "{place}").unwrap();
        for name in CommandName::VARIANTS {
            for (variant, command) in commands(*name, &mut told) {
                let what = format!("{name:?}{variant}");
                writeln!(table, "  {what:<26} {}", row(&told, &command)).unwrap();
            }
        }
    }
    insta::assert_snapshot!("states_by_commands", table);
}

#[test]
fn each_wanted_call_by_each_answer() {
    let mut table = String::new();
    for (place, told) in places() {
        let mut wanted = told.due();
        wanted.dedup_by_key(|effect| effect.call);
        for effect in wanted {
            let mut told = told.clone();
            let running = told.announce(effect.call);
            told.now = told.now.plus(Duration::from_secs(1));
            writeln!(table, "{place}: {}", effect.call).unwrap();
            for answer in answers(effect.call) {
                let (account_id, token) = running;
                let what = format!("{answer:?}");
                let what =
                    what.replace("Failure { message: \"trouble\", retry_after: None, ", "{ ");
                let what = what.replace("remote_id: None, username: \"org+robot\"", "..");
                let command = Command::Answer { account_id, token, answer };
                writeln!(table, "  {what:<74} {}", row(&told, &command)).unwrap();
            }
        }
    }
    insta::assert_snapshot!("calls_by_answers", table);
}

#[test]
fn every_state_and_phase_is_in_the_table() {
    let places = places();
    let has = |state: StateName| places.iter().any(|(_, t)| t.state.is_some() && t.name() == state);
    let missing: Vec<_> = StateName::VARIANTS.iter().filter(|state| !has(**state)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // A new phase does not compile until it is here, and then it needs a place.
    let next = |phase: &RotationPhase| match phase {
        RotationPhase::Pending => Some("creating_credentials"),
        RotationPhase::CreatingCredentials => Some("verifying_credentials"),
        RotationPhase::VerifyingCredentials => Some("dual_credential_period"),
        RotationPhase::DualCredentialPeriod { .. } => Some("revoking_old"),
        RotationPhase::RevokingOld { .. } => Some("rolling_back"),
        RotationPhase::RollingBack { .. } => Some("removing_new"),
        RotationPhase::RemovingNew { .. } | RotationPhase::Ended(_) => None,
    };
    let rotating = |(_, told): &(_, Told)| {
        let rotation = told.state.as_ref().and_then(PullSecret::rotation);
        rotation.map(|rotation| rotation.phase.clone())
    };
    let phases: Vec<_> = places.iter().filter_map(rotating).collect();
    for word in ["pending"].into_iter().chain(phases.iter().filter_map(next)) {
        assert!(phases.iter().any(|phase| phase.name() == word), "{word} has no place");
    }
}
