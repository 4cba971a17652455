//! Rows as both databases give and take them: the columns, what they mean, in which order they are bound.
//!
//! A row's fields are of types that each backend reads and writes in its own way: a time, a UUID, JSON. Knows
//! no statement beyond lists of columns; those are each backend's own, because their dialects differ.

pub(in crate::store) mod account;
pub(in crate::store) mod attention;
pub(in crate::store) mod audit;
pub(in crate::store) mod break_glass;
pub(in crate::store) mod break_glass_list;
pub(in crate::store) mod break_glass_sql;
pub(in crate::store) mod break_glass_store;
pub(in crate::store) mod campaign;
pub(in crate::store) mod decode;
pub(in crate::store) mod idempotency;
pub(in crate::store) mod read;
pub(in crate::store) mod record;
pub(in crate::store) mod replicas;
pub(in crate::store) mod rotation;
pub(in crate::store) mod rotations;
pub(in crate::store) mod sweep;
pub(in crate::store) mod usage;
