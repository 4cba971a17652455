//! What `kubectl` gets to read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::signers::kubeconfig::Kubeconfig;

fn rendered(username: &str, key: Option<&SecretString>) -> (String, Value) {
    let kubeconfig = Kubeconfig {
        server: "https://api.cls-1.example:6443",
        ca: "the authority",
        username,
        certificate: "the credential",
        private_key: key,
    };
    let text = kubeconfig.render().expose_secret().to_owned();
    let value = serde_saphyr::from_str(&text).unwrap();
    (text, value)
}

fn decoded(value: &Value) -> String {
    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
}

#[test]
fn everything_is_in_its_place() {
    let key = SecretString::from("the key".to_owned());
    let (text, value) = rendered("alice", Some(&key));
    assert_eq!((&value["apiVersion"], &value["kind"]), (&"v1".into(), &"Config".into()));
    assert_eq!(value["clusters"][0]["name"], "cluster");
    let cluster = &value["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], "https://api.cls-1.example:6443");
    assert_eq!(decoded(&cluster["certificate-authority-data"]), "the authority");
    assert_eq!(value["users"][0]["name"], "alice");
    let user = &value["users"][0]["user"];
    assert_eq!(decoded(&user["client-certificate-data"]), "the credential");
    assert_eq!(decoded(&user["client-key-data"]), "the key");
    assert_eq!(value["contexts"][0]["name"], "admin");
    assert_eq!(value["contexts"][0]["context"]["cluster"], "cluster");
    assert_eq!(value["contexts"][0]["context"]["user"], "alice");
    assert_eq!(value["current-context"], "admin");
    assert!(!text.contains("insecure"), "{text}");
}

#[test]
fn with_a_callers_own_key_there_is_only_the_certificate() {
    let (text, value) = rendered("alice", None);
    assert!(!text.contains("client-key"), "{text}");
    assert_eq!(value["users"][0]["user"].as_object().unwrap().len(), 1);
}

#[test]
fn a_name_stays_a_name() {
    for username in ["true", "1e5", "null", "-", "...", "0x1f", "12"] {
        let (_, value) = rendered(username, None);
        assert_eq!(value["users"][0]["name"], username);
        assert_eq!(value["contexts"][0]["context"]["user"], username);
    }
}
