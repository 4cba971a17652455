//! The schema's version and what is said when it is another one. The same for every backend.

use std::cmp::Ordering;

use sqlx::migrate::{MigrateError, Migrator};

use super::StoreError;

fn known(migrations: &Migrator) -> i64 {
    migrations.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Before migrating: a newer program's schema is left alone.
pub(super) fn not_newer(found: i64, migrations: &Migrator) -> Result<(), StoreError> {
    let known = known(migrations);
    if found > known { Err(StoreError::SchemaTooNew { found, known }) } else { Ok(()) }
}

/// Before serving: the schema is exactly this program's.
pub(super) fn is_ours(found: i64, migrations: &Migrator) -> Result<(), StoreError> {
    let known = known(migrations);
    match found.cmp(&known) {
        Ordering::Less => Err(StoreError::NotMigrated { found, known }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(StoreError::SchemaTooNew { found, known }),
    }
}

/// What went wrong while migrating; `map` is the backend's own word on its errors.
pub(super) fn error(error: MigrateError, map: fn(sqlx::Error) -> StoreError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => map(error),
        other => StoreError::corrupt(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    fn versions(migrations: &sqlx::migrate::Migrator) -> Vec<(i64, String)> {
        migrations.iter().map(|one| (one.version, one.description.to_string())).collect()
    }

    #[test]
    fn both_databases_have_the_same_versions() {
        let sqlite = versions(&sqlx::migrate!("migrations/sqlite"));
        assert!(!sqlite.is_empty());
        assert_eq!(sqlite, versions(&sqlx::migrate!("migrations/postgres")));
    }
}
