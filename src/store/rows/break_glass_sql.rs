//! The statements of the break-glass tables that both databases understand, and the functions around them.
//!
//! Both take `$1`, so one text serves both; what their dialects spell differently is given to
//! [`statements`] by each. Every text is static; values are bound.

use super::break_glass::{authority_columns, credential_columns, revocation_columns, work_changes};

/// Index: the primary key.
pub(in crate::store) const SELECT_HEAD: &str = "SELECT version, bundle_version, \
     confirmed_version, quarantine_since, quarantine_retry_at, created_at, owner, epoch \
     FROM break_glass WHERE cluster_id = $1";

/// Index: the primary key. The first commit of a cluster makes its row; a second "first" one changes nothing.
pub(in crate::store) const INSERT_HEAD: &str = "INSERT INTO break_glass (cluster_id, version, \
     bundle_version, confirmed_version, quarantine_since, quarantine_retry_at, due_at, owner, epoch, \
     created_at) VALUES ($1, 1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (cluster_id) DO NOTHING";

/// Index: the primary key. The guard of every other commit.
pub(in crate::store) const UPDATE_HEAD: &str = "UPDATE break_glass SET version = version + 1, \
     bundle_version = $2, confirmed_version = $3, quarantine_since = $4, \
     quarantine_retry_at = $5, due_at = $6, owner = $7, epoch = $8 \
     WHERE cluster_id = $1 AND version = $9 AND epoch = $10";

/// Index: the primary key.
pub(in crate::store) const RESCHEDULE: &str = "UPDATE break_glass SET due_at = $3, owner = $4 \
     WHERE cluster_id = $1 AND version = $2 AND epoch = $5";

/// Index: the primary key.
pub(in crate::store) const SELECT_VERSION: &str =
    "SELECT version FROM break_glass WHERE cluster_id = $1";

/// Index: `break_glass_credentials_working`.
pub(in crate::store) const SELECT_WORKING_CREDENTIALS: &str = concat!(
    "SELECT ",
    credential_columns!(),
    " FROM break_glass_credentials WHERE cluster_id = $1 AND (state NOT IN \
     ('revoked', 'denied', 'failed', 'expired') OR call_token IS NOT NULL) ORDER BY credential_id"
);

/// Index: the primary key.
pub(in crate::store) const SELECT_CREDENTIAL: &str = concat!(
    "SELECT ",
    credential_columns!(),
    " FROM break_glass_credentials WHERE cluster_id = $1 AND credential_id = $2 AND NOT control"
);

/// Index: the primary key.
pub(in crate::store) const UPSERT_CREDENTIAL: &str = concat!(
    "INSERT INTO break_glass_credentials (cluster_id, ",
    credential_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
     $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33) \
     ON CONFLICT (credential_id) DO UPDATE SET state = excluded.state, step = excluded.step, \
     revocation_id = excluded.revocation_id, state_since = excluded.state_since, \
     message = excluded.message, decided_by = excluded.decided_by, \
     expires_at = excluded.expires_at, not_after = excluded.not_after, \
     signed_at = excluded.signed_at, endpoints = excluded.endpoints, \
     created_at = excluded.created_at, accepted_at = excluded.accepted_at, issued_at = excluded.issued_at, \
     revoked_at = excluded.revoked_at, ",
    work_changes!()
);

/// Index: `break_glass_revocations_working`.
pub(in crate::store) const SELECT_WORKING_REVOCATIONS: &str = concat!(
    "SELECT ",
    revocation_columns!(),
    " FROM break_glass_revocations WHERE cluster_id = $1 AND (ended_at IS NULL OR \
     call_token IS NOT NULL) ORDER BY revocation_id"
);

/// Index: the primary key.
pub(in crate::store) const SELECT_REVOCATION: &str = concat!(
    "SELECT ",
    revocation_columns!(),
    " FROM break_glass_revocations WHERE cluster_id = $1 AND revocation_id = $2"
);

/// Index: `break_glass_revocations_by_cluster`.
pub(in crate::store) const LIST_REVOCATIONS: &str = concat!(
    "SELECT ",
    revocation_columns!(),
    " FROM break_glass_revocations WHERE cluster_id = $1 \
     AND (created_at, revocation_id) < ($2, $3) \
     ORDER BY created_at DESC, revocation_id DESC LIMIT $4"
);

/// Index: `break_glass_revocations_by_cluster`.
pub(in crate::store) const COUNT_REVOCATIONS: &str =
    "SELECT count(*) FROM break_glass_revocations WHERE cluster_id = $1";

/// Index: the primary key.
pub(in crate::store) const UPSERT_REVOCATION: &str = concat!(
    "INSERT INTO break_glass_revocations (cluster_id, ",
    revocation_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
     $19, $20, $21, $22, $23, $24, $25, $26) ON CONFLICT (revocation_id) DO UPDATE SET \
     state = excluded.state, state_since = excluded.state_since, attempt = excluded.attempt, \
     progress = excluded.progress, cut_off = excluded.cut_off, endpoints = excluded.endpoints, \
     created_at = excluded.created_at, ended_at = excluded.ended_at, ",
    work_changes!()
);

/// Index: `break_glass_authorities_by_cluster`.
pub(in crate::store) const SELECT_AUTHORITIES: &str = concat!(
    "SELECT ",
    authority_columns!(),
    " FROM break_glass_authorities WHERE cluster_id = $1 ORDER BY authority_id"
);

/// Index: the primary key.
pub(in crate::store) const UPSERT_AUTHORITY: &str = concat!(
    "INSERT INTO break_glass_authorities (cluster_id, ",
    authority_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) \
     ON CONFLICT (authority_id) DO UPDATE SET made_at = excluded.made_at, \
     not_after = excluded.not_after, ",
    work_changes!()
);

/// Index: the primary key.
pub(in crate::store) const DELETE_AUTHORITY: &str =
    "DELETE FROM break_glass_authorities WHERE authority_id = $1";

/// Index: the primary key.
pub(in crate::store) const UPSERT_CERTIFICATE: &str = "INSERT INTO break_glass_certificates \
     (owner, kind, pem) VALUES ($1, $2, $3) \
     ON CONFLICT (owner, kind) DO UPDATE SET pem = excluded.pem";

/// Index: the primary key.
pub(in crate::store) const SELECT_CERTIFICATES: &str =
    "SELECT kind, pem FROM break_glass_certificates WHERE owner = $1";

/// Index: the primary key.
pub(in crate::store) const DELETE_CERTIFICATES: &str =
    "DELETE FROM break_glass_certificates WHERE owner = $1";

/// Index: the primary key.
pub(in crate::store) const UPSERT_KEY: &str = "INSERT INTO break_glass_keys \
     (owner, purpose, key_id, sealed) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (owner, purpose) DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed";

/// Index: the primary key.
pub(in crate::store) const SELECT_KEY: &str = "SELECT owner, purpose, key_id, sealed \
     FROM break_glass_keys WHERE owner = $1 AND purpose = $2";

/// Index: the primary key.
pub(in crate::store) const DELETE_KEYS: &str = "DELETE FROM break_glass_keys WHERE owner = $1";

/// Index: `break_glass_keys_by_key`.
pub(in crate::store) const KEY_CENSUS: &str =
    "SELECT key_id, count(*) FROM break_glass_keys GROUP BY key_id";

/// Index: the primary key. A whole walk reads each row once; the census says whether one is needed.
pub(in crate::store) const SELECT_OTHERWISE: &str = "SELECT owner, purpose, key_id, sealed \
     FROM break_glass_keys WHERE (owner, purpose) > ($2, $3) AND key_id <> $1 \
     ORDER BY owner, purpose LIMIT $4";

/// Index: the primary key.
pub(in crate::store) const RESEAL: &str = "UPDATE break_glass_keys SET key_id = $5, sealed = $6 \
     WHERE owner = $1 AND purpose = $2 AND key_id = $3 AND sealed = $4";

/// Index: the primary key.
pub(in crate::store) const CREDENTIAL_IS_CURRENT: &str = "SELECT EXISTS (SELECT 1 FROM \
     break_glass_credentials WHERE credential_id = $1 AND call_token = $2)";
/// Index: the primary key.
pub(in crate::store) const REVOCATION_IS_CURRENT: &str = "SELECT EXISTS (SELECT 1 FROM \
     break_glass_revocations WHERE revocation_id = $1 AND call_token = $2)";
/// Index: the primary key.
pub(in crate::store) const AUTHORITY_IS_CURRENT: &str = "SELECT EXISTS (SELECT 1 FROM \
     break_glass_authorities WHERE authority_id = $1 AND call_token = $2)";

/// Index: `break_glass_credentials_by_state`.
pub(in crate::store) const CREDENTIAL_COUNTS: &str =
    "SELECT state, count(*) FROM break_glass_credentials WHERE NOT control GROUP BY state";

/// Index: the partial ones of trouble; authorities are few.
pub(in crate::store) const COUNT_STUCK: &str = "SELECT \
     (SELECT count(*) FROM break_glass_credentials WHERE trouble_since IS NOT NULL \
     AND state NOT IN ('revoked', 'denied', 'failed', 'expired') AND trouble_since <= $1) + \
     (SELECT count(*) FROM break_glass_revocations WHERE trouble_since IS NOT NULL \
     AND ended_at IS NULL AND trouble_since <= $1) + \
     (SELECT count(*) FROM break_glass_authorities WHERE trouble_since <= $1) + \
     (SELECT count(*) FROM break_glass WHERE quarantine_since IS NOT NULL)";

/// Index: `break_glass_credentials_by_state`. The rule is `state::break_glass::removable_at`.
pub(in crate::store) const PURGE_CREDENTIALS: &str = "DELETE FROM break_glass_credentials \
     WHERE credential_id IN (SELECT credential_id FROM break_glass_credentials \
     WHERE state = $1 AND state_since <= $2 AND created_at <= $2 AND call_token IS NULL \
     ORDER BY state_since LIMIT $3) RETURNING credential_id";

/// Index: `break_glass_revocations_ended`.
pub(in crate::store) const PURGE_REVOCATIONS: &str = "DELETE FROM break_glass_revocations \
     WHERE revocation_id IN (SELECT revocation_id FROM break_glass_revocations \
     WHERE ended_at IS NOT NULL AND ended_at <= $1 AND call_token IS NULL \
     ORDER BY ended_at LIMIT $2)";

/// The functions around these statements, for one database's connection.
macro_rules! statements {
    ($connection:ty, $query:path, $query_as:path) => {
        use sqlx::types::Json;
        use uuid::Uuid;

        use crate::ids::{CallToken, ClusterId, CredentialId, RevocationId};
        use crate::state::break_glass::{Authority, Credential, Revocation, Subject};
        use crate::store::break_glass::{
            BreakGlassCommit, BreakGlassPurge, CertificateKind, Changes, KeyPurpose,
            LoadedBreakGlass, OwnedKey,
        };
        use crate::store::rows::break_glass::{
            AuthorityRow, CredentialRow, HeadRow, KeyRow, RevocationRow, bind_work, step,
        };
        use crate::store::rows::break_glass_sql as sql;
        use crate::store::rows::decode::{count, signed, word};
        use crate::store::{OwnedBy, SealedSecret, StoreError};
        use crate::time::Timestamp;

        /// The working set. The caller holds a transaction, so that the parts are of one instant.
        pub(super) async fn load(
            db: &mut $connection,
            cluster_id: &ClusterId,
        ) -> Result<LoadedBreakGlass, StoreError> {
            let query = $query_as(sql::SELECT_HEAD).bind(cluster_id.as_str());
            let head: Option<HeadRow> = query.fetch_optional(&mut *db).await.map_err(map)?;
            let Some(head) = head else {
                return Ok(LoadedBreakGlass::default());
            };
            let mut record = head.record(cluster_id)?;
            let query = $query_as(sql::SELECT_WORKING_CREDENTIALS).bind(cluster_id.as_str());
            let rows: Vec<CredentialRow> = query.fetch_all(&mut *db).await.map_err(map)?;
            record.credentials =
                rows.into_iter().map(Credential::try_from).collect::<Result<_, _>>()?;
            let query = $query_as(sql::SELECT_WORKING_REVOCATIONS).bind(cluster_id.as_str());
            let rows: Vec<RevocationRow> = query.fetch_all(&mut *db).await.map_err(map)?;
            record.revocations =
                rows.into_iter().map(Revocation::try_from).collect::<Result<_, _>>()?;
            let query = $query_as(sql::SELECT_AUTHORITIES).bind(cluster_id.as_str());
            let rows: Vec<AuthorityRow> = query.fetch_all(&mut *db).await.map_err(map)?;
            record.authorities =
                rows.into_iter().map(Authority::try_from).collect::<Result<_, _>>()?;
            let (version, ownership) = (count(head.version)?, head.ownership()?);
            Ok(LoadedBreakGlass { record: Some(record), version, ownership })
        }

        /// Everything of one step but the audit, the outbox and the answer to a repetition.
        pub(super) async fn write_step(
            db: &mut $connection,
            commit: &BreakGlassCommit<'_>,
            changes: &Changes<'_>,
        ) -> Result<u64, StoreError> {
            let version = guard(db, commit).await?;
            let cluster_id = commit.cluster_id;
            for credential in &changes.credentials {
                write_credential(db, cluster_id, credential).await?;
            }
            for revocation in &changes.revocations {
                write_revocation(db, cluster_id, revocation).await?;
            }
            for authority in &changes.authorities {
                write_authority(db, cluster_id, authority).await?;
            }
            for one in &commit.material {
                let kind = <&'static str>::from(one.kind);
                let query =
                    $query(sql::UPSERT_CERTIFICATE).bind(one.owner).bind(kind).bind(&one.pem);
                query.execute(&mut *db).await.map_err(map)?;
            }
            for (owner, purpose, sealed) in &commit.keys {
                let query =
                    $query(sql::UPSERT_KEY).bind(*owner).bind(<&'static str>::from(*purpose));
                let query = query.bind(&sealed.key_id).bind(&sealed.bytes[..]);
                query.execute(&mut *db).await.map_err(map)?;
            }
            for owner in changes.spent.iter().chain(&changes.dropped) {
                delete(db, sql::DELETE_KEYS, *owner).await?;
            }
            for owner in &changes.dropped {
                delete(db, sql::DELETE_CERTIFICATES, *owner).await?;
                delete(db, sql::DELETE_AUTHORITY, *owner).await?;
            }
            Ok(version)
        }

        /// Takes the next version, or says `Conflict`.
        async fn guard(
            db: &mut $connection,
            commit: &BreakGlassCommit<'_>,
        ) -> Result<u64, StoreError> {
            let (record, expected) = (commit.after, commit.expected_version);
            let after = commit.ownership.passed_to(commit.owner);
            let statement = if expected == 0 { sql::INSERT_HEAD } else { sql::UPDATE_HEAD };
            let query = $query(statement)
                .bind(commit.cluster_id.as_str())
                .bind(signed(record.bundle_version))
                .bind(signed(record.confirmed_version))
                .bind(record.quarantine.map(|quarantine| quarantine.since))
                .bind(record.quarantine.map(|quarantine| quarantine.retry_at))
                .bind(commit.due_at)
                .bind(after.owner.map(|owner| owner.0))
                .bind(signed(after.epoch));
            let query = if expected == 0 {
                query.bind(record.created_at)
            } else {
                query.bind(signed(expected)).bind(signed(commit.ownership.epoch))
            };
            let done = query.execute(db).await.map_err(map)?;
            if done.rows_affected() == 1 { Ok(expected + 1) } else { Err(StoreError::Conflict) }
        }

        async fn write_credential(
            db: &mut $connection,
            cluster_id: &ClusterId,
            credential: &Credential,
        ) -> Result<(), StoreError> {
            let certificate = credential.certificate;
            let query = $query(sql::UPSERT_CREDENTIAL)
                .bind(cluster_id.as_str())
                .bind(credential.id.0)
                .bind(&credential.username)
                .bind(<&'static str>::from(credential.signer))
                .bind(credential.control)
                .bind(<&'static str>::from(credential.state.name()))
                .bind(step(credential.state))
                .bind(credential.state.revocation().map(|id| id.0))
                .bind(credential.state_since)
                .bind(&credential.message)
                .bind(&credential.requested_by)
                .bind(credential.reason.as_deref())
                .bind(credential.decided_by.as_deref())
                .bind(credential.signing_request.as_deref())
                .bind(credential.expires_at)
                .bind(certificate.map(|certificate| certificate.not_after))
                .bind(certificate.map(|certificate| certificate.signed_at))
                .bind(Json(&credential.endpoints))
                .bind(credential.created_at)
                .bind(credential.accepted_at)
                .bind(credential.issued_at)
                .bind(credential.revoked_at);
            bind_work!(query, credential).execute(db).await.map_err(map).map(drop)
        }

        async fn write_revocation(
            db: &mut $connection,
            cluster_id: &ClusterId,
            revocation: &Revocation,
        ) -> Result<(), StoreError> {
            let query = $query(sql::UPSERT_REVOCATION)
                .bind(cluster_id.as_str())
                .bind(revocation.id.0)
                .bind(<&'static str>::from(revocation.scope))
                .bind(<&'static str>::from(revocation.state))
                .bind(revocation.state_since)
                .bind(<&'static str>::from(revocation.signer))
                .bind(i64::from(revocation.attempt))
                .bind(revocation.progress.as_deref())
                .bind(revocation.cut_off)
                .bind(signed(revocation.bundle_version))
                .bind(Json(&revocation.endpoints))
                .bind(&revocation.requested_by)
                .bind(revocation.reason.as_deref())
                .bind(revocation.created_at)
                .bind(revocation.ended_at);
            bind_work!(query, revocation).execute(db).await.map_err(map).map(drop)
        }

        async fn write_authority(
            db: &mut $connection,
            cluster_id: &ClusterId,
            authority: &Authority,
        ) -> Result<(), StoreError> {
            let query = $query(sql::UPSERT_AUTHORITY)
                .bind(cluster_id.as_str())
                .bind(authority.id.0)
                .bind(<&'static str>::from(authority.kind))
                .bind(authority.made_at)
                .bind(authority.not_after);
            bind_work!(query, authority).execute(db).await.map_err(map).map(drop)
        }

        async fn delete(
            db: &mut $connection,
            statement: &'static str,
            owner: Uuid,
        ) -> Result<(), StoreError> {
            $query(statement).bind(owner).execute(db).await.map_err(map).map(drop)
        }

        pub(super) async fn reschedule(
            db: &mut $connection,
            cluster_id: &ClusterId,
            version: u64,
            due_at: Option<Timestamp>,
            ownership: OwnedBy,
        ) -> Result<bool, StoreError> {
            let query = $query(sql::RESCHEDULE).bind(cluster_id.as_str()).bind(signed(version));
            let query = query.bind(due_at).bind(ownership.owner.map(|owner| owner.0));
            let query = query.bind(signed(ownership.epoch));
            let done = query.execute(db).await.map_err(map)?;
            Ok(done.rows_affected() == 1)
        }

        pub(super) async fn is_current(
            db: &mut $connection,
            subject: Subject,
            token: CallToken,
        ) -> Result<bool, StoreError> {
            let (statement, id) = match subject {
                Subject::Credential(id) => (sql::CREDENTIAL_IS_CURRENT, id.0),
                Subject::Revocation(id) => (sql::REVOCATION_IS_CURRENT, id.0),
                Subject::Authority(id) => (sql::AUTHORITY_IS_CURRENT, id.0),
            };
            let query = $query_as(statement).bind(id).bind(token.0);
            let (current,): (bool,) = query.fetch_one(db).await.map_err(map)?;
            Ok(current)
        }

        pub(super) async fn version(
            db: &mut $connection,
            cluster_id: &ClusterId,
        ) -> Result<Option<u64>, StoreError> {
            let query = $query_as(sql::SELECT_VERSION).bind(cluster_id.as_str());
            let row: Option<(i64,)> = query.fetch_optional(db).await.map_err(map)?;
            row.map(|(version,)| count(version)).transpose()
        }

        pub(super) async fn stuck(
            db: &mut $connection,
            before: Timestamp,
        ) -> Result<u64, StoreError> {
            let query = $query_as(sql::COUNT_STUCK).bind(before);
            let (number,): (i64,) = query.fetch_one(db).await.map_err(map)?;
            count(number)
        }

        pub(super) async fn credential(
            db: &mut $connection,
            cluster_id: &ClusterId,
            id: CredentialId,
        ) -> Result<Option<Credential>, StoreError> {
            let query = $query_as(sql::SELECT_CREDENTIAL).bind(cluster_id.as_str()).bind(id.0);
            let row: Option<CredentialRow> = query.fetch_optional(db).await.map_err(map)?;
            row.map(Credential::try_from).transpose()
        }

        pub(super) async fn revocation(
            db: &mut $connection,
            cluster_id: &ClusterId,
            id: RevocationId,
        ) -> Result<Option<Revocation>, StoreError> {
            let query = $query_as(sql::SELECT_REVOCATION).bind(cluster_id.as_str()).bind(id.0);
            let row: Option<RevocationRow> = query.fetch_optional(db).await.map_err(map)?;
            row.map(Revocation::try_from).transpose()
        }

        /// One more than the limit, to learn whether there is a next page, and the number of all.
        pub(super) async fn revocations(
            db: &mut $connection,
            cluster_id: &ClusterId,
            (at, id): (Timestamp, Uuid),
            limit: u32,
        ) -> Result<(Vec<Revocation>, u64), StoreError> {
            let query = $query_as(sql::COUNT_REVOCATIONS).bind(cluster_id.as_str());
            let (total,): (i64,) = query.fetch_one(&mut *db).await.map_err(map)?;
            let query = $query_as(sql::LIST_REVOCATIONS).bind(cluster_id.as_str());
            let query = query.bind(at).bind(id).bind(i64::from(limit) + 1);
            let rows: Vec<RevocationRow> = query.fetch_all(db).await.map_err(map)?;
            let items = rows.into_iter().map(Revocation::try_from).collect::<Result<_, _>>()?;
            Ok((items, count(total)?))
        }

        pub(super) async fn certificates(
            db: &mut $connection,
            owner: Uuid,
        ) -> Result<std::collections::BTreeMap<CertificateKind, String>, StoreError> {
            let query = $query_as(sql::SELECT_CERTIFICATES).bind(owner);
            let rows: Vec<(String, String)> = query.fetch_all(db).await.map_err(map)?;
            rows.into_iter()
                .map(|(kind, pem)| Ok((word(&kind, "a certificate's kind")?, pem)))
                .collect()
        }

        pub(super) async fn key(
            db: &mut $connection,
            owner: Uuid,
            purpose: KeyPurpose,
        ) -> Result<Option<SealedSecret>, StoreError> {
            let query = $query_as(sql::SELECT_KEY).bind(owner).bind(<&'static str>::from(purpose));
            let row: Option<KeyRow> = query.fetch_optional(db).await.map_err(map)?;
            Ok(row.map(|row| SealedSecret { key_id: row.key_id, bytes: row.sealed }))
        }

        pub(super) async fn counts(
            db: &mut $connection,
            statement: &'static str,
        ) -> Result<std::collections::BTreeMap<String, u64>, StoreError> {
            let rows: Vec<(String, i64)> = $query_as(statement).fetch_all(db).await.map_err(map)?;
            rows.into_iter().map(|(word, number)| Ok((word, count(number)?))).collect()
        }

        pub(super) async fn sealed_otherwise(
            db: &mut $connection,
            key_id: &str,
            after: Option<(Uuid, KeyPurpose)>,
            limit: u32,
        ) -> Result<Vec<OwnedKey>, StoreError> {
            // Nobody has the nil id.
            let (owner, purpose) =
                after.map_or((Uuid::nil(), ""), |(owner, purpose)| (owner, purpose.into()));
            let query = $query_as(sql::SELECT_OTHERWISE).bind(key_id).bind(owner).bind(purpose);
            let rows: Vec<KeyRow> =
                query.bind(i64::from(limit)).fetch_all(db).await.map_err(map)?;
            let key = |row: KeyRow| {
                let sealed = SealedSecret { key_id: row.key_id, bytes: row.sealed };
                Ok(OwnedKey { owner: row.owner, purpose: word(&row.purpose, "a purpose")?, sealed })
            };
            rows.into_iter().map(key).collect()
        }

        pub(super) async fn reseal(
            db: &mut $connection,
            old: &OwnedKey,
            new: &SealedSecret,
        ) -> Result<bool, StoreError> {
            let query = $query(sql::RESEAL)
                .bind(old.owner)
                .bind(<&'static str>::from(old.purpose))
                .bind(&old.sealed.key_id)
                .bind(&old.sealed.bytes[..])
                .bind(&new.key_id)
                .bind(&new.bytes[..]);
            Ok(query.execute(db).await.map_err(map)?.rows_affected() == 1)
        }

        pub(super) async fn purge(
            db: &mut $connection,
            before: BreakGlassPurge,
        ) -> Result<u64, StoreError> {
            let mut removed = 0;
            for (state, end) in before.states() {
                let query = $query_as(sql::PURGE_CREDENTIALS).bind(<&'static str>::from(state));
                let query = query.bind(end).bind(i64::from(before.batch));
                let gone: Vec<(Uuid,)> = query.fetch_all(&mut *db).await.map_err(map)?;
                for (owner,) in &gone {
                    delete(db, sql::DELETE_CERTIFICATES, *owner).await?;
                    delete(db, sql::DELETE_KEYS, *owner).await?;
                }
                removed += u64::try_from(gone.len()).unwrap_or(u64::MAX);
            }
            let query = $query(sql::PURGE_REVOCATIONS).bind(before.history_before);
            let done = query.bind(i64::from(before.batch)).execute(db).await.map_err(map)?;
            Ok(removed + done.rows_affected())
        }
    };
}
pub(in crate::store) use statements;
