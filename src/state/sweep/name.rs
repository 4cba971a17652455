//! What an account's name tells, for registries that have no room for a marker.

use crate::ids::Generation;

/// A slug of at least this length may be the beginning of a longer cluster id: it was cut at 16 characters and
/// lost a dash at its end.
pub const SLUG_MAY_BE_CUT: usize = 15;
const RANDOM_LENGTH: usize = 10;

/// The parts of a name that this service made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameParts {
    /// The beginning of the cluster's id.
    pub slug: String,
    /// The generation.
    pub generation: Generation,
}

/// Reads `<prefix>-<slug>-g<generation>-<10 random base32>`; nothing else is a name of ours.
#[must_use]
pub fn parts_of(prefix: &str, name: &str) -> Option<NameParts> {
    let rest = name.strip_prefix(prefix)?.strip_prefix('-')?;
    let (rest, random) = rest.rsplit_once('-')?;
    let base32 = |b: u8| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b);
    if random.len() != RANDOM_LENGTH || !random.bytes().all(base32) {
        return None;
    }
    let (slug, number) = rest.rsplit_once("-g")?;
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let generation = number.parse().ok().filter(|_| digits && !slug.is_empty())?;
    Some(NameParts { slug: slug.to_owned(), generation: Generation(generation) })
}
