//! `/v2`: logins, pulls with the tokens they give, as measured.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::answers::{registry_error, robot_missing};
use super::truth::What;
use super::wire::{HttpRequest, Reply};
use super::world::World;

/// The life of a token, in seconds.
const LIFE: i64 = 3600;

pub fn answer(world: &mut World, number: u64, request: &HttpRequest) -> Reply {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    match (request.method.as_str(), &segments[1..]) {
        ("GET", ["auth"]) => auth(world, number, request),
        // Basic is ignored here and touches nothing.
        ("GET", [] | [""]) => challenge(world, "true"),
        ("GET", [organization, repository @ .., "manifests" | "blobs", reference]) => {
            pull(world, number, request, organization, &repository.join("/"), reference)
        }
        ("GET", [organization, repository @ .., "tags", "list"]) => {
            let name = format!("{organization}/{}", repository.join("/"));
            // Nobody asks here whether the robot is still there.
            match claims_for(world, request, &name) {
                Some(_) => Reply::json(200, &json!({ "name": name, "tags": ["latest"] })),
                None => challenge(world, "access to the requested resource is not authorized"),
            }
        }
        _ => registry_error(404, "NAME_UNKNOWN", "repository name not known to registry"),
    }
}

fn challenge(world: &World, body: &str) -> Reply {
    let host = &world.host;
    let challenge = format!("Bearer realm=\"http://{host}/v2/auth\",service=\"{host}\"");
    Reply::text(401, "application/json", body).with("WWW-Authenticate", challenge)
}

fn basic(request: &HttpRequest) -> Option<(String, String)> {
    let pair = STANDARD.decode(request.authorization("Basic")?).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    let (username, secret) = pair.split_once(':')?;
    Some((username.to_owned(), secret.to_owned()))
}

fn auth(world: &mut World, number: u64, request: &HttpRequest) -> Reply {
    let credential = basic(request);
    let scope = request.query("scope");
    if let Some((username, secret)) = &credential {
        if !world.robots.contains_key(username) {
            let message = "Could not find robot with specified username";
            return registry_error(401, "UNAUTHORIZED", message);
        }
        if !world.login(Some(number), username, secret) {
            let message =
                format!("Could not find robot with username: {username} and supplied password.");
            return registry_error(401, "UNAUTHORIZED", &message);
        }
    } else if scope.is_none() {
        return registry_error(401, "UNAUTHORIZED", "Requires authentication");
    }
    let username = credential.map(|(username, _)| username).unwrap_or_default();
    let mut access = Vec::new();
    if let Some(scope) = scope {
        let parts: Vec<&str> = scope.splitn(3, ':').collect();
        let ["repository", name, actions] = parts.as_slice() else {
            return registry_error(
                400,
                "INVALID_REQUEST",
                "Unable to decode repository and actions",
            );
        };
        let Some((organization, repository)) = name.split_once('/') else {
            return registry_error(
                400,
                "INVALID_REQUEST",
                "Unable to decode repository and actions",
            );
        };
        let pulls = actions.split(',').any(|action| action == "pull");
        // Without permission it is still a success, with nothing in it.
        let granted = pulls && world.may_read(&username, organization, repository);
        let actions = if granted { vec!["pull"] } else { Vec::new() };
        access.push(json!({ "type": "repository", "name": name, "actions": actions }));
    }
    let now = world.now().as_micros() / 1_000_000;
    let kind = if username.is_empty() { "anonymous" } else { "robot" };
    let claims = json!({
        "iss": "quay", "aud": request.query("service"), "sub": username,
        "iat": now, "nbf": now, "exp": now + LIFE, "access": access,
        "context": { "entity_kind": kind, "entity_reference": username },
    });
    Reply::json(200, &json!({ "token": world.sign(&claims) }))
}

/// The claims of a token that may pull this repository. Nobody looks at the permissions of now.
fn claims_for(world: &World, request: &HttpRequest, name: &str) -> Option<Value> {
    let claims = world.claims(request.authorization("Bearer")?)?;
    let pulls = claims["access"].as_array()?.iter().any(|access| {
        let actions = access["actions"].as_array();
        access["name"] == name
            && actions.is_some_and(|actions| actions.iter().any(|action| action == "pull"))
    });
    pulls.then_some(claims)
}

fn pull(
    world: &mut World,
    number: u64,
    request: &HttpRequest,
    organization: &str,
    repository: &str,
    reference: &str,
) -> Reply {
    let name = format!("{organization}/{repository}");
    let Some(claims) = claims_for(world, request, &name) else {
        return challenge(world, "access to the requested resource is not authorized");
    };
    let robot = claims["sub"].as_str().unwrap_or_default().to_owned();
    // By name only: a robot that was made anew under the name revives the token.
    if !world.robots.contains_key(&robot) {
        return robot_missing();
    }
    if request.segments.iter().any(|segment| segment == "manifests") {
        let agent = request.header("user-agent").unwrap_or_default();
        let about = json!({
            "repo": repository, "namespace": organization, "tag": reference, "user-agent": agent,
        });
        world.row("pull_repo", &robot, about);
        world.note(Some(number), What::Pulled { robot, repository: name });
    }
    Reply::json(200, &json!({ "schemaVersion": 2 }))
}

/// The login name of a request, whether or not it is let in.
pub fn user(request: &HttpRequest) -> String {
    basic(request).map(|(username, _)| username).unwrap_or_default()
}
