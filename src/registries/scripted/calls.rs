//! The trait, as the script wants it to go.

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use super::Scripted;
use super::accounts::LiveAccount;
use super::fault::{Fault, Verb, When};
use super::truth::Answer;
use crate::ids::AccountName;
use crate::registries::{
    CallContext, Capabilities, CreateIntent, CreateOutcome, ListError, ListedAccount,
    LookupOutcome, Marker, Ownership, Registry, RevokeOutcome, Trouble, TroubleKind, Usage,
    VerifyOutcome,
};
use crate::time::Timestamp;

/// An open call; writes its end into the log even when the code panics or is dropped.
struct Open<'a> {
    registry: &'a Scripted,
    number: u64,
    answer: Option<Answer>,
}

impl Open<'_> {
    fn end(mut self, answer: Answer) {
        self.answer = Some(answer);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let unfinished = if std::thread::panicking() { Answer::Panicked } else { Answer::Dropped };
        self.registry.world().end(self.number, self.answer.unwrap_or(unfinished));
    }
}

/// What the faults that end a call early say, before its verb puts it into its own words.
enum Early {
    Unavailable(Trouble),
    Lost(Trouble),
    Refused(String),
    Contrary,
    StaleValid,
    StaleInvalid,
}

/// How a call that is not ended early goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Answer,
    CannotPull,
    Lost,
    Hang,
    Panic,
}

impl Scripted {
    fn open(&self, verb: Verb, name: &str) -> (Open<'_>, Option<Fault>) {
        let (number, info, queued, script) = {
            let mut world = self.world();
            let (number, info) = world.begin(verb, name);
            let queued =
                world.queues.get_mut(&verb).and_then(std::collections::VecDeque::pop_front);
            (number, info, queued, world.script.clone())
        };
        let open = Open { registry: self, number, answer: None };
        let fault = match queued {
            Some(fault) => fault,
            None => script.and_then(|script| script(&info)),
        };
        (open, fault)
    }

    /// Plays the part of a fault that comes before the change. `late` is the change, for the one
    /// fault that applies it after the call has ended.
    async fn before(
        &self,
        call: &CallContext,
        fault: Option<Fault>,
        late: impl FnOnce(When),
    ) -> Result<After, Early> {
        let unavailable = |kind, words: &str| Err(Early::Unavailable(Trouble::new(kind, words)));
        let after = match fault {
            None => After::Answer,
            Some(Fault::LostAfter) => After::Lost,
            Some(Fault::HangAfter) => After::Hang,
            Some(Fault::PanicAfter) => After::Panic,
            Some(Fault::CannotPull) => After::CannotPull,
            Some(Fault::Hold(when)) => {
                when.come().await;
                After::Answer
            }
            Some(Fault::LostBefore) => return Err(Early::Lost(lost())),
            Some(Fault::AppliedLate(when)) => {
                call.may_act().await.map_err(Early::Unavailable)?;
                late(when);
                return Err(Early::Lost(lost()));
            }
            Some(Fault::Hang) => {
                tokio::time::sleep_until(call.tokio_deadline()).await;
                return Err(Early::Lost(Trouble::timeout()));
            }
            Some(Fault::Connect) => return unavailable(TroubleKind::Connect, "no connection"),
            Some(Fault::RateLimited(wait)) => {
                let limited = Trouble::new(TroubleKind::RateLimited, "too many requests");
                return Err(Early::Unavailable(limited.retry_after(wait)));
            }
            Some(Fault::ServerError) => {
                return unavailable(TroubleKind::ServerError, "the registry answered 503");
            }
            Some(Fault::OwnCredential) => {
                return unavailable(TroubleKind::OwnCredential, "own credential refused");
            }
            Some(Fault::Misconfigured) => {
                return unavailable(TroubleKind::Misconfigured, "the organization is missing");
            }
            Some(Fault::Refuse(words)) => return Err(Early::Refused(words)),
            Some(Fault::Contrary) => return Err(Early::Contrary),
            Some(Fault::StaleValid) => return Err(Early::StaleValid),
            Some(Fault::StaleInvalid) => return Err(Early::StaleInvalid),
            // The one thing a test double may do and no other code: the callers must survive it.
            Some(Fault::Panic) => panic!("scripted panic before the change"),
        };
        call.may_act().await.map_err(Early::Unavailable)?;
        Ok(after)
    }

    /// Plays the part of a fault that comes after the change; trouble when the answer is lost.
    async fn answered(&self, call: &CallContext, after: After) -> Result<(), Trouble> {
        match after {
            After::Answer | After::CannotPull => Ok(()),
            After::Lost => Err(lost()),
            After::Hang => {
                tokio::time::sleep_until(call.tokio_deadline()).await;
                Err(Trouble::timeout())
            }
            After::Panic => panic!("scripted panic after the change"),
        }
    }

    /// A reading call has nothing to apply; what would be lost is merely unavailable.
    async fn read(&self, call: &CallContext, fault: Option<Fault>) -> Result<After, Early> {
        let after = self.before(call, fault, |_| ()).await?;
        self.answered(call, after).await.map_err(Early::Unavailable)?;
        Ok(after)
    }

    fn present(&self, account: &LiveAccount, asked: &Marker) -> LookupOutcome {
        let ownership = match (&account.marker, self.capabilities.marker) {
            (_, false) => Ownership::NoMarker,
            (Some(marker), true) if marker == asked => Ownership::ThisIntent,
            (Some(_) | None, true) => Ownership::Foreign,
        };
        LookupOutcome::Present {
            remote_id: Some(account.remote_id.clone()),
            username: account.username.clone(),
            secret: self.capabilities.secret_readable.then(|| account.secret.clone()),
            ownership,
        }
    }
}

fn lost() -> Trouble {
    Trouble::new(TroubleKind::Timeout, "the answer was lost")
}

fn no_sense() -> Trouble {
    Trouble::new(TroubleKind::ServerError, "the answer makes no sense")
}

impl Early {
    /// For calls that know neither refusal nor login.
    fn trouble(self) -> Trouble {
        match self {
            Self::Unavailable(trouble) | Self::Lost(trouble) => trouble,
            Self::Refused(_) | Self::Contrary | Self::StaleValid | Self::StaleInvalid => no_sense(),
        }
    }
}

#[async_trait]
impl Registry for Scripted {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn create(&self, call: &CallContext, intent: &CreateIntent) -> CreateOutcome {
        let name = intent.name.as_str();
        let (open, fault) = self.open(Verb::Create, name);
        let number = open.number;
        let apply = {
            let registry = self.clone();
            let intent = intent.clone();
            move || {
                let (name, marker) = (intent.name.as_str(), Some(intent.marker.clone()));
                let username = registry.username(name);
                registry.world().create(Some(number), name, username, marker, intent.secret.clone())
            }
        };
        let late = apply.clone();
        let outcome = if intent.secret.is_some() != self.capabilities.own_secret {
            CreateOutcome::Refused("the secret is chosen by the wrong side".to_owned())
        } else {
            match self.before(call, fault, |when| spawn_late(when, move || drop(late()))).await {
                Ok(after) => {
                    let made = apply();
                    match (self.answered(call, after).await, made) {
                        (Err(trouble), _) => CreateOutcome::Unknown(trouble),
                        (Ok(()), None) => CreateOutcome::AlreadyExists,
                        (Ok(()), Some(account)) => CreateOutcome::Created {
                            remote_id: Some(account.remote_id),
                            username: account.username,
                            secret: (!self.capabilities.own_secret).then_some(account.secret),
                        },
                    }
                }
                Err(Early::Unavailable(trouble)) => CreateOutcome::Unavailable(trouble),
                Err(Early::Lost(trouble)) => CreateOutcome::Unknown(trouble),
                Err(Early::Refused(words)) => CreateOutcome::Refused(words),
                Err(Early::Contrary) => CreateOutcome::AlreadyExists,
                Err(Early::StaleValid | Early::StaleInvalid) => {
                    CreateOutcome::Unavailable(no_sense())
                }
            }
        };
        open.end(match &outcome {
            CreateOutcome::Created { .. } => Answer::Created,
            CreateOutcome::AlreadyExists => Answer::AlreadyExists,
            CreateOutcome::Refused(_) => Answer::Refused,
            CreateOutcome::Unavailable(trouble) => Answer::Unavailable(trouble.kind),
            CreateOutcome::Unknown(trouble) => Answer::Unknown(trouble.kind),
        });
        outcome
    }

    async fn lookup(
        &self,
        call: &CallContext,
        name: &AccountName,
        marker: &Marker,
    ) -> LookupOutcome {
        let (open, fault) = self.open(Verb::Lookup, name.as_str());
        let outcome = match self.read(call, fault).await {
            Ok(_) => {
                let account = self.world().accounts.get(name.as_str()).cloned();
                account.map_or(LookupOutcome::Absent, |account| self.present(&account, marker))
            }
            Err(Early::Contrary) => LookupOutcome::Absent,
            Err(early) => LookupOutcome::Unavailable(early.trouble()),
        };
        open.end(match &outcome {
            LookupOutcome::Absent => Answer::Absent,
            LookupOutcome::Present { .. } => Answer::Present,
            LookupOutcome::Unavailable(trouble) => Answer::Unavailable(trouble.kind),
        });
        outcome
    }

    async fn revoke(
        &self,
        call: &CallContext,
        name: &AccountName,
        _remote_id: Option<&str>,
    ) -> RevokeOutcome {
        let (open, fault) = self.open(Verb::Revoke, name.as_str());
        let number = open.number;
        let apply = {
            let (registry, name) = (self.clone(), name.clone());
            move || registry.world().delete(Some(number), name.as_str())
        };
        let late = apply.clone();
        let late = |when| {
            spawn_late(when, move || {
                late();
            });
        };
        let outcome = match self.before(call, fault, late).await {
            Ok(after) => {
                let existed = apply();
                match (self.answered(call, after).await, existed) {
                    (Err(trouble), _) => RevokeOutcome::Unknown(trouble),
                    (Ok(()), true) => RevokeOutcome::Done,
                    (Ok(()), false) => RevokeOutcome::AlreadyGone,
                }
            }
            Err(Early::Unavailable(trouble)) => RevokeOutcome::Unavailable(trouble),
            Err(Early::Lost(trouble)) => RevokeOutcome::Unknown(trouble),
            Err(Early::Refused(words)) => RevokeOutcome::Refused(words),
            Err(Early::Contrary) => RevokeOutcome::AlreadyGone,
            Err(Early::StaleValid | Early::StaleInvalid) => RevokeOutcome::Unavailable(no_sense()),
        };
        open.end(match &outcome {
            RevokeOutcome::Done => Answer::Done,
            RevokeOutcome::AlreadyGone => Answer::AlreadyGone,
            RevokeOutcome::Refused(_) => Answer::Refused,
            RevokeOutcome::Unavailable(trouble) => Answer::Unavailable(trouble.kind),
            RevokeOutcome::Unknown(trouble) => Answer::Unknown(trouble.kind),
        });
        outcome
    }

    async fn verify(
        &self,
        call: &CallContext,
        username: &str,
        secret: &SecretString,
    ) -> VerifyOutcome {
        let name = username.strip_prefix(&self.login_prefix).unwrap_or(username);
        let (open, fault) = self.open(Verb::Verify, name);
        let outcome = match self.read(call, fault).await {
            Ok(after) if self.world().login(username, secret.expose_secret()) => {
                VerifyOutcome::Valid { can_pull: after != After::CannotPull }
            }
            Err(Early::StaleValid) => VerifyOutcome::Valid { can_pull: true },
            Ok(_) | Err(Early::Contrary | Early::StaleInvalid) => VerifyOutcome::Invalid,
            Err(early) => VerifyOutcome::Unavailable(early.trouble()),
        };
        open.end(match &outcome {
            VerifyOutcome::Valid { .. } => Answer::Valid,
            VerifyOutcome::Invalid => Answer::Invalid,
            VerifyOutcome::Unavailable(trouble) => Answer::Unavailable(trouble.kind),
        });
        outcome
    }

    async fn usage(
        &self,
        call: &CallContext,
        names: &[AccountName],
        since: Timestamp,
    ) -> Result<Vec<Usage>, ListError> {
        let (open, fault) = self.open(Verb::Usage, "");
        let outcome = self.read(call, fault).await.map_err(|early| ListError(early.trouble()));
        let outcome = outcome.map(|_| {
            let world = self.world();
            let used = |name: &AccountName| {
                let last_used_at = *world.used.get(name.as_str())?;
                (self.capabilities.usage_evidence && last_used_at >= since)
                    .then(|| Usage { name: name.clone(), last_used_at })
            };
            names.iter().filter_map(used).collect::<Vec<_>>()
        });
        open.end(rows(&outcome));
        outcome
    }

    async fn list(
        &self,
        call: &CallContext,
        prefix: &str,
    ) -> Result<Vec<ListedAccount>, ListError> {
        let (open, fault) = self.open(Verb::List, prefix);
        let outcome = self.read(call, fault).await.map_err(|early| ListError(early.trouble()));
        let outcome = outcome.map(|_| {
            let begin = format!("{prefix}-");
            let world = self.world();
            let ours = world.accounts.values().filter(|account| account.name.starts_with(&begin));
            ours.map(|account| ListedAccount {
                name: account.name.clone(),
                remote_id: Some(account.remote_id.clone()),
                marker: self.marker_text(account),
            })
            .collect::<Vec<_>>()
        });
        open.end(rows(&outcome));
        outcome
    }
}

impl Scripted {
    fn marker_text(&self, account: &LiveAccount) -> Option<String> {
        let marker = account.marker.as_ref().filter(|_| self.capabilities.marker)?;
        let cluster = marker.cluster_id.as_ref().map_or("pool", |id| id.as_str());
        Some(format!("{}/{cluster}/g{}", marker.installation, marker.generation))
    }
}

fn rows<T>(outcome: &Result<Vec<T>, ListError>) -> Answer {
    match outcome {
        Ok(rows) => Answer::Rows(rows.len()),
        Err(ListError(trouble)) => Answer::Unavailable(trouble.kind),
    }
}

fn spawn_late(when: When, apply: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        when.come().await;
        apply();
    });
}
