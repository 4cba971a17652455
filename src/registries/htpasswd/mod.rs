//! A CNCF distribution registry whose users stand in an htpasswd file.
//!
//! One line per account, its secret chosen by the service. The registry reads the file anew when
//! its time changes, so a change works with the next login. There is no authorization in such a
//! registry: every user may pull and push everything.
//!
//! The work on the file is in `file`, its text in `lines`, the login over HTTP in `login`.

mod file;
mod lines;
mod login;
mod replace;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, Url};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use self::file::{ChangeError, HtpasswdFile, off_thread};
use self::login::Login;
use super::{
    CallContext, Capabilities, CreateIntent, CreateOutcome, ListError, ListedAccount,
    LookupOutcome, Marker, Ownership, Registry, RevokeOutcome, Trouble, TroubleKind, Usage,
    VerifyOutcome,
};
use crate::ids::AccountName;
use crate::time::Timestamp;

/// bcrypt looks at no more; a longer secret would also open with its beginning.
const LONGEST_SECRET: usize = 72;

/// Where the file is and how it is used.
#[derive(Debug, Clone)]
pub struct HtpasswdSettings {
    /// The file that the registry reads. It has to lie in a directory we may write to.
    pub file: PathBuf,
    /// The registry's address for logins. Without it a secret is checked against the file alone.
    pub verify_url: Option<Url>,
    /// The cost of the hashes, from 4 to 14. The registry pays it with every request: 5 is 8 ms,
    /// 12 is half a second. The secrets are random, so a low one is enough.
    pub bcrypt_cost: u32,
}

impl HtpasswdSettings {
    /// The default cost, and no login over HTTP.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self { file, verify_url: None, bcrypt_cost: 5 }
    }
}

/// Settings that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HtpasswdError {
    /// The path ends in no file name.
    #[error("file must name a file")]
    File,
    /// The cost is out of its bounds.
    #[error("bcrypt_cost must be from 4 to 14")]
    BcryptCost,
    /// The address is not one of a registry.
    #[error("verify_url must be an http or https address without user name and password")]
    VerifyUrl,
}

/// One registry with one htpasswd file.
pub struct Htpasswd {
    file: HtpasswdFile,
    login: Option<Login>,
    bcrypt_cost: u32,
    capabilities: Capabilities,
}

impl Htpasswd {
    /// Opens nothing and connects to nothing. The client must follow no redirects, lest the answer
    /// of another server count as the registry's; the time limit comes from each call.
    ///
    /// # Errors
    /// [`HtpasswdError`] for settings that cannot work.
    pub fn new(settings: HtpasswdSettings, client: Client) -> Result<Self, HtpasswdError> {
        let HtpasswdSettings { file, verify_url, bcrypt_cost } = settings;
        if file.file_name().is_none() {
            return Err(HtpasswdError::File);
        }
        if !(4..=14).contains(&bcrypt_cost) {
            return Err(HtpasswdError::BcryptCost);
        }
        if let Some(url) = &verify_url {
            let plain = url.username().is_empty() && url.password().is_none() && url.has_host();
            if !plain || !matches!(url.scheme(), "http" | "https") {
                return Err(HtpasswdError::VerifyUrl);
            }
        }
        let capabilities = Capabilities {
            secret_readable: false,
            own_secret: true,
            marker: false,
            usage_evidence: false,
            token_ttl: Duration::ZERO,
            max_name_length: 255,
        };
        let login = verify_url.map(|url| Login::new(&url, client));
        Ok(Self { file: HtpasswdFile::new(file), login, bcrypt_cost, capabilities })
    }

    async fn hash(
        &self,
        call: &CallContext,
        secret: &SecretString,
    ) -> Result<Zeroizing<String>, Trouble> {
        call.in_time()?;
        let (secret, cost) = (secret.clone(), self.bcrypt_cost);
        let hash = move || bcrypt::hash(secret.expose_secret(), cost).map(Zeroizing::new);
        off_thread(call, hash)
            .await?
            .map_err(|_| Trouble::new(TroubleKind::ServerError, "the secret could not be hashed"))
    }

    /// Without an address for logins: what the registry would do with the file.
    async fn check(
        &self,
        call: &CallContext,
        username: &str,
        secret: &SecretString,
    ) -> Result<bool, Trouble> {
        let Some(hash) = self.file.read(call).await?.hash_of(username) else { return Ok(false) };
        let secret = secret.clone();
        // What is no bcrypt hash lets nobody in, at the registry as here.
        off_thread(call, move || bcrypt::verify(secret.expose_secret(), &hash).unwrap_or(false))
            .await
    }
}

/// Why a secret cannot be stored, in words that do not show it.
fn unusable(secret: &SecretString) -> Option<&'static str> {
    let bytes = secret.expose_secret().as_bytes();
    if bytes.is_empty() {
        Some("the secret is empty")
    } else if bytes.len() > LONGEST_SECRET {
        Some("the secret is longer than the 72 bytes that bcrypt looks at")
    } else if bytes.iter().any(|byte| matches!(byte, b'\0' | b'\n' | b'\r')) {
        Some("the secret holds a NUL or a line break")
    } else {
        None
    }
}

#[async_trait]
impl Registry for Htpasswd {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn create(&self, call: &CallContext, intent: &CreateIntent) -> CreateOutcome {
        let name = intent.name.as_str();
        let Some(secret) = &intent.secret else {
            return CreateOutcome::Refused("the service has to choose the secret".to_owned());
        };
        if let Some(reason) = unusable(secret) {
            return CreateOutcome::Refused(reason.to_owned());
        }
        // Before the lock: hashing is slow, and others wait for it.
        let hash = match self.hash(call, secret).await {
            Ok(hash) => hash,
            Err(trouble) => return CreateOutcome::Unavailable(trouble),
        };
        let locked = match self.file.lock(call).await {
            Ok(locked) => locked,
            Err(trouble) => return CreateOutcome::Unavailable(trouble),
        };
        if locked.document().contains(name) {
            return CreateOutcome::AlreadyExists;
        }
        let bytes = locked.document().with(name, &hash);
        match locked.replace(call, bytes).await {
            Ok(()) => {
                CreateOutcome::Created { remote_id: None, username: name.to_owned(), secret: None }
            }
            Err(ChangeError::NotApplied(trouble)) => CreateOutcome::Unavailable(trouble),
            Err(ChangeError::Lost(trouble)) => CreateOutcome::Unknown(trouble),
        }
    }

    async fn lookup(
        &self,
        call: &CallContext,
        name: &AccountName,
        _marker: &Marker,
    ) -> LookupOutcome {
        match self.file.read(call).await {
            Ok(document) if document.contains(name.as_str()) => LookupOutcome::Present {
                remote_id: None,
                username: name.to_string(),
                secret: None,
                ownership: Ownership::NoMarker,
            },
            Ok(_) => LookupOutcome::Absent,
            Err(trouble) => LookupOutcome::Unavailable(trouble),
        }
    }

    async fn revoke(
        &self,
        call: &CallContext,
        name: &AccountName,
        _remote_id: Option<&str>,
    ) -> RevokeOutcome {
        let locked = match self.file.lock(call).await {
            Ok(locked) => locked,
            Err(trouble) => return RevokeOutcome::Unavailable(trouble),
        };
        // A missing file says nothing about the account: its volume may not be mounted.
        if let Err(trouble) = locked.present() {
            return RevokeOutcome::Unavailable(trouble);
        }
        if !locked.document().contains(name.as_str()) {
            return RevokeOutcome::AlreadyGone;
        }
        let bytes = locked.document().without(name.as_str());
        match locked.replace(call, bytes).await {
            Ok(()) => RevokeOutcome::Done,
            Err(ChangeError::NotApplied(trouble)) => RevokeOutcome::Unavailable(trouble),
            Err(ChangeError::Lost(trouble)) => RevokeOutcome::Unknown(trouble),
        }
    }

    async fn verify(
        &self,
        call: &CallContext,
        username: &str,
        secret: &SecretString,
    ) -> VerifyOutcome {
        // Neither the file nor Basic can carry such a name, so no login can succeed.
        if username.contains(':') {
            return VerifyOutcome::Invalid;
        }
        if let Some(login) = &self.login {
            return login.verify(call, username, secret).await;
        }
        match self.check(call, username, secret).await {
            Ok(true) => VerifyOutcome::Valid { can_pull: true },
            Ok(false) => VerifyOutcome::Invalid,
            Err(trouble) => VerifyOutcome::Unavailable(trouble),
        }
    }

    async fn usage(
        &self,
        _call: &CallContext,
        _names: &[AccountName],
        _since: Timestamp,
    ) -> Result<Vec<Usage>, ListError> {
        Ok(Vec::new())
    }

    async fn list(
        &self,
        call: &CallContext,
        prefix: &str,
    ) -> Result<Vec<ListedAccount>, ListError> {
        let document = self.file.read(call).await.map_err(ListError)?;
        let names = document.users_with(prefix).into_iter();
        Ok(names.map(|name| ListedAccount { name, remote_id: None, marker: None }).collect())
    }
}
