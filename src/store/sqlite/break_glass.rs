//! Break-glass credentials: the statements that both databases share, for a connection of this one.

use sqlx::Sqlite;
use sqlx::sqlite::SqliteConnection;

use super::super::rows::break_glass_list::{Dialect, list};
use super::super::rows::break_glass_sql::statements;
use super::super::search::Pattern;
use super::error::map;

statements!(SqliteConnection, sqlx::query, sqlx::query_as);

const DIALECT: Dialect = Dialect {
    id_like: "lower(hex(credential_id)) GLOB ",
    username_like: "username GLOB ",
    like_end: "",
    no_limit: "-1",
};

list!(Sqlite, SqliteConnection, DIALECT, Pattern::as_glob);
