//! Clusters that have come a long way already: the machine is told what the registries said, and only its last
//! state is stored. A thousand of them cost a thousand commits.

use hyperfleet_credentials::actors::step::aad;
use hyperfleet_credentials::crypto::{SharedKeyring, secret};
use hyperfleet_credentials::ids::{AccountId, CallToken, ClusterId, Generation};
use hyperfleet_credentials::state::pull_secret::{
    Account, Answer, Call, Command, Context, CreateAnswer, Entropy, Policy, PullSecret,
    RevokeAnswer, StateName, VerifyAnswer, apply, decide, due_at, effects,
};
use hyperfleet_credentials::store::{Commit, SealedSecret, Store};
use hyperfleet_credentials::time::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

/// A cluster on paper, at one moment.
pub struct Stock<'a> {
    policy: &'a Policy,
    now: Timestamp,
    cluster_id: ClusterId,
    record: Option<PullSecret>,
}

impl<'a> Stock<'a> {
    /// A pull secret that is served. `username` is what the registry calls an account.
    pub fn active(
        policy: &'a Policy,
        now: Timestamp,
        name: &str,
        username: &dyn Fn(&Account) -> String,
    ) -> Self {
        let cluster_id: ClusterId = name.parse().unwrap();
        let mut stock = Self { policy, now, cluster_id: cluster_id.clone(), record: None };
        stock.tell(&Command::Issue { cluster_id, registries: None });
        while stock.record().state.name() == StateName::Issuing {
            stock.work(&|account, call| match call {
                Call::Create => {
                    let username = username(account);
                    Answer::Create(CreateAnswer::Created { remote_id: None, username })
                }
                Call::Verify => Answer::Verify(VerifyAnswer::Valid),
                Call::Lookup | Call::Revoke => panic!("{call:?} of an account that is new"),
            });
        }
        stock
    }

    /// Somebody deletes it, and no registry lets it go.
    pub fn not_let_go(mut self, why: &str) -> Self {
        self.tell(&Command::Revoke);
        self.work(&|_, call| match call {
            Call::Revoke => Answer::Revoke(RevokeAnswer::Refused(why.to_owned())),
            Call::Create | Call::Verify | Call::Lookup => panic!("{call:?} of what is deleted"),
        });
        self
    }

    pub fn record(&self) -> &PullSecret {
        self.record.as_ref().unwrap()
    }

    /// Stores it, with new secrets; answers them.
    pub async fn store(
        &self,
        store: &dyn Store,
        keyring: &SharedKeyring,
    ) -> Vec<(Account, SecretString)> {
        let record = self.record();
        let mut secrets = Vec::new();
        let mut sealed = Vec::new();
        for account in &record.accounts {
            let plain = secret::generate().unwrap();
            let seal = keyring.get().seal_secret(&aad(account.id), &plain).unwrap();
            let key_id = seal.key_id().to_owned();
            sealed.push((account.id, SealedSecret { key_id, bytes: seal.into_bytes() }));
            secrets.push((account.clone(), plain));
        }
        let commit = Commit {
            secrets: sealed,
            due_at: due_at(record, self.policy),
            ..Commit::new(&self.cluster_id, 0, None, Some(record), self.now)
        };
        store.commit(commit).await.unwrap();
        secrets
    }

    fn work(&mut self, said: &dyn Fn(&Account, Call) -> Answer) {
        for effect in effects(self.record(), self.now) {
            let (account_id, call) = (effect.account_id, effect.call);
            let token = CallToken(Uuid::now_v7());
            self.tell(&Command::Announce { account_id, call, token });
            let answer = said(self.account(account_id), call);
            self.tell(&Command::Answer { account_id, token, answer });
        }
    }

    fn account(&self, id: AccountId) -> &Account {
        self.record().account(id).unwrap()
    }

    fn tell(&mut self, command: &Command) {
        let context = Context {
            now: self.now,
            policy: self.policy,
            entropy: Entropy::from_seed(rand::random()),
            last_generation: self
                .record
                .as_ref()
                .map_or(Generation::NONE, |record| record.last_generation),
            may_start: true,
            time_is_trusted: true,
            restored_at: None,
        };
        let events = decide(self.record.as_ref(), command, &context).unwrap();
        self.record = events.iter().fold(self.record.take(), apply);
    }
}
