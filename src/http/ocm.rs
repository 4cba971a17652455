//! The two interfaces for OCM clients: where they are, and how they spell things.
//!
//! Only names. What stands below them is in the table of [`routes`](super::routes).

use crate::ids::{ClusterId, CredentialId};
use crate::state::break_glass::Surface;

/// Below this is `clusters_mgmt/v1`.
pub const CLUSTERS_MGMT: &str = "/api/clusters_mgmt/v1";
/// Below this is `aro_hcp/v1alpha1`.
pub const ARO_HCP: &str = "/api/aro_hcp/v1alpha1";

/// Where a surface begins.
#[must_use]
pub const fn base(surface: Surface) -> &'static str {
    match surface {
        Surface::ClustersMgmt => CLUSTERS_MGMT,
        Surface::AroHcp => ARO_HCP,
    }
}

/// What stands before the number in an error's code.
#[must_use]
pub const fn code_prefix(surface: Surface) -> &'static str {
    match surface {
        Surface::ClustersMgmt => "CLUSTERS-MGMT",
        Surface::AroHcp => "ARO-HCP",
    }
}

/// The surface that a path is on, whether or not there is anything at it.
#[must_use]
pub fn surface_of(path: &str) -> Option<Surface> {
    let below = |surface: &Surface| {
        let rest = path.strip_prefix(base(*surface));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    <Surface as strum::VariantArray>::VARIANTS.iter().copied().find(below)
}

/// The address of a cluster's credentials.
#[must_use]
pub fn credentials(surface: Surface, cluster_id: &ClusterId) -> String {
    format!("{}/clusters/{cluster_id}/break_glass_credentials", base(surface))
}

/// The address of one.
#[must_use]
pub fn credential(surface: Surface, cluster_id: &ClusterId, id: CredentialId) -> String {
    format!("{}/{id}", credentials(surface, cluster_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surface_is_told_by_whole_parts_of_the_path() {
        for (path, surface) in [
            ("/api/clusters_mgmt/v1", Some(Surface::ClustersMgmt)),
            ("/api/clusters_mgmt/v1/nothing", Some(Surface::ClustersMgmt)),
            ("/api/aro_hcp/v1alpha1/clusters/x", Some(Surface::AroHcp)),
            ("/api/clusters_mgmt/v1x/clusters", None),
            ("/api/clusters_mgmt", None),
            ("/api/aro_hcp/v1/clusters", None),
            ("/v1/clusters/api/clusters_mgmt/v1", None),
        ] {
            assert_eq!(surface_of(path), surface, "{path}");
        }
    }
}
