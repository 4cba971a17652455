//! A URL that may hold a password.
//!
//! Shows itself with the password replaced, in `Debug`, in `Serialize` and so in `config show`;
//! the whole text is had only by asking for it.

use std::fmt;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What stands in place of a secret.
pub const REDACTED: &str = "**REDACTED**";

/// Query parameters of database URLs that hold or unlock a secret.
const SECRET_PARAMETERS: [&str; 6] =
    ["password", "sslpassword", "passphrase", "token", "secret", "key"];

/// A URL whose password is a secret.
#[derive(Clone)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    /// The whole URL, for the one place that connects.
    #[must_use]
    pub fn secret(&self) -> &SecretString {
        &self.0
    }

    pub(super) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for SecretUrl {
    fn from(text: &str) -> Self {
        Self(SecretString::from(text))
    }
}

/// The URL with everything secret replaced; all of it when it cannot be understood.
pub(super) fn redacted(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return REDACTED.to_owned() };
    // `user:password@host` without a scheme reads as one; nothing in it can be told apart.
    if url.cannot_be_a_base() && url.scheme() != "sqlite" {
        return REDACTED.to_owned();
    }
    let secret = |name: &str| SECRET_PARAMETERS.contains(&name.to_ascii_lowercase().as_str());
    let in_query = url.query_pairs().any(|(name, _)| secret(&name));
    if url.password().is_none() && !in_query {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some(REDACTED)).is_err() {
        return REDACTED.to_owned();
    }
    if in_query {
        let pairs: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| {
                let shown = if secret(&name) { REDACTED.to_owned() } else { value.into_owned() };
                (name.into_owned(), shown)
            })
            .collect();
        url.query_pairs_mut().clear().extend_pairs(pairs);
    }
    url.to_string()
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(self.expose()))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redacted(self.expose()))
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SecretString::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        for (text, shown) in [
            ("sqlite://data/credentials.db", "sqlite://data/credentials.db"),
            ("sqlite::memory:", "sqlite::memory:"),
            ("postgres://u:p%40ss@db:5432/x", "postgres://u:**REDACTED**@db:5432/x"),
            ("postgres://u@db/x?sslmode=require", "postgres://u@db/x?sslmode=require"),
            ("postgres://u@db/x?password=s3", "postgres://u@db/x?password=**REDACTED**"),
            ("u:s3cret@db", "**REDACTED**"),
            ("postgres://u:s3 cret@db:port/x", "**REDACTED**"),
        ] {
            let url = SecretUrl::from(text);
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("s3"), "{url:?}");
            assert_eq!(url.secret().expose_secret(), text);
        }
    }
}
