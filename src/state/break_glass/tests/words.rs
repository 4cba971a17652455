//! The words of each surface, as `DESIGN` section 4 has them.

use std::fmt::Write as _;

use strum::VariantArray;

use super::super::{StateName, Surface};

#[test]
fn every_state_has_a_word_on_every_surface() {
    let mut table = String::new();
    for state in StateName::VARIANTS {
        let word = |surface| state.word(surface);
        let (old, new) = (word(Surface::ClustersMgmt), word(Surface::AroHcp));
        writeln!(table, "{state:<20} {old:<20} {new}").unwrap();
    }
    insta::assert_snapshot!(table, @r"
    requested            created              created
    accepted             created              created
    issuing              created              issuing
    active               issued               issued
    awaiting_revocation  awaiting_revocation  awaiting_revocation
    revoking             awaiting_revocation  revoking
    revoked              revoked              revoked
    denied               failed               denied
    failed               failed               failed
    expired              expired              expired
    ");
}
