//! The text of an htpasswd file, read as the registry reads it and changed line by line.
//!
//! Bytes in, bytes out: no files, no secrets in plain. A line of somebody else keeps every byte.

use std::borrow::Cow;

use zeroize::Zeroizing;

/// The registry reads lines with a buffer of 64 KiB; a longer one makes it refuse the whole file.
const LONGEST_LINE: usize = 64 * 1024 - 1;

/// A line that makes the registry refuse every login. Only its number is told: it may hold a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) line: usize,
}

/// A file whose every line the registry understands.
#[derive(Clone, Default)]
pub(super) struct Document {
    bytes: Zeroizing<Vec<u8>>,
}

impl Document {
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, Malformed> {
        let document = Self { bytes: Zeroizing::new(bytes) };
        for (index, line) in document.lines().enumerate() {
            let content = line.strip_suffix(b"\n").unwrap_or(line);
            let entry = trimmed(line);
            let understood = entry.is_empty() || entry.starts_with('#') || entry.contains(':');
            if content.len() > LONGEST_LINE || !understood {
                return Err(Malformed { line: index + 1 });
            }
        }
        Ok(document)
    }

    /// Each line with its line feed.
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split_inclusive(|byte| *byte == b'\n')
    }

    pub(super) fn contains(&self, user: &str) -> bool {
        self.lines().any(|line| is_of(line, user))
    }

    /// What stands behind the user's colon. Of several lines the last counts, as at the registry.
    pub(super) fn hash_of(&self, user: &str) -> Option<String> {
        let line = self.lines().filter(|line| is_of(line, user)).last()?;
        let entry = trimmed(line);
        entry.split_once(':').map(|(_, hash)| hash.to_owned())
    }

    /// The names that begin with exactly `<prefix>-`, each once, in the order of the file.
    pub(super) fn users_with(&self, prefix: &str) -> Vec<String> {
        let begin = format!("{prefix}-");
        let mut seen = std::collections::HashSet::new();
        let names = self.lines().filter_map(user_of);
        names.filter(|user| user.starts_with(&begin) && seen.insert(user.clone())).collect()
    }

    /// The file with one more line at its end.
    pub(super) fn with(&self, user: &str, hash: &str) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.bytes.len() + 128));
        bytes.extend_from_slice(&self.bytes);
        // The only byte that a foreign line may gain: the last one ends before ours begins.
        if bytes.last().is_some_and(|last| *last != b'\n') {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(user.as_bytes());
        bytes.push(b':');
        bytes.extend_from_slice(hash.as_bytes());
        bytes.push(b'\n');
        bytes
    }

    /// The file without any line of this user.
    pub(super) fn without(&self, user: &str) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.bytes.len()));
        for line in self.lines().filter(|line| !is_of(line, user)) {
            bytes.extend_from_slice(line);
        }
        bytes
    }
}

/// A line without the white space around it. What is not UTF-8 is nobody's of ours.
fn trimmed(line: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(line) {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

fn user_of(line: &[u8]) -> Option<String> {
    let entry = trimmed(line);
    if entry.starts_with('#') {
        return None;
    }
    entry.split_once(':').map(|(user, _)| user.to_owned())
}

fn is_of(line: &[u8], user: &str) -> bool {
    user_of(line).is_some_and(|found| found == user)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(text: &str) -> Document {
        Document::parse(text.as_bytes().to_vec()).unwrap_or_else(|error| panic!("{error:?}"))
    }

    #[test]
    fn reads_as_the_registry_reads() {
        let text = "# hyp-a:no\n\n  hyp-a:one  \r\nhyp-a:two\nhyp-b:x:y\n:empty\nhyp:z";
        let document = document(text);
        assert_eq!(document.hash_of("hyp-a").as_deref(), Some("two"));
        assert_eq!(document.hash_of("hyp-b").as_deref(), Some("x:y"));
        assert_eq!(document.hash_of("# hyp-a"), None);
        assert!(document.contains("hyp"));
        assert_eq!(document.users_with("hyp"), ["hyp-a", "hyp-b"]);
        assert_eq!(document.users_with("hy"), Vec::<String>::new());
    }

    #[test]
    fn names_the_line_that_is_malformed() {
        let long = format!("a:b\nc:{}\n", "x".repeat(LONGEST_LINE));
        for (text, line) in [("oops", 1), ("a:b\n\n#c\noops\nd:e\n", 4), (&long, 2)] {
            let error = Document::parse(text.as_bytes().to_vec()).err();
            assert_eq!(error, Some(Malformed { line }));
        }
        let longest = format!("a:{}\n", "x".repeat(LONGEST_LINE - 2));
        assert!(Document::parse(longest.into_bytes()).is_ok());
    }

    #[test]
    fn changes_only_lines_of_the_user() {
        let before = document("other:1\n hyp-a:1\nhyp-a:2\r\n#hyp-a:3\nhyp-ab:4");
        assert_eq!(&**before.without("hyp-a"), b"other:1\n#hyp-a:3\nhyp-ab:4");
        assert_eq!(&**document("a:b").with("c", "d"), b"a:b\nc:d\n");
        assert_eq!(&**document("").with("c", "d"), b"c:d\n");
    }

    proptest! {
        #[test]
        fn adding_and_removing_leaves_the_rest_alone(lines in proptest::collection::vec(
            "[ \t]?([a-z#\u{e9}]{0,3}:.{0,9})?", 0..6), end in "\n?"
        ) {
            let bytes = (lines.join("\n") + &end).into_bytes();
            let before = Document::parse(bytes.clone()).unwrap_or_default();
            let with = Document::parse(before.with("hyp-new", "hash").to_vec()).unwrap_or_default();
            prop_assert!(with.contains("hyp-new") && with.bytes.starts_with(&before.bytes));
            let after = with.without("hyp-new");
            let mut expected = before.bytes.to_vec();
            if expected.last().is_some_and(|last| *last != b'\n') {
                expected.push(b'\n');
            }
            prop_assert_eq!(&*after, &expected);
        }
    }
}
