//! `search` and `order` of the lists, from text to a tree. The tree becomes bound SQL in the backends: what a
//! client writes is never part of a statement.
//!
//! Pure. Knows the fields of a credential and no database.

mod lex;
mod parse;

#[cfg(test)]
mod tests;

use strum::{Display, EnumString, VariantArray};

pub use parse::{SearchError, parse_order, parse_search};

use crate::ids::CredentialId;
use crate::state::break_glass::{Credential, StateName, Surface, Word};

/// A condition on credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// Each of them.
    And(Box<Search>, Box<Search>),
    /// Any of them.
    Or(Box<Search>, Box<Search>),
    /// The opposite.
    Not(Box<Search>),
    /// The id is one of these; what cannot be an id is left out.
    Id(Vec<CredentialId>),
    /// The id, as it is written, is like this.
    IdLike(Pattern),
    /// The username is one of these.
    Username(Vec<String>),
    /// The username is like this.
    UsernameLike(Pattern),
    /// The state is one of these: a surface's words were translated.
    State(Vec<StateName>),
}

/// A pattern of `like`: `%` is any text, `_` any one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(pub String);

/// What a list may be ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "named as in the interface")]
pub enum OrderField {
    Id,
    Username,
    Status,
    CreationTimestamp,
    ExpirationTimestamp,
    RevocationTimestamp,
}

/// One part of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// By what.
    pub field: OrderField,
    /// The greatest first.
    pub descending: bool,
}

impl Search {
    /// Whether a credential fulfils it.
    #[must_use]
    pub fn matches(&self, credential: &Credential) -> bool {
        match self {
            Self::And(left, right) => left.matches(credential) && right.matches(credential),
            Self::Or(left, right) => left.matches(credential) || right.matches(credential),
            Self::Not(inner) => !inner.matches(credential),
            Self::Id(ids) => ids.contains(&credential.id),
            Self::IdLike(pattern) => pattern.matches(&credential.id.to_string()),
            Self::Username(names) => names.contains(&credential.username),
            Self::UsernameLike(pattern) => pattern.matches(&credential.username),
            Self::State(states) => states.contains(&credential.state.name()),
        }
    }
}

impl Pattern {
    /// Whether a text is like this.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text): (Vec<char>, Vec<char>) =
            (self.0.chars().collect(), text.chars().collect());
        let (mut p, mut t, mut star) = (0, 0, None);
        while t < text.len() {
            match pattern.get(p) {
                Some('%') => {
                    star = Some((p, t));
                    p += 1;
                }
                Some(c) if *c == '_' || *c == text[t] => {
                    p += 1;
                    t += 1;
                }
                // One more character for the last `%`.
                Some(_) | None => match star {
                    Some((at, from)) => {
                        star = Some((at, from + 1));
                        p = at + 1;
                        t = from + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|c| *c == '%')
    }

    /// The same for SQL's `LIKE` with `\` as the escape.
    #[must_use]
    pub fn as_like(&self) -> String {
        self.0.replace('\\', "\\\\")
    }

    /// The same for SQLite's `GLOB`, which minds the case as PostgreSQL's `LIKE` does.
    #[must_use]
    pub fn as_glob(&self) -> String {
        let mut glob = String::with_capacity(self.0.len());
        for c in self.0.chars() {
            match c {
                '%' => glob.push('*'),
                '_' => glob.push('?'),
                '*' | '?' | '[' => glob.extend(['[', c, ']']),
                other => glob.push(other),
            }
        }
        glob
    }
}

/// The place of a state's word among a surface's words in alphabetical order.
pub(super) fn word_rank(state: StateName, surface: Surface) -> usize {
    let word = state.word(surface);
    Word::VARIANTS.iter().filter(|other| other.as_ref() < word.as_ref()).count()
}
