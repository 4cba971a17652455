//! Break-glass credentials: the statements that both databases share, for a connection of this one.

use sqlx::Postgres;
use sqlx::postgres::{PgConnection, PgPool};

use super::super::rows::break_glass_list::{Dialect, list};
use super::super::rows::break_glass_sql::statements;
use super::super::search::Pattern;
use super::error::map;
use super::transaction::{end, query, query_as, write};

statements!(PgConnection, query, query_as);

const DIALECT: Dialect = Dialect {
    id_like: "replace(credential_id::text, '-', '') LIKE ",
    username_like: "username LIKE ",
    like_end: " ESCAPE '\\'",
    no_limit: "NULL",
};

list!(Postgres, PgConnection, DIALECT, Pattern::as_like);

/// Index: `break_glass_due`, then the primary key. Rows that others are taking, or committing, are passed over.
pub(super) const TAKE: &str = "WITH due AS (SELECT cluster_id, due_at FROM break_glass \
     WHERE due_at IS NOT NULL AND due_at <= $1 ORDER BY due_at, cluster_id LIMIT $2 \
     FOR NO KEY UPDATE SKIP LOCKED), \
     taken AS (UPDATE break_glass b SET due_at = $3 FROM due WHERE b.cluster_id = due.cluster_id \
     RETURNING b.cluster_id, due.due_at AS was_due_at) \
     SELECT cluster_id FROM taken ORDER BY was_due_at, cluster_id";

pub(super) async fn due(
    pool: &PgPool,
    now: Timestamp,
    limit: u32,
    push_until: Timestamp,
) -> Result<Vec<ClusterId>, StoreError> {
    let mut tx = write(pool).await?;
    let query = query_as(TAKE).bind(now).bind(i64::from(limit)).bind(push_until);
    let rows: Result<Vec<(String,)>, _> = query.fetch_all(&mut *tx).await.map_err(map);
    let rows = end(tx, rows).await?;
    rows.iter().map(|(cluster_id,)| word(cluster_id, "a cluster id")).collect()
}
