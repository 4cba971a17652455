//! `PATCH .../schedule`: this cluster's own schedule.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde::{Deserialize, Deserializer};

use super::backend::{Backend, caller};
use crate::http::answer::{self, Answer};
use crate::http::auth::Caller;
use crate::http::context::RequestContext;
use crate::http::extract::{Body, Cluster, Reason};
use crate::http::problem::{ApiError, Constraint, FieldError};
use crate::http::resource::{self, Show};
use crate::state::pull_secret::{Change, Command, ScheduleChange};
use crate::time::Timestamp;
use crate::window::{Window, WindowError};

/// A time beyond it is a slip of the pen.
const LATEST: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// A member that is left out changes nothing; `null` goes back to what is configured.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleBody {
    #[serde(deserialize_with = "given")]
    enabled: Option<Option<bool>>,
    #[serde(deserialize_with = "given")]
    next_rotation_at: Option<Option<Timestamp>>,
    #[serde(deserialize_with = "given")]
    window: Option<Option<WindowBody>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowBody {
    cron: String,
    length: String,
}

/// Tells a `null` from a member that is not there.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// `PATCH .../schedule`.
pub async fn change(
    backend: Data<Backend>,
    who: Caller,
    context: RequestContext,
    cluster: Cluster,
    reason: Reason,
    body: Body<ScheduleBody>,
) -> Answer {
    let work = backend.get()?;
    let Cluster(cluster_id) = cluster;
    let change = checked(body.0, work.deps.clock.now())?;
    let command = Command::Reschedule(Box::new(change));
    let done = work.execute(&cluster_id, command, caller(&who, &context, reason)).await?;
    let snapshot = done.watch.borrow().clone();
    let Some(record) = &snapshot.0.record else {
        return Err(ApiError::no_pull_secret(cluster_id));
    };
    let show = Show { document: None, credentials: false, hosts: &work.hosts };
    answer::json(StatusCode::OK, &resource::pull_secret(record, show))
}

fn checked(body: ScheduleBody, now: Timestamp) -> Result<ScheduleChange, ApiError> {
    let window = match body.window {
        None => Change::Keep,
        Some(None) => Change::Clear,
        Some(Some(window)) => Change::To(parsed(&window)?),
    };
    let change = ScheduleChange {
        enabled: asked(body.enabled),
        next_at: asked(body.next_rotation_at),
        window,
    };
    let Change::To(at) = change.next_at else { return Ok(change) };
    let rule = || Constraint::Format { format: "date-time" };
    if change.enabled == Change::To(false) {
        let message = "must not be given while enabled is false";
        return Err(ApiError::field(FieldError::new("next_rotation_at", rule(), message)));
    }
    if at <= now || at > now.plus(LATEST) {
        let message = "must be in the future, within ten years";
        return Err(ApiError::field(FieldError::new("next_rotation_at", rule(), message)));
    }
    Ok(change)
}

fn asked<T>(given: Option<Option<T>>) -> Change<T> {
    match given {
        None => Change::Keep,
        Some(None) => Change::Clear,
        Some(Some(value)) => Change::To(value),
    }
}

fn parsed(body: &WindowBody) -> Result<Window, ApiError> {
    let fault = |error: WindowError| {
        let (field, format) = match error {
            WindowError::Cron | WindowError::Never => ("window.cron", "cron"),
            WindowError::Length => ("window.length", "duration"),
        };
        ApiError::field(FieldError::new(field, Constraint::Format { format }, error.to_string()))
    };
    let length = humantime::parse_duration(&body.length).map_err(|_| fault(WindowError::Length))?;
    Window::parse(&body.cron, length).map_err(fault)
}
