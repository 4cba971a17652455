//! What must be true, told from what API servers would trust and signers have signed, and from the rows.

use std::collections::{BTreeMap, BTreeSet};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sqlx::postgres::PgPool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::super::world::{Scene, V1};
use crate::support::fake_management::FakeManagement;

/// Words of states in which nothing of a credential may work.
const OVER: [&str; 4] = ["revoked", "denied", "failed", "expired"];

/// The service's rows, read beside it.
pub enum Rows {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

macro_rules! all {
    ($rows:expr, $sqlite:expr, $postgres:expr) => {
        match $rows {
            Rows::Sqlite(db) => sqlx::query_as($sqlite).fetch_all(db).await.unwrap(),
            Rows::Postgres(db) => sqlx::query_as($postgres).fetch_all(db).await.unwrap(),
        }
    };
}

impl Rows {
    pub async fn open(scene: &Scene, database: Option<&str>) -> Self {
        match database {
            None => {
                let file = scene.world.directory.path().join("data/credentials.db");
                let options = SqliteConnectOptions::new().filename(file).read_only(true);
                Self::Sqlite(SqlitePool::connect_with(options).await.unwrap())
            }
            Some(url) => Self::Postgres(PgPool::connect(url).await.unwrap()),
        }
    }

    /// Each credential's state, controls included, by its id as names hold it.
    async fn credentials(&self) -> BTreeMap<String, String> {
        let rows: Vec<(String, String)> = all!(
            self,
            "SELECT lower(hex(credential_id)), state FROM break_glass_credentials",
            "SELECT replace(credential_id::text, '-', ''), state FROM break_glass_credentials"
        );
        rows.into_iter().collect()
    }

    /// Authorities that are no credential's.
    async fn authorities(&self) -> BTreeSet<String> {
        let rows: Vec<(String,)> = all!(
            self,
            "SELECT lower(hex(authority_id)) FROM break_glass_authorities",
            "SELECT replace(authority_id::text, '-', '') FROM break_glass_authorities"
        );
        rows.into_iter().map(|(id,)| id).collect()
    }

    /// But for controls, which nobody is handed.
    pub async fn assert_nothing_live(&self) {
        let rows: Vec<(String, String)> = all!(
            self,
            "SELECT username, state FROM break_glass_credentials WHERE NOT control",
            "SELECT username, state FROM break_glass_credentials WHERE NOT control"
        );
        let live: Vec<_> = rows.iter().filter(|(_, state)| !OVER.contains(&&**state)).collect();
        assert!(!rows.is_empty() && live.is_empty(), "{live:?}");
    }

    /// Each call that was announced has one outcome, whoever told it; one that is running has none yet.
    pub async fn assert_calls_are_paired(&self) {
        let of = "SELECT json_extract(detail, '$.token'), \
                  CAST(sum(action = 'call_announced') AS INTEGER), \
                  CAST(sum(action = 'call_answered') AS INTEGER) FROM audit_events \
                  WHERE action IN ('call_announced', 'call_answered') GROUP BY 1";
        let on_postgres = "SELECT detail->>'token', sum((action = 'call_announced')::int), \
                           sum((action = 'call_answered')::int) FROM audit_events \
                           WHERE action IN ('call_announced', 'call_answered') GROUP BY 1";
        let calls: Vec<(String, i64, i64)> = all!(self, of, on_postgres);
        assert!(!calls.is_empty());
        let open = calls.iter().filter(|(_, announced, answered)| {
            assert!(*announced == 1 && *answered <= 1, "{announced} and {answered}");
            *answered == 0
        });
        // A control may be renewed at any time.
        assert!(open.count() <= 1);
    }
}

/// Every authority that the trust bundle holds is a record's, each record has one, and none of what is over.
pub async fn bundle(scene: &Scene, rows: &Rows) {
    let bundle = scene.world.get_as("adapter", &format!("{V1}/trust-bundle")).await;
    assert_eq!(bundle.status, 200, "{}", bundle.text);
    let (credentials, authorities) = (rows.credentials().await, rows.authorities().await);
    let mut seen = BTreeSet::new();
    for der in CertificateDer::pem_slice_iter(bundle.text.as_bytes()) {
        let der = der.unwrap();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let name = certificate.subject().iter_common_name().next().unwrap().as_str().unwrap();
        let id = name.strip_prefix("break-glass-").and_then(|rest| rest.split('-').next());
        let id = id.unwrap_or_else(|| panic!("whose is {name}?")).to_owned();
        match credentials.get(&id) {
            Some(state) => assert!(!OVER.contains(&&**state), "{name} is {state}"),
            None => assert!(authorities.contains(&id), "no record knows {name}"),
        }
        assert!(seen.insert(id), "a second one: {name}");
    }
    assert!(!seen.is_empty(), "an API server would not load it");
}

/// Every certificate that the operator has signed is a record's, whether that is over or not.
pub async fn requests(management: &FakeManagement, rows: &Rows) {
    let credentials = rows.credentials().await;
    let signed = management.signed();
    assert!(!signed.is_empty());
    for name in signed {
        let id = name.strip_prefix("break-glass-").unwrap_or_else(|| panic!("whose is {name}?"));
        assert!(credentials.contains_key(&id.replace('-', "")), "no record knows {name}");
    }
}
