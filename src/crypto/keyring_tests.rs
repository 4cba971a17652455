//! Stories about directories of keys, and what holds for every sealed value.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::crypto::{AuditKey, GenerateError, Purpose, SharedKeyring, generate_key};
use crate::ids::AccountId;

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn dir_with(ids: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for id in ids {
        generate_key(dir.path(), id, false).unwrap();
    }
    dir
}

fn error(dir: &Path, primary: Option<&str>) -> String {
    Keyring::load(dir, primary).unwrap_err().to_string()
}

fn aad(n: u128) -> Aad {
    Aad::account(AccountId(Uuid::from_u128(n)))
}

#[test]
fn the_first_generated_key_is_the_primary_and_stays_it() {
    let dir = dir_with(&["2026-11", "2026-12"]);
    let ring = Keyring::load(dir.path(), None).unwrap();
    assert_eq!(ring.primary(), "2026-11");
    assert_eq!(ring.key_ids(), ["2026-11", "2026-12"]);
    assert_eq!(Keyring::load(dir.path(), Some("2026-12")).unwrap().primary(), "2026-12");
    AuditKey::load(dir.path()).unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let meta = entry.unwrap().metadata().unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_key_is_never_overwritten() {
    let dir = dir_with(&["a"]);
    let before = fs::read(dir.path().join("a.key")).unwrap();
    let audit = fs::read(dir.path().join("audit.key")).unwrap();
    let error = generate_key(dir.path(), "a", true).unwrap_err();
    assert!(matches!(error, GenerateError::Exists(_)), "{error}");
    assert_eq!(generate_key(dir.path(), "b", true).unwrap().audit_key, None);
    assert_eq!(fs::read(dir.path().join("a.key")).unwrap(), before);
    assert_eq!(fs::read(dir.path().join("audit.key")).unwrap(), audit);
    assert_eq!(Keyring::load(dir.path(), None).unwrap().primary(), "b");
    for bad in ["", "audit", "a/b", ".a", "a b", &"a".repeat(65)] {
        assert!(matches!(generate_key(dir.path(), bad, false), Err(GenerateError::Id(_))), "{bad}");
    }
}

#[test]
fn each_fault_has_its_own_message() {
    let dir = dir_with(&["a"]);
    let path = dir.path();
    assert!(error(&path.join("none"), None).contains("none: the keys directory cannot be read"));
    let empty = tempfile::tempdir().unwrap();
    assert!(error(empty.path(), None).contains("holds no <key id>.key file"));

    let file = path.join("b.key");
    write(&file, &STANDARD.encode([1; 31]), 0o600);
    assert!(error(path, None).contains("b.key: holds 31 bytes"));
    write(&file, &STANDARD.encode([1; 33]), 0o600);
    assert!(error(path, None).contains("b.key: holds 33 bytes"));
    write(&file, "not base64!", 0o600);
    assert!(error(path, None).contains("b.key: is not base64"));
    write(&file, &STANDARD.encode([1; 32]), 0o644);
    assert!(error(path, None).contains("chmod 0640"));
    write(&file, &fs::read_to_string(path.join("a.key")).unwrap(), 0o600);
    assert!(error(path, None).contains("b.key: holds the same key as a"));
    fs::remove_file(&file).unwrap();

    assert!(error(path, Some("z")).contains("encryption.primary names \"z\""));
    write(&path.join("primary"), "y\n", 0o600);
    let text = error(path, None);
    assert!(text.contains("primary names \"y\"") && text.contains("name one of: a"), "{text}");
    write(&path.join("primary"), " \n", 0o600);
    assert!(error(path, None).contains("primary: is missing"));
    write(&path.join("b c.key"), "", 0o600);
    assert!(error(path, None).contains("is not a key id"));
}

#[test]
fn a_first_key_that_was_interrupted_is_made_by_the_next_try() {
    let dir = dir_with(&["a"]);
    std::fs::remove_file(dir.path().join("a.key")).unwrap();
    let audit = std::fs::read(dir.path().join("audit.key")).unwrap();
    let made = generate_key(dir.path(), "a", false).unwrap();
    assert!(made.primary && made.audit_key.is_none());
    assert_eq!(Keyring::load(dir.path(), None).unwrap().primary(), "a");
    assert_eq!(std::fs::read(dir.path().join("audit.key")).unwrap(), audit);
}

#[test]
fn reloading_sees_new_keys_and_a_new_primary_and_survives_faults() {
    let dir = dir_with(&["a"]);
    let shared = SharedKeyring::load(dir.path(), None).unwrap();
    assert!(!shared.reload().unwrap());
    generate_key(dir.path(), "b", true).unwrap();
    assert!(shared.reload().unwrap());
    assert_eq!(shared.get().primary(), "b");
    write(&dir.path().join("primary"), "gone", 0o600);
    assert!(shared.reload().is_err());
    assert_eq!(shared.get().primary(), "b");
    write(&dir.path().join("primary"), "a", 0o600);
    assert!(shared.reload().unwrap());
    assert_eq!(shared.get().primary(), "a");
}

#[test]
fn the_start_is_refused_for_keys_that_rows_need() {
    let dir = dir_with(&["a"]);
    let ring = Keyring::load(dir.path(), None).unwrap();
    assert_eq!(ring.check_needed(&["a".to_owned()]), Ok(()));
    let needed = ["z", "a", "b", "b"].map(ToOwned::to_owned);
    let missing = ring.check_needed(&needed).unwrap_err();
    assert_eq!(missing.ids, ["b", "z"]);
    assert!(missing.to_string().contains("no file holds them: b, z"), "{missing}");
}

#[test]
fn a_value_can_be_moved_to_another_key() {
    let dir = dir_with(&["a", "b"]);
    let old = Keyring::load(dir.path(), Some("a")).unwrap();
    let new = Keyring::load(dir.path(), Some("b")).unwrap();
    let sealed = old.seal_secret(&aad(1), &SecretString::from("s3cret".to_owned())).unwrap();
    assert_eq!(sealed.key_id(), "a");
    assert!(!old.needs_reseal(sealed.as_bytes()).unwrap());
    assert!(new.needs_reseal(sealed.as_bytes()).unwrap());
    let plain = new.open_secret(&aad(1), sealed.as_bytes()).unwrap();
    assert_eq!(plain.expose_secret(), "s3cret");
    assert_eq!(new.seal_secret(&aad(1), &plain).unwrap().key_id(), "b");
    assert_eq!(new.seal_with("a", &aad(1), b"x").unwrap().key_id(), "a");
    assert!(matches!(new.seal_with("c", &aad(1), b"x"), Err(SealError::UnknownKey(_))));
}

#[test]
fn faults_of_stored_values_are_told_apart() {
    let ring = Keyring::load(dir_with(&["a"]).path(), None).unwrap();
    let other = Keyring::load(dir_with(&["b"]).path(), None).unwrap();
    let same_name = Keyring::load(dir_with(&["a"]).path(), None).unwrap();
    let sealed = ring.seal(&aad(1), &[0xff, 0xfe]).unwrap();
    assert_eq!(other.open(&aad(1), sealed.as_bytes()), Err(OpenError::UnknownKey("a".into())));
    assert_eq!(same_name.open(&aad(1), sealed.as_bytes()), Err(OpenError::Rejected("a".into())));
    assert!(matches!(ring.open_secret(&aad(1), sealed.as_bytes()), Err(OpenError::NotText)));
    assert_eq!(ring.open(&aad(1), b""), Err(OpenError::Malformed));
    assert_eq!(ring.open(&aad(1), &[9, 1]), Err(OpenError::UnknownVersion(9)));
    assert!(Sealed::try_from(sealed.as_bytes()[..20].to_vec()).is_err());
    let probe = Aad::new(Purpose::BreakGlassProbe, Uuid::from_u128(1));
    assert!(ring.open(&probe, sealed.as_bytes()).is_err());
}

#[test]
fn debug_output_holds_no_key() {
    let dir = dir_with(&["a"]);
    let key = fs::read_to_string(dir.path().join("a.key")).unwrap();
    let shared = SharedKeyring::load(dir.path(), None).unwrap();
    let sealed = shared.get().seal(&aad(1), b"plain").unwrap();
    let text = format!("{shared:?} {:?} {sealed:?}", shared.get());
    assert!(!text.contains(key.trim()) && !text.contains("plain"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_value_comes_back_and_only_where_it_belongs(
        plain in proptest::collection::vec(any::<u8>(), 0..300),
        row in any::<u128>(),
        other in any::<u128>(),
        bit in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let dir = dir_with(&["k1"]);
        let ring = Keyring::load(dir.path(), None).unwrap();
        let sealed = ring.seal(&aad(row), &plain).unwrap();
        let opened = ring.open(&aad(row), sealed.as_bytes()).unwrap();
        prop_assert_eq!(&*opened, &plain);

        let again = ring.seal(&aad(row), &plain).unwrap();
        prop_assert_ne!(again.as_bytes(), sealed.as_bytes(), "a nonce was used twice");

        if row != other {
            prop_assert!(ring.open(&aad(other), sealed.as_bytes()).is_err());
        }
        let mut flipped = sealed.as_bytes().to_vec();
        let at = bit.index(flipped.len() * 8);
        flipped[at / 8] ^= 1 << (at % 8);
        prop_assert!(ring.open(&aad(row), &flipped).is_err());
        let short = &sealed.as_bytes()[..cut.index(sealed.as_bytes().len())];
        prop_assert!(ring.open(&aad(row), short).is_err());

        let foreign = Keyring::load(dir_with(&["k1"]).path(), None).unwrap();
        prop_assert!(foreign.open(&aad(row), sealed.as_bytes()).is_err());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Sealed::try_from(bytes);
    }
}

#[test]
fn a_key_seals_only_when_every_replica_holds_it() {
    let dir = dir_with(&["a", "b", "c"]);
    let ring = SharedKeyring::load(dir.path(), Some("c")).unwrap();
    let common = |ids: &[&str]| Some(ids.iter().map(ToString::to_string).collect());
    let sealed_with = |ring: &SharedKeyring| {
        ring.get().seal(&aad(1), b"x").map(|sealed| sealed.key_id().to_owned()).ok()
    };
    assert_eq!(sealed_with(&ring).as_deref(), Some("c"), "there is no other replica");
    for (others, key) in [
        (common(&["a", "b"]), Some("b")),
        (common(&["a"]), Some("a")),
        (common(&["a", "b"]), Some("a")),
        (common(&["a", "b", "c", "d"]), Some("c")),
        (common(&["d"]), None),
        (None, Some("c")),
    ] {
        ring.agree(others.clone());
        assert_eq!(sealed_with(&ring).as_deref(), key, "{others:?}");
        assert_eq!(ring.get().primary(), "c");
    }
    // Reading the files again forgets nothing of it.
    ring.agree(common(&["a"]));
    generate_key(dir.path(), "d", false).unwrap();
    assert!(ring.reload().unwrap());
    assert_eq!(sealed_with(&ring).as_deref(), Some("a"));
}
