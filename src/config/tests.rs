//! Stories about layers, rules and messages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use secrecy::ExposeSecret;

use super::*;
use crate::config::keys::{KEYS, REGISTRY_KEYS};

const QUAY: &str = "
registries:
  - {id: quay, type: quay, host: quay.io, aliases: [cloud.openshift.com], organization: acme,
     token_file: /x/quay.token}
";

struct Given {
    dir: tempfile::TempDir,
    sources: Sources,
}

fn file(yaml: &str) -> Given {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    fs::write(&path, format!("installation: {{id: prod-eu-1}}\n{yaml}")).unwrap();
    Given { sources: Sources { config_file: Some(path), ..Sources::default() }, dir }
}

impl Given {
    fn env(mut self, name: &str, value: &str) -> Self {
        self.sources.env.insert(name.to_owned(), value.to_owned());
        self
    }
    fn flag(mut self, path: &str, value: &str) -> Self {
        self.sources.flags.push((path.to_owned(), value.to_owned()));
        self
    }
    fn load(&self) -> Loaded {
        Config::load(&self.sources).unwrap_or_else(|error| panic!("{error}"))
    }
    fn error(&self) -> String {
        Config::load(&self.sources).unwrap_err().to_string()
    }
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let given = file("server: {port: 1000, host: \"::1\", request_wait: 7s}\nmetrics: {port: 1}")
        .env("HYPERFLEET_SERVER_PORT", "2000")
        .env("HYPERFLEET_SERVER_HOST", "10.0.0.1")
        .flag("server.port", "3000");
    let config = given.load().config;
    assert_eq!(config.server.port, 3000);
    assert_eq!(config.server.host, "10.0.0.1");
    assert_eq!(config.server.request_wait, Duration::from_secs(7));
    assert_eq!(config.server.shutdown_timeout, Duration::from_secs(20));
    assert_eq!(config.installation.id, "prod-eu-1");
}

#[test]
fn lists_words_and_registries_come_from_the_environment_too() {
    let given = file(QUAY)
        .env("HYPERFLEET_ROTATION_PROOF", "heartbeat, adapter")
        .env("HYPERFLEET_ROTATION_ON_DEADLINE", "rollback")
        .env("HYPERFLEET_ROTATION_MAX_CONCURRENT", "3")
        .env("HYPERFLEET_RETRY_FACTOR", "1.5")
        .env("HYPERFLEET_LIMITS_BURST", "off")
        .env("HYPERFLEET_REGISTRIES_QUAY_URL", "https://quay.example")
        .env("HYPERFLEET_REGISTRIES_QUAY_POOL_HIGH", "9")
        .env("HYPERFLEET_REGISTRIES_QUAY_ALIASES", "");
    let config = given.load().config;
    assert_eq!(config.rotation.proof, [Proof::Heartbeat, Proof::Adapter]);
    assert_eq!(config.rotation.on_deadline, OnDeadline::Rollback);
    assert_eq!(config.rotation.max_concurrent, 3);
    assert!((config.retry.factor - 1.5).abs() < f64::EPSILON);
    assert_eq!(config.limits.burst, Burst::Off);
    let quay = &config.registries[0];
    assert_eq!(quay.common.pool, Pool { low: 0, high: 9 });
    assert!(quay.common.aliases.is_empty());
    let RegistryKind::Quay(kind) = &quay.kind else { panic!("{quay:?}") };
    assert_eq!(kind.url, "https://quay.example");
}

#[test]
fn unknown_variables_are_only_warned_about() {
    let given = file(QUAY)
        .env("HYPERFLEET_CREDENTIALS_PORT_8080_TCP", "tcp://10.0.0.1:8080")
        .env("HYPERFLEET_SERVER_PORT", "tcp://10.0.0.1:8080")
        .env("HYPERFLEET_REGISTRIES_NONE_URL", "x")
        .env("HYPERFLEET_REGISTRIES_QUAY_ID", "x");
    let loaded = given.load();
    assert_eq!(loaded.warnings.len(), 4, "{:?}", loaded.warnings);
    assert_eq!(loaded.config.server.port, 8080);
    assert_eq!(loaded.config.registries[0].common.id.as_str(), "quay");
}

#[test]
fn every_fault_is_told_at_once_with_path_value_rule_and_remedy() {
    let text = file(
        "
server: {port: 70000, hots: x}
rotation: {interval: soon, proof: [heartbeat, gossip], spread: 2, max_concurent: 1}
retry: 5
scheduler: {lease: 9s}
bogus: 1
registries:
  - {id: quay, type: quay, host: quay.io, timeout: 4s, settle_time: 7s, organisation: a, token_file: /x}
  - {id: Bad Id, type: htpasswd, host: b, file: /x, bcrypt_cost: 15}
  - {id: x, type: gitlab}
",
    )
    .error();
    for part in [
        "server.port: 70000 must be a port number from 0 to 65535; set it with --server-port, \
         HYPERFLEET_SERVER_PORT or `server.port` in the file",
        "server.hots: is not a known key; did you mean `host`?",
        "rotation.interval: \"soon\" must be a duration like 90d, 1h 30m or 10s; set it with \
         HYPERFLEET_ROTATION_INTERVAL or",
        "rotation.proof: a list of 2 must be a list of heartbeat, registry, adapter",
        "rotation.spread: 2 must be a number from 0 to 1",
        "rotation.max_concurent: is not a known key; did you mean `max_concurrent`?",
        "retry: 5 must be a section with keys like initial",
        "bogus: is not a known key",
        "registries[quay].timeout: \"4s\" must be at most 3s, a third of scheduler.lease",
        "registries[quay].settle_time: \"7s\" must be at least 8s, twice the timeout; set it with \
         HYPERFLEET_REGISTRIES_QUAY_SETTLE_TIME or `settle_time` of this entry in the file",
        "registries[quay].organization: is required",
        "registries[quay].organisation: is not a known key; did you mean `organization`?",
        "registries[Bad Id].id: \"Bad Id\" must be 1 to 63 lower-case letters",
        "registries[x].type: \"gitlab\" must be one of quay, rhit, harbor, nexus, htpasswd",
    ] {
        assert!(text.contains(part), "missing: {part}\n in: {text}");
    }
}

#[test]
fn each_rule_names_its_key() {
    for (yaml, path) in [
        ("installation: {id: \"a b\"}", "installation.id"),
        ("server: {port: 9090}", "metrics.port"),
        ("server: {tls: {cert_file: /x}}", "server.tls.key_file"),
        ("server: {request_wait: 2m}", "server.request_wait"),
        ("db: {url: \"mysql://u:secret@h/x\"}", "db.url"),
        ("db: {max_connections: 0}", "db.max_connections"),
        ("encryption: {primary: \"a b\"}", "encryption.primary"),
        ("auth: {mode: static}", "auth.static.tokens_file"),
        ("auth: {mode: oidc}", "auth.oidc.issuer"),
        ("auth: {mode: magic}", "auth.mode"),
        ("auth: {kubernetes: {audiences: []}}", "auth.kubernetes.audiences"),
        ("auth: {oidc: {jwks_url: \"http://x.example\"}}", "auth.oidc.jwks_url"),
        ("limits: {requests: \"0/1m\"}", "limits.requests"),
        ("limits: {burst: 0}", "limits.burst"),
        ("rotation: {grace_period: 0s}", "rotation.grace_period"),
        ("rotation: {compromise_deadline: 0s}", "rotation.compromise_deadline"),
        ("rotation: {proof: []}", "rotation.proof"),
        ("rotation: {spread: -0.1}", "rotation.spread"),
        ("retry: {jitter: 1.1}", "retry.jitter"),
        ("retry: {factor: 0.9}", "retry.factor"),
        ("scheduler: {lease: 0s}", "scheduler.lease"),
        ("audit: {reads: never}", "audit.reads"),
        ("events: {sink: \"http://x.example\"}", "events.sink"),
        ("break_glass: {max_expiration: 25h}", "break_glass.max_expiration"),
        ("break_glass: {default_expiration: 9m}", "break_glass.default_expiration"),
        ("log: {level: loud}", "log.level"),
        ("registries: {id: x}", "registries"),
    ] {
        let yaml =
            if yaml.starts_with("installation") { format!("x: 1\n{yaml}") } else { yaml.into() };
        let given = file("");
        let path_of_file = given.dir.path().join("config.yaml");
        let head = if yaml.contains("installation") { "" } else { "installation: {id: a}\n" };
        fs::write(path_of_file, format!("{head}{yaml}\n")).unwrap();
        let text = given.error();
        assert!(text.contains(&format!("\n  {path}: ")), "{yaml}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn each_rule_of_registries_names_its_key() {
    for (entry, key) in [
        ("type: htpasswd, host: h, file: f, prefix: abcdefghijklm", "prefix"),
        ("type: htpasswd, host: h, file: f, prefix: a--b", "prefix"),
        ("type: htpasswd, host: h, file: f, prefix: Hyp", "prefix"),
        ("type: htpasswd, host: h, file: f, bcrypt_cost: 3", "bcrypt_cost"),
        ("type: htpasswd, host: h, file: f, max_concurrent: 0", "max_concurrent"),
        ("type: htpasswd, host: h, file: f, pool: {low: 2, high: 1}", "pool.low"),
        ("type: htpasswd, host: h, file: f, rate: fast", "rate"),
        ("type: htpasswd, host: \"https://h\", file: f", "host"),
        ("type: htpasswd, host: h, file: f, aliases: [h]", "aliases"),
        ("type: htpasswd, host: h, file: f, verify_url: \"http://h.example\"", "verify_url"),
        ("type: htpasswd, host: h, file: f, timeout: 11s, settle_time: 1m", "timeout"),
        ("type: htpasswd, host: h", "file"),
        ("type: quay, host: h, organization: o", "token_file"),
        ("type: quay, host: h, organization: o, token_file: t, usage: guess", "usage"),
        ("type: quay, host: h, organization: o, token_file: t, url: \"https://u:p@h\"", "url"),
        ("type: rhit, host: h, cert_file: c, key_file: k", "url"),
        ("type: harbor, host: h, username: u, password_file: p", "project"),
        (
            "type: harbor, host: h, username: u, password_file: p, level: system, duration_days: 0",
            "duration_days",
        ),
        ("type: nexus, host: h, url: \"https://h\", username: u, password_file: p", "role"),
        (
            "type: nexus, host: h, url: \"https://h\", username: u, password_file: p, role: 5",
            "role",
        ),
    ] {
        let text = file(&format!("registries:\n  - {{id: a, {entry}}}\n")).error();
        assert!(text.contains(&format!("\n  registries[a].{key}: ")), "{entry}: {text}");
        assert!(text.starts_with("the configuration has 1 problem\n"), "{entry}: {text}");
    }
}

#[test]
fn what_is_odd_is_only_warned_about() {
    let loaded = file("rotation: {min_overlap: 8d, quiet: 0s}\nretry: {max: 1s}").load();
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
}

#[test]
fn off_is_a_word_in_the_file_and_empty_sections_say_nothing() {
    let yaml =
        "limits: {requests: off, burst: off, rotations: off}\naudit: {reads: off}\nserver:\n";
    let config = file(yaml).load().config;
    assert_eq!((config.limits.requests, config.limits.burst), (Rate::Off, Burst::Off));
    assert_eq!(config.audit.reads, AuditReads::Off);
    assert_eq!(config.server.port, 8080);
}

#[test]
fn ids_and_hosts_are_unique() {
    let entry = |id: &str, host: &str| {
        format!("  - {{id: {id}, type: htpasswd, host: {host}, file: f, aliases: [x-{id}]}}\n")
    };
    let twice = |a: (&str, &str), b: (&str, &str)| {
        file(&format!("registries:\n{}{}", entry(a.0, a.1), entry(b.0, b.1))).error()
    };
    assert!(twice(("a", "h"), ("a", "i")).contains("registries[a].id: must be unique"));
    assert!(twice(("a", "h"), ("b", "h")).contains("registries[b].host: \"h\" must be unique"));
    assert!(twice(("a", "h"), ("b", "x-a")).contains("registries[b].host: \"x-a\" must be unique"));
    assert!(twice(("a.b", "h"), ("a-b", "i")).contains("the same environment variables"));
}

#[test]
fn the_defaults_of_each_type() {
    let config = file(
        "
registries:
  - {id: h, type: htpasswd, host: \"localhost:5000\", file: f, verify_url: \"http://localhost:5000\"}
  - {id: q, type: quay, host: quay.io, organization: o, token_file: t}
  - {id: r, type: rhit, host: registry.redhat.io, url: \"https://api\", cert_file: c, key_file: k}
  - {id: o, type: harbor, host: harbor.example, username: u, password_file: p, project: x}
  - {id: n, type: nexus, host: n.example, url: \"http://n.example\", username: u, password_file: p,
     role: pull, allow_http: true, proxy: \"http://u:pw@proxy:3128\"}
",
    )
    .load()
    .config;
    let of = |i: usize| &config.registries[i];
    assert_eq!(of(0).common.timeout, Duration::from_secs(2));
    assert_eq!(of(0).common.settle_time, Duration::from_secs(5));
    assert_eq!(of(0).common.rate, Rate::Off);
    assert_eq!(of(1).common.settle_time, Duration::from_secs(600));
    assert_eq!(of(1).common.token_ttl, Duration::from_secs(3600));
    assert_eq!(of(3).common.token_ttl, Duration::from_secs(1860));
    let RegistryKind::Quay(quay) = &of(1).kind else { panic!() };
    assert_eq!((quay.url.as_str(), quay.usage), ("https://quay.io", QuayUsage::Log));
    let RegistryKind::Rhit(rhit) = &of(2).kind else { panic!() };
    assert_eq!(rhit.verify_url, "https://registry.redhat.io");
    let shown = config.to_yaml();
    assert!(shown.contains("type: nexus") && !shown.contains("pw"), "{shown}");
}

#[test]
fn the_shown_configuration_can_be_loaded_again_and_holds_no_secret() {
    let given = file(&format!("db: {{url: \"postgres://u:s3cret@h/x\"}}\n{QUAY}"));
    let config = given.load().config;
    assert_eq!(config.db.connection_url().unwrap().expose_secret(), "postgres://u:s3cret@h/x");
    let shown = config.to_yaml();
    assert!(shown.contains("**REDACTED**"), "{shown}");
    assert!(!shown.contains("s3cret") && !format!("{config:?}").contains("s3cret"));
    let path = given.dir.path().join("config.yaml");
    fs::write(&path, &shown).unwrap();
    assert_eq!(given.load().config.to_yaml(), shown);
}

#[test]
fn a_missing_file_matters_only_when_it_was_named() {
    let mut given = file("");
    given.sources.config_file = Some("/nowhere/config.yaml".into());
    assert!(
        given.error().starts_with("/nowhere/config.yaml: the configuration file cannot be read")
    );
    given.sources.config_file = None;
    given.sources.search = vec!["/nowhere/config.yaml".into()];
    assert!(given.error().contains("installation.id: is required"));
    let found = given.dir.path().join("config.yaml");
    given.sources.search.push(found.clone());
    assert_eq!(given.load().file, Some(found.clone()));
    given.sources.search.clear();
    let given = given.env("HYPERFLEET_CONFIG", &found.display().to_string());
    assert_eq!(given.load().file, Some(found));
    assert!(given.load().warnings.is_empty());
}

#[test]
fn a_file_that_is_not_yaml_is_refused_without_showing_it() {
    let text = file("db: {url: \"postgres://u:s3cret@h\n  - x: [").error();
    assert!(text.contains("is not valid YAML") && !text.contains("s3cret"), "{text}");
    assert!(file("server: {port: 1}\nserver: {port: 2}").error().contains("is not valid YAML"));
}

#[test]
fn dev_is_a_layer_of_defaults_and_makes_its_files_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut given = file("server: {port: 0}");
    given.sources.config_file = None;
    given.sources.dev = Some(data.clone());
    let config = given.load().config;
    assert!(config.installation.id.starts_with("dev-"), "{}", config.installation.id);
    assert_eq!(config.server.host, "127.0.0.1");
    assert_eq!(config.registries[0].common.id.as_str(), "local");

    let prepared = prepare_dev(&config, &data).unwrap();
    assert_eq!(prepared.admin_token, Some(data.join("admin.token")));
    assert_eq!(prepared.made.len(), 6, "{prepared:?}");
    config.check_files().unwrap();
    crate::crypto::Keyring::load(&config.encryption.keys_dir, None).unwrap();
    let tokens = TokensFile::load(config.auth.r#static.tokens_file.as_ref().unwrap()).unwrap();
    let token = fs::read_to_string(data.join("admin.token")).unwrap();
    assert_eq!(tokens.lookup(&token.into()).unwrap().role, Role::Admin);
    let mode = |name: &str| fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("admin.token"), mode("tokens"), mode("keys")), (0o600, 0o600, 0o700));

    let again = Config::dev(&data).unwrap();
    assert_eq!(again.installation.id, config.installation.id);
    assert!(prepare_dev(&again, &data).unwrap().made.is_empty());
    fs::remove_file(data.join("admin.token")).unwrap();
    assert!(prepare_dev(&again, &data).unwrap_err().to_string().contains("to have both made anew"));

    let moved = given.flag("installation.id", "mine").load().config;
    assert_eq!(moved.installation.id, "mine");
}

#[test]
fn secret_files_of_others_are_refused() {
    let given = file("");
    let token = given.dir.path().join("quay.token");
    let yaml = QUAY.replace("/x/quay.token", &token.display().to_string());
    let config = file(&yaml).load().config;
    config.check_files().unwrap();
    fs::write(&token, "x").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let text = config.check_files().unwrap_err().to_string();
    assert!(
        text.contains("registries[quay].token_file: ") && text.contains("chmod 0640"),
        "{text}"
    );
}

#[test]
fn a_clusters_file_with_a_fault_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let clusters = dir.path().join("clusters.yaml");
    let config = file(&format!("break_glass: {{clusters_file: {}}}", clusters.display()));
    let config = config.load().config;
    // One that is not there names no cluster.
    config.check_files().unwrap();
    fs::write(&clusters, "cls-1: {server: 'http://a', ca_file: /x}").unwrap();
    let text = config.check_files().unwrap_err().to_string();
    assert!(
        text.contains("break_glass.clusters_file: ") && text.contains("cls-1.server must"),
        "{text}"
    );
}

#[test]
fn the_table_of_keys_and_the_types_agree() {
    fn leaves(prefix: &str, value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    leaves(&format!("{prefix}.{name}"), value, into);
                }
            }
            _ => into.push(prefix.trim_start_matches('.').to_owned()),
        }
    }
    let mut typed = Vec::new();
    leaves("", &Value::Object(default_values()), &mut typed);
    let mut table: Vec<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    typed.sort();
    table.sort();
    assert_eq!(typed, table);
    let mut names: Vec<String> = KEYS.iter().map(keys::Key::env).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), KEYS.len(), "two keys share an environment variable");
    for key in KEYS {
        let Some(flag) = key.flag else { continue };
        assert_eq!(flag, key.path.replace(['.', '_'], "-"));
        assert!(!key.secret, "a secret has a flag: {flag}");
    }
}

#[test]
fn the_reference_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let page = reference_page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == page, "run with UPDATE_DOCS=1");
    for name in KEYS.iter().map(|k| k.path).chain(REGISTRY_KEYS.iter().map(|k| k.name)) {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
