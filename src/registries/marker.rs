//! A marker as one line of text, for registries whose accounts have a description.
//!
//! Read by machines: what does not parse exactly is nobody's marker. Knows no registry.

use std::fmt::Write;

use super::Marker;
use crate::ids::Generation;

/// Begins every marker; the number rises should the form ever change.
const FORM: &str = "hyperfleet-credentials/1";

impl Marker {
    /// `hyperfleet-credentials/1 installation=... cluster=... generation=...`; an account of the
    /// pool has no `cluster`.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{FORM} installation={}", escape(&self.installation));
        if let Some(cluster_id) = &self.cluster_id {
            text.push_str(" cluster=");
            text.push_str(cluster_id.as_str());
        }
        // Writing to a string cannot fail.
        let _ = write!(text, " generation={}", self.generation);
        text
    }

    /// The marker that a text is, if it is one in its one spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(FORM)?.strip_prefix(" installation=")?;
        let (rest, generation) = rest.rsplit_once(" generation=")?;
        let (installation, cluster) = match rest.split_once(" cluster=") {
            Some((installation, cluster)) => (installation, Some(cluster)),
            None => (rest, None),
        };
        let marker = Self {
            installation: unescape(installation)?,
            cluster_id: cluster.map(str::parse).transpose().ok()?,
            generation: Generation(generation.parse().ok()?),
        };
        (marker.to_text() == text).then_some(marker)
    }
}

/// Everything that could be taken for the marker's own form, and everything that a registry might
/// change, goes as `%XX`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' && byte != b'=' {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let pair = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(pair, 16).ok()?);
            rest = tail.get(2..)?;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_and_back(
            installation in ".{0,40}",
            cluster in proptest::option::of("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
            generation: u32,
        ) {
            let cluster_id = cluster.map(|id| id.parse().unwrap());
            let marker = Marker { installation, cluster_id, generation: Generation(generation) };
            let text = marker.to_text();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
            prop_assert_eq!(Marker::parse(&text), Some(marker));
        }

        #[test]
        fn any_text_has_at_most_one_reading(text in "(hyperfleet-credentials/1 )?.{0,80}") {
            if let Some(marker) = Marker::parse(&text) {
                prop_assert_eq!(marker.to_text(), text);
            }
        }
    }

    #[test]
    fn the_text_is_for_people_too() {
        let cluster_id = Some("cls-1".parse().unwrap());
        let mut marker =
            Marker { installation: "lab".to_owned(), cluster_id, generation: Generation(3) };
        let text = "hyperfleet-credentials/1 installation=lab cluster=cls-1 generation=3";
        assert_eq!(marker.to_text(), text);
        marker.cluster_id = None;
        assert_eq!(marker.to_text(), "hyperfleet-credentials/1 installation=lab generation=3");
    }

    #[test]
    fn what_is_not_exact_is_no_marker() {
        let good = "hyperfleet-credentials/1 installation=lab cluster=cls-1 generation=3";
        assert!(Marker::parse(good).is_some());
        for bad in [
            "",
            "a robot of mine",
            "hyperfleet-credentials/2 installation=lab cluster=cls-1 generation=3",
            "hyperfleet-credentials/1 installation=lab cluster=cls-1 generation=03",
            "hyperfleet-credentials/1 installation=lab cluster=cls-1 generation=3 ",
            "hyperfleet-credentials/1 installation=lab cluster=Cls generation=3",
            "hyperfleet-credentials/1 installation=l%61b generation=3",
            "hyperfleet-credentials/1 installation=l% generation=3",
        ] {
            assert_eq!(Marker::parse(bad), None, "{bad:?}");
        }
    }
}
