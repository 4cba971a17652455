//! Every registry runs the same suite; what only one of them does has a file of its own.

#[macro_use]
mod conformance;
mod fixtures;
mod htpasswd;
mod htpasswd_real;
mod quay;
mod quay_checklist;
mod quay_fixture;
mod quay_rights;

use self::fixtures::{HtpasswdFixture, ScriptedFixture};
use self::quay_fixture::QuayFixture;
use hyperfleet_credentials::registries::scripted::Flavour;

conformance! {
    scripted_readable: ScriptedFixture::new(Flavour::Readable);
    scripted_shown_once: ScriptedFixture::new(Flavour::ShownOnce);
    scripted_chosen: ScriptedFixture::new(Flavour::Chosen);
    htpasswd_file: HtpasswdFixture::file();
    htpasswd_docker_registry: HtpasswdFixture::docker_registry();
    quay_fake: QuayFixture::new();
}
