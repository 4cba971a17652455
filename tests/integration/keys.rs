//! `keys generate` and `keys status`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cli::{run, told};

fn keys(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut all = vec!["keys"];
    all.extend(args);
    told(&run(dir, &all, &[("HYPERFLEET_ENCRYPTION_KEYS_DIR", "secrets/keys")]))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn keys_are_made_private_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = keys(dir.path(), &["generate", "--id", "2026-11"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("made secrets/keys/2026-11.key"), "{out}");
    assert!(out.contains("made secrets/keys/audit.key"), "{out}");
    assert!(out.contains("2026-11 is the primary key"), "{out}");
    let place = dir.path().join("secrets/keys");
    assert_eq!(mode(&place), 0o700);
    for name in ["2026-11.key", "audit.key", "primary"] {
        assert_eq!(mode(&place.join(name)), 0o600, "{name}");
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 3, "something was left behind");

    let before = fs::read(place.join("2026-11.key")).unwrap();
    assert_eq!(before.len(), 45, "44 characters of base64 and a newline");
    let (code, _, err) = keys(dir.path(), &["generate", "--id", "2026-11", "--primary"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("error: secrets/keys/2026-11.key: exists already"), "{err}");
    assert_eq!(fs::read(place.join("2026-11.key")).unwrap(), before);

    let (code, out, _) = keys(dir.path(), &["generate", "--id", "2026-12"]);
    assert!(code == 0 && !out.contains("primary") && !out.contains("audit"), "{out}");
    let (code, _, err) = keys(dir.path(), &["generate", "--id", "../x"]);
    assert!(code == 1 && err.contains("is not a key id"), "{err}");
}

#[test]
fn the_status_names_keys_modes_and_the_primary_but_no_key() {
    let dir = tempfile::tempdir().unwrap();
    keys(dir.path(), &["generate", "--id", "a"]);
    keys(dir.path(), &["generate", "--id", "b", "--primary"]);
    let (code, out, err) = keys(dir.path(), &["status"]);
    assert_eq!(code, 0, "{err}");
    let lines: Vec<&str> = out.lines().skip(2).collect();
    assert!(lines[0].starts_with("a ") && !lines[0].contains("yes"), "{out}");
    assert!(lines[1].starts_with("b ") && lines[1].contains("yes"), "{out}");
    assert!(lines.iter().all(|line| line.contains("0600")), "{out}");
    let key = fs::read_to_string(dir.path().join("secrets/keys/a.key")).unwrap();
    assert!(!out.contains(key.trim()), "{out}");
}

#[test]
fn faults_are_1_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, err) = keys(dir.path(), &["status"]);
    assert!(code == 1 && err.contains("secrets/keys: the keys directory cannot be read"), "{err}");
    keys(dir.path(), &["generate", "--id", "a"]);
    let key = dir.path().join("secrets/keys/a.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o604)).unwrap();
    let (code, out, err) = keys(dir.path(), &["status"]);
    assert!(code == 1 && out.contains("0604"), "{out}");
    assert!(err.contains("chmod 0600 secrets/keys/a.key"), "{err}");
}
