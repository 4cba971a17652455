//! The two surfaces over the wire: bodies in chunks, lists, names, repetitions, and errors that OCM clients know.

use std::collections::BTreeSet;

use rcgen::{CertificateParams, KeyPair};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::world::{A, B, Scene, quick};
use crate::api::world::send;

/// Everything that comes back for a request as it stands here.
async fn raw(scene: &Scene, request: &str) -> String {
    let address = scene.world.service.api.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn head(method: &str, path: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\
         Authorization: Bearer operator-token\r\n"
    )
}

#[tokio::test]
async fn a_body_may_come_in_chunks() {
    let scene = Scene::unseen().await;
    let chunked = |body: &str| {
        let (one, two) = body.split_at(body.len() / 2);
        let chunks = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
        let head = head("POST", A);
        format!(
            "{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        )
    };
    let answer = raw(&scene, &chunked("{\"username\": \"in.chunks\"}")).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(answer.contains("\"username\":\"in.chunks\""), "{answer}");
    let answer = raw(&scene, &chunked("{\"username\": \"in chunks\"}")).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("content-type: application/json\r\n"), "{answer}");
    let large = format!("{{\"username\": \"{}\"}}", "x".repeat(70_000));
    let answer = raw(&scene, &chunked(&large)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // No body at all is a wish like any other.
    let answer = raw(&scene, &format!("{}Content-Length: 0\r\n\r\n", head("POST", B))).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let answer = raw(&scene, &format!("{}\r\n", head("DELETE", B))).await;
    assert!(answer.starts_with("HTTP/1.1 202 ") && answer.ends_with("\r\n\r\n{}"), "{answer}");
    let answer = raw(&scene, &format!("{}\r\n", head("DELETE", A))).await;
    assert!(answer.starts_with("HTTP/1.1 204 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn every_error_has_a_body_that_ocm_clients_know() {
    let scene = Scene::unseen().await;
    let none = "0".repeat(32);
    for (path, base, prefix) in
        [(A, "/api/clusters_mgmt/v1", "CLUSTERS-MGMT"), (B, "/api/aro_hcp/v1alpha1", "ARO-HCP")]
    {
        let request = |method: Method, path: &str| scene.world.request_as("operator", method, path);
        let text = request(Method::POST, path).header("content-type", "text/plain").body("x");
        let nobody = scene.world.service.anonymous(Method::GET, path);
        for (status, request) in [
            (400, request(Method::POST, path).body("{")),
            (400, request(Method::POST, path).json(&json!({"username": "a b"}))),
            (400, request(Method::GET, &format!("{path}?page=0"))),
            (400, request(Method::GET, &format!("{path}?search=colour%3D%27blue%27"))),
            (400, request(Method::GET, &format!("{path}?search=username%3D"))),
            (400, request(Method::GET, &format!("{path}?order=username%20sideways"))),
            (400, request(Method::GET, &path.replace("cls-1", "CLS_1"))),
            (401, nobody),
            (403, scene.world.request_as("viewer", Method::POST, path)),
            (404, request(Method::GET, &format!("{path}/{none}"))),
            (404, request(Method::GET, &format!("{base}/nothing"))),
            (404, request(Method::GET, &path.replace("cls-1", "cls-2"))),
            (405, request(Method::PUT, path)),
            (413, request(Method::POST, path).body("x".repeat(70_000))),
            (415, text),
        ] {
            let seen = send(request).await;
            let expected = json!({
                "kind": "Error", "id": status.to_string(), "code": format!("{prefix}-{status}"),
                "href": format!("{base}/errors/{status}"), "reason": seen.body["reason"],
                "operation_id": seen.header("x-request-id"), "timestamp": seen.body["timestamp"],
            });
            assert_eq!((seen.status, &seen.body), (status, &expected));
            assert!(!seen.body["reason"].as_str().unwrap().is_empty(), "{status}");
            assert_eq!(seen.header("content-type"), "application/json", "{status}");
        }
    }
}

#[tokio::test]
async fn whoever_asks_too_often_hears_it_in_the_same_form() {
    let setup =
        quick().env("HYPERFLEET_LIMITS_REQUESTS", "1/1h").env("HYPERFLEET_LIMITS_BURST", "1");
    let scene = Scene::with(setup, 1, json!({"endpoints": []})).await;
    assert_eq!(scene.get(B).await.status, 200);
    let limited = scene.get(B).await;
    assert_eq!((limited.status, &limited.body["code"]), (429, &json!("ARO-HCP-429")));
    assert_eq!(limited.header("content-type"), "application/json");
    assert!(!limited.header("retry-after").is_empty());
    // Others are not held up by it.
    assert_eq!(scene.world.get_as("viewer", A).await.status, 200);
}

#[tokio::test]
async fn lists_are_searched_ordered_and_cut() {
    // Given four credentials, one of them revoked,
    let scene = Scene::unseen().await;
    let mut ids = Vec::new();
    for username in ["dora", "ada", "bob", "cara"] {
        ids.push(scene.asked(json!({"username": username})).await);
    }
    let issued = |list: &Value| list["total"] == 4;
    let all_issued = format!("{B}?search=status%3D%27issued%27");
    scene.until(&all_issued, issued).await;
    assert!(
        ids.iter().all(|id| id.len() == 32
            && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
    );
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 4);
    scene.delete(&format!("{B}/{}", ids[0])).await;
    let names = async |path: &str, query: &[(&str, &str)]| {
        let request = scene.world.request_as("viewer", Method::GET, path).query(query);
        let seen = send(request).await;
        assert_eq!(seen.status, 200, "{query:?}: {}", seen.text);
        let items = seen.body["items"].as_array().unwrap();
        assert_eq!(seen.body["size"], items.len());
        assert!(items.iter().all(|item| item.get("kubeconfig").is_none()));
        let names: Vec<&str> =
            items.iter().map(|item| item["username"].as_str().unwrap()).collect();
        (names.join(" "), seen.body["total"].as_u64().unwrap())
    };
    for (query, found, total) in [
        // Without an order they come as they were asked for.
        (&[][..], "dora ada bob cara", 4),
        (&[("order", "username")], "ada bob cara dora", 4),
        (&[("order", "username desc"), ("size", "2")], "dora cara", 4),
        (&[("order", "username"), ("size", "3"), ("page", "2")], "dora", 4),
        (&[("page", "9"), ("size", "3")], "", 4),
        (&[("size", "-1")], "dora ada bob cara", 4),
        (&[("size", "0")], "", 4),
        (&[("search", "username = 'ada'")], "ada", 1),
        (&[("search", "username='ada' AND status='issued'")], "ada", 1),
        (&[("search", "status != 'issued'")], "dora", 1),
        (&[("search", "username in ('ada', 'bob')"), ("order", "id desc")], "bob ada", 2),
        (&[("search", "username like '%a' and not (username = 'ada')")], "dora cara", 2),
        (&[("search", "username='x'' or ''1''=''1'")], "", 0),
        (&[("search", "status='issued'"), ("size", "1"), ("page", "2")], "bob", 3),
    ] {
        assert_eq!(names(B, query).await, (found.to_owned(), total), "{query:?}");
    }
    // The words are those of the surface.
    assert_eq!(names(B, &[("search", "status='revoking'")]).await.1, 1);
    let other = A.to_owned() + "?search=status%3D%27revoking%27";
    assert_eq!(scene.get(&other).await.status, 400, "the older surface has no such word");
    assert_eq!(names(A, &[("search", "status='awaiting_revocation'")]).await.1, 1);
}

#[tokio::test]
async fn names_and_ends_have_rules() {
    let scene = Scene::unseen().await;
    let made = scene.post(B, json!({})).await;
    let name = made.body["username"].as_str().unwrap();
    assert!((1..=35).contains(&name.len()), "{name}");
    assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'), "{name}");
    for (body, reason) in [
        (
            json!({"username": "a_b"}),
            "The username 'a_b' must respect the regexp '^[a-zA-Z0-9-.]*$'",
        ),
        (json!({"username": "x".repeat(36)}), "The username must have at most 35 characters"),
        (
            json!({"expiration_timestamp": "2020-01-01T00:00:00Z"}),
            "Expiration needs to be at least 10 minutes from now",
        ),
        (
            json!({"expiration_timestamp": "2999-01-01T00:00:00Z"}),
            "Expiration needs to be at most 24 hours from now",
        ),
    ] {
        for path in [A, B] {
            let seen = scene.post(path, body.clone()).await;
            assert_eq!((seen.status, &seen.body["reason"]), (400, &json!(reason)), "{}", seen.text);
        }
    }
    // A live one has its name for itself, on both surfaces.
    let first = scene.asked(json!({"username": "ada"})).await;
    let taken = scene.post(A, json!({"username": "ada"})).await;
    assert_eq!((taken.status, &taken.body["code"]), (409, &json!("CLUSTERS-MGMT-409")));
    scene
        .until(&format!("{B}/{first}/status"), |status| status["state"]["value"] == "issued")
        .await;
    // The end is the certificate's, to the second.
    let one = scene.get(&format!("{B}/{first}")).await.body;
    let end = one["expiration_timestamp"].as_str().unwrap();
    assert!(end.ends_with('Z') && end.len() == "2026-11-30T12:00:00Z".len(), "{end}");
    let kubeconfig = one["kubeconfig"].as_str().unwrap();
    assert_eq!(not_after(kubeconfig), end.parse().unwrap());
}

/// The end of the certificate in a kubeconfig.
fn not_after(kubeconfig: &str) -> hyperfleet_credentials::time::Timestamp {
    let line = kubeconfig.lines().find(|line| line.contains("client-certificate-data")).unwrap();
    let encoded = line.rsplit(' ').next().unwrap();
    let pem = data_encoding::BASE64.decode(encoded.as_bytes()).unwrap();
    let block = x509_parser::pem::Pem::iter_from_buffer(&pem).next().unwrap().unwrap();
    let certificate = block.parse_x509().unwrap();
    let seconds = certificate.validity().not_after.timestamp();
    hyperfleet_credentials::time::Timestamp::from_micros(seconds * 1_000_000)
}

#[tokio::test]
async fn whoever_brings_a_key_keeps_it() {
    let scene = Scene::unseen().await;
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let asked = json!({"username": "ada", "certificate_signing_request": request});
    let made = scene.post(A, asked).await;
    assert_eq!((made.status, &made.body["status"]), (201, &json!("issued")), "{}", made.text);
    let kubeconfig = scene.kubeconfig(made.body["id"].as_str().unwrap()).await.unwrap();
    assert!(kubeconfig.contains("client-certificate-data"), "{kubeconfig}");
    assert!(!kubeconfig.contains("client-key-data"), "{kubeconfig}");
    for bad in ["", "nonsense", &request.replace('A', "B")] {
        let body = json!({"username": "bob", "certificate_signing_request": bad});
        let seen = scene.post(B, body).await;
        if bad.is_empty() {
            // Nothing was brought.
            assert_eq!(seen.status, 202, "{}", seen.text);
            scene.delete(&format!("{B}/{}", seen.body["id"].as_str().unwrap())).await;
            continue;
        }
        assert_eq!(seen.status, 400, "{}", seen.text);
        let reason = seen.body["reason"].as_str().unwrap();
        assert!(reason.starts_with("certificate_signing_request must"), "{reason}");
    }
}

#[tokio::test]
async fn a_repeated_request_makes_one_credential() {
    let scene = Scene::unseen().await;
    let ask = async |body: Value| {
        let request = scene.world.request_as("operator", Method::POST, A);
        send(request.header("Idempotency-Key", "one").json(&body)).await
    };
    let first = ask(json!({"username": "ada"})).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (201, ""), "{}", first.text);
    let again = ask(json!({"username": "ada"})).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, "true"));
    assert_eq!(
        (&again.body["id"], again.header("location")),
        (&first.body["id"], first.header("location"))
    );
    let other = ask(json!({"username": "bob"})).await;
    assert_eq!((other.status, &other.body["code"]), (422, &json!("CLUSTERS-MGMT-422")));
    assert_eq!(scene.get(A).await.body["total"], 1);
}
