//! Names at Quay: what a robot may be called, what it is called in full, where it lies.
//!
//! Pure. Names are checked here before any call, because Quay makes accounts out of invalid input:
//! a name that ends in a line break is accepted (measured).

/// What the database column holds: `org+short` must be shorter than 256 (measured: 256 is refused).
const LONGEST_FULL: usize = 255;
/// The longest name that this service makes.
const LONGEST_OWN: usize = 49;

/// The organisation that all robots belong to.
#[derive(Debug, Clone)]
pub(super) struct Organization(String);

impl Organization {
    /// None for a name that is none, or that leaves no room for a robot's.
    pub(super) fn new(name: &str) -> Option<Self> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let good = !name.is_empty()
            && name.bytes().all(allowed)
            && !matches!(name, "." | "..")
            && name.len() + 1 + 2 <= LONGEST_FULL;
        good.then(|| Self(name.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The longest short name that fits behind this organisation's and a plus.
    pub(super) fn longest_short(&self) -> usize {
        LONGEST_OWN.min(LONGEST_FULL - 1 - self.0.len())
    }

    /// The login name: `org+short`.
    pub(super) fn full(&self, short: &str) -> String {
        format!("{}+{short}", self.0)
    }

    /// The short name of one of our organisation's robots; none for anybody else's. Quay filters
    /// its listings by a case-insensitive LIKE in which `_` stands for any character, and returns
    /// robots of other organisations with it (measured), so this is compared exactly.
    pub(super) fn short<'a>(&self, full: &'a str) -> Option<&'a str> {
        full.strip_prefix(self.0.as_str())?.strip_prefix('+')
    }

    /// Whether Quay can make a robot of this name: `^([a-z0-9]+(?:[._-][a-z0-9]+)*)$` with the
    /// anchors meant, and short enough.
    pub(super) fn accepts(&self, short: &str) -> bool {
        let alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = short.as_bytes();
        (2..=self.longest_short()).contains(&bytes.len())
            && bytes.iter().all(|b| alnum(b) || b"._-".contains(b))
            && bytes.first().is_some_and(alnum)
            && bytes.last().is_some_and(alnum)
            && bytes.windows(2).all(|pair| pair.iter().any(alnum))
    }
}

/// A repository's name below the organisation; it may be written with the organisation in front.
pub(super) fn repository(organization: &Organization, name: &str) -> Option<String> {
    let own = format!("{}/", organization.as_str());
    let name = name.strip_prefix(&own).unwrap_or(name);
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let segment =
        |part: &str| !part.is_empty() && part.bytes().all(allowed) && !matches!(part, "." | "..");
    name.split('/').all(segment).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_separators_and_nothing_behind() {
        let org = Organization::new("acme").unwrap();
        for good in ["ab", "hyp-cls-1-g3-k4t7mzq2ab", "a.b_c-d", "00", &"a".repeat(49)] {
            assert!(org.accepts(good), "{good}");
        }
        for bad in [
            "",
            "a",
            "a--b",
            "a._b",
            "a..b",
            "-ab",
            "ab-",
            "aB",
            "ab\n",
            "\nab",
            "a+b",
            "a/b",
            "ä-b",
            "a b",
            &"a".repeat(50),
        ] {
            assert!(!org.accepts(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_organisation_takes_its_part_of_the_255() {
        assert_eq!(Organization::new("redhat-openshift").unwrap().longest_short(), 49);
        let long = Organization::new(&"o".repeat(230)).unwrap();
        assert_eq!(long.longest_short(), 24);
        assert!(long.accepts(&"a".repeat(24)) && !long.accepts(&"a".repeat(25)));
        assert!(Organization::new(&"o".repeat(252)).is_some());
        assert!(Organization::new(&"o".repeat(253)).is_none());
        for bad in ["", "a+b", "a/b", "A", "..", "a b", "a\n"] {
            assert!(Organization::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn only_our_own_robots_have_a_short_name() {
        let org = Organization::new("a_b").unwrap();
        assert_eq!(org.short("a_b+hyp-1"), Some("hyp-1"));
        for other in ["axb+hyp-1", "A_B+hyp-1", "a_bc+hyp-1", "a_b", "hyp-1", ""] {
            assert_eq!(org.short(other), None, "{other}");
        }
        assert_eq!(org.full("hyp-1"), "a_b+hyp-1");
    }

    #[test]
    fn repositories_with_and_without_their_organisation() {
        let org = Organization::new("acme").unwrap();
        assert_eq!(repository(&org, "app").as_deref(), Some("app"));
        assert_eq!(repository(&org, "acme/app/web").as_deref(), Some("app/web"));
        for bad in ["", "acme/", "a//b", "../x", "App", "a b", "a:b"] {
            assert_eq!(repository(&org, bad), None, "{bad:?}");
        }
    }
}
