//! What counts as revoked: every API server's own word, or where none can be asked, an adapter's.

use serde_json::{Value, json};

use super::world::{A, B, Scene, V1, WHO, log_in, name_of, quick};
use crate::support::fake_apiserver::{FakeApiserver, Mode};

fn endpoint<'a>(revocation: &'a Value, url: &str) -> &'a Value {
    let mut all = revocation["endpoints"].as_array().unwrap().iter();
    all.find(|endpoint| endpoint["endpoint"] == url).unwrap_or_else(|| panic!("{revocation}"))
}

#[tokio::test]
async fn a_server_that_does_not_say_no_has_not_said_it() {
    // Given a credential that two API servers accept,
    let scene = Scene::start().await;
    let (id, kubeconfig) = scene.issued("ada").await;
    // when all are revoked while one of them answers nothing that counts,
    let (well, ill) = (&scene.servers[0], &scene.servers[1]);
    ill.behave(Mode::Answers(503));
    assert_eq!(scene.delete(B).await.status, 202);
    let running = scene.revocation().await;
    let path = format!("{V1}/revocations/{}", running["revocation_id"].as_str().unwrap());
    let one_proved = scene.until(&path, |seen| endpoint(seen, &well.url)["rejected"] == true);
    let seen = scene.meanwhile(one_proved).await;
    // then the other holds it up, and it is said which and why.
    assert_eq!(endpoint(&seen, &ill.url)["rejected"], false, "{seen}");
    let seen = scene.until(&path, |seen| endpoint(seen, &ill.url)["last_error"].is_string()).await;
    assert_eq!((&seen["state"], &seen["ended_at"]), (&json!("proving"), &Value::Null));
    assert!(seen["message"].as_str().unwrap().contains(&ill.url), "{seen}");
    // Operators are told without asking for it.
    let attention = "/v1/attention?kind=stuck";
    let mine = |list: &Value| {
        let items = list["items"].as_array().unwrap().iter();
        items.filter(|item| item["revocation_id"] == running["revocation_id"]).count()
    };
    let told = scene.until(attention, |list| mine(list) == 1).await;
    let item = &told["items"][0];
    assert_eq!((&item["cluster_id"], &item["credential_id"]), (&json!("cls-1"), &Value::Null));
    assert!(item["last_error"].as_str().unwrap().contains(&ill.url), "{told}");
    // One that refuses everything, the control included, proves nothing either.
    ill.behave(Mode::RefusesEverything);
    let all_refused = |seen: &Value| {
        endpoint(seen, &ill.url)["last_error"].as_str().is_some_and(|e| e.contains("control"))
    };
    let seen = scene.until(&path, all_refused).await;
    assert_eq!(endpoint(&seen, &ill.url)["rejected"], false, "{seen}");
    assert_eq!(scene.state(&id).await, "revoking");
    assert_eq!(scene.get(&format!("{A}/{id}")).await.body["status"], "awaiting_revocation");
    // Meanwhile nothing is issued, and a second DELETE joins.
    let refused = scene.post(A, json!({})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (409, "10"), "{}", refused.text);
    assert_eq!(refused.header("content-type"), "application/json");
    assert_eq!((scene.delete(A).await.status, scene.delete(B).await.status), (204, 202));
    let all = scene.get(&format!("{V1}/revocations")).await.body;
    assert_eq!(all["pagination"]["total_count"], 1, "{all}");
    // When it is well again, its own word ends it.
    ill.behave(Mode::Normal);
    let ended = scene.meanwhile(scene.revoked()).await;
    assert_eq!(endpoint(&ended, &ill.url)["rejected"], true, "{ended}");
    assert_eq!(scene.get(attention).await.body["items"], json!([]));
    assert_eq!(scene.state(&id).await, "revoked");
    assert_eq!(log_in(&kubeconfig).await, Err(401));
}

#[tokio::test]
async fn one_accepts_one_is_down_one_refuses() {
    // Given a credential that three API servers accept,
    let scene = Scene::with(quick(), 3, json!({})).await;
    let (id, kubeconfig) = scene.issued("ada").await;
    let [accepts, down, refuses] = &scene.servers[..] else { panic!("three") };
    // when it is revoked while one of them goes on accepting it, one is down and one does as it is told,
    accepts.behave(Mode::StillAccepts);
    down.behave(Mode::Down);
    assert_eq!(scene.delete(&format!("{B}/{id}")).await.status, 202);
    let running = scene.revocation().await;
    let path = format!("{V1}/revocations/{}", running["revocation_id"].as_str().unwrap());
    let proved =
        |seen: &Value, server: &FakeApiserver| endpoint(seen, &server.url)["rejected"] == true;
    let error = |seen: &Value, server: &FakeApiserver| {
        endpoint(seen, &server.url)["last_error"].as_str().unwrap_or_default().to_owned()
    };
    let all_asked = |seen: &Value| {
        proved(seen, refuses) && !error(seen, accepts).is_empty() && !error(seen, down).is_empty()
    };
    let seen = scene.meanwhile(scene.until(&path, all_asked)).await;
    // then it is not revoked, each of the two says why, and whoever has it still gets in.
    assert!(error(&seen, accepts).contains("still accepts"), "{seen}");
    assert_eq!((proved(&seen, accepts), proved(&seen, down)), (false, false), "{seen}");
    assert_eq!((&seen["state"], &seen["ended_at"]), (&json!("proving"), &Value::Null));
    assert_eq!(scene.state(&id).await, "revoking");
    assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"));
    // The one that comes back alone does not end it, nor does the other one alone;
    down.behave(Mode::Normal);
    let seen = scene.meanwhile(scene.until(&path, |seen| proved(seen, down))).await;
    assert_eq!((&seen["state"], proved(&seen, accepts)), (&json!("proving"), false));
    assert_eq!(scene.state(&id).await, "revoking");
    // all three do.
    accepts.behave(Mode::Normal);
    let ended = scene.meanwhile(scene.revoked()).await;
    assert_eq!(ended["state"], "completed");
    assert_eq!((scene.state(&id).await.as_str(), log_in(&kubeconfig).await), ("revoked", Err(401)));
}

#[tokio::test]
async fn while_all_are_down_nobody_can_say_it() {
    let mut scene = Scene::with(quick(), 3, json!({})).await;
    let (id, kubeconfig) = scene.issued("ada").await;
    scene.servers.iter().for_each(|server| server.behave(Mode::Down));
    assert_eq!(scene.delete(A).await.status, 204);
    let running = scene.revocation().await;
    let path = format!("{V1}/revocations/{}", running["revocation_id"].as_str().unwrap());
    let all_tried = |seen: &Value| {
        let mut all = seen["endpoints"].as_array().unwrap().iter();
        all.all(|one| one["last_error"].is_string())
    };
    let seen = scene.meanwhile(scene.until(&path, all_tried)).await;
    assert_eq!((&seen["state"], &seen["ended_at"]), (&json!("proving"), &Value::Null));
    // The credential says so itself, on both surfaces, also after the service was killed.
    for _ in 0..2 {
        let one = scene.get(&format!("{B}/{id}")).await.body;
        assert_eq!((&one["status"], one.get("kubeconfig")), (&json!("revoking"), None));
        let message = one["status_details"]["message"].as_str().unwrap();
        assert!(message.contains("cannot be verified"), "{message}");
        assert_eq!(scene.get(&format!("{A}/{id}")).await.body["status"], "awaiting_revocation");
        assert_eq!(one.get("revocation_timestamp"), None);
        scene.world.service.kill();
        scene.world.service.restart().await;
    }
    scene.servers.iter().for_each(|server| server.behave(Mode::Normal));
    scene.meanwhile(scene.revoked()).await;
    assert_eq!((scene.state(&id).await.as_str(), log_in(&kubeconfig).await), ("revoked", Err(401)));
}

#[tokio::test]
async fn where_nobody_can_be_asked_an_adapter_says_it() {
    // Given a cluster without endpoints, a credential is issued at once and says what it waits for.
    let scene = Scene::unseen().await;
    let asked = scene.post(A, json!({"username": "ada"})).await;
    assert_eq!((asked.status, &asked.body["status"]), (201, &json!("issued")), "{}", asked.text);
    let id = asked.body["id"].as_str().unwrap().to_owned();
    let message = asked.body["status_details"]["message"].as_str().unwrap();
    let before = scene.apply_bundle().await;
    assert!(message.contains(version(&before)), "{message}: {before}");
    let kubeconfig = scene.kubeconfig(&id).await.unwrap();
    assert_eq!(name_of(&kubeconfig).await, format!("{WHO}ada"));
    assert_eq!(scene.confirm(&before).await.status, 200);

    // When all are revoked, the bundle is another one, and it is the one that has to be confirmed.
    assert_eq!(scene.delete(B).await.status, 202);
    let after = scene.apply_bundle().await;
    assert_ne!(before, after);
    let running = scene.revocation().await;
    assert_eq!((&running["state"], &running["endpoints"]), (&json!("proving"), &json!([])));
    let waits = running["message"].as_str().unwrap();
    assert!(waits.ends_with("or a later one") && !waits.contains(version(&before)), "{running}");
    let one = scene.get(&format!("{B}/{id}")).await.body;
    assert_eq!((&one["status"], one.get("kubeconfig")), (&json!("revoking"), None));
    let message = one["status_details"]["message"].as_str().unwrap();
    assert!(message.starts_with("waits for an adapter to confirm"), "{one}");
    // The old one again settles nothing, one that never was is refused.
    let old = scene.confirm(&before).await;
    assert_eq!((old.status, &old.body["settled"]), (200, &json!(0)), "{}", old.text);
    let wrong = scene.confirm("99-0123456789abcdef").await;
    assert_eq!(wrong.problem(), (409, "HYPERFLEET-CNF-002"), "{}", wrong.text);
    assert_eq!(scene.state(&id).await, "revoking");
    // The right one ends it, once.
    for settled in [1, 0] {
        let confirmed = scene.confirm(&after).await;
        assert_eq!((confirmed.status, &confirmed.body["settled"]), (200, &json!(settled)));
        assert_eq!(confirmed.body["etag"], bare(&after));
    }
    assert_eq!(scene.state(&id).await, "revoked");
    assert_eq!(scene.revocation().await["state"], "completed");
    assert_eq!(log_in(&kubeconfig).await, Err(401));
    let confirmed = scene.audit("bundle_confirmed").await;
    assert_eq!(confirmed, vec![("adapter-1".to_owned(), None); 2]);
}

fn bare(etag: &str) -> &str {
    etag.trim_matches('"')
}

/// What of the bundle's name stands for what this service trusts; the rest stands for the whole content.
fn version(etag: &str) -> &str {
    bare(etag).rsplit_once('-').unwrap().0
}

#[tokio::test]
async fn nothing_to_revoke_is_revoked_too() {
    let scene = Scene::start().await;
    for (path, status, text) in [(A, 204, ""), (B, 202, "{}")] {
        let answer = scene.delete(path).await;
        assert_eq!((answer.status, answer.text.as_str()), (status, text));
        assert_eq!(scene.revoked().await["state"], "completed");
    }
    let all = scene.get(&format!("{V1}/revocations?limit=1")).await.body;
    assert_eq!(all["pagination"]["total_count"], 2, "{all}");
    let next = all["pagination"]["next_cursor"].as_str().unwrap();
    let older = scene.get(&format!("{V1}/revocations?limit=1&cursor={next}")).await.body;
    assert_ne!(older["revocations"][0]["revocation_id"], all["revocations"][0]["revocation_id"]);
    assert_eq!(older["pagination"]["has_more"], false, "{older}");
}

#[tokio::test]
async fn a_revocation_goes_on_after_the_service_was_killed() {
    let mut scene = Scene::start().await;
    let (id, kubeconfig) = scene.issued("ada").await;
    // Both servers are silent, so the questions are still open when the service dies.
    scene.servers.iter().for_each(|server| server.behave(Mode::Slow));
    let asked_before = scene.servers[0].log().len();
    assert_eq!(scene.delete(B).await.status, 202);
    scene.servers[0].reached(move |log| log.len() > asked_before).await;
    scene.world.service.kill();
    scene.servers.iter().for_each(|server| server.behave(Mode::Normal));
    scene.world.service.restart().await;
    // Nobody sees it as usable, and it ends by itself.
    assert_eq!(scene.kubeconfig(&id).await, None);
    assert_eq!(scene.state(&id).await, "revoking");
    scene.meanwhile(scene.revoked()).await;
    assert_eq!(scene.state(&id).await, "revoked");
    assert_eq!(log_in(&kubeconfig).await, Err(401));
}

#[tokio::test]
async fn what_is_still_on_its_way_when_all_are_revoked_never_works() {
    // Given a credential that is signed and waits for the API servers,
    let scene = Scene::start().await;
    let id = scene.asked(json!({"username": "ada"})).await;
    scene.servers[0].reached(|log| !log.is_empty()).await;
    assert_eq!(scene.state(&id).await, "issuing");
    // when all are revoked, and only then the adapter comes,
    assert_eq!(scene.delete(A).await.status, 204);
    scene.meanwhile(scene.revoked()).await;
    // then it was never issued.
    assert_eq!(scene.state(&id).await, "revoked");
    assert_eq!(scene.kubeconfig(&id).await, None);
    assert_eq!(scene.audit("credential_issued").await, []);
}
