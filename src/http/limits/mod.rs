//! How much one caller may ask for, and how often one place may be wrong.
//!
//! In the memory of one replica: a fleet of n replicas allows up to n times as much. Knows callers' names,
//! addresses and cluster ids; must not know tokens or what a request does.

mod keyed;

use std::net::IpAddr;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue};

pub use self::keyed::Allowance;
use self::keyed::{Keyed, Quota};
use super::problem::ApiError;
use crate::config::{self, Burst, Rate};
use crate::ids::ClusterId;

/// Refused credentials per address: more than a person mistypes, less than a guess needs.
const FAILURES: Quota = Quota { count: 60, window: Duration::from_secs(60), bucket: 30 };
/// Refused heartbeats per address: a whole fleet may come through one proxy.
const FAILED_BEATS_OF_ADDRESS: Quota =
    Quota { count: 600, window: Duration::from_secs(60), bucket: 300 };
/// Refused heartbeats per cluster.
const FAILED_BEATS_OF_CLUSTER: Quota =
    Quota { count: 60, window: Duration::from_secs(60), bucket: 30 };

/// All limits of the surface.
pub struct Limits {
    requests: Option<Keyed>,
    rotations: Option<Keyed>,
    failures: Keyed,
    beats_of_address: Keyed,
    beats_of_cluster: Keyed,
}

impl Limits {
    /// The configured ones.
    #[must_use]
    pub fn new(limits: &config::Limits) -> Self {
        let burst = match limits.burst {
            Burst::Off => u32::MAX,
            Burst::Of(count) => count,
        };
        Self {
            requests: quota(limits.requests, burst).map(Keyed::new),
            // An hour's worth may come at once: whoever rotates a fleet does just that.
            rotations: quota(limits.rotations, u32::MAX).map(Keyed::new),
            failures: Keyed::new(FAILURES),
            beats_of_address: Keyed::new(FAILED_BEATS_OF_ADDRESS),
            beats_of_cluster: Keyed::new(FAILED_BEATS_OF_CLUSTER),
        }
    }

    /// One request of a known caller; what is left to it afterwards, where there is a limit.
    pub(super) fn request(&self, caller: &str) -> Result<Option<Allowance>, Refusal> {
        self.requests.as_ref().map(|limit| limit.take(caller).map_err(Refusal)).transpose()
    }

    /// One start of a rotation by a known caller.
    pub(super) fn rotation(&self, caller: &str) -> Result<Option<Allowance>, Refusal> {
        self.rotations.as_ref().map(|limit| limit.take(caller).map_err(Refusal)).transpose()
    }

    /// Credentials were refused. Asked only afterwards: behind a proxy one address is many callers, and
    /// whoever is right must not suffer from who is wrong.
    pub(super) fn refused(&self, address: Option<IpAddr>) -> Result<(), Refusal> {
        self.failures.take(network(address)).map(drop).map_err(Refusal)
    }

    /// A heartbeat was refused.
    pub(super) fn refused_beat(
        &self,
        address: Option<IpAddr>,
        cluster: Option<&ClusterId>,
    ) -> Result<(), Refusal> {
        let of_address = self.beats_of_address.take(network(address));
        let of_cluster = cluster.map(|cluster| self.beats_of_cluster.take(cluster)).transpose();
        of_address.map_err(Refusal)?;
        of_cluster.map(drop).map_err(Refusal)
    }
}

/// Who commands a network of IPv6 commands all of its addresses.
fn network(address: Option<IpAddr>) -> Option<[u8; 8]> {
    Some(match address?.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()).to_be_bytes(),
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, h, ..] = address.octets();
            [a, b, c, d, e, f, g, h]
        }
    })
}

fn quota(rate: Rate, bucket: u32) -> Option<Quota> {
    match rate {
        Rate::Off => None,
        Rate::Limited { count, per } => {
            Some(Quota { count, window: per, bucket: bucket.min(count) })
        }
    }
}

/// There is nothing left.
#[derive(Debug, Clone)]
pub(super) struct Refusal(keyed::Empty);

impl Refusal {
    /// For the headers.
    pub(super) const fn allowance(&self) -> Allowance {
        self.0.allowance
    }
}

impl From<Refusal> for ApiError {
    fn from(Refusal(empty): Refusal) -> Self {
        Self::RateLimited {
            limit: empty.allowance.limit,
            window: config::format_duration(empty.window),
            retry_after: empty.retry_after,
        }
    }
}

/// Tells the caller what is left. `X-RateLimit-Reset` is in seconds from now.
pub(super) fn tell(response: &mut HttpResponse, allowance: Allowance) {
    for (name, value) in [
        ("x-ratelimit-limit", u64::from(allowance.limit)),
        ("x-ratelimit-remaining", u64::from(allowance.remaining)),
        ("x-ratelimit-reset", super::answer::seconds_up(allowance.full_in)),
    ] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(yaml: &str) -> Limits {
        Limits::new(&serde_saphyr::from_str(yaml).unwrap())
    }

    fn refused(result: Result<Option<Allowance>, Refusal>) -> (u32, String) {
        match ApiError::from(result.unwrap_err()) {
            ApiError::RateLimited { limit, window, .. } => (limit, window),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_limit_may_be_off() {
        let off = limits("{requests: 'off', burst: 'off', rotations: 'off'}");
        for _ in 0..10_000 {
            assert_eq!(off.request("ada").unwrap(), None);
            assert_eq!(off.rotation("ada").unwrap(), None);
        }
    }

    #[test]
    fn a_burst_never_exceeds_the_rate_and_without_one_the_rate_is_it() {
        for (text, at_once, limit) in [
            ("{requests: 5/1h, burst: 200}", 5, 5),
            ("{requests: 500/1h, burst: 3}", 3, 500),
            ("{requests: 7/1h, burst: 'off'}", 7, 7),
        ] {
            let limits = limits(text);
            for left in (0..at_once).rev() {
                let allowance = limits.request("ada").unwrap().unwrap();
                assert_eq!((allowance.limit, allowance.remaining), (limit, left), "{text}");
            }
            assert_eq!(refused(limits.request("ada")), (limit, "1h".to_owned()), "{text}");
            assert!(limits.request("bob").is_ok(), "each caller has its own");
        }
    }

    #[test]
    fn rotations_have_a_limit_of_their_own() {
        let limits = limits("{requests: 'off', rotations: 2/1h}");
        assert!(limits.rotation("ada").is_ok() && limits.rotation("ada").is_ok());
        assert_eq!(refused(limits.rotation("ada")), (2, "1h".to_owned()));
        assert!(limits.request("ada").is_ok());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let key = |text: &str| network(Some(text.parse().unwrap()));
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    }

    #[test]
    fn refused_heartbeats_are_limited_by_cluster_and_by_address() {
        let limits = limits("{}");
        let cluster = |n: u32| format!("cls-{n}").parse::<ClusterId>().unwrap();
        let one: Option<IpAddr> = Some([192, 0, 2, 1].into());
        for n in 0..FAILED_BEATS_OF_CLUSTER.bucket {
            let address = Some([198, 51, 100, u8::try_from(n).unwrap()].into());
            assert!(limits.refused_beat(address, Some(&cluster(1))).is_ok());
        }
        assert!(limits.refused_beat(one, Some(&cluster(1))).is_err(), "from wherever it comes");
        // The one above counted for its address, too.
        for n in 2..=FAILED_BEATS_OF_ADDRESS.bucket {
            assert!(limits.refused_beat(one, Some(&cluster(n))).is_ok());
        }
        assert!(limits.refused_beat(one, Some(&cluster(9999))).is_err(), "whatever it asks for");
    }
}
