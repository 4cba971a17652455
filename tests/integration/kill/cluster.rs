//! One cluster: asks for a pull secret, uses it, rotates it, gives it back, and begins anew. It survives the
//! service's absence, and says at once when what it was handed out does not work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::truth::Registry;
use crate::support::service::Answer;

/// This one does not say what it holds while it rests, so it may rest in a dual-credential period.
pub const SILENT: &str = "cls-6";

/// Where the service is at the moment.
#[derive(Debug, Clone)]
pub struct Front {
    pub api: String,
    pub token: String,
}

/// What the whole run tells its clusters.
#[derive(Clone)]
pub struct Orders {
    /// Between two of a cluster's requests.
    pub pace: Duration,
    /// Every process that serves; a request goes to any of them.
    pub fronts: watch::Receiver<Vec<Front>>,
    /// Change nothing any more, only fetch and say what is held.
    pub rest: Arc<AtomicBool>,
    pub over: Arc<AtomicBool>,
    /// Whoever is in a rotation next gives its pull secret back, and takes this down.
    pub delete_in_rotation: Arc<AtomicBool>,
    /// The wall clock has jumped: deadlines that revoke may have passed, so what is held may end.
    pub jumped: Arc<AtomicBool>,
    pub registries: Vec<Arc<Registry>>,
}

pub struct Cluster {
    pub name: String,
    pub orders: Orders,
    pub random: StdRng,
    pub client: Client,
    /// What it uses, and has said so: its entry for one of the registries.
    pub held: Option<String>,
    /// The newest generation that was handed out to it.
    pub newest: u64,
    /// It asked for an older one.
    pub rolled_back: bool,
}

/// The service did not answer; it may have been killed.
struct NoAnswer;

impl Cluster {
    pub async fn live(mut self) {
        while !self.orders.over.load(Ordering::SeqCst) {
            if let Err(NoAnswer) = self.turn().await {
                // Usually it is being restarted.
                let _ =
                    tokio::time::timeout(self.orders.pace * 10, self.orders.fronts.changed()).await;
            }
            tokio::time::sleep(self.orders.pace).await;
        }
    }

    async fn turn(&mut self) -> Result<(), NoAnswer> {
        let resting = self.orders.rest.load(Ordering::SeqCst);
        let seen = self.send(Method::GET, "", None).await?;
        if seen.status == 404 {
            return if resting { Ok(()) } else { self.change(Method::POST, "", json!({})).await };
        }
        if seen.status != 200 {
            return Ok(());
        }
        let served = matches!(seen.body["state"].as_str(), Some("active" | "rotating"));
        if served {
            self.assert_in_order(&seen);
            self.assert_works(&seen).await?;
            let any = self.random.random_range(0..self.orders.registries.len());
            let auth = seen.auth(self.orders.registries[any].host);
            let silent = resting && self.name == SILENT;
            let fetches = resting || self.random.random_ratio(1, 2);
            match self.held.clone() {
                _ if silent => {}
                Some(held) if !fetches => {
                    self.present(&held).await?;
                }
                _ => {
                    // Should the answer be lost, it is not known which of the two counts.
                    self.held = None;
                    self.held = self.present(&auth).await?.then_some(auth);
                }
            }
        }
        if resting { Ok(()) } else { self.act(&seen.body).await }
    }

    /// Never an older generation after a newer one, but by a rollback.
    fn assert_in_order(&mut self, seen: &Answer) {
        let generation = seen.body["generation"].as_u64().unwrap();
        let older = generation < self.newest;
        assert!(!older || self.rolled_back, "{}: {generation} after {}", self.name, self.newest);
        self.newest = generation;
        self.rolled_back &= !older;
    }

    /// What was handed out opens every registry, unless something newer is handed out by now.
    async fn assert_works(&mut self, seen: &Answer) -> Result<(), NoAnswer> {
        for registry in self.orders.registries.clone() {
            let auth = seen.auth(registry.host);
            if registry.works(&auth).await {
                continue;
            }
            let now = self.send(Method::GET, "", None).await?;
            let same = now.status == 200 && now.auth(registry.host) == auth;
            assert!(!same, "{}: handed out, but {} refuses it", self.name, registry.id);
        }
        Ok(())
    }

    /// What is handed out is accepted until the cluster itself gives it up, or says that it holds another.
    async fn present(&mut self, auth: &str) -> Result<bool, NoAnswer> {
        let request = self.request(Method::POST, "/heartbeats");
        let request = request.header("Authorization", format!("Basic {auth}")).json(&json!({}));
        let answer = answer(request).await?;
        let ended = answer.status == 401 && self.orders.jumped.load(Ordering::SeqCst);
        let accepted = answer.status == 200 || answer.status >= 500 || ended;
        assert!(accepted, "{}: {} {}", self.name, answer.status, answer.body);
        Ok(answer.status == 200)
    }

    async fn act(&mut self, body: &Value) -> Result<(), NoAnswer> {
        let phase = body["rotation"]["phase"].as_str();
        let rotation = body["rotation"]["rotation_id"].as_str().unwrap_or_default();
        if !rotation.is_empty() && self.orders.delete_in_rotation.swap(false, Ordering::SeqCst) {
            return self.change(Method::DELETE, "", Value::Null).await;
        }
        match self.random.random_range(0..100) {
            0..4 => self.change(Method::DELETE, "", Value::Null).await,
            4..60 if body["rotation"].is_null() && body["state"] == "active" => {
                self.change(Method::POST, "/rotations", json!({"reason": "manual"})).await
            }
            60..70 if phase == Some("dual_credential_period") => {
                let path = format!("/rotations/{rotation}/complete");
                self.change(Method::POST, &path, json!({})).await
            }
            70..80 if phase == Some("dual_credential_period") => {
                let path = format!("/rotations/{rotation}/rollback");
                self.rolled_back = true;
                self.change(Method::POST, &path, json!({})).await
            }
            80..83 if rotation.is_empty() => {
                self.change(Method::POST, "/rotations", json!({"reason": "compromise"})).await
            }
            83..88 if phase == Some("creating_credentials") => {
                let path = format!("/rotations/{rotation}/cancel");
                self.change(Method::POST, &path, json!({})).await
            }
            _ => Ok(()),
        }
    }

    async fn change(&mut self, method: Method, path: &str, body: Value) -> Result<(), NoAnswer> {
        if body["reason"] != "manual" {
            // It may end what is held.
            self.held = None;
        }
        let answer = self.send(method, path, Some(body)).await?;
        let expected =
            matches!(answer.status, 200 | 201 | 202 | 204 | 404 | 409) || answer.status >= 500;
        assert!(expected, "{}{path}: {} {}", self.name, answer.status, answer.body);
        Ok(())
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, NoAnswer> {
        let mut request = self.request(method, path);
        request = request.header("Prefer", format!("wait={}", self.random.random_range(0..2)));
        if let Some(body) = body.filter(|body| !body.is_null()) {
            request = request.json(&body);
        }
        answer(request.bearer_auth(self.front().token)).await
    }

    /// The token is the same everywhere.
    fn front(&mut self) -> Front {
        let fronts = self.orders.fronts.borrow_and_update();
        let any = self.random.random_range(0..fronts.len());
        fronts[any].clone()
    }

    fn request(&mut self, method: Method, path: &str) -> RequestBuilder {
        let api = self.front().api;
        self.client.request(method, format!("{api}/v1/clusters/{}/pull-secrets{path}", self.name))
    }
}

async fn answer(request: RequestBuilder) -> Result<Answer, NoAnswer> {
    let response = request.send().await.map_err(|_| NoAnswer)?;
    let status = response.status().as_u16();
    if status == 408 {
        // Whoever was stopped while a request came in finds on waking that it took too long, and never reads it.
        return Err(NoAnswer);
    }
    let headers = response.headers().clone();
    // It may be killed between the head and the body.
    let text = response.text().await.map_err(|_| NoAnswer)?;
    let body = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
    Ok(Answer { status, headers, text, body })
}
