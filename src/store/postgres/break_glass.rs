//! Break-glass credentials: the statements that both databases share, for a connection of this one.

use sqlx::Postgres;
use sqlx::postgres::PgConnection;

use super::super::rows::break_glass_list::{Dialect, list};
use super::super::rows::break_glass_sql::statements;
use super::super::search::Pattern;
use super::error::map;
use super::transaction::{query, query_as};

statements!(PgConnection, query, query_as);

const DIALECT: Dialect = Dialect {
    id_like: "replace(credential_id::text, '-', '') LIKE ",
    username_like: "username LIKE ",
    like_end: " ESCAPE '\\'",
    no_limit: "NULL",
};

list!(Postgres, PgConnection, DIALECT, Pattern::as_like);
