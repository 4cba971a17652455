//! Giving up what a registry does not let go: by force, with a reason, and never forgotten.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use hyperfleet_credentials::registries::scripted::{Fault, Flavour, Verb};
use hyperfleet_credentials::state::pull_secret::Command;
use hyperfleet_credentials::time::Clock as _;
use serde_json::{Value, json};

use super::refusals::{ask_as, until};
use crate::actors::world::World;

const PATH: &str = "/v1/clusters/cls-1/pull-secrets";
const RESIDUE: &str = "/v1/clusters/cls-1/pull-secrets/residue";

async fn ask(world: &World, method: Method, path: &str) -> (u16, Value) {
    let request = TestRequest::with_uri(path).method(method);
    let request = request.insert_header(("prefer", "respond-async"));
    let (status, _, body) = ask_as(world, "admin", request).await;
    (status, body)
}

async fn give_up(world: &World, role: &str, path: &str, reason: Option<&str>) -> (u16, Value) {
    let request = TestRequest::with_uri(path).method(Method::DELETE);
    let request = match reason {
        Some(reason) => request.insert_header(("x-reason", reason)),
        None => request,
    };
    let (status, _, body) = ask_as(world, role, request).await;
    (status, body)
}

/// The registry does not let the next account go.
async fn held(world: &World) {
    world.registry.next(Verb::Revoke, Fault::Refuse("a mirror uses it".to_owned()));
}

async fn irrevocable(world: &World) -> Value {
    until(world, "/v1/attention?kind=irrevocable", |list| list["items"][0].is_object()).await
}

#[actix_rt::test]
async fn only_an_admin_gives_it_up_and_says_why() {
    let world = World::start(Flavour::Readable).await;
    world.issued("cls-1").await;
    held(&world).await;
    assert_eq!(ask(&world, Method::DELETE, PATH).await.0, 202);
    irrevocable(&world).await;
    for role in ["adapter", "operator", "viewer"] {
        let (status, body) = give_up(&world, role, RESIDUE, Some("retired mirror")).await;
        assert_eq!((status, &body["code"]), (403, &json!("HYPERFLEET-AUZ-001")), "{role}");
    }
    let (status, body) = give_up(&world, "admin", RESIDUE, None).await;
    assert_eq!((status, &body["code"]), (400, &json!("HYPERFLEET-VAL-001")));
    assert_eq!(body["errors"][0]["field"], "X-Reason");
    let (status, body) =
        give_up(&world, "admin", &format!("{RESIDUE}?registry=B%20"), Some("x")).await;
    assert_eq!((status, &body["code"]), (400, &json!("HYPERFLEET-VAL-004")));
    assert_eq!(irrevocable(&world).await["pagination"]["total_count"], 1, "nothing has happened");

    let (status, body) = give_up(&world, "admin", RESIDUE, Some("retired mirror")).await;
    assert_eq!((status, &body["cluster_id"]), (200, &json!("cls-1")), "{body}");
    let given_up = &body["given_up"][0];
    assert_eq!(
        (&given_up["registry_id"], &given_up["generation"]),
        (&json!("scripted"), &json!(1))
    );
    assert_eq!(given_up["last_error"], "a mirror uses it");
    let name = given_up["name"].as_str().unwrap();
    assert_eq!(world.registry.live()[0].name, name, "it is still there, and that is what is said");

    // The cluster is done with; the audit tells who did it and why.
    assert_eq!(ask(&world, Method::GET, PATH).await.0, 404);
    let calm = until(&world, "/v1/attention", |list| list["items"] == json!([])).await;
    assert_eq!(calm["pagination"]["total_count"], 0);
    let (_, audit) = ask(&world, Method::GET, "/v1/audit-events?action=residue_given_up").await;
    let event = &audit["audit_events"][0];
    assert_eq!((&event["actor"], &event["reason"]), (&json!("admin-1"), &json!("retired mirror")));
    assert_eq!(
        (&event["cluster_id"], &event["account"]),
        (&json!("cls-1"), &json!(name)),
        "{event}"
    );
    let (status, body) = give_up(&world, "admin", RESIDUE, Some("again")).await;
    assert_eq!((status, &body["code"]), (404, &json!("HYPERFLEET-NTF-001")));
    // Made anew, it gets another name.
    world.issued("cls-1").await;
    assert_eq!(world.registry.reused_names(), Vec::<String>::new());
}

#[actix_rt::test]
async fn what_a_rotation_left_over_is_given_up_and_the_cluster_stays() {
    let world = World::start(Flavour::Readable).await;
    let (status, body) = give_up(&world, "admin", RESIDUE, Some("x")).await;
    assert_eq!((status, &body["code"]), (404, &json!("HYPERFLEET-NTF-001")), "never made");
    world.issued("cls-1").await;
    let nothing = give_up(&world, "admin", RESIDUE, Some("x")).await;
    assert_eq!(
        nothing,
        (200, json!({"cluster_id": "cls-1", "given_up": []})),
        "a served one is safe"
    );
    held(&world).await;
    world.rotate("cls-1").await;
    world.until_generation("cls-1", 2).await;
    world.heartbeat("cls-1").await;
    irrevocable(&world).await;
    let elsewhere = give_up(&world, "admin", &format!("{RESIDUE}?registry=other"), Some("x")).await;
    assert_eq!(elsewhere, (200, json!({"cluster_id": "cls-1", "given_up": []})));

    let retry_at = world.clock.now().plus(std::time::Duration::from_secs(3600));
    world.execute("cls-1", Command::Quarantine { retry_at }).await.unwrap();
    let (status, body) = give_up(&world, "admin", RESIDUE, Some("x")).await;
    assert_eq!((status, &body["code"]), (503, &json!("HYPERFLEET-SVC-001")), "{body}");
    world.execute("cls-1", Command::Release).await.unwrap();

    let path = format!("{RESIDUE}?registry=scripted");
    let (status, body) = give_up(&world, "admin", &path, Some("x")).await;
    assert_eq!((status, &body["given_up"][0]["generation"]), (200, &json!(1)), "{body}");
    assert_eq!(give_up(&world, "admin", &path, Some("x")).await, nothing);
    let (_, shown) = ask(&world, Method::GET, PATH).await;
    assert_eq!((&shown["state"], &shown["generation"]), (&json!("active"), &json!(2)));
    world.assert_served_works("cls-1").await;
}
