//! A list of credentials as bound SQL: put together from a closed set of static pieces, every value bound.

/// What the databases spell differently.
pub(in crate::store) struct Dialect {
    /// The id as it is written, and how it is compared with a pattern.
    pub id_like: &'static str,
    /// The username, and the same.
    pub username_like: &'static str,
    /// What follows the pattern.
    pub like_end: &'static str,
    /// Without a limit.
    pub no_limit: &'static str,
}

/// The functions of one database.
macro_rules! list {
    ($database:ty, $connection:ty, $dialect:expr, $pattern:path) => {
        use sqlx::QueryBuilder;
        use strum::VariantArray;

        use crate::state::break_glass::{StateName, Surface};
        use crate::store::break_glass::{CredentialList, CredentialQuery};
        use crate::store::rows::break_glass::credential_columns;
        use crate::store::search::{Order, OrderField, Search};

        type Builder = QueryBuilder<$database>;

        pub(super) async fn list(
            db: &mut $connection,
            query: &CredentialQuery,
        ) -> Result<CredentialList, StoreError> {
            let mut number = Builder::new("SELECT count(*)");
            matching(&mut number, query);
            let (total,): (i64,) =
                number.build_query_as().persistent(false).fetch_one(&mut *db).await.map_err(map)?;
            let mut rows = Builder::new(concat!("SELECT ", credential_columns!()));
            matching(&mut rows, query);
            rows.push(" ORDER BY ");
            for order in &query.order {
                push_order(&mut rows, *order, query.surface);
                rows.push(", ");
            }
            rows.push("credential_id LIMIT ");
            match query.limit {
                Some(limit) => rows.push_bind(i64::from(limit)),
                None => rows.push($dialect.no_limit),
            };
            rows.push(" OFFSET ");
            rows.push_bind(signed(query.offset));
            let rows: Vec<CredentialRow> =
                rows.build_query_as().persistent(false).fetch_all(db).await.map_err(map)?;
            let items = rows.into_iter().map(Credential::try_from).collect::<Result<_, _>>()?;
            Ok(CredentialList { items, total: count(total)? })
        }

        /// Index: `break_glass_credentials_by_cluster`; a cluster's rows are looked at one by one.
        fn matching(into: &mut Builder, query: &CredentialQuery) {
            into.push(" FROM break_glass_credentials WHERE cluster_id = ");
            into.push_bind(query.cluster_id.as_str().to_owned());
            into.push(" AND NOT control");
            if let Some(search) = &query.search {
                into.push(" AND ");
                push_search(into, search);
            }
        }

        /// Nested as deep as the parser lets it be.
        fn push_search(into: &mut Builder, search: &Search) {
            match search {
                Search::And(left, right) => push_pair(into, left, " AND ", right),
                Search::Or(left, right) => push_pair(into, left, " OR ", right),
                Search::Not(inner) => {
                    into.push("NOT (");
                    push_search(into, inner);
                    into.push(")");
                }
                Search::Id(ids) => push_any(into, "credential_id = ", ids.iter().map(|id| id.0)),
                Search::IdLike(pattern) => {
                    into.push($dialect.id_like);
                    into.push_bind($pattern(pattern));
                    into.push($dialect.like_end);
                }
                Search::Username(names) => push_any(into, "username = ", names.iter().cloned()),
                Search::UsernameLike(pattern) => {
                    into.push($dialect.username_like);
                    into.push_bind($pattern(pattern));
                    into.push($dialect.like_end);
                }
                Search::State(states) => {
                    let words = states.iter().map(|state| <&'static str>::from(*state));
                    push_any(into, "state = ", words);
                }
            }
        }

        fn push_pair(into: &mut Builder, left: &Search, word: &'static str, right: &Search) {
            into.push("(");
            push_search(into, left);
            into.push(word);
            push_search(into, right);
            into.push(")");
        }

        /// Any of these, of which there may be none.
        fn push_any<T>(into: &mut Builder, is: &'static str, values: impl Iterator<Item = T>)
        where
            T: for<'q> sqlx::Encode<'q, $database> + sqlx::Type<$database> + Send + 'static,
        {
            into.push("(1 = 0");
            for value in values {
                into.push(" OR ");
                into.push(is);
                into.push_bind(value);
            }
            into.push(")");
        }

        fn push_order(into: &mut Builder, order: Order, surface: Surface) {
            match order.field {
                OrderField::Id => into.push("credential_id"),
                OrderField::Username => into.push("username"),
                OrderField::CreationTimestamp => into.push("created_at"),
                OrderField::ExpirationTimestamp => into.push("expires_at"),
                OrderField::RevocationTimestamp => into.push("revoked_at"),
                OrderField::Status => {
                    into.push("CASE state");
                    for state in StateName::VARIANTS {
                        into.push(" WHEN '").push(<&'static str>::from(*state)).push("' THEN ");
                        into.push(rank(*state, surface));
                    }
                    into.push(" END")
                }
            };
            into.push(if order.descending { " DESC NULLS LAST" } else { " ASC NULLS FIRST" });
        }

        fn rank(state: StateName, surface: Surface) -> usize {
            crate::store::search::word_rank(state, surface)
        }
    };
}
pub(in crate::store) use list;
