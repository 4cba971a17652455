//! Whether the audit is as it was written: every stream is walked in order, every hash made again.
//!
//! May run beside a process that writes: rows come and old ones go meanwhile, so what looks wrong is looked
//! at once more before it is said. Knows the chain; the key comes in as an [`AuditSeal`].

use super::{AuditCheckpoint, AuditEvent, AuditSeal, AuditStream, Store, StoreError, canonical};
use crate::time::Timestamp;

/// Rows per read.
const BATCH: u32 = 500;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// How many streams there are.
    pub streams: u64,
    /// How many rows were looked at.
    pub rows: u64,
    /// The first wrong row of each stream that has one.
    pub faults: Vec<AuditFault>,
}

/// The first row of a stream with which something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditFault {
    /// Which stream.
    pub stream: String,
    /// The row's place in it, where there is a row.
    pub sequence: Option<u64>,
    /// The row's place in the table.
    pub event_id: Option<i64>,
    /// When it says that it happened.
    pub at: Option<Timestamp>,
    /// What is wrong.
    pub reason: String,
}

/// Walks the whole audit.
///
/// # Errors
/// [`StoreError`] when the database cannot be read; what is in it is no error but a fault.
pub async fn verify(store: &dyn Store, seal: &dyn AuditSeal) -> Result<Verdict, StoreError> {
    let mut verdict = Verdict::default();
    let mut name = String::new();
    while let Some(next) = store.next_audit_stream(&name).await? {
        name = next;
        verdict.streams += 1;
        let mut found = stream(store, seal, &name).await?;
        if found.1.is_some() {
            found = stream(store, seal, &name).await?;
        }
        verdict.rows += found.0;
        verdict.faults.extend(found.1);
    }
    Ok(verdict)
}

async fn stream(
    store: &dyn Store,
    seal: &dyn AuditSeal,
    name: &str,
) -> Result<(u64, Option<AuditFault>), StoreError> {
    let known = store.audit_stream(name).await?;
    let mut chain = match Chain::begin(seal, name, &known) {
        Ok(chain) => chain,
        Err(fault) => return Ok((0, Some(fault))),
    };
    let fault = walk(store, &mut chain).await?;
    Ok((chain.rows, fault))
}

async fn walk(store: &dyn Store, chain: &mut Chain<'_>) -> Result<Option<AuditFault>, StoreError> {
    let mut limit = BATCH;
    loop {
        match store.walk_audit(chain.name, chain.last, limit).await {
            Ok(rows) if rows.is_empty() => {
                // The head is read after the rows: it can only be further.
                let head = store.audit_stream(chain.name).await?.head;
                let last = chain.last;
                let more = head.as_ref().is_some_and(|(sequence, _)| *sequence > last);
                if more && !store.walk_audit(chain.name, last, 1).await?.is_empty() {
                    continue;
                }
                return Ok(chain.end(head).err());
            }
            Ok(rows) => {
                for row in &rows {
                    if let Err(fault) = chain.next(row) {
                        return Ok(Some(fault));
                    }
                }
            }
            // One of them does not even have the form of a row: which?
            Err(StoreError::Corrupt { .. }) if limit > 1 => limit = 1,
            Err(StoreError::Corrupt { what }) => {
                let sequence = Some(chain.last + 1);
                return Ok(Some(chain.fault(sequence, format!("it cannot be read: {what}"))));
            }
            Err(error) => return Err(error),
        }
    }
}

/// One stream, as far as it was walked.
struct Chain<'a> {
    seal: &'a dyn AuditSeal,
    name: &'a str,
    last: u64,
    hash: Option<Vec<u8>>,
    anchor: Option<AuditCheckpoint>,
    rows: u64,
}

impl<'a> Chain<'a> {
    fn begin(
        seal: &'a dyn AuditSeal,
        name: &'a str,
        known: &AuditStream,
    ) -> Result<Self, AuditFault> {
        let AuditStream { base, anchor, .. } = known.clone();
        let mut chain = Self { seal, name, last: 0, hash: None, anchor: None, rows: 0 };
        for checkpoint in [&base, &anchor].into_iter().flatten() {
            if checkpoint.seal.as_ref() != Some(&seal.seal(&checkpoint.canonical())) {
                let kind = if checkpoint.pruned { "what was pruned" } else { "its last row" };
                let reason = format!("the checkpoint of {kind} was not written by this service");
                return Err(chain.fault(Some(checkpoint.sequence), reason));
            }
        }
        if let Some(base) = base {
            (chain.last, chain.hash) = (base.sequence, base.hash);
        }
        chain.anchor = anchor;
        Ok(chain)
    }

    fn next(&mut self, event: &AuditEvent) -> Result<(), AuditFault> {
        let wanted = self.last + 1;
        if event.sequence != wanted {
            let reason = match event.sequence - 1 {
                end if end == wanted => format!("row {wanted} before it is missing"),
                end => format!("rows {wanted} to {end} before it are missing"),
            };
            return Err(self.fault_of(event, reason));
        }
        let Some(hash) = &event.hash else {
            return Err(self.fault_of(event, "it is not sealed".to_owned()));
        };
        if event.previous_hash != self.hash {
            return Err(self.fault_of(event, "it does not follow the row before it".to_owned()));
        }
        let message = canonical(&event.row, event.sequence, event.previous_hash.as_deref());
        if self.seal.seal(&message) != *hash {
            return Err(self.fault_of(event, "it is not what was written".to_owned()));
        }
        let anchor = self.anchor.as_ref().filter(|anchor| anchor.sequence == event.sequence);
        if let Some(anchor) = anchor.filter(|anchor| anchor.hash.as_ref() != Some(hash)) {
            let reason = format!("the checkpoint of {} knows another row", anchor.at);
            return Err(self.fault_of(event, reason));
        }
        (self.last, self.hash) = (event.sequence, event.hash.clone());
        self.rows += 1;
        Ok(())
    }

    fn end(&self, head: Option<(u64, Option<Vec<u8>>)>) -> Result<(), AuditFault> {
        let fault = |reason: String| Err(self.fault(Some(self.last), reason));
        match head {
            None => return fault("the stream has no head".to_owned()),
            Some((sequence, _)) if sequence > self.last => {
                let first = self.last + 1;
                return fault(format!("rows {first} to {sequence} after it are missing"));
            }
            Some((sequence, _)) if sequence < self.last => {
                return fault(format!("the head says that the stream ends at {sequence}"));
            }
            Some((_, hash)) if hash != self.hash => {
                return fault("the head has another hash".to_owned());
            }
            Some(_) => {}
        }
        match &self.anchor {
            Some(anchor) if anchor.sequence > self.last => {
                let (at, end) = (anchor.at, anchor.sequence);
                fault(format!("the checkpoint of {at} knows rows up to {end}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn fault(&self, sequence: Option<u64>, reason: String) -> AuditFault {
        AuditFault { stream: self.name.to_owned(), sequence, event_id: None, at: None, reason }
    }

    fn fault_of(&self, event: &AuditEvent, reason: String) -> AuditFault {
        let (sequence, event_id) = (Some(event.sequence), Some(event.event_id));
        let stream = self.name.to_owned();
        AuditFault { stream, sequence, event_id, at: Some(event.row.at), reason }
    }
}
