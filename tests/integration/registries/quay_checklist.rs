//! The fake against what was measured on a running Quay: a test per line of the list.
//!
//! Asked with a plain HTTP client, so that nothing of the code under test has a say in it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::Value;

use super::fixtures::client;
use crate::support::fake_quay::{self, FakeQuay, Fault, Op, Reply, What, duplicate_key};

/// Each line of the list and the test that holds the fake to it.
macro_rules! checklist {
    ($($line:literal => $test:ident;)+) => {$(
        #[doc = $line]
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            tests::$test(Raw::new()).await;
        }
    )+};
}

checklist! {
    "PUT: 201" => put_is_201;
    "PUT again: 400 in shape A" => put_again_is_400_in_shape_a;
    "GET: the token that the create told" => get_tells_the_same_token;
    "GET of a missing one: 400 in shape B" => get_of_a_missing_one_is_400_in_shape_b;
    "DELETE: 204, then 400 in shape B" => delete_is_204_and_then_400;
    "regenerate: old 401, new 200, created and last_accessed unchanged" => regenerate_changes_the_secret_only;
    "an invalid bearer: 401 in shape A to a GET, 403 called HTML to a change" => an_invalid_bearer_has_two_answers;
    "an unknown organisation: 403 in shape A" => an_unknown_organisation_is_403;
    "the rule of names" => names_have_a_rule;
    "255 and 256 characters" => the_full_name_has_255_characters;
    "a description of 255 and of 256 characters" => descriptions_have_255_characters;
    "bad JSON: 201" => bad_json_makes_a_robot;
    "a team: 200, again 400 in shape B" => joining_twice_is_400_in_shape_b;
    "an unknown team: 404 in shape A; an unknown robot: 400 in shape A" => unknown_teams_and_robots;
    "the listing tells tokens unless told not to" => the_listing_tells_tokens;
    "the listing leaks other organisations' robots" => the_listing_leaks;
    "v2/auth: 200, and two texts of 401" => logins_have_two_texts;
    "v2/auth without permission: 200 with no actions" => no_permission_is_no_action;
    "last_accessed is written once in 60 s" => last_accessed_is_throttled;
    "a registry token survives regenerate" => a_registry_token_survives_regenerate;
    "a registry token is revived by a robot of the same name" => a_registry_token_is_revived;
    "the log tells pulls apart from logins" => the_log_tells_pulls_from_logins;
    "robots disallowed, read-only, used by a mirror" => switches_of_the_registry;
    "wrong methods, trailing slashes, what needs more scope" => odds_and_ends;
    "a lost race: 400 in shape B" => a_lost_race;
    "an answer that drips comes whole" => dripping;
}

struct Raw {
    fake: FakeQuay,
    http: reqwest::Client,
}

struct Got {
    status: u16,
    html: bool,
    text: String,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    fn is_a(&self, status: u16, error_type: &str, text: &str) {
        let json = self.json();
        assert_eq!((self.status, self.html), (status, false), "{json}");
        assert_eq!(json["error_type"], error_type);
        assert_eq!((&json["title"], &json["status"]), (&error_type.into(), &status.into()));
        assert_eq!(json["detail"], json["error_message"]);
        let found = json["detail"].as_str().unwrap();
        assert!(found.starts_with(text), "{found}");
    }

    fn is_b(&self, text: &str) {
        assert_eq!((self.status, self.html), (400, false), "{}", self.text);
        assert_eq!(self.json(), serde_json::json!({ "message": text }));
    }
}

const MISSING: &str = "Could not find robot with specified username";

impl Raw {
    fn new() -> Self {
        Self { fake: fake_quay::start(), http: client() }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Got {
        let answer = request.send().await.unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        let status = answer.status().as_u16();
        Got { status, html: kind.starts_with("text/html"), text: answer.text().await.unwrap() }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.fake.url))
    }

    async fn api(&self, method: Method, path: &str) -> Got {
        let path = format!("/api/v1/organization/acme/{path}");
        self.send(self.request(method, &path).bearer_auth(&self.fake.token)).await
    }

    async fn put(&self, short: &str, body: &str) -> Got {
        let path = format!("/api/v1/organization/acme/robots/{short}");
        let request = self.request(Method::PUT, &path).bearer_auth(&self.fake.token);
        self.send(request.body(body.to_owned())).await
    }

    /// Makes a robot; its secret.
    async fn made(&self, short: &str) -> String {
        let got = self.put(short, "").await;
        assert_eq!(got.status, 201, "{}", got.text);
        got.json()["token"].as_str().unwrap().to_owned()
    }

    async fn login(&self, user: &str, secret: &str, scope: Option<&str>) -> Got {
        let scope = scope.map(|scope| format!("&scope={scope}")).unwrap_or_default();
        let path = format!("/v2/auth?service=whatever{scope}");
        self.send(self.request(Method::GET, &path).basic_auth(user, Some(secret))).await
    }

    /// A registry token for `app`.
    async fn registry_token(&self, user: &str, secret: &str) -> String {
        let got = self.login(user, secret, Some("repository:acme/app:pull")).await;
        got.json()["token"].as_str().unwrap().to_owned()
    }

    async fn pull(&self, what: &str, token: &str) -> Got {
        self.send(self.request(Method::GET, &format!("/v2/acme/app/{what}")).bearer_auth(token))
            .await
    }

    async fn grant(&self, full: &str) {
        self.fake.add_repository("app", &[]);
        let path = format!("/api/v1/repository/acme/app/permissions/user/{full}");
        let request = self.request(Method::PUT, &path).bearer_auth(&self.fake.token);
        let got = self.send(request.body(r#"{"role":"read"}"#)).await;
        assert_eq!(got.status, 200, "{}", got.text);
    }

    async fn last_accessed(&self, short: &str) -> Value {
        self.api(Method::GET, &format!("robots/{short}")).await.json()["last_accessed"].clone()
    }
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

mod tests {
    use super::*;

    pub async fn put_is_201(raw: Raw) {
        let got = raw.put("ab", r#"{"description":"d","token":"CHOSEN"}"#).await;
        assert_eq!(got.status, 201);
        let robot = got.json();
        assert_eq!((&robot["name"], &robot["description"]), (&"acme+ab".into(), &"d".into()));
        let token = robot["token"].as_str().unwrap();
        assert_eq!(token.len(), 64);
        assert!(token.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()));
        assert!(robot["created"].as_str().unwrap().ends_with(" -0000"));
        assert_eq!(
            (&robot["last_accessed"], &robot["unstructured_metadata"]),
            (&Value::Null, &Value::Null)
        );
    }

    pub async fn put_again_is_400_in_shape_a(raw: Raw) {
        raw.made("ab").await;
        let again = raw.put("ab", "").await;
        again.is_a(400, "invalid_request", "Existing robot with name: acme+ab");
    }

    pub async fn get_tells_the_same_token(raw: Raw) {
        let secret = raw.made("ab").await;
        let got = raw.api(Method::GET, "robots/ab").await;
        assert_eq!(got.status, 200);
        assert_eq!(got.json()["token"], secret.as_str());
        assert_eq!(got.json()["unstructured_metadata"], serde_json::json!({}));
    }

    pub async fn get_of_a_missing_one_is_400_in_shape_b(raw: Raw) {
        raw.api(Method::GET, "robots/ab").await.is_b(MISSING);
        raw.api(Method::POST, "robots/ab/regenerate").await.is_b(MISSING);
    }

    pub async fn delete_is_204_and_then_400(raw: Raw) {
        raw.made("ab").await;
        let got = raw.api(Method::DELETE, "robots/ab").await;
        assert_eq!((got.status, got.text.as_str()), (204, ""));
        raw.api(Method::DELETE, "robots/ab").await.is_b(MISSING);
        assert!(!raw.fake.delete_behind_the_back("acme+ab"));
    }

    pub async fn regenerate_changes_the_secret_only(raw: Raw) {
        let old = raw.made("ab").await;
        raw.login("acme+ab", &old, None).await;
        let before = raw.api(Method::GET, "robots/ab").await.json();
        let after = raw.api(Method::POST, "robots/ab/regenerate").await;
        assert_eq!(after.status, 200);
        let after = after.json();
        assert!(after.get("unstructured_metadata").is_none());
        for unchanged in ["name", "created", "last_accessed"] {
            assert_eq!(before[unchanged], after[unchanged], "{unchanged}");
        }
        assert_eq!(raw.login("acme+ab", &old, None).await.status, 401);
        let new = after["token"].as_str().unwrap();
        assert_eq!(raw.login("acme+ab", new, None).await.status, 200);
    }

    pub async fn an_invalid_bearer_has_two_answers(raw: Raw) {
        let path = "/api/v1/organization/acme/robots/ab";
        for token in [None, Some("wrong")] {
            let ask = |method| {
                let request = raw.request(method, path);
                match token {
                    Some(token) => request.bearer_auth(token),
                    None => request,
                }
            };
            let got = raw.send(ask(Method::GET)).await;
            got.is_a(401, "invalid_token", "Requires authentication");
            for method in [Method::PUT, Method::POST, Method::DELETE] {
                let got = raw.send(ask(method)).await;
                assert_eq!((got.status, got.html), (403, true));
                assert_eq!(got.text, r#"{"error": "CSRF token was invalid or missing."}"#);
            }
        }
        assert_eq!(raw.fake.live(""), Vec::<String>::new());
    }

    pub async fn an_unknown_organisation_is_403(raw: Raw) {
        raw.fake.add_organization("others", false);
        for organization in ["nobody", "others"] {
            for method in [Method::GET, Method::PUT] {
                let path = format!("/api/v1/organization/{organization}/robots/ab");
                let request = raw.request(method, &path).bearer_auth(&raw.fake.token);
                raw.send(request).await.is_a(403, "insufficient_scope", "Unauthorized");
            }
        }
    }

    pub async fn names_have_a_rule(raw: Raw) {
        for good in ["ab", "a.b_c-d", "00"] {
            raw.made(good).await;
        }
        for bad in ["a__b", "a._b", "a..b", "-ab", "ab_", "aB", "%C3%A4b"] {
            let got = raw.put(bad, "").await;
            got.is_a(400, "invalid_request", "The name for the robot '");
            assert!(got.text.contains("is invalid: Namespace must match expression"), "{bad}");
        }
        let short = raw.put("a", "").await;
        assert!(short.text.contains("between 2 and 255 characters in length"));
        // A line break at the end is let through, which is why we check names ourselves.
        raw.made("cd%0A").await;
        assert!(raw.fake.live("").contains(&"acme+cd\n".to_owned()));
    }

    pub async fn the_full_name_has_255_characters(raw: Raw) {
        raw.made(&"a".repeat(250)).await;
        let got = raw.put(&"a".repeat(251), "").await;
        got.is_b("value too long for type character varying(255)\n");
    }

    pub async fn descriptions_have_255_characters(raw: Raw) {
        let body = |length| serde_json::json!({ "description": "d".repeat(length) }).to_string();
        assert_eq!(raw.put("ab", &body(255)).await.status, 201);
        raw.put("cd", &body(256)).await.is_a(400, "invalid_request", "");
        let got = raw.put("cd", r#"{"unstructured_metadata":"no object"}"#).await;
        got.is_a(400, "invalid_request", "");
    }

    pub async fn bad_json_makes_a_robot(raw: Raw) {
        let got = raw.put("ab", "{no json").await;
        assert_eq!((got.status, &got.json()["description"]), (201, &"".into()));
        assert_eq!(raw.put("cd", r#"{"unknown":1}"#).await.status, 201);
    }

    pub async fn joining_twice_is_400_in_shape_b(raw: Raw) {
        raw.fake.add_team("pullers");
        raw.made("ab").await;
        let path = "team/pullers/members/acme%2Bab";
        let got = raw.api(Method::PUT, path).await;
        assert_eq!(got.status, 200);
        assert_eq!(
            (&got.json()["name"], &got.json()["is_robot"]),
            (&"acme+ab".into(), &true.into())
        );
        let again = raw.api(Method::PUT, "team/pullers/members/acme+ab").await;
        again.is_b("User acme+ab is already a member of team pullers");
        let members = raw.api(Method::GET, "team/pullers/members").await.json();
        assert_eq!(members["members"][0]["name"], "acme+ab");
        assert_eq!(raw.api(Method::DELETE, path).await.status, 204);
        assert!(!raw.fake.is_member("acme+ab", "pullers"));
        // Deleting the robot ends its membership.
        raw.api(Method::PUT, path).await;
        raw.api(Method::DELETE, "robots/ab").await;
        assert!(!raw.fake.is_member("acme+ab", "pullers"));
    }

    pub async fn unknown_teams_and_robots(raw: Raw) {
        let got = raw.api(Method::PUT, "team/pullers/members/acme+ab").await;
        got.is_a(404, "not_found", "");
        raw.fake.add_team("pullers");
        let got = raw.api(Method::PUT, "team/pullers/members/acme+ab").await;
        got.is_a(400, "invalid_request", "Unknown user");
    }

    pub async fn the_listing_tells_tokens(raw: Raw) {
        let secret = raw.made("ab").await;
        raw.made("cd").await;
        let rows = raw.api(Method::GET, "robots").await.json();
        assert_eq!(rows["robots"][0]["token"], secret.as_str());
        let rows = raw.api(Method::GET, "robots?token=false&permissions=true&limit=1").await.json();
        assert_eq!(rows["robots"].as_array().unwrap().len(), 1);
        let row = rows["robots"][0].as_object().unwrap();
        assert!(!row.contains_key("token") && !row.contains_key("unstructured_metadata"));
        assert!(row.contains_key("teams") && row.contains_key("repositories"));
    }

    pub async fn the_listing_leaks(raw: Raw) {
        raw.fake.add_organization("a_b", true);
        raw.fake.add_organization("axb", false);
        for name in ["a_b+one", "axb+two", "AxB+three", "abc+four"] {
            raw.fake.add_robot(name, "secret", "");
        }
        let path = "/api/v1/organization/a_b/robots";
        let request = raw.request(Method::GET, path).bearer_auth(&raw.fake.token);
        let rows = raw.send(request).await.json();
        let names =
            rows["robots"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["AxB+three", "a_b+one", "axb+two"]);
    }

    pub async fn logins_have_two_texts(raw: Raw) {
        let secret = raw.made("ab").await;
        let good = raw.login("acme+ab", &secret, None).await;
        assert_eq!((good.status, good.json().as_object().unwrap().len()), (200, 1));
        let claims = claims(good.json()["token"].as_str().unwrap());
        assert_eq!((&claims["sub"], &claims["aud"]), (&"acme+ab".into(), &"whatever".into()));
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
        for (user, secret, message) in [
            (
                "acme+ab",
                "wrong",
                "Could not find robot with username: acme+ab and supplied password.",
            ),
            ("acme+cd", secret.as_str(), MISSING),
        ] {
            let got = raw.login(user, secret, None).await;
            let error =
                serde_json::json!({"code": "UNAUTHORIZED", "detail": {}, "message": message});
            assert_eq!((got.status, got.json()), (401, serde_json::json!({ "errors": [error] })));
        }
        let bad = raw.login("acme+ab", &secret, Some("nonsense")).await;
        assert_eq!(
            (bad.status, &bad.json()["errors"][0]["code"]),
            (400, &"INVALID_REQUEST".into())
        );
        let version = raw.request(Method::GET, "/v2/").basic_auth("acme+cd", Some(&secret));
        let version = raw.send(version).await;
        assert_eq!((version.status, version.text.as_str()), (401, "true"));
        let anonymous = "/v2/auth?service=x&scope=repository:acme/app:pull";
        assert_eq!(raw.send(raw.request(Method::GET, anonymous)).await.status, 200);
    }

    pub async fn no_permission_is_no_action(raw: Raw) {
        let secret = raw.made("ab").await;
        let actions = |token: &str| claims(token)["access"][0]["actions"].clone();
        let token = raw.registry_token("acme+ab", &secret).await;
        assert_eq!(actions(&token), serde_json::json!([]));
        assert_eq!(raw.pull("manifests/latest", &token).await.status, 401);
        raw.grant("acme+ab").await;
        let token = raw.registry_token("acme+ab", &secret).await;
        assert_eq!(actions(&token), serde_json::json!(["pull"]));
        assert_eq!(raw.pull("manifests/latest", &token).await.status, 200);
    }

    pub async fn last_accessed_is_throttled(raw: Raw) {
        let secret = raw.made("ab").await;
        raw.login("acme+ab", "wrong", None).await;
        assert_eq!(raw.last_accessed("ab").await, Value::Null);
        raw.login("acme+ab", &secret, None).await;
        let first = raw.last_accessed("ab").await;
        assert!(first.is_string());
        raw.fake.advance(Duration::from_secs(50));
        raw.login("acme+ab", &secret, None).await;
        assert_eq!(raw.last_accessed("ab").await, first);
        raw.fake.advance(Duration::from_secs(11));
        raw.login("acme+ab", &secret, None).await;
        assert_ne!(raw.last_accessed("ab").await, first);
    }

    pub async fn a_registry_token_survives_regenerate(raw: Raw) {
        let secret = raw.made("ab").await;
        raw.grant("acme+ab").await;
        let token = raw.registry_token("acme+ab", &secret).await;
        raw.api(Method::POST, "robots/ab/regenerate").await;
        assert_eq!(raw.pull("manifests/latest", &token).await.status, 200);
        assert_eq!(raw.pull("blobs/sha256:0", &token).await.status, 200);
        raw.fake.advance(Duration::from_secs(3601));
        assert_eq!(raw.pull("manifests/latest", &token).await.status, 401);
    }

    pub async fn a_registry_token_is_revived(raw: Raw) {
        let secret = raw.made("ab").await;
        raw.grant("acme+ab").await;
        let token = raw.registry_token("acme+ab", &secret).await;
        raw.api(Method::DELETE, "robots/ab").await;
        raw.pull("manifests/latest", &token).await.is_b(MISSING);
        assert_eq!(raw.pull("tags/list", &token).await.status, 200);
        raw.made("ab").await;
        assert_eq!(raw.pull("manifests/latest", &token).await.status, 200);
        assert_eq!(raw.fake.reused_names(), ["acme+ab"]);
        assert_eq!(raw.fake.most_live_at_once("acme+"), 1);
    }

    pub async fn the_log_tells_pulls_from_logins(raw: Raw) {
        let secret = raw.made("ab").await;
        raw.grant("acme+ab").await;
        let token = raw.registry_token("acme+ab", &secret).await;
        for _ in 0..25 {
            raw.pull("manifests/latest", &token).await;
        }
        let pages = "logs?starttime=01/01/2020&endtime=12/31/2099";
        let first = raw.api(Method::GET, pages).await.json();
        let entries = first["logs"].as_array().unwrap();
        assert_eq!(entries.len(), 20);
        assert_eq!(entries[0]["kind"], "pull_repo");
        assert_eq!(entries[0]["performer"]["name"], "acme+ab");
        assert!(entries[0]["datetime"].as_str().unwrap().ends_with(" -0000"));
        let next = first["next_page"].as_str().unwrap();
        let second = raw.api(Method::GET, &format!("{pages}&next_page={next}")).await.json();
        assert!(second["next_page"].is_null());
        let kinds = second["logs"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str());
        let kinds: Vec<&str> = kinds.flatten().collect();
        assert_eq!(kinds[5..], ["login_success", "create_robot"]);
        let past =
            raw.api(Method::GET, "logs?starttime=01/01/2020&endtime=01/02/2020").await.json();
        assert_eq!(past["logs"], serde_json::json!([]));
    }

    pub async fn switches_of_the_registry(raw: Raw) {
        let secret = raw.made("ab").await;
        raw.fake.let_mirror("acme+ab", true);
        let got = raw.api(Method::DELETE, "robots/ab").await;
        got.is_a(400, "invalid_request", "Robot is being used by a mirror");
        raw.fake.disallow_robots(true);
        let got = raw.put("cd", "").await;
        got.is_a(400, "invalid_request", "Robot accounts have been disabled. ");
        raw.fake.disallow_robots(false);
        raw.fake.set_read_only(true);
        let got = raw.put("cd", "").await;
        assert_eq!((got.status, &got.json()["is_readonly"]), (503, &true.into()));
        assert_eq!(raw.login("acme+ab", &secret, None).await.status, 200);
        assert_eq!(raw.last_accessed("ab").await, Value::Null);
    }

    pub async fn odds_and_ends(raw: Raw) {
        raw.made("ab").await;
        let got = raw.api(Method::PATCH, "robots/ab").await;
        assert_eq!((got.status, got.html), (405, false));
        assert!(got.json()["message"].is_string());
        let got = raw.api(Method::GET, "robots/").await;
        assert_eq!((got.status, got.html), (405, true));
        let got = raw.api(Method::GET, "robots/ab/permissions").await;
        got.is_a(403, "insufficient_scope", "Unauthorized");
        assert_eq!(raw.send(raw.request(Method::GET, "/elsewhere")).await.status, 404);
    }

    pub async fn a_lost_race(raw: Raw) {
        raw.made("ab").await;
        raw.fake.next(Op::CreateRobot, Fault::Instead(duplicate_key("acme+ab")));
        let got = raw.put("ab", "").await;
        got.is_b(
            "duplicate key value violates unique constraint \"user_username\"\nDETAIL:  Key \
             (username)=(acme+ab) already exists.\n",
        );
        // Of many at once exactly one makes it, whatever the others hear.
        let puts = (0..24).map(|_| raw.put("cd", ""));
        let got = futures_util::future::join_all(puts).await;
        assert_eq!(got.iter().filter(|got| got.status == 201).count(), 1);
        assert_eq!(got.iter().filter(|got| got.status == 400).count(), 23);
    }

    pub async fn dripping(raw: Raw) {
        raw.fake.next_well(Op::Version);
        raw.fake.next(Op::Version, Fault::Drip(Duration::from_micros(10)));
        let version = || raw.send(raw.request(Method::GET, "/v2/"));
        assert_eq!(version().await.text, version().await.text);
        raw.fake.next(Op::Version, Fault::Instead(Reply::locked_out(7)));
        assert_eq!(version().await.status, 429);
        let answered = |status| {
            let log = raw.fake.log();
            log.into_iter().filter(|entry| entry.what == What::Answered { status }).count()
        };
        assert_eq!((answered(401), answered(429)), (2, 1));
    }
}
