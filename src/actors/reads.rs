//! Every answer that holds a pull secret is a read, and every read enters the audit.
//!
//! In batches a read costs no commit of its own and is stored within a second. The buffer is bounded: when it
//! is full, or its writer is gone, there is no answer, so no read is ever lost in silence. Knows no HTTP.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use uuid::Uuid;

use super::audit::Caller;
use super::deps::Deps;
use crate::config::AuditReads;
use crate::ids::{ClusterId, Generation};
use crate::store::{AuditRow, StoreError};

/// Reads that may wait for being written.
pub const BUFFER: usize = 8192;
/// So many are written at once.
const BATCH: usize = 512;
/// The first of a batch waits so long for others.
const COLLECT: Duration = Duration::from_millis(250);
/// A batch that could not be written is tried again after this.
const RETRY: Duration = Duration::from_millis(250);

/// A read could not enter the audit, so it must not be answered.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableError {
    /// Too many wait already.
    #[error("the buffer of the audit is full")]
    Full,
    /// Nobody writes them any more.
    #[error("the audit's writer is gone")]
    Gone,
    /// It could not be written before the answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where reads are told. One stream per start of the process, so that nobody else writes into it.
pub struct ReadLog {
    stream: String,
    deps: Arc<Deps>,
    way: Way,
}

enum Way {
    Off,
    Sync,
    Batched(mpsc::Sender<Told>),
}

enum Told {
    Read(Box<AuditRow>),
    Flush(oneshot::Sender<()>),
}

impl ReadLog {
    /// Begins a stream. In batches, a task of the present runtime writes them.
    #[must_use]
    pub fn start(deps: Arc<Deps>, reads: AuditReads, buffer: usize) -> Self {
        let way = match reads {
            AuditReads::Off => Way::Off,
            AuditReads::Sync => Way::Sync,
            AuditReads::Batched => {
                let (sender, receiver) = mpsc::channel(buffer.max(1));
                tokio::spawn(write_all(deps.clone(), receiver));
                Way::Batched(sender)
            }
        };
        Self { stream: format!("reads/{}", Uuid::now_v7()), deps, way }
    }

    /// Notes that a caller is about to get this cluster's pull secret.
    ///
    /// # Errors
    /// [`UnreadableError`]: the caller must not get it.
    pub async fn note(
        &self,
        cluster_id: &ClusterId,
        generation: Generation,
        caller: Caller,
    ) -> Result<(), UnreadableError> {
        let row = || AuditRow {
            stream: self.stream.clone(),
            at: self.deps.clock.now(),
            actor: caller.actor,
            action: "pull_secret_read".to_owned(),
            cluster_id: Some(cluster_id.clone()),
            rotation_id: None,
            account: None,
            registry_id: None,
            generation: Some(generation),
            detail: Value::Null,
            reason: caller.reason,
            request_id: caller.request_id,
        };
        match &self.way {
            Way::Off => Ok(()),
            Way::Sync => Ok(self.deps.store.record_audit(&[row()]).await?),
            Way::Batched(sender) => {
                sender.try_send(Told::Read(Box::new(row()))).map_err(|error| match error {
                    mpsc::error::TrySendError::Full(_) => UnreadableError::Full,
                    mpsc::error::TrySendError::Closed(_) => UnreadableError::Gone,
                })
            }
        }
    }

    /// Waits until everything that was noted is stored; false when the time was over first.
    pub async fn flush(&self, time: Duration) -> bool {
        let Way::Batched(sender) = &self.way else { return true };
        let (done, stored) = oneshot::channel();
        let flush = async { sender.send(Told::Flush(done)).await.is_ok() && stored.await.is_ok() };
        timeout(time, flush).await.unwrap_or(false)
    }
}

async fn write_all(deps: Arc<Deps>, mut told: mpsc::Receiver<Told>) {
    while let Some(first) = told.recv().await {
        let (mut rows, mut flushed) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        let until = Instant::now() + COLLECT;
        while let Some(one) = next {
            match one {
                Told::Read(row) => rows.push(*row),
                Told::Flush(done) => flushed.push(done),
            }
            // Somebody waits for a flush: no time for more.
            let more = rows.len() < BATCH && flushed.is_empty();
            next = if more { timeout_at(until, told.recv()).await.ok().flatten() } else { None };
        }
        write(&deps, &rows).await;
        for done in flushed {
            // Whoever waited may have given up; the rows are stored all the same.
            let _ = done.send(());
        }
    }
}

/// Ends only when they are stored: meanwhile the buffer fills, and then reads are refused.
async fn write(deps: &Deps, rows: &[AuditRow]) {
    while let Err(error) = deps.store.record_audit(rows).await {
        tracing::error!(waiting = rows.len(), %error, "reads wait for being written to the audit");
        sleep(RETRY).await;
    }
}
