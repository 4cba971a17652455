//! Break-glass credentials: the statements that both databases share, for a connection of this one.

use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnection, SqlitePool};

use super::super::rows::break_glass_list::{Dialect, list};
use super::super::rows::break_glass_sql::statements;
use super::super::search::Pattern;
use super::error::map;
use super::write::Write;

statements!(SqliteConnection, sqlx::query, sqlx::query_as);

const DIALECT: Dialect = Dialect {
    id_like: "lower(hex(credential_id)) GLOB ",
    username_like: "username GLOB ",
    like_end: "",
    no_limit: "-1",
};

list!(Sqlite, SqliteConnection, DIALECT, Pattern::as_glob);

/// Index: `break_glass_due`.
pub(super) const SELECT_DUE: &str = "SELECT cluster_id FROM break_glass \
     WHERE due_at IS NOT NULL AND due_at <= ?1 ORDER BY due_at, cluster_id LIMIT ?2";

/// Index: the primary key.
const PUSH: &str = "UPDATE break_glass SET due_at = ?2 WHERE cluster_id = ?1";

/// Takes no lock when nothing is due.
pub(super) async fn due(
    reader: &SqlitePool,
    writer: &SqlitePool,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
) -> Result<Vec<ClusterId>, StoreError> {
    let select = sqlx::query_as::<_, (String,)>(SELECT_DUE).bind(now).bind(1);
    if select.fetch_optional(reader).await.map_err(map)?.is_none() {
        return Ok(Vec::new());
    }
    let mut tx = Write::begin(writer).await?;
    let taken = take(&mut tx, now, limit, push_until).await;
    tx.end(taken).await
}

async fn take(
    db: &mut SqliteConnection,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
) -> Result<Vec<ClusterId>, StoreError> {
    let select = sqlx::query_as::<_, (String,)>(SELECT_DUE).bind(now).bind(limit);
    let rows = select.fetch_all(&mut *db).await.map_err(map)?;
    for (cluster_id,) in &rows {
        let push = sqlx::query(PUSH).bind(cluster_id).bind(push_until);
        push.execute(&mut *db).await.map_err(map)?;
    }
    rows.iter().map(|(cluster_id,)| word(cluster_id, "a cluster id")).collect()
}
