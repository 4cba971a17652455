//! The three shapes of Quay's refusals, word for word as they were measured.

use serde_json::json;

use super::wire::Reply;

/// Shape A: JSON with an error type and its text twice.
pub fn shape_a(host: &str, status: u16, error_type: &str, text: &str) -> Reply {
    Reply::json(
        status,
        &json!({
            "detail": text,
            "error_message": text,
            "error_type": error_type,
            "title": error_type,
            "type": format!("http://{host}/api/v1/error/{error_type}"),
            "status": status,
        }),
    )
}

/// Shape B: JSON with a message and nothing else.
pub fn shape_b(status: u16, message: &str) -> Reply {
    Reply::json(status, &json!({ "message": message }))
}

/// Shape C: JSON that is called HTML, to a refused token when something would change.
pub fn shape_c() -> Reply {
    Reply::html(403, r#"{"error": "CSRF token was invalid or missing."}"#)
}

pub fn robot_missing() -> Reply {
    shape_b(400, "Could not find robot with specified username")
}

pub fn duplicate_key(full: &str) -> Reply {
    let text = format!(
        "duplicate key value violates unique constraint \"user_username\"\nDETAIL:  Key \
         (username)=({full}) already exists.\n"
    );
    shape_b(400, &text)
}

pub fn read_only() -> Reply {
    let message = "System is currently read-only. Pulls will succeed but all write operations are \
                   currently suspended.";
    Reply::json(503, &json!({ "message": message, "is_readonly": true }))
}

pub fn robots_disabled(host: &str) -> Reply {
    let text = "Robot accounts have been disabled. Please contact your administrator.";
    shape_a(host, 400, "invalid_request", text)
}

/// The registry's own form.
pub fn registry_error(status: u16, code: &str, message: &str) -> Reply {
    let error = json!({ "code": code, "detail": {}, "message": message });
    Reply::json(status, &json!({ "errors": [error] }))
}
