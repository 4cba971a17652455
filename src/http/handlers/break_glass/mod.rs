//! Break-glass credentials: both OCM surfaces, and their twins for operators.
//!
//! | module | subject |
//! |---|---|
//! | `ocm` | the two surfaces; only codes, words and waiting differ |
//! | `operate` | approvals and revocations as operators see them |
//! | `bundle` | what API servers have to trust, and the word that they do |
//! | `wish` | what may be asked of a credential |
//! | `why` | the reason that the audit keeps |
//! | `desk` | the seam to the layers below |
//! | `facade` | those layers behind it |

pub(super) mod bundle;
mod desk;
mod facade;
pub(super) mod ocm;
pub(super) mod operate;
mod why;
mod wish;

pub use desk::{
    BreakGlass, Bundle, Desk, DeskError, DeskRules, Done, ListOf, Listed, Offer, Opened,
};
pub use wish::Lifetimes;
