//! The rules of URLs that something is sent to.

use reqwest::Url;

/// What may be spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// `https`, and plain `http` to loopback.
    LoopbackOrTls,
    /// Both, everywhere: somebody decided so.
    Any,
}

impl Transport {
    pub(super) const fn unless(allow_http: bool) -> Self {
        if allow_http { Self::Any } else { Self::LoopbackOrTls }
    }
}

/// Checks a URL; the error is the rule that it breaks. `switch` is the key that allows `http`.
pub(super) fn check_url(
    text: &str,
    transport: Transport,
    switch: Option<&str>,
) -> Result<(), String> {
    let rule = || "must be a URL that begins with https:// or http://".to_owned();
    let url = Url::parse(text).map_err(|_| rule())?;
    match (url.scheme(), transport) {
        ("https", Transport::LoopbackOrTls | Transport::Any) | ("http", Transport::Any) => Ok(()),
        ("http", Transport::LoopbackOrTls) if is_loopback(&url) => Ok(()),
        ("http", Transport::LoopbackOrTls) => {
            let mut rule =
                "must be https, because plain http is accepted to loopback only".to_owned();
            if let Some(switch) = switch {
                rule.push_str(&format!(" (unless {switch} is true)"));
            }
            Err(rule)
        }
        (_, Transport::LoopbackOrTls | Transport::Any) => Err(rule()),
    }
}

/// The same for a base URL of a registry, which holds nothing but the way there.
pub(super) fn check_base_url(text: &str, transport: Transport) -> Result<(), String> {
    check_url(text, transport, Some("allow_http"))?;
    let plain = Url::parse(text).is_ok_and(|url| {
        url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if plain {
        return Ok(());
    }
    Err("must not hold a user, a password, a query or a fragment".to_owned())
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_only_to_loopback() {
        let check = |url| check_url(url, Transport::LoopbackOrTls, None).is_ok();
        for good in
            ["https://quay.io", "http://localhost:5000", "http://127.0.0.2/x", "http://[::1]:80"]
        {
            assert!(check(good), "{good}");
        }
        for bad in [
            "http://quay.io",
            "http://localhost.evil.example",
            "http://10.0.0.1",
            "ftp://localhost",
            "quay.io",
            "",
        ] {
            assert!(!check(bad), "{bad}");
        }
        assert!(check_url("http://quay.io", Transport::Any, None).is_ok());
        assert!(check_base_url("https://u:p@quay.io", Transport::Any).is_err());
        assert!(check_base_url("https://quay.io/api", Transport::Any).is_ok());
    }
}
