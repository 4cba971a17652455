//! The stores under test, and the macro that runs a test over each.

use std::sync::Arc;

use hyperfleet_credentials::store::{MemoryStore, PgStore, SqliteStore, Store};
use tokio::sync::OnceCell;

use crate::support::postgres;

/// A store and what has to live as long as it does.
pub struct Backend {
    pub store: Arc<dyn Store>,
    pub dir: Option<tempfile::TempDir>,
}

pub async fn memory() -> Backend {
    Backend { store: Arc::new(MemoryStore::new()), dir: None }
}

pub async fn sqlite() -> Backend {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&url(&dir), 2).await.unwrap();
    store.migrate().await.unwrap();
    Backend { store: Arc::new(store), dir: Some(dir) }
}

pub async fn postgres() -> Backend {
    let store = PgStore::open(&migrated_database().await, 4).await.unwrap();
    Backend { store: Arc::new(store), dir: None }
}

/// The address of a database of the test's own: a copy of one that was migrated once.
pub async fn migrated_database() -> String {
    static TEMPLATE: OnceCell<()> = OnceCell::const_new();
    const NAME: &str = "migrated";
    let server = postgres::shared();
    let migrate = || async {
        server.create(NAME, "template0").await;
        let store = PgStore::open(&server.url(NAME), 1).await.unwrap();
        store.migrate().await.unwrap();
        // Nobody may be connected to what is copied.
        store.close().await;
    };
    TEMPLATE.get_or_init(migrate).await;
    server.database(Some(NAME)).await
}

pub fn url(dir: &tempfile::TempDir) -> String {
    format!("sqlite://{}", dir.path().join("data/test.db").display())
}

/// One test per backend: `conforms!(name)` runs `async fn name(store: Arc<dyn Store>)`.
macro_rules! conforms {
    ($($name:ident),+ $(,)?) => {
        mod over_memory {
            $(#[tokio::test]
            async fn $name() {
                let backend = crate::store::backends::memory().await;
                super::$name(std::sync::Arc::clone(&backend.store)).await;
            })+
        }
        mod over_sqlite {
            $(#[tokio::test]
            async fn $name() {
                let backend = crate::store::backends::sqlite().await;
                super::$name(std::sync::Arc::clone(&backend.store)).await;
                backend.store.close().await;
                drop(backend.dir);
            })+
        }
        mod over_postgres {
            $(#[tokio::test]
            async fn $name() {
                let backend = crate::store::backends::postgres().await;
                super::$name(std::sync::Arc::clone(&backend.store)).await;
                backend.store.close().await;
            })+
        }
    };
}
pub(crate) use conforms;
