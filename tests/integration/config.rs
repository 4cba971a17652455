//! `config check` and `config show`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::cli::{run, told};

const GOOD: &str = "
installation: {id: prod-eu-1}
db: {url: \"postgres://app:s3cret@db/credentials\"}
registries:
  - {id: quay, type: quay, host: quay.io, organization: acme, token_file: quay.token}
";

#[test]
fn a_good_configuration_is_shown_without_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("c.yaml"), GOOD).unwrap();
    let env = [("HYPERFLEET_SERVER_PORT", "1234"), ("HYPERFLEET_NO_SUCH_THING", "1")];
    let args = ["config", "show", "--config", "c.yaml", "--log-level", "debug"];
    let (code, out, err) = told(&run(dir.path(), &args, &env));
    assert_eq!(code, 0, "{err}");
    for part in ["port: 1234", "level: debug", "app:**REDACTED**@db", "interval: 90d", "id: quay"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("s3cret"), "{out}");
    assert!(err.contains("warning: HYPERFLEET_NO_SUCH_THING"), "{err}");
}

#[test]
fn the_file_is_found_where_it_usually_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("configs")).unwrap();
    fs::write(dir.path().join("configs/config.yaml"), GOOD).unwrap();
    let (code, out, err) = told(&run(dir.path(), &["config", "check"], &[]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("configs/config.yaml"), "{out}");
    // Valid, but nothing that this version could start with.
    assert!(err.contains("`serve` would not start yet: auth.mode"), "{err}");
}

#[test]
fn a_bad_configuration_is_1_and_every_fault_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("c.yaml"), "server: {prot: 1}\nrotation: {interval: soon}\n")
        .unwrap();
    let env = [("HYPERFLEET_CONFIG", "c.yaml")];
    let args = ["config", "check", "-p", "http", "--log-format", "xml"];
    let (code, out, err) = told(&run(dir.path(), &args, &env));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("error: the configuration has 5 problems\n"), "{err}");
    for path in ["server.prot", "server.port", "rotation.interval", "log.format", "installation.id"]
    {
        assert!(err.contains(&format!("  {path}: ")), "{path}: {err}");
    }
    assert!(!err.contains("stack backtrace"), "{err}");
    let (code, _, err) = told(&run(dir.path(), &["serve"], &env));
    assert!(code == 1 && err.contains("rotation.interval"), "{err}");
}

#[test]
fn a_token_that_others_may_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("c.yaml"), GOOD).unwrap();
    let token = dir.path().join("quay.token");
    fs::write(&token, "t").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o666)).unwrap();
    let args = ["config", "check", "--config", "c.yaml"];
    let (code, _, err) = told(&run(dir.path(), &args, &[]));
    assert!(code == 1 && err.contains("registries[quay].token_file"), "{err}");
    assert!(err.contains("run: chmod 0640 quay.token"), "{err}");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o440)).unwrap();
    assert_eq!(told(&run(dir.path(), &args, &[])).0, 0);
}

#[test]
fn dev_needs_no_file_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = told(&run(dir.path(), &["config", "show", "--dev"], &[]));
    assert_eq!(code, 0, "{err}");
    for part in ["host: \"127.0.0.1\"", "keys_dir: data/keys", "file: data/registry.htpasswd"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!dir.path().join("data").exists(), "showing made files");
}
