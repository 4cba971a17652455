//! The stores under test, and the macro that runs a test over each.

use std::sync::Arc;

use hyperfleet_credentials::store::{MemoryStore, SqliteStore, Store};

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
    };
}
pub(crate) use conforms;
