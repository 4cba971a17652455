//! The kubeconfig that a person gets.
//!
//! Text only: `kubectl` reads it, so its names are fixed. Never skips the verification of the server.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

/// What stands in a kubeconfig.
pub struct Kubeconfig<'a> {
    /// The API server's address.
    pub server: &'a str,
    /// The certificates (PEM) that its own leads to.
    pub ca: &'a str,
    /// Whom the certificate names; also the name of the user's entry.
    pub username: &'a str,
    /// The credential (PEM).
    pub certificate: &'a str,
    /// Its key (PEM); none for a caller's own signing request: who has the key adds it.
    pub private_key: Option<&'a SecretString>,
}

impl Kubeconfig<'_> {
    /// The YAML text.
    #[must_use]
    pub fn render(&self) -> SecretString {
        let key = self.private_key.map(|key| base64(key.expose_secret()));
        // Room for everything at once: a text that grows leaves pieces of itself behind.
        let known = self.server.len() + 3 * self.username.len();
        let encoded = 2 * (self.ca.len() + self.certificate.len());
        let room = 1024 + known + encoded + key.as_ref().map_or(0, |key| key.len());
        let mut text = Zeroizing::new(String::with_capacity(room));
        // Writing into a String cannot fail.
        let _ = self.write(&mut text, key.as_deref().map(String::as_str));
        SecretString::from(text.as_str())
    }

    fn write(&self, text: &mut String, key: Option<&str>) -> std::fmt::Result {
        let user = quoted(self.username);
        writeln!(text, "apiVersion: v1\nkind: Config\nclusters:\n- name: cluster\n  cluster:")?;
        writeln!(text, "    server: {}", quoted(self.server))?;
        writeln!(text, "    certificate-authority-data: {}", STANDARD.encode(self.ca))?;
        writeln!(text, "users:\n- name: {user}\n  user:")?;
        writeln!(text, "    client-certificate-data: {}", STANDARD.encode(self.certificate))?;
        if let Some(key) = key {
            writeln!(text, "    client-key-data: {key}")?;
        }
        writeln!(text, "contexts:\n- name: admin\n  context:\n    cluster: cluster")?;
        writeln!(text, "    user: {user}\ncurrent-context: admin")
    }
}

fn base64(secret: &str) -> Zeroizing<String> {
    Zeroizing::new(STANDARD.encode(secret))
}

/// Double quotes, because a user may be called `true` or `1e5`. JSON's form is YAML's, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
