//! Nothing of ours stays behind on a server connection, which a pooler may give to anybody next.

use super::*;

#[derive(Debug, PartialEq, Eq, sqlx::FromRow)]
struct LeftBehind {
    statements: i64,
    advisory_locks: i64,
    statement_timeout: String,
    idle_timeout: String,
    isolation: String,
}

const LOOK: &str = "SELECT (SELECT count(*) FROM pg_prepared_statements) AS statements, \
     (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
     AND pid = pg_backend_pid()) AS advisory_locks, \
     current_setting('statement_timeout') AS statement_timeout, \
     current_setting('idle_in_transaction_session_timeout') AS idle_timeout, \
     current_setting('transaction_isolation') AS isolation";

async fn left_behind(store: &PgStore) -> LeftBehind {
    // The pool gives the connection that was used last.
    transaction::query_as(LOOK).fetch_one(&store.pool).await.unwrap()
}

#[tokio::test]
async fn nothing_outlives_its_transaction() {
    let store = PgStore::open(&server::shared().database(None).await, 1).await.unwrap();
    let fresh = left_behind(&store).await;
    assert_eq!((fresh.statements, fresh.advisory_locks), (0, 0));
    store.migrate().await.unwrap();
    assert_eq!(left_behind(&store).await, fresh);
    let id = "cls-a".parse().unwrap();
    let now = Timestamp::EPOCH;
    store.commit(Commit::new(&id, 0, None, None, now)).await.unwrap();
    let conflict = store.commit(Commit::new(&id, 0, None, None, now)).await;
    assert_eq!(conflict, Err(StoreError::Conflict));
    assert_eq!(left_behind(&store).await, fresh);
    store.load(&id).await.unwrap();
    let me = crate::ids::ReplicaId(Uuid::from_u128(1));
    store.due(now, 1, now, me).await.unwrap();
    store.orphans(1, now, me).await.unwrap();
    store.tell(&Hint::Members).await.unwrap();
    store.state_counts().await.unwrap();
    store.owned_count(me).await.unwrap();
    assert_eq!(left_behind(&store).await, fresh);
    store.close().await;
}
