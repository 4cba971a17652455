//! The pull secret itself: a `dockerconfigjson` value.
//!
//! The one type of the surface that holds secrets. It has no `Debug`, and what it holds is wiped when
//! it goes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use zeroize::Zeroizing;

/// What one registry adds.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The registry's host and its aliases; each gets the same entry.
    pub hosts: &'a [String],
    /// The e-mail that some clients expect.
    pub email: Option<&'a str>,
    /// The login name.
    pub username: &'a str,
    /// Its secret.
    pub secret: &'a SecretString,
}

/// `{"auths": {"<host>": {"auth": "<base64 user:secret>"}}}`, hosts in order.
#[derive(Serialize)]
pub struct Document {
    auths: BTreeMap<String, Auth>,
}

#[derive(Serialize)]
struct Auth {
    #[serde(serialize_with = "exposed")]
    auth: Zeroizing<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
}

fn exposed<S: serde::Serializer>(
    text: &Zeroizing<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl Document {
    /// Puts the entries together. A host that two registries claim goes to the first.
    #[must_use]
    pub fn render(entries: &[Entry<'_>]) -> Self {
        let mut auths = BTreeMap::new();
        for entry in entries {
            for host in entry.hosts {
                auths.entry(host.clone()).or_insert_with(|| Auth {
                    auth: auth(entry.username, entry.secret),
                    email: entry.email.map(ToOwned::to_owned),
                });
            }
        }
        Self { auths }
    }

    /// The hosts that it is for.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.auths.keys().map(String::as_str)
    }
}

fn auth(username: &str, secret: &SecretString) -> Zeroizing<String> {
    let secret = secret.expose_secret();
    // Room for all at once: growing would leave copies behind.
    let mut pair = Zeroizing::new(String::with_capacity(username.len() + secret.len() + 1));
    pair.push_str(username);
    pair.push(':');
    pair.push_str(secret);
    Zeroizing::new(STANDARD.encode(pair.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_per_host_in_order() {
        let (quay, rhit) = (SecretString::from("t1"), SecretString::from("t:2"));
        let quay_hosts = ["quay.io".to_owned(), "cloud.openshift.com".to_owned()];
        let rhit_hosts = ["registry.redhat.io".to_owned(), "quay.io".to_owned()];
        let document = Document::render(&[
            Entry { hosts: &quay_hosts, email: Some("a@b.c"), username: "o+q", secret: &quay },
            Entry { hosts: &rhit_hosts, email: None, username: "1|r", secret: &rhit },
        ]);
        let expected = concat!(
            r#"{"auths":{"cloud.openshift.com":{"auth":"bytxOnQx","email":"a@b.c"},"#,
            r#""quay.io":{"auth":"bytxOnQx","email":"a@b.c"},"#,
            r#""registry.redhat.io":{"auth":"MXxyOnQ6Mg=="}}}"#,
        );
        assert_eq!(serde_json::to_string(&document).unwrap(), expected);
    }
}
