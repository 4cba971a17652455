//! Every role at every row, against the table of the contract written out once more.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use strum::VariantArray;

use super::fixtures::{call, edge, with_role};
use crate::http::ocm::{code_prefix, surface_of};
use crate::http::routes::{Access, Op, Permission};

/// Columns: adapter, operator, admin, viewer.
const PERMISSIONS: [(&str, &str, [bool; 4]); 23] = [
    ("pull-secrets", "create", [true, true, true, false]),
    ("pull-secrets", "get", [true, true, true, false]),
    ("pull-secrets", "delete", [true, true, true, false]),
    ("pull-secrets/metadata", "get", [true, true, true, true]),
    ("pull-secrets/metadata", "list", [true, true, true, true]),
    ("pull-secrets/rotations", "get", [true, true, true, true]),
    ("pull-secrets/rotations", "list", [true, true, true, true]),
    ("pull-secrets/rotations", "create", [true, true, true, false]),
    ("pull-secrets/rotations", "confirm", [true, true, true, false]),
    ("pull-secrets/rotations", "update", [false, true, true, false]),
    ("pull-secrets/rotations", "force", [false, false, true, false]),
    ("credentials-fleet", "get", [false, true, true, true]),
    ("credentials-fleet", "list", [false, true, true, true]),
    ("credentials-fleet", "create", [false, true, true, false]),
    ("credentials-fleet", "update", [false, true, true, false]),
    ("credentials-fleet/audit", "list", [false, true, true, false]),
    ("break-glass-credentials", "create", [false, true, true, false]),
    ("break-glass-credentials", "get", [false, true, true, false]),
    ("break-glass-credentials", "list", [false, true, true, true]),
    ("break-glass-credentials", "delete", [false, true, true, false]),
    ("break-glass-credentials", "approve", [false, true, true, false]),
    ("break-glass-credentials/trust-bundle", "get", [true, true, true, true]),
    ("break-glass-credentials/trust-bundle", "confirm", [true, true, true, false]),
];

const ROLES: [&str; 4] = ["adapter", "operator", "admin", "viewer"];

fn expected(permission: Permission) -> [bool; 4] {
    let found = PERMISSIONS
        .iter()
        .find(|(sub, verb, _)| (*sub, *verb) == (permission.subresource(), permission.verb()));
    found.unwrap_or_else(|| panic!("{permission:?} is not in the contract")).2
}

#[test]
fn the_table_is_the_contracts() {
    for permission in Permission::VARIANTS {
        let has = |role: &&str| permission.roles().contains(&role.parse().unwrap());
        let actual: Vec<bool> = ROLES.iter().map(has).collect();
        assert_eq!(actual, expected(*permission), "{permission:?}");
    }
}

#[actix_web::test]
async fn each_role_at_each_row() {
    let edge = edge();
    for op in Op::VARIANTS {
        let route = op.route();
        let Access::AnyOf(permissions) = route.access else { continue };
        for (i, role) in ROLES.iter().enumerate() {
            let allowed = permissions.iter().any(|permission| expected(*permission)[i]);
            let path = route
                .path
                .replace("{cluster_id}", "cls-1")
                .replace("{campaign_id}", "01930000-0000-7000-8000-0000000000ab")
                .replace("{credential_id}", "019300000000700080000000000000ab")
                .replace("{revocation_id}", "01930000-0000-7000-8000-0000000000ab")
                .replace("{registry_id}", "local")
                .replace("{rotation_id}", "rot-01930000-0000-7000-8000-0000000000ab");
            let name: &'static str = route.method.into();
            let method = Method::from_bytes(name.as_bytes()).unwrap();
            let body = if *op == Op::ConfirmGeneration { "{\"generation\": 1}" } else { "" };
            let request = TestRequest::with_uri(&path).method(method).set_payload(body);
            let seen = call(&edge, with_role(request, role)).await;
            let status = seen.status;
            // The one row without a handler is not found by whoever may use it.
            let fine = if *op == Op::ListAttention { status == 404 } else { status < 300 };
            assert_eq!(allowed, fine, "{op:?} {role}: {status} {}", seen.body);
            let code = match surface_of(&path) {
                None => "HYPERFLEET-AUZ-001".to_owned(),
                Some(surface) => format!("{}-403", code_prefix(surface)),
            };
            assert_eq!(!allowed, seen.code() == code, "{op:?} {role}");
        }
    }
}

#[actix_web::test]
async fn a_viewer_gets_the_resource_without_secrets() {
    for (role, secret) in [("viewer", false), ("adapter", true)] {
        let request = TestRequest::get().uri("/v1/clusters/cls-1/pull-secrets");
        let seen = call(&edge(), with_role(request, role)).await;
        assert_eq!((seen.status, &seen.json()["secret"]), (200, &secret.into()), "{role}");
    }
}

#[actix_web::test]
async fn some_rotations_need_more() {
    for (role, body, status) in [
        ("adapter", r#"{"reason": "manual"}"#, 201),
        ("adapter", r#"{"reason": "compromise"}"#, 403),
        ("operator", r#"{"reason": "compromise"}"#, 201),
        ("operator", r#"{"force_immediate": true}"#, 403),
        ("admin", r#"{"reason": "compromise", "force_immediate": true}"#, 201),
        ("viewer", "", 403),
    ] {
        let request = TestRequest::post().uri("/v1/clusters/cls-1/pull-secrets/rotations");
        let seen = call(&edge(), with_role(request.set_payload(body), role)).await;
        assert_eq!(seen.status, status, "{role} {body}: {}", seen.body);
    }
}
