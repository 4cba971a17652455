use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::ids::RevocationId;
use crate::state::break_glass::{CredentialState, Signer, Surface};
use crate::time::Timestamp;

fn credential(username: &str, state: CredentialState) -> Credential {
    let id = CredentialId(Uuid::from_u128(0xab));
    Credential {
        username: username.to_owned(),
        state,
        ..Credential::new(id, Signer::LocalCa, "alice", Timestamp::EPOCH)
    }
}

fn old(text: &str) -> Search {
    parse_search(text, Surface::ClustersMgmt).unwrap().unwrap()
}

#[test]
fn words_are_those_of_the_surface() {
    let revoking =
        credential("anna", CredentialState::Revoking { revocation: RevocationId(Uuid::nil()) });
    let denied = credential("anna", CredentialState::Denied);
    assert!(old("status = 'awaiting_revocation'").matches(&revoking));
    assert!(old("status='failed'").matches(&denied));
    assert!(old("status like 'f%'").matches(&denied));
    assert_eq!(parse_search("status = 'denied'", Surface::ClustersMgmt), Err(SearchError::Status));
    let new = |text| parse_search(text, Surface::AroHcp).unwrap().unwrap();
    assert!(new("status = 'revoking'").matches(&revoking));
    assert!(!new("status = 'awaiting_revocation'").matches(&revoking));
    assert!(new("status != 'failed'").matches(&denied));
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    let anna = credential("anna", CredentialState::Active);
    for (text, is) in [
        ("username='anna' AND status='issued'", true),
        ("username='x' or username='anna' and status='issued'", true),
        ("(username='x' or username='anna') and status='expired'", false),
        ("not username='anna' or status='issued'", true),
        ("not (username='anna' or status='issued')", false),
        ("username in ('x', 'anna')", true),
        ("username not in ('x', 'anna')", false),
        ("username like 'a_n%'", true),
        ("username not like 'A%'", true),
        ("username <> 'x'", true),
        ("id = '000000000000000000000000000000ab'", true),
        ("id != '000000000000000000000000000000ab'", false),
        ("id = 'no id'", false),
        ("id like '%ab'", true),
    ] {
        assert_eq!(old(text).matches(&anna), is, "{text}");
    }
    let quote = credential("o'hara", CredentialState::Active);
    assert!(old("username = 'o''hara'").matches(&quote));
}

#[test]
fn what_is_not_understood_is_refused() {
    for bad in [
        "username",
        "username =",
        "username = anna",
        "= 'a'",
        "kubeconfig = 'a'",
        "username = 'a",
        "username = 'a' and",
        "(username = 'a'",
        "username = 'a')",
        "username in ()",
        "username = 'a' username = 'b'",
        "username ; drop",
        "status = 'unknown'",
        "not",
        "username > 'a'",
    ] {
        assert!(parse_search(bad, Surface::AroHcp).is_err(), "{bad}");
    }
    let deep = format!("{}id='a'{}", "(".repeat(33), ")".repeat(33));
    assert_eq!(parse_search(&deep, Surface::AroHcp), Err(SearchError::TooDeep));
    let nots = format!("{} id='a'", "not ".repeat(40));
    assert_eq!(parse_search(&nots, Surface::AroHcp), Err(SearchError::TooDeep));
    assert_eq!(parse_search(&" ".repeat(5000), Surface::AroHcp), Err(SearchError::TooLong));
    assert_eq!(parse_search(" ", Surface::AroHcp), Ok(None));
}

#[test]
fn orders() {
    let order = |field, descending| Order { field, descending };
    let parsed = parse_order("id desc, username, id asc").unwrap();
    assert_eq!(parsed, [order(OrderField::Id, true), order(OrderField::Username, false)]);
    assert_eq!(parse_order(""), Ok(vec![]));
    for bad in ["id down", "id desc x", "nothing", "id,", "id; drop table"] {
        assert_eq!(parse_order(bad), Err(SearchError::OrderField), "{bad}");
    }
}

fn tree() -> impl Strategy<Value = (String, Search)> {
    let leaf = prop_oneof![
        "[a-z']{0,5}".prop_map(|name| {
            let text = format!("username = '{}'", name.replace('\'', "''"));
            (text, Search::Username(vec![name]))
        }),
        "[a-c%_]{0,5}".prop_map(|pattern| {
            (format!("username like '{pattern}'"), Search::UsernameLike(Pattern(pattern)))
        }),
        Just(("status='issued'".to_owned(), Search::State(vec![StateName::Active]))),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|((a, x), (b, y))| {
                (format!("({a}) and ({b})"), Search::And(Box::new(x), Box::new(y)))
            }),
            (inner.clone(), inner.clone()).prop_map(|((a, x), (b, y))| {
                (format!("({a}) OR ({b})"), Search::Or(Box::new(x), Box::new(y)))
            }),
            inner.prop_map(|(a, x)| (format!("not ({a})"), Search::Not(Box::new(x)))),
        ]
    })
}

/// `LIKE` by the book.
fn like(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|from| like(rest, &text[from..])),
        Some((c, rest)) => text
            .split_first()
            .is_some_and(|(t, others)| (*c == '_' || c == t) && like(rest, others)),
    }
}

proptest! {
    #[test]
    fn nothing_that_is_written_makes_it_panic(text in "\\PC{0,200}") {
        let _ = parse_search(&text, Surface::ClustersMgmt);
        let _ = parse_order(&text);
    }

    #[test]
    fn nor_does_anything_that_looks_like_a_search(text in "([()=',! ]|id|username|status|in|like|and|or|not|'a'){0,60}") {
        let _ = parse_search(&text, Surface::AroHcp);
    }

    #[test]
    fn what_is_written_is_what_is_read((text, search) in tree()) {
        prop_assert_eq!(parse_search(&text, Surface::AroHcp), Ok(Some(search)));
    }

    #[test]
    fn patterns_are_those_of_sql(pattern in "[ab%_]{0,8}", text in "[ab]{0,8}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        let expected = like(&chars(&pattern), &chars(&text));
        prop_assert_eq!(Pattern(pattern).matches(&text), expected);
    }
}
