//! The bundle: complete, stable, nothing twice, never empty, whatever the order of its parts.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::{authority, leaf};
use crate::signers::bundle::{Base, BaseError, Beside, BundleError, compose};
use crate::signers::x509::{PemError, certificates};

/// A cluster's own, and those of credentials.
static POOL: LazyLock<(Vec<String>, Vec<String>)> = LazyLock::new(|| {
    let some = |what: &str, count| (0..count).map(|i| authority(&format!("{what}-{i}"))).collect();
    (some("base", 3), some("live", 8))
});

fn ders(pem: &str) -> Vec<Vec<u8>> {
    certificates(pem.as_bytes()).unwrap()
}

proptest! {
    #[test]
    fn it_holds_what_it_should_once_in_an_order_that_does_not_depend_on_chance(
        (bases, live) in (subsequence((0..3).collect::<Vec<usize>>(), 1..=3),
            subsequence((0..8).collect::<Vec<usize>>(), 0..=8)),
        shuffle in prop::collection::vec(any::<Index>(), 8),
        repeated in 0_usize..3,
    ) {
        let base_text: String = bases.iter().map(|i| POOL.0[*i].as_str()).collect();
        let base = Base::parse(base_text.as_bytes()).unwrap();
        let mut given: Vec<&str> = live.iter().map(|i| POOL.1[*i].as_str()).collect();
        // Some stand there twice, and one is the cluster's own.
        given.extend(live.iter().take(repeated).map(|i| POOL.1[*i].as_str()).collect::<Vec<_>>());
        given.extend(bases.iter().take(1).map(|i| POOL.0[*i].as_str()));
        let first = compose(Beside::Base(&base), &given).unwrap();
        for (i, index) in shuffle.iter().enumerate() {
            let (a, b) = (i % given.len(), index.index(given.len()));
            given.swap(a, b);
        }
        // Equal content, equal text, equal tag.
        prop_assert_eq!(&compose(Beside::Base(&base), &given).unwrap(), &first);

        let found = ders(&first.pem);
        let wanted: BTreeSet<Vec<u8>> =
            ders(&base_text).into_iter().chain(given.iter().flat_map(|pem| ders(pem))).collect();
        prop_assert_eq!(found.len(), wanted.len(), "nothing twice");
        prop_assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), wanted);
        // The cluster's own come first, in their own order.
        prop_assert_eq!(&found[..bases.len()], &ders(&base_text)[..]);
    }

    #[test]
    fn one_authority_more_or_less_is_another_tag_and_nothing_else_changes(
        live in subsequence((0..8).collect::<Vec<usize>>(), 1..=8),
        gone in any::<Index>(),
    ) {
        let all: Vec<&str> = live.iter().map(|i| POOL.1[*i].as_str()).collect();
        let mut rest = all.clone();
        let gone = rest.remove(gone.index(all.len()));
        let before = compose(Beside::Nothing, &all).unwrap();
        if rest.is_empty() {
            prop_assert_eq!(compose(Beside::Nothing, &rest), Err(BundleError::Empty));
        } else {
            let after = compose(Beside::Nothing, &rest).unwrap();
            prop_assert_ne!(&after.tag, &before.tag);
            let mut expected = ders(&before.pem);
            expected.retain(|der| *der != ders(gone)[0]);
            prop_assert_eq!(ders(&after.pem), expected);
        }
    }

    /// A file is read or refused, and never makes anything fall over.
    #[test]
    fn any_text_is_a_base_or_is_not(text in "(?s).{0,200}", cut in any::<Index>()) {
        let _ = Base::parse(text.as_bytes());
        let whole = &POOL.0[0];
        let _ = Base::parse(&whole.as_bytes()[..cut.index(whole.len())]);
    }
}

#[test]
fn without_a_base_there_is_none_unless_somebody_said_so() {
    assert_eq!(Beside::of(None, false), Err(BundleError::NoBase));
    assert_eq!(Beside::of(None, true), Ok(Beside::Nothing));
    let base = Base::parse(POOL.0[0].as_bytes()).unwrap();
    for bundle_only in [false, true] {
        assert_eq!(Beside::of(Some(&base), bundle_only), Ok(Beside::Base(&base)));
    }
}

#[test]
fn a_base_alone_is_a_bundle_and_a_placeholder_is_one() {
    let base = Base::parse(POOL.0[0].as_bytes()).unwrap();
    let none: [&str; 0] = [];
    assert_eq!(ders(&compose(Beside::Base(&base), &none).unwrap().pem), ders(&POOL.0[0]));
    assert_eq!(compose(Beside::Nothing, &none), Err(BundleError::Empty));
    assert!(compose(Beside::Nothing, &[&POOL.1[0]]).is_ok());
}

#[test]
fn text_between_the_blocks_is_left_out() {
    let text = format!("# the cluster's own\n{}\n  and more\n{}", POOL.0[0], POOL.0[1]);
    let base = Base::parse(text.as_bytes()).unwrap();
    let none: [&str; 0] = [];
    let pem = compose(Beside::Base(&base), &none).unwrap().pem;
    assert!(!pem.contains("own"), "{pem}");
    assert_eq!(ders(&pem).len(), 2);
    assert!(pem.lines().all(|line| line.len() <= 64));
}

#[test]
fn a_base_that_would_not_work_is_refused() {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let good = &POOL.0[0];
    let base64 = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, error) in [
        (String::new(), BaseError::Pem(PemError::Empty)),
        ("nothing to see".to_owned(), BaseError::Pem(PemError::Empty)),
        (format!("{good}{key}"), BaseError::Pem(PemError::PrivateKey(2))),
        (format!("{good}{}", leaf()), BaseError::NotAnAuthority(2)),
        (format!("{good}{base64}"), BaseError::Pem(PemError::Broken(2))),
        (good[..good.len() - 40].to_owned(), BaseError::Pem(PemError::Broken(1))),
    ] {
        let found = Base::parse(text.as_bytes());
        assert_eq!(found, Err(error), "{text}");
        let words = error.to_string();
        assert!(!words.contains("MII"), "{words}");
    }
}
