//! What happens to a call at its registry, and what the service hears of it.

use super::super::*;
use super::registry::{Flavour, Late};
use super::world::{InFlight, World};
use crate::time::Timestamp;

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Fine,
    AppliedAnswerLost,
    NeverApplied,
    AppliedLate,
    NotApplied,
    Blocked,
    Refused,
    TakenByOther,
    StaleInvalid,
    StaleValid,
}

impl World {
    pub(super) fn answer(
        &mut self,
        call: &InFlight,
        fate: Fate,
        late_at: Timestamp,
        stale: bool,
        heard: bool,
    ) -> (Answer, Option<u64>) {
        let now = self.now;
        let failure =
            |blocked| Failure { message: format!("{fate:?}"), retry_after: None, blocked };
        let registry = self.registries.get_mut(&call.registry_id).unwrap();
        registry.apply_late(now);
        let chosen = call.secret.filter(|_| registry.flavour == Flavour::Chosen);
        match call.call {
            Call::Create => {
                if fate == Fate::TakenByOther && heard && !stale {
                    registry.put_foreign(&call.name);
                }
                let unknown = CreateAnswer::Unknown(failure(false));
                let answer = match fate {
                    Fate::NotApplied => CreateAnswer::NotApplied(failure(false)),
                    Fate::Blocked => CreateAnswer::NotApplied(failure(true)),
                    Fate::Refused => CreateAnswer::Refused("quota".to_owned()),
                    Fate::NeverApplied => unknown,
                    Fate::AppliedLate => {
                        if !stale {
                            registry.late.push(Late::Create {
                                at: late_at,
                                name: call.name.clone(),
                                chosen,
                            });
                        }
                        unknown
                    }
                    _ if stale => unknown,
                    Fate::AppliedAnswerLost => {
                        let _ = registry.create(&call.name, chosen);
                        unknown
                    }
                    Fate::Fine | Fate::TakenByOther | Fate::StaleInvalid | Fate::StaleValid => {
                        match registry.create(&call.name, chosen) {
                            Some(secret) => {
                                let username = format!("org+{}", call.name);
                                let answer = CreateAnswer::Created { remote_id: None, username };
                                return (Answer::Create(answer), Some(secret));
                            }
                            None => CreateAnswer::AlreadyExists,
                        }
                    }
                };
                (Answer::Create(answer), None)
            }
            Call::Lookup => {
                let answer = match (fate, registry.live.get(&call.name)) {
                    (Fate::Fine | Fate::TakenByOther | Fate::StaleValid, Some(found)) => {
                        let readable = registry.flavour == Flavour::Readable;
                        let chosen = registry.flavour == Flavour::Chosen;
                        let ownership = match (registry.flavour, found.foreign) {
                            (Flavour::Chosen, _) => Ownership::NoMarker,
                            (_, true) => Ownership::Foreign,
                            (_, false) => Ownership::ThisIntent,
                        };
                        let answer = LookupAnswer::Present {
                            remote_id: None,
                            username: format!("org+{}", call.name),
                            ownership,
                            adoptable: readable || chosen,
                        };
                        let secret = found.secret;
                        let secret = if readable { Some(secret) } else { call.secret };
                        return (Answer::Lookup(answer), secret);
                    }
                    (Fate::Fine | Fate::TakenByOther | Fate::StaleValid, None) => {
                        LookupAnswer::Absent
                    }
                    (Fate::Blocked, _) => LookupAnswer::Failed(failure(true)),
                    _ => LookupAnswer::Failed(failure(false)),
                };
                (Answer::Lookup(answer), None)
            }
            Call::Verify => {
                let works = registry
                    .live
                    .get(&call.name)
                    .is_some_and(|found| Some(found.secret) == call.secret);
                // A registry that caches answers tells of an account that somebody deleted as if it were there.
                let cached = registry.broken.contains(&call.name);
                let answer = match fate {
                    Fate::Fine | Fate::TakenByOther if works => VerifyAnswer::Valid,
                    Fate::StaleValid if works || cached => VerifyAnswer::Valid,
                    Fate::Fine | Fate::TakenByOther | Fate::StaleInvalid | Fate::StaleValid => {
                        VerifyAnswer::Invalid
                    }
                    Fate::Refused => VerifyAnswer::CannotPull,
                    Fate::Blocked => VerifyAnswer::Failed(failure(true)),
                    _ => VerifyAnswer::Failed(failure(false)),
                };
                (Answer::Verify(answer), None)
            }
            Call::Revoke => {
                let answer = match fate {
                    Fate::Fine | Fate::TakenByOther | Fate::StaleInvalid | Fate::StaleValid => {
                        if registry.revoke(&call.name, now) {
                            RevokeAnswer::Done
                        } else {
                            RevokeAnswer::AlreadyGone
                        }
                    }
                    Fate::AppliedAnswerLost => {
                        let _ = registry.revoke(&call.name, now);
                        RevokeAnswer::Failed(failure(false))
                    }
                    Fate::AppliedLate => {
                        registry.late.push(Late::Revoke { at: late_at, name: call.name.clone() });
                        RevokeAnswer::Failed(failure(false))
                    }
                    Fate::Refused => RevokeAnswer::Refused("mirror".to_owned()),
                    Fate::Blocked => RevokeAnswer::Failed(failure(true)),
                    Fate::NeverApplied | Fate::NotApplied => RevokeAnswer::Failed(failure(false)),
                };
                (Answer::Revoke(answer), None)
            }
        }
    }
}
