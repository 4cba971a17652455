//! The sections of the configuration, typed, with their defaults.
//!
//! Shapes and defaults only: what a value may be is in `validate`, what each key is called and
//! means for people is in `keys`.

use std::time::Duration;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
const fn hours(n: u64) -> Duration {
    secs(n * 3600)
}
const fn days(n: u64) -> Duration {
    hours(n * 24)
}

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display, VariantNames)]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }
    };
}

mod process;
mod work;

pub use process::*;
pub use work::*;
