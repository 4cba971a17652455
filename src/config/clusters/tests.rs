//! Stories about entries, templates, messages and changes.

use std::fs;
use std::path::Path;

use super::*;

const TWO: &str = r#"
cls-1:
  server: https://api.cls-1.example:6443
  ca_file: /pki/cls-1/ca.crt
  endpoints: ["https://10.0.0.1:6443", "https://10.0.0.2:6443"]
  base_client_ca_file: /pki/cls-1/client-ca.crt
"*":
  server: https://api.{cluster_id}.example:6443
  ca_file: /pki/{cluster_id}/ca.crt
  endpoints: ["https://{cluster_id}-0.example:6443"]
  base_client_ca_file: /pki/{cluster_id}/client-ca.crt
  namespace: clusters-{cluster_id}
"#;

fn id(text: &str) -> ClusterId {
    text.parse().unwrap()
}

fn parse(text: &str) -> Result<ClustersFile, ClustersError> {
    ClustersFile::parse(Path::new("/etc/clusters.yaml"), text)
}

#[test]
fn an_own_entry_wins_over_the_one_for_all() {
    let file = parse(TWO).unwrap();
    let own = file.entry(&id("cls-1")).unwrap();
    assert_eq!(own.endpoints.len(), 2);
    assert_eq!(own.namespace, None, "entries are not merged");

    let other = file.entry(&id("cls-2")).unwrap();
    assert_eq!(other.server, "https://api.cls-2.example:6443");
    assert_eq!(other.ca_file, Path::new("/pki/cls-2/ca.crt"));
    assert_eq!(other.endpoints, ["https://cls-2-0.example:6443"]);
    assert_eq!(other.base_client_ca_file.as_deref(), Some(Path::new("/pki/cls-2/client-ca.crt")));
    assert_eq!(other.namespace.as_deref(), Some("clusters-cls-2"));
    assert!(!other.bundle_only);
}

#[test]
fn a_cluster_that_is_not_named_has_no_break_glass() {
    let file = parse("cls-1: {server: 'https://a', ca_file: /ca}").unwrap();
    assert!(file.entry(&id("cls-1")).is_some());
    assert_eq!(file.entry(&id("cls-2")), None);
    for empty in ["", "# nothing yet\n", "{}"] {
        assert_eq!(parse(empty).unwrap().entry(&id("cls-1")), None);
    }
}

#[test]
fn an_id_may_look_like_something_else() {
    for name in ["no", "1e5", "123", "0x1f"] {
        let file = parse(&format!("{name}: {{server: 'https://a', ca_file: /ca}}"));
        assert!(file.unwrap().entry(&id(name)).is_some(), "{name}");
    }
}

#[test]
fn each_fault_is_named_with_its_path_and_rule() {
    for (text, path, rule) in [
        ("a: {ca_file: /x}", "a", "server"),
        ("a: {server: 'https://a'}", "a", "ca_file"),
        ("a: {server: 'http://a', ca_file: /x}", "a.server", "https"),
        ("a: {server: 'https://u:p@a', ca_file: /x}", "a.server", "user"),
        ("a: {server: 'https://a', ca_file: ' '}", "a.ca_file", "file"),
        ("a: {server: 'https://a', ca_file: '/{id}'}", "a.ca_file", "{cluster_id}"),
        ("a: {server: 'https://a', ca_file: /x, endpoints: ['a:1']}", "a.endpoints[0]", "https"),
        (
            "a: {server: 'https://a', ca_file: /x, endpoints: ['https://b', 'https://b']}",
            "a.endpoints[1]",
            "twice",
        ),
        ("a: {server: 'https://a', ca_file: /x, namespace: No}", "a.namespace", "a-z"),
        ("a: {server: 'https://a', ca_file: /x, bundle_only: 3}", "a.bundle_only", "boolean"),
        ("a: {server: 'https://a', ca_file: /x, endpoint: []}", "a.endpoint", "unknown field"),
        ("A: {server: 'https://a', ca_file: /x}", "A", "\"*\""),
        ("a: 3", "a", "expected"),
    ] {
        let error = parse(text).expect_err(text);
        let ClustersError::Invalid { problems, .. } = &error else { panic!("{text}: {error}") };
        let [problem] = problems.as_slice() else { panic!("{text}: {error}") };
        assert_eq!(problem.path, path, "{text}: {error}");
        assert!(problem.rule.contains(rule), "{text}: {error}");
        assert!(error.to_string().starts_with("/etc/clusters.yaml: "));
    }
    for text in ["a: [", "[]", "7", "a: {}\na: {}"] {
        let error = parse(text).unwrap_err();
        assert!(matches!(error, ClustersError::Yaml { .. }), "{text}: {error}");
    }
}

#[test]
fn every_fault_is_found_in_one_run() {
    let text = "a: {server: 'http://a', ca_file: ''}\nb: 3\n";
    let ClustersError::Invalid { problems, .. } = parse(text).unwrap_err() else { panic!() };
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["a.server", "a.ca_file", "b"]);
}

#[test]
fn a_change_is_seen_and_a_fault_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("clusters.yaml");
    // Given no file, nobody has break-glass.
    let clusters = Clusters::load(&path).unwrap();
    assert_eq!(clusters.get().entry(&id("cls-1")), None);
    assert_eq!(clusters.reload(), Ok(false));

    // When there is one, it is read, once.
    fs::write(&path, TWO).unwrap();
    assert_eq!(clusters.reload(), Ok(true));
    assert_eq!(clusters.reload(), Ok(false));
    assert!(clusters.get().entry(&id("cls-1")).is_some());

    // A fault is told each time, and what was good stays.
    fs::write(&path, "cls-1: {}").unwrap();
    assert!(clusters.reload().is_err());
    assert!(clusters.reload().is_err());
    assert!(clusters.get().entry(&id("cls-1")).is_some());

    // Put right, it counts again; gone, it takes nothing away.
    let next = dir.path().join("next.yaml");
    fs::write(&next, "cls-2: {server: 'https://b', ca_file: /x}").unwrap();
    fs::rename(&next, &path).unwrap();
    assert_eq!(clusters.reload(), Ok(true));
    assert_eq!(clusters.get().entry(&id("cls-1")), None);
    fs::remove_file(&path).unwrap();
    assert_eq!(clusters.reload(), Ok(false));
    assert!(clusters.get().entry(&id("cls-2")).is_some());
}

#[test]
fn a_broken_file_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("clusters.yaml");
    fs::write(&path, "cls-1: 7").unwrap();
    let error = Clusters::load(&path).map(drop).unwrap_err();
    assert!(error.to_string().contains("cls-1"), "{error}");
}
