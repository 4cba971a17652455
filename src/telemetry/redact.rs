//! The last net for secrets in logs.
//!
//! Secrets have types that do not show themselves; this catches what slipped into a text anyway.

use std::borrow::Cow;

use crate::config::REDACTED;

/// A name that has one of these words holds a secret ...
const SECRET_WORDS: [&str; 11] = [
    "auth",
    "authorization",
    "cookie",
    "kubeconfig",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "secrets",
    "token",
    "tokens",
];
/// ... unless it ends in one of these: then it is about the secret.
const ABOUT_WORDS: [&str; 9] =
    ["count", "file", "id", "mode", "name", "path", "state", "ttl", "url"];

/// Whether a field of this name is never shown.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let last = words.last().copied().unwrap_or_default();
    if ABOUT_WORDS.contains(&last) {
        return false;
    }
    // `key`, `private_key`, `keyMaterial`; a `key_id` was let through above.
    last == "key"
        || lower.contains("keymaterial")
        || lower.contains("key_material")
        || lower.contains("privatekey")
        || words.iter().any(|word| {
            SECRET_WORDS.contains(word)
                || word.ends_with("password")
                || word.ends_with("token")
                || word.ends_with("secret")
        })
}

/// Takes bearer tokens, basic credentials and passwords in URLs out of a text.
#[must_use]
pub fn scrub(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    if !lower.contains("bearer ") && !lower.contains("basic ") && !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut words: Vec<Cow<'_, str>> = Vec::new();
    let mut after_scheme = false;
    for word in text.split(' ') {
        let shown = if after_scheme && is_credential(word) {
            Cow::Borrowed(REDACTED)
        } else {
            without_password(word)
        };
        after_scheme = ["bearer", "basic"].iter().any(|scheme| {
            word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric())
                .eq_ignore_ascii_case(scheme)
                || word.to_ascii_lowercase().ends_with(&format!(":{scheme}"))
        });
        words.push(shown);
    }
    Cow::Owned(words.join(" "))
}

/// Long and of the right letters; "basic authentication" is not one.
fn is_credential(word: &str) -> bool {
    word.len() >= 16
}

/// `scheme://user:password@host` without the password, as often as there is one.
fn without_password(word: &str) -> Cow<'_, str> {
    if !word.contains("://") {
        return Cow::Borrowed(word);
    }
    let mut shown = String::with_capacity(word.len());
    let mut left = word;
    while let Some(start) = left.find("://") {
        let (head, rest) = left.split_at(start + 3);
        let end = rest.find("://").unwrap_or(rest.len());
        let end = rest.find(char::is_whitespace).map_or(end, |space| space.min(end));
        let (url, after) = rest.split_at(end);
        shown.push_str(head);
        match password_of(url) {
            Some((colon, at)) => {
                shown.push_str(&url[..=colon]);
                shown.push_str(REDACTED);
                shown.push_str(&url[at..]);
            }
            None => shown.push_str(url),
        }
        left = after;
    }
    shown.push_str(left);
    Cow::Owned(shown)
}

/// Where the colon before and the `@` behind a password are, in a URL without its scheme.
fn password_of(url: &str) -> Option<(usize, usize)> {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    // A raw `/` in a password would end the authority early, so look for the last `@` as well:
    // hiding too much is the better fault.
    let at = authority.rfind('@').or_else(|| url.rfind('@'))?;
    Some((url[..at].find(':')?, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for secret in [
            "token",
            "access_token",
            "accessToken",
            "password",
            "db_password",
            "secret",
            "auth",
            "Authorization",
            "http.request.header.authorization",
            "key",
            "private_key",
            "api-key",
            "key_material",
            "client_secret",
            "set-cookie",
            "pull_secret",
            "kubeconfig",
        ] {
            assert!(is_secret_name(secret), "{secret}");
        }
        for plain in [
            "key_id",
            "cluster_id",
            "registry",
            "token_ttl",
            "token_file",
            "author",
            "monkey",
            "authority",
            "generation",
            "keys_dir",
            "secret_state",
            "basic",
        ] {
            assert!(!is_secret_name(plain), "{plain}");
        }
    }

    #[test]
    fn texts() {
        for (text, shown) in [
            ("nothing here", "nothing here"),
            ("Bearer abcdefghijklmnopqr failed", "Bearer **REDACTED** failed"),
            ("authorization: Basic dXNlcjpwYXNzd29yZA==", "authorization: Basic **REDACTED**"),
            ("basic authentication failed", "basic authentication failed"),
            ("at postgres://u:pw@db/x now", "at postgres://u:**REDACTED**@db/x now"),
            ("at postgres://u:p/w@db/x", "at postgres://u:**REDACTED**@db/x"),
            ("at https://quay.io:443/a@b", "at https://quay.io:**REDACTED**@b"),
            ("at https://quay.io/a", "at https://quay.io/a"),
            (
                "x://u:p@h,y://u:q@h\nhttp://h:1\na@b",
                "x://u:**REDACTED**@h,y://u:**REDACTED**@h\nhttp://h:1\na@b",
            ),
        ] {
            assert_eq!(scrub(text), shown);
        }
    }
}
