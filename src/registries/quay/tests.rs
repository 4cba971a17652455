//! Settings. The behaviour of the whole is covered by the integration tests, against a fake that
//! answers as a measured Quay does.

use std::time::Duration;

use super::*;

fn quay(change: impl FnOnce(&mut QuaySettings)) -> Result<Quay, QuayError> {
    // A second installation in the same process is refused, and that is well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = "https://quay.example:8443/".parse().unwrap();
    let mut settings = QuaySettings::new(url, "acme", "/nowhere/token".into());
    change(&mut settings);
    Quay::new(settings, Client::new())
}

#[test]
fn settings_that_cannot_work_are_named() {
    let error = |change: fn(&mut QuaySettings)| quay(change).err();
    assert_eq!(error(|_| {}), None);
    assert_eq!(error(|s| s.url = "ftp://quay.example".parse().unwrap()), Some(QuayError::Url));
    assert_eq!(
        error(|s| s.url = "https://a:b@quay.example".parse().unwrap()),
        Some(QuayError::Url)
    );
    assert_eq!(error(|s| s.organization = "Acme".to_owned()), Some(QuayError::Organization));
    assert_eq!(error(|s| s.organization = "a".repeat(253)), Some(QuayError::Organization));
    assert_eq!(error(|s| s.team = Some("a/b".to_owned())), Some(QuayError::Team));
    assert_eq!(error(|s| s.repositories = vec!["a:tag".to_owned()]), Some(QuayError::Repository));
}

#[test]
fn capabilities_follow_the_settings() {
    let quay = quay(|settings| {
        settings.organization = "o".repeat(230);
        settings.usage = UsageSource::None;
    });
    let quay = quay.unwrap();
    let capabilities = quay.capabilities();
    assert!(capabilities.secret_readable && !capabilities.own_secret && capabilities.marker);
    assert!(!capabilities.usage_evidence);
    assert_eq!(capabilities.max_name_length, 24);
    assert_eq!(capabilities.token_ttl, Duration::from_hours(1));
    assert_eq!(quay.service, "quay.example:8443");
}
