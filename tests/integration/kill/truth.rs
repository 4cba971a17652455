//! The registries as they really are, by their own word: the judge never asks the service.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use hyperfleet_credentials::state::pull_secret::Call;

use crate::support::fake_quay::{FakeQuay, Op, What};

/// One registry of a scene.
pub struct Registry {
    pub id: &'static str,
    pub host: &'static str,
    kind: Kind,
}

enum Kind {
    Htpasswd(Htpasswd),
    Quay(Arc<FakeQuay>),
}

impl Registry {
    /// `file` need not be there yet.
    pub fn htpasswd(id: &'static str, host: &'static str, file: PathBuf) -> Self {
        Self { id, host, kind: Kind::Htpasswd(Htpasswd::watched(file)) }
    }

    pub fn quay(id: &'static str, host: &'static str, quay: Arc<FakeQuay>) -> Self {
        Self { id, host, kind: Kind::Quay(quay) }
    }

    /// The names of the service's accounts that live there now, as the service spells them.
    pub fn live(&self) -> BTreeSet<String> {
        match &self.kind {
            Kind::Htpasswd(htpasswd) => names(&htpasswd.file),
            Kind::Quay(quay) => {
                let (full, prefix) = (quay.live(&quay.full("hyp-")), quay.full(""));
                full.iter().map(|name| name.replacen(&prefix, "", 1)).collect()
            }
        }
    }

    /// A login with this entry of a pull secret would succeed.
    pub async fn works(&self, auth: &str) -> bool {
        let plain = base64::engine::general_purpose::STANDARD.decode(auth).unwrap();
        let plain = String::from_utf8(plain).unwrap();
        let (username, secret) = plain.split_once(':').unwrap();
        match &self.kind {
            Kind::Htpasswd(htpasswd) => htpasswd.works(username, secret).await,
            Kind::Quay(quay) => {
                quay.secret_works(username, secret) && quay.may_read(username, "app")
            }
        }
    }

    /// Names that came back after they had gone. Must always be empty.
    pub fn reused(&self) -> Vec<String> {
        match &self.kind {
            Kind::Htpasswd(htpasswd) => htpasswd.again.lock().unwrap().iter().cloned().collect(),
            Kind::Quay(quay) => quay.reused_names(),
        }
    }

    /// The most generations of one cluster that ever lived at once, by the registry's own log.
    pub fn most_generations(&self) -> usize {
        let Kind::Quay(quay) = &self.kind else { return 0 };
        let prefix = quay.full("hyp-");
        let mut living: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        let mut most = 0;
        for entry in quay.log() {
            let (robot, came) = match &entry.what {
                What::Created { robot } => (robot, true),
                What::Deleted { robot } => (robot, false),
                _ => continue,
            };
            // `<organisation>+hyp-<cluster>-g<generation>-<random>`
            let Some(name) = robot.strip_prefix(&prefix) else { continue };
            let mut parts = name.rsplitn(3, '-').skip(1);
            let (generation, cluster) = (parts.next().unwrap(), parts.next().unwrap());
            let generations = living.entry(cluster.to_owned()).or_default();
            let count = generations.entry(generation.to_owned()).or_default();
            *count = if came { *count + 1 } else { count.saturating_sub(1) };
            most = most.max(generations.values().filter(|count| **count > 0).count());
        }
        most
    }

    /// What the registry noted of one account, a line each.
    pub fn story(&self, name: &str) -> String {
        let Kind::Quay(quay) = &self.kind else { return String::new() };
        let full = quay.full(name);
        let log = quay.log();
        let requests: BTreeSet<u64> = log
            .iter()
            .filter(|entry| format!("{:?}", entry.what).contains(&full))
            .filter_map(|entry| entry.request)
            .collect();
        let of_it = log.iter().filter(|entry| entry.request.is_some_and(|r| requests.contains(&r)));
        of_it.map(|entry| format!("{entry:?}")).collect::<Vec<_>>().join("\n")
    }

    /// How often each change of an account came in, by account and the call that it belongs to. Nothing
    /// where the registry keeps no record of requests.
    pub fn changes_asked_for(&self) -> BTreeMap<(String, &'static str), usize> {
        let mut asked = BTreeMap::new();
        let Kind::Quay(quay) = &self.kind else { return asked };
        let prefix = quay.full("");
        for entry in quay.log() {
            let What::Request { op, robot, .. } = entry.what else { continue };
            let call = match op {
                Op::CreateRobot => Call::Create,
                Op::DeleteRobot => Call::Revoke,
                _ => continue,
            };
            *asked.entry((robot.replacen(&prefix, "", 1), call.into())).or_default() += 1;
        }
        asked
    }
}

/// A file tells nothing of its past, so it is watched.
struct Htpasswd {
    file: PathBuf,
    again: Arc<Mutex<BTreeSet<String>>>,
    over: Arc<AtomicBool>,
}

impl Htpasswd {
    fn watched(file: PathBuf) -> Self {
        let (again, over) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::default());
        tokio::spawn(watch_names(file.clone(), Arc::clone(&again), Arc::clone(&over)));
        Self { file, again, over }
    }

    async fn works(&self, name: &str, secret: &str) -> bool {
        let Some(hash) = accounts_in(&self.file).remove(name) else { return false };
        let secret = secret.to_owned();
        let verified = tokio::task::spawn_blocking(move || bcrypt::verify(secret, &hash).unwrap());
        verified.await.unwrap()
    }
}

impl Drop for Htpasswd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// The registry's own memory: a name that went never comes again.
async fn watch_names(file: PathBuf, again: Arc<Mutex<BTreeSet<String>>>, over: Arc<AtomicBool>) {
    let (mut before, mut gone) = (BTreeSet::new(), BTreeSet::new());
    while !over.load(Ordering::SeqCst) {
        let now = names(&file);
        again.lock().unwrap().extend(now.intersection(&gone).cloned());
        gone.extend(before.difference(&now).cloned());
        before = now;
        // Nobody tells when the file changes.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

fn names(file: &Path) -> BTreeSet<String> {
    accounts_in(file).into_keys().collect()
}

/// The accounts that the file has now.
fn accounts_in(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, hash)| (name.to_owned(), hash.to_owned())).collect()
}
