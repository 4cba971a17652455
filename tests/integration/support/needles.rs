//! Secrets in every form in which they could lie around, and the search for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use data_encoding::{HEXLOWER, HEXUPPER};

/// What is looked for: the bytes, and whose they are in which form.
#[derive(Default)]
pub struct Needles(BTreeMap<Vec<u8>, String>);

impl Needles {
    /// A secret of this name: as it is, in hexadecimal, and inside of any base64 of anything that holds it
    /// (alone, behind a user name, padded or not).
    pub fn add(&mut self, name: &str, secret: &[u8]) {
        assert!(secret.len() >= 16, "{name} is too short to be found for certain");
        let mut put = |form: &str, bytes: Vec<u8>| {
            self.0.entry(bytes).or_insert_with(|| format!("{name} ({form})"));
        };
        put("plain", secret.to_vec());
        put("hex", HEXLOWER.encode(secret).into_bytes());
        put("hex", HEXUPPER.encode(secret).into_bytes());
        for before in 0..3 {
            for engine in [STANDARD, URL_SAFE] {
                put("base64", inside(&engine.encode([&b"..."[..before], secret].concat()), before));
            }
        }
    }

    /// Every place at which something was found.
    pub fn found_in(&self, place: &str, haystack: &[u8]) -> Vec<String> {
        let mut starts: HashMap<[u8; 2], Vec<(&Vec<u8>, &String)>> = HashMap::new();
        let mut may_start = vec![false; 1 << 16];
        for (needle, name) in &self.0 {
            let start = [needle[0], needle[1]];
            starts.entry(start).or_default().push((needle, name));
            may_start[usize::from(u16::from_be_bytes(start))] = true;
        }
        let mut found = BTreeSet::new();
        for (at, pair) in haystack.array_windows::<2>().enumerate() {
            if !may_start[usize::from(u16::from_be_bytes(*pair))] {
                continue;
            }
            let here = starts.get(pair).into_iter().flatten();
            let here = here.filter(|(needle, _)| haystack[at..].starts_with(needle));
            found.extend(here.map(|(_, name)| format!("{place}: {name}")));
        }
        found.into_iter().collect()
    }

    /// All but those of these names.
    pub fn without(&self, names: &[&str]) -> Self {
        let other = |(_, name): &(&Vec<u8>, &String)| {
            !names.iter().any(|known| name.starts_with(&format!("{known} (")))
        };
        let kept = self.0.iter().filter(other);
        Self(kept.map(|(needle, name)| (needle.clone(), name.clone())).collect())
    }
}

/// The part of a base64 text that does not depend on what stands before and after.
fn inside(text: &str, before: usize) -> Vec<u8> {
    let text = text.trim_end_matches('=');
    // Three bytes are four characters; the first and the last one may hold bits of a neighbour.
    let first = [0, 2, 3][before];
    text.as_bytes()[first..text.len() - 1].to_vec()
}

#[test]
fn a_secret_is_found_in_every_form() {
    let secret = "Vq9-Zk_2mQxW7tB4cD8fG1hJ";
    let mut needles = Needles::default();
    needles.add("it", secret.as_bytes());
    for user in ["", "u", "us", "use", "hyp-cls-1-g1"] {
        for after in ["", "!", "!!"] {
            let pair = format!("{user}:{secret}{after}");
            for text in [STANDARD.encode(&pair), URL_SAFE.encode(&pair)] {
                assert!(!needles.found_in("x", text.as_bytes()).is_empty(), "{pair}");
            }
        }
    }
    let hex = HEXLOWER.encode(secret.as_bytes());
    for text in [format!("a{secret}b"), hex.clone(), hex.to_uppercase()] {
        assert!(!needles.found_in("x", text.as_bytes()).is_empty(), "{text}");
        assert!(needles.without(&["it"]).found_in("x", text.as_bytes()).is_empty());
    }
    assert!(needles.found_in("x", &secret.as_bytes()[1..]).is_empty());
}
