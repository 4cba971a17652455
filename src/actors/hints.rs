//! Hears what other replicas tell. Everything here only makes things faster: whoever hears nothing finds the same
//! by looking at the database.

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;

use super::deps::Deps;
use super::scheduler::{LookNow, Scheduler};
use super::system::Actors;
use crate::store::{Hint, Hints, Listening};

/// After a lost connection.
const AGAIN: Duration = Duration::from_secs(2);
/// Where nothing gets through, it may some day.
const LATER: Duration = Duration::from_secs(600);

/// Listens for the life of the process.
pub async fn hear(deps: Arc<Deps>, actors: Actors, scheduler: Addr<Scheduler>) {
    loop {
        let pause = match deps.store.listen().await {
            Ok(Listening::Alone) => return,
            Ok(Listening::Deaf) => {
                let event_name = "hints_deaf";
                tracing::info!(event_name, "notifications do not get through: replicas only poll");
                LATER
            }
            Ok(Listening::Hears(hints)) => {
                tracing::debug!("listens to other replicas");
                follow(hints, &deps, &actors, &scheduler).await;
                AGAIN
            }
            Err(error) => {
                tracing::debug!(%error, "cannot listen to other replicas");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn follow(
    mut hints: Box<dyn Hints>,
    deps: &Deps,
    actors: &Actors,
    scheduler: &Addr<Scheduler>,
) {
    loop {
        match hints.next().await {
            Ok(Hint::Wake { to, cluster_id }) => {
                if to == deps.replica.id {
                    deps.replica.note_interest(cluster_id);
                    scheduler.do_send(LookNow { orphans: false });
                }
            }
            Ok(Hint::Changed { cluster_id }) => actors.refresh(&cluster_id),
            Ok(Hint::Members) => scheduler.do_send(LookNow { orphans: true }),
            Err(error) => {
                tracing::debug!(%error, "no hints for a moment");
                return;
            }
        }
    }
}
