//! An operator's day: a credential is asked for, used, and revoked, on both surfaces.

use serde_json::json;

use super::world::{A, B, Scene, V1, WHO, log_in, name_of, quick};
use crate::support::fake_apiserver::Mode;
use crate::support::postgres;

#[tokio::test]
async fn a_credential_lives_from_the_wish_to_its_revocation() {
    // Given a cluster whose API servers can be asked,
    let scene = Scene::start().await;
    // when an operator asks for a credential on the newer surface,
    let asked = scene.post(B, json!({"username": "ada", "reason": "incident 7"})).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
    assert_eq!(asked.body["kind"], "BreakGlassCredential");
    let id = asked.body["id"].as_str().unwrap().to_owned();
    assert_eq!(asked.header("location"), format!("{B}/{id}"));
    assert!(["created", "issuing"].contains(&asked.body["status"].as_str().unwrap()));
    // it is issuing until the API servers accept it: nobody has given them the bundle yet.
    let status = format!("{B}/{id}/status");
    let waits = scene.until(&status, |status| status["state"]["value"] == "issuing");
    assert_eq!(waits.await["id"], json!(id));
    scene.servers[0].reached(|log| !log.is_empty()).await;
    assert_eq!(scene.state(&id).await, "issuing");
    assert_eq!(scene.get(&format!("{A}/{id}?wait=0s")).await.body["status"], "created");
    assert_eq!(scene.kubeconfig(&id).await, None);

    // When an adapter has given both the bundle, it is issued,
    scene.apply_bundle().await;
    scene.until(&status, |status| status["state"]["value"] == "issued").await;
    // the kubeconfig stands in the single GET and nowhere else,
    let one = scene.get(&format!("{B}/{id}")).await;
    assert_eq!((one.status, one.header("cache-control")), (200, "no-store"));
    let kubeconfig = one.body["kubeconfig"].as_str().unwrap().to_owned();
    let listed = scene.get(B).await;
    assert_eq!(
        (listed.body["total"].clone(), listed.body["items"][0].get("kubeconfig")),
        (json!(1), None)
    );
    assert!(!listed.text.contains("client-key-data"));
    // and it works, against a server that knows nothing but the bundle.
    let (name, groups) = log_in(&kubeconfig).await.unwrap();
    assert_eq!(name, format!("{WHO}ada"));
    assert!(groups.contains(&"system:masters".to_owned()), "{groups:?}");

    // A second one, asked for on the older surface, comes issued.
    let other = scene.meanwhile(scene.post(A, json!({"username": "bob"}))).await;
    assert_eq!((other.status, &other.body["status"]), (201, &json!("issued")), "{}", other.text);
    let other = other.body["id"].as_str().unwrap().to_owned();
    let others = scene.kubeconfig(&other).await.unwrap();
    assert_eq!(name_of(&others).await, format!("{WHO}bob"));

    // When the first is revoked, no read shows it as usable any more,
    let asked_before = scene.servers[1].log().len();
    let revoked = scene.delete(&format!("{B}/{id}")).await;
    assert_eq!((revoked.status, revoked.text.as_str()), (202, "{}"));
    assert_eq!(scene.kubeconfig(&id).await, None);
    // though it works until the API servers have heard of it: it is not called revoked before.
    assert_ne!(scene.state(&id).await, "revoked");
    scene.servers[1].reached(move |log| log.len() >= asked_before + 4).await;
    assert_ne!(scene.state(&id).await, "revoked");
    assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"));
    let ended = scene.meanwhile(scene.revoked()).await;
    assert_eq!((&ended["scope"], &ended["state"]), (&json!("one"), &json!("completed")));
    for endpoint in ended["endpoints"].as_array().unwrap() {
        assert_eq!(endpoint["rejected"], true, "{ended}");
    }
    let gone = scene.get(&format!("{B}/{id}")).await.body;
    assert_eq!(gone["status"], "revoked");
    assert!(gone["revocation_timestamp"].is_string(), "{gone}");
    assert_eq!(log_in(&kubeconfig).await, Err(401));
    // Nobody else has noticed.
    assert_eq!(name_of(&others).await, format!("{WHO}bob"));

    // When all are revoked, none is accepted.
    assert_eq!(scene.delete(A).await.status, 204);
    let ended = scene.meanwhile(scene.revoked()).await;
    assert_eq!((&ended["scope"], &ended["state"]), (&json!("all"), &json!("completed")));
    assert_eq!((log_in(&kubeconfig).await, log_in(&others).await), (Err(401), Err(401)));
    assert_eq!(scene.state(&other).await, "revoked");
    // And the next one is asked for and works.
    let (_, next) = scene.issued("ada").await;
    assert_eq!(name_of(&next).await, format!("{WHO}ada"));
    assert_eq!((log_in(&kubeconfig).await, log_in(&others).await), (Err(401), Err(401)));
}

#[tokio::test]
async fn the_audit_knows_who_has_asked_for_it_and_who_has_read_it() {
    let scene = Scene::start().await;
    let asked = scene.post(B, json!({"username": "ada", "reason": "Störung 7"})).await;
    let id = asked.body["id"].as_str().unwrap().to_owned();
    let one = format!("{B}/{id}");
    scene.meanwhile(scene.until(&one, |one| one["status"] == "issued")).await;
    let read_by_admin = scene.audit("kubeconfig_read").await;
    assert!(read_by_admin.iter().all(|(actor, _)| actor == "admin-1"), "{read_by_admin:?}");
    scene.kubeconfig(&id).await.unwrap();
    // Neither a list nor a status is a read.
    scene.get(B).await;
    scene.get(&format!("{B}/{id}/status")).await;
    let read = scene.audit("kubeconfig_read").await;
    assert_eq!(read[read_by_admin.len()..], [("operator-1".to_owned(), None)]);
    let requested = scene.audit("credential_requested").await;
    assert_eq!(requested, [("operator-1".to_owned(), Some("Störung 7".to_owned()))]);
    scene.delete(&format!("{B}/{id}")).await;
    let revoked = scene.audit("revocation_requested").await;
    assert_eq!(revoked, [("operator-1".to_owned(), None)]);
    // Whoever may not, does not.
    for role in ["adapter", "viewer"] {
        let refused = scene.world.get_as(role, &format!("{B}/{id}")).await;
        assert_eq!((refused.status, &refused.body["code"]), (403, &json!("ARO-HCP-403")), "{role}");
        assert_eq!(scene.world.get_as(role, &format!("{V1}/trust-bundle")).await.status, 200);
    }
}

#[tokio::test]
async fn no_private_key_is_written_down_in_the_clear() {
    let scene = Scene::start().await;
    let (_, kubeconfig) = scene.issued("ada").await;
    let line = kubeconfig.lines().find(|line| line.contains("client-key-data")).unwrap();
    let encoded = line.rsplit(' ').next().unwrap();
    let pem = data_encoding::BASE64.decode(encoded.as_bytes()).unwrap();
    let pem = String::from_utf8(pem).unwrap();
    // The middle of the key, in whichever form.
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let needle = &body[20..60];
    let data = scene.world.directory.path().join("data");
    for file in std::fs::read_dir(data).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let holds = |needle: &str| bytes.windows(needle.len()).any(|w| w == needle.as_bytes());
        assert!(!holds(needle) && !holds(&encoded[40..80]), "{}", path.display());
    }
    let log = scene.world.service.whole_log();
    assert!(!log.contains(needle) && !log.contains(&encoded[40..80]));
}

#[tokio::test]
async fn a_request_goes_on_after_the_service_was_killed() {
    let mut scene = Scene::start().await;
    let id = scene.asked(json!({"username": "ada"})).await;
    // It is signed, and nobody has said yet whether it works.
    scene.servers[0].reached(|log| !log.is_empty()).await;
    scene.world.service.kill();
    scene.world.service.restart().await;
    let status = format!("{B}/{id}/status");
    scene.meanwhile(scene.until(&status, |status| status["state"]["value"] == "issued")).await;
    let kubeconfig = scene.kubeconfig(&id).await.unwrap();
    assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"));
    // What was handed out before a kill is handed out after it.
    scene.world.service.kill();
    scene.world.service.restart().await;
    assert_eq!(scene.kubeconfig(&id).await, Some(kubeconfig));
}

#[tokio::test]
async fn whoever_waits_is_answered_when_the_service_ends() {
    let scene = Scene::start().await;
    let id = scene.asked(json!({"username": "ada"})).await;
    let one = format!("{A}/{id}");
    let asked = async {
        // Its request has come in when the next one is answered on another connection.
        scene.get(&format!("{one}/status")).await;
        scene.world.service.terminate();
    };
    let (answer, ()) = tokio::join!(scene.get(&one), asked);
    assert!([200, 503].contains(&answer.status), "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.body.get("kubeconfig"), None);
}

#[tokio::test]
async fn the_same_story_on_postgres() {
    let url = postgres::shared().database(None).await;
    let scene = Scene::with(quick().env("HYPERFLEET_DB_URL", &url), 2, json!({})).await;
    let (id, kubeconfig) = scene.issued("ada").await;
    let (_, others) = scene.issued("bob").await;
    assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"));
    let listed =
        scene.get(&format!("{A}?search=username%20like%20%27a%25%27&order=id%20desc")).await;
    assert_eq!((&listed.body["total"], &listed.body["items"][0]["id"]), (&json!(1), &json!(id)));
    assert_eq!(scene.delete(&format!("{B}/{id}")).await.status, 202);
    scene.meanwhile(scene.revoked()).await;
    assert_eq!((log_in(&kubeconfig).await, scene.state(&id).await.as_str()), (Err(401), "revoked"));
    assert_eq!(name_of(&others).await, format!("{WHO}bob"));
    assert_eq!(scene.delete(A).await.status, 204);
    scene.meanwhile(scene.revoked()).await;
    assert_eq!(log_in(&others).await, Err(401));
}

#[tokio::test]
async fn an_api_server_that_is_down_keeps_a_credential_waiting_and_says_so() {
    let scene = Scene::start().await;
    scene.servers[1].behave(Mode::Down);
    let id = scene.asked(json!({"username": "ada"})).await;
    let asked = scene.servers[0].reached(|log| log.iter().any(|entry| entry.trusted));
    scene.meanwhile(asked).await;
    assert_eq!(scene.state(&id).await, "issuing");
    scene.servers[1].behave(Mode::Normal);
    let status = format!("{B}/{id}/status");
    scene.meanwhile(scene.until(&status, |status| status["state"]["value"] == "issued")).await;
}
