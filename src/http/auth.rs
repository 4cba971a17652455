//! Who is calling, and whether they may.
//!
//! Knows tokens and roles. Where roles come from is an [`Authenticator`]'s business; what a role may
//! do is in the table of [`routes`](super::routes).

use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use async_trait::async_trait;
use secrecy::SecretString;

use super::problem::{ApiError, Scheme};
use super::routes::Permission;
use crate::config::{Role, TokensError, TokensFile};
use crate::ids::ClusterId;
use crate::state::pull_secret::RotationReason;

/// The tokens file is looked at again at most this often.
const RECHECK: Duration = Duration::from_secs(1);

/// Whoever is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name that the audit shows.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// Why nobody can be named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The token belongs to nobody, or not any more.
    #[error("the token is unknown or no longer valid")]
    Unknown,
    /// Whoever would know cannot be asked. Never taken for "allowed".
    #[error("the reviewer cannot be asked: {0}")]
    Unreachable(String),
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Unknown => Self::BadCredentials(Scheme::Bearer),
            AuthError::Unreachable(cause) => {
                Self::unavailable("credentials cannot be checked at the moment", cause)
            }
        }
    }
}

/// Says whose a token is and what its owner may do.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// The owner of a token.
    async fn authenticate(&self, token: &SecretString) -> Result<Principal, AuthError>;

    /// Whether a caller may do this to this cluster, or to the fleet where none is named. By role,
    /// unless somebody else has to be asked.
    async fn allows(
        &self,
        principal: &Principal,
        permission: Permission,
        cluster: Option<&ClusterId>,
    ) -> Result<bool, AuthError> {
        let _ = cluster;
        Ok(permission.roles().contains(&principal.role))
    }
}

/// The `Authorization: Bearer` of a request.
///
/// # Errors
/// `AUT-001` without the header, `AUT-002` when it is of another kind or there are several.
pub fn bearer(headers: &HeaderMap) -> Result<SecretString, ApiError> {
    credentials(headers, Scheme::Bearer, "bearer")
}

/// What follows the scheme's name in the only `Authorization` header.
pub(super) fn credentials(
    headers: &HeaderMap,
    scheme: Scheme,
    name: &str,
) -> Result<SecretString, ApiError> {
    let mut all = headers.get_all(header::AUTHORIZATION);
    let value = all.next().ok_or(ApiError::NoCredentials(scheme))?;
    let bad = || ApiError::BadCredentials(scheme);
    if all.next().is_some() {
        return Err(bad());
    }
    let (given, rest) = value.to_str().map_err(|_| bad())?.split_once(' ').ok_or_else(bad)?;
    let rest = rest.trim();
    let visible = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_graphic());
    if given.eq_ignore_ascii_case(name) && visible {
        Ok(SecretString::from(rest))
    } else {
        Err(bad())
    }
}

/// The caller of a request, known and admitted by the gate.
#[derive(Clone)]
pub struct Caller {
    /// Who.
    pub principal: Principal,
    cluster: Option<ClusterId>,
    authenticator: Arc<dyn Authenticator>,
}

impl Caller {
    pub(super) const fn new(
        principal: Principal,
        cluster: Option<ClusterId>,
        authenticator: Arc<dyn Authenticator>,
    ) -> Self {
        Self { principal, cluster, authenticator }
    }

    /// Whether the caller may also do this, to the cluster in the path.
    ///
    /// # Errors
    /// `SVC-001` when whoever decides cannot be asked.
    pub async fn may(&self, permission: Permission) -> Result<bool, ApiError> {
        let cluster = self.cluster.as_ref();
        Ok(self.authenticator.allows(&self.principal, permission, cluster).await?)
    }

    /// Insists that the caller may also do this.
    ///
    /// # Errors
    /// `AUZ-001` when not, `SVC-001` when whoever decides cannot be asked.
    pub async fn require(&self, permission: Permission) -> Result<(), ApiError> {
        if self.may(permission).await? { Ok(()) } else { Err(self.forbidden(permission)) }
    }

    /// Insists that the caller may do at least one of these.
    pub(super) async fn require_any(&self, permissions: &[Permission]) -> Result<(), ApiError> {
        for permission in permissions {
            if self.may(*permission).await? {
                return Ok(());
            }
        }
        match permissions.first() {
            Some(permission) => Err(self.forbidden(*permission)),
            None => Err(ApiError::internal("a route that nobody may use")),
        }
    }

    /// Insists that the caller may start this kind of rotation.
    ///
    /// # Errors
    /// As [`Caller::require`].
    pub async fn require_rotation(
        &self,
        reason: RotationReason,
        force_immediate: bool,
    ) -> Result<(), ApiError> {
        if force_immediate {
            self.require(Permission::RotationsForce).await?;
        }
        self.require(match reason {
            RotationReason::Compromise => Permission::RotationsUpdate,
            RotationReason::Manual
            | RotationReason::Scheduled
            | RotationReason::Registries
            | RotationReason::Drift => Permission::RotationsCreate,
        })
        .await
    }

    fn forbidden(&self, permission: Permission) -> ApiError {
        let (subresource, verb) = (permission.subresource(), permission.verb());
        tracing::warn!(caller = self.principal.name, subresource, verb, "permission denied");
        ApiError::Forbidden { caller: self.principal.name.clone(), subresource, verb }
    }
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let found = request.extensions().get::<Self>().cloned();
        ready(found.ok_or_else(|| ApiError::internal("the route asks for no bearer")))
    }
}

/// Authentication by a file of hashed tokens, read again when it changes.
pub struct StaticTokens {
    path: PathBuf,
    state: Mutex<Known>,
}

struct Known {
    tokens: Arc<TokensFile>,
    checked: Instant,
    stamp: Option<Stamp>,
}

/// What shows that a file has changed.
type Stamp = (SystemTime, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl StaticTokens {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn load(path: &Path) -> Result<Self, TokensError> {
        let stamp = stamp(path);
        let tokens = Arc::new(TokensFile::load(path)?);
        let state = Mutex::new(Known { tokens, checked: Instant::now(), stamp });
        Ok(Self { path: path.to_owned(), state })
    }

    /// The callers as the file has them. A file that became unusable is reported once and the last
    /// good one stays: a slip of the pen must not lock everybody out.
    fn current(&self, now: Instant) -> Arc<TokensFile> {
        // The guarded value is replaced whole, so a panic elsewhere cannot have left half of it.
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(known.checked) < RECHECK {
            return known.tokens.clone();
        }
        known.checked = now;
        let stamp = stamp(&self.path);
        if stamp != known.stamp {
            known.stamp = stamp;
            match TokensFile::load(&self.path) {
                Ok(tokens) => {
                    let callers = tokens.entries().len();
                    tracing::info!(path = %self.path.display(), callers, "tokens file read again");
                    known.tokens = Arc::new(tokens);
                }
                Err(error) => tracing::error!(%error, "tokens file kept as it was"),
            }
        }
        known.tokens.clone()
    }
}

#[async_trait]
impl Authenticator for StaticTokens {
    async fn authenticate(&self, token: &SecretString) -> Result<Principal, AuthError> {
        let tokens = self.current(Instant::now());
        let entry = tokens.lookup(token).ok_or(AuthError::Unknown)?;
        Ok(Principal { name: entry.name.clone(), role: entry.role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::tokens::TokenHash;
    use actix_web::test::TestRequest;
    use secrecy::ExposeSecret;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn line(name: &str, token: &str) -> String {
        format!("{name} admin sha256:{}\n", TokenHash::of(&SecretString::from(token)).to_hex())
    }

    #[test]
    fn a_changed_file_counts_after_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        write(&path, &line("ada", "one"));
        let auth = StaticTokens::load(&path).unwrap();
        let (start, two) = (Instant::now(), SecretString::from("two"));
        write(&path, &(line("ada", "one") + &line("bob", "two")));
        assert!(auth.current(start).lookup(&two).is_none());
        assert_eq!(auth.current(start + RECHECK * 2).lookup(&two).unwrap().name, "bob");
        write(&path, "nonsense");
        assert!(auth.current(start + RECHECK * 4).lookup(&two).is_some(), "the last good one");
    }

    #[test]
    fn a_bearer_is_read_strictly() {
        let read = |value: &str| {
            let request = TestRequest::get().insert_header((header::AUTHORIZATION, value));
            bearer(request.to_http_request().headers())
        };
        assert_eq!(read("Bearer abc").unwrap().expose_secret(), "abc");
        assert_eq!(read("bearer  abc").unwrap().expose_secret(), "abc");
        for bad in ["", "Bearer", "Bearer ", "Basic YTpi", "abc", "Bearer a b"] {
            assert!(matches!(read(bad), Err(ApiError::BadCredentials(_))), "{bad}");
        }
        let none = TestRequest::get().to_http_request();
        assert!(matches!(bearer(none.headers()), Err(ApiError::NoCredentials(_))));
        let twice = TestRequest::get()
            .append_header((header::AUTHORIZATION, "Bearer a"))
            .append_header((header::AUTHORIZATION, "Bearer b"))
            .to_http_request();
        assert!(matches!(bearer(twice.headers()), Err(ApiError::BadCredentials(_))));
    }
}
