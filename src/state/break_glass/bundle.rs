//! What the API servers have to trust, and the name of each version of it.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::model::{AuthorityKind, BreakGlass, CredentialState, Signer};
use crate::ids::ClusterId;
use crate::state::shared::cluster_hash;

impl BreakGlass {
    /// The owners of the trusted authorities. Never empty once there was anything in it: without live ones it
    /// is the placeholder.
    #[must_use]
    pub fn trusted(&self) -> BTreeSet<Uuid> {
        let mut trusted: BTreeSet<Uuid> = self.trusted_credentials().collect();
        trusted.extend(self.made(AuthorityKind::Control));
        if trusted.is_empty() {
            trusted.extend(self.made(AuthorityKind::Placeholder));
        }
        trusted
    }

    fn trusted_credentials(&self) -> impl Iterator<Item = Uuid> {
        let own = self.credentials.iter().filter(|credential| {
            credential.signer == Signer::LocalCa && credential.certificate.is_some()
        });
        own.filter(|credential| match credential.state {
            CredentialState::Issuing { .. } | CredentialState::Active => true,
            CredentialState::Requested
            | CredentialState::Accepted
            | CredentialState::AwaitingRevocation { .. }
            | CredentialState::Revoking { .. }
            | CredentialState::Revoked { .. }
            | CredentialState::Denied
            | CredentialState::Failed
            | CredentialState::Expired => false,
        })
        .map(|credential| credential.id.0)
    }

    fn made(&self, kind: AuthorityKind) -> impl Iterator<Item = Uuid> {
        let made = self.authorities.iter().filter(move |authority| {
            authority.kind == kind && authority.made_at.is_some() && !authority.dropped
        });
        made.map(|authority| authority.id.0)
    }
}

/// The name of a version. It cannot be guessed by counting, nor be taken for another cluster's.
#[must_use]
pub fn bundle_etag(cluster_id: &ClusterId, version: u64) -> String {
    format!("{version}-{:016x}", mixed(cluster_id, version))
}

/// The version that a name means; `None` for one that this cluster never had. A further part, separated by
/// a dash, is somebody else's and not looked at.
#[must_use]
pub fn bundle_version(cluster_id: &ClusterId, etag: &str) -> Option<u64> {
    let mut parts = etag.splitn(3, '-');
    let (version, tag) = (parts.next()?, parts.next()?);
    let digits = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let version: u64 = version.parse().ok().filter(|_| digits)?;
    (tag == format!("{:016x}", mixed(cluster_id, version))).then_some(version)
}

fn mixed(cluster_id: &ClusterId, version: u64) -> u64 {
    let mixed = cluster_hash(cluster_id) ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_one_name_per_cluster() {
        let (one, other): (ClusterId, ClusterId) =
            ("one".parse().unwrap(), "other".parse().unwrap());
        for version in [0, 1, 17, u64::MAX] {
            let etag = bundle_etag(&one, version);
            assert_eq!(bundle_version(&one, &etag), Some(version));
            assert_eq!(bundle_version(&one, &format!("{etag}-base")), Some(version));
            assert_eq!(bundle_version(&other, &etag), None);
        }
        for bad in ["", "1", "1-", "-", "+1-0", "1-0000000000000000", "x-y"] {
            assert_eq!(bundle_version(&one, bad), None, "{bad}");
        }
    }
}
