//! From words to a tree: `or` binds looser than `and`, `and` looser than `not`.

use std::str::FromStr;

use strum::VariantArray;

use super::lex::{Token, tokens};
use super::{Order, OrderField, Pattern, Search};
use crate::state::break_glass::{StateName, Surface, Word};

/// A search may be as long as this, in bytes.
const LONGEST: usize = 4096;
/// And nested as deep.
const DEEPEST: usize = 32;

/// Why a search or an order is not understood. Says where, and repeats nothing of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// Too long.
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    /// Too many parentheses, or `not`.
    #[error("it is nested deeper than {DEEPEST} times")]
    TooDeep,
    /// A character that means nothing.
    #[error("the character at position {at} is not understood")]
    Character {
        /// Its index, in bytes.
        at: usize,
    },
    /// A quote that is not closed.
    #[error("the quote at position {at} is not closed")]
    Quote {
        /// Its index, in bytes.
        at: usize,
    },
    /// Something else was expected.
    #[error("{0} is expected")]
    Expected(&'static str),
    /// An unknown field to search by.
    #[error("a field is not one of id, username, status")]
    Field,
    /// An unknown word for a status.
    #[error("a status is not one of this interface")]
    Status,
    /// An unknown field to order by.
    #[error(
        "a field is not one of id, username, status, creation_timestamp, expiration_timestamp, \
         revocation_timestamp, each with an optional asc or desc"
    )]
    OrderField,
}

/// Reads a search. A blank one is none.
///
/// # Errors
/// [`SearchError`].
pub fn parse_search(text: &str, surface: Surface) -> Result<Option<Search>, SearchError> {
    if text.len() > LONGEST {
        return Err(SearchError::TooLong);
    }
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut parser = Parser { tokens: &tokens, surface, depth: 0 };
    let search = parser.either()?;
    if parser.tokens.is_empty() {
        Ok(Some(search))
    } else {
        Err(SearchError::Expected("the end, and, or"))
    }
}

/// Reads an order like `id desc, username`. A blank one is none.
///
/// # Errors
/// [`SearchError`].
pub fn parse_order(text: &str) -> Result<Vec<Order>, SearchError> {
    if text.len() > LONGEST {
        return Err(SearchError::TooLong);
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut orders: Vec<Order> = Vec::new();
    for part in text.split(',') {
        let order = order(part).ok_or(SearchError::OrderField)?;
        // What comes first decides; naming a field again changes nothing.
        if orders.iter().all(|known| known.field != order.field) {
            orders.push(order);
        }
    }
    Ok(orders)
}

fn order(part: &str) -> Option<Order> {
    let mut words = part.split_whitespace();
    let field = OrderField::from_str(words.next()?).ok()?;
    let descending = match words.next().map(str::to_ascii_lowercase).as_deref() {
        None | Some("asc") => false,
        Some("desc") => true,
        Some(_) => return None,
    };
    words.next().is_none().then_some(Order { field, descending })
}

struct Parser<'a> {
    tokens: &'a [Token],
    surface: Surface,
    depth: usize,
}

impl Parser<'_> {
    fn either(&mut self) -> Result<Search, SearchError> {
        let mut left = self.both()?;
        while self.keyword("or") {
            left = Search::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Search, SearchError> {
        let mut left = self.negated()?;
        while self.keyword("and") {
            left = Search::And(Box::new(left), Box::new(self.negated()?));
        }
        Ok(left)
    }

    fn negated(&mut self) -> Result<Search, SearchError> {
        if self.keyword("not") {
            let inner = self.deeper(Self::negated)?;
            return Ok(Search::Not(Box::new(inner)));
        }
        if self.sign(&Token::Open) {
            let inner = self.deeper(Self::either)?;
            self.expect(&Token::Close, "a closing parenthesis")?;
            return Ok(inner);
        }
        self.comparison()
    }

    fn deeper(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Search, SearchError>,
    ) -> Result<Search, SearchError> {
        if self.depth >= DEEPEST {
            return Err(SearchError::TooDeep);
        }
        self.depth += 1;
        let inner = read(self);
        self.depth -= 1;
        inner
    }

    fn comparison(&mut self) -> Result<Search, SearchError> {
        let Some((Token::Word(field), rest)) = self.tokens.split_first() else {
            return Err(SearchError::Expected("a field"));
        };
        self.tokens = rest;
        let field = match field.to_ascii_lowercase().as_str() {
            "id" => Field::Id,
            "username" => Field::Username,
            "status" | "status_details.state.value" => Field::Status,
            _ => return Err(SearchError::Field),
        };
        if self.sign(&Token::Equal) {
            let values = vec![self.text()?];
            return self.one_of(field, values);
        }
        if self.sign(&Token::NotEqual) {
            let values = vec![self.text()?];
            return self.one_of(field, values).map(|inner| Search::Not(Box::new(inner)));
        }
        let opposite = self.keyword("not");
        let inner = if self.keyword("in") {
            let values = self.list()?;
            self.one_of(field, values)?
        } else if self.keyword("like") {
            let pattern = Pattern(self.text()?);
            self.like(field, pattern)
        } else {
            return Err(SearchError::Expected("=, !=, in or like"));
        };
        Ok(if opposite { Search::Not(Box::new(inner)) } else { inner })
    }

    fn one_of(&self, field: Field, values: Vec<String>) -> Result<Search, SearchError> {
        Ok(match field {
            // What is no id is nobody's.
            Field::Id => Search::Id(values.iter().filter_map(|id| id.parse().ok()).collect()),
            Field::Username => Search::Username(values),
            Field::Status => {
                let known = |value: &String| Word::from_str(value).is_ok_and(|w| self.shows(w));
                if !values.iter().all(known) {
                    return Err(SearchError::Status);
                }
                self.states(|word| values.iter().any(|value| value == word.as_ref()))
            }
        })
    }

    fn like(&self, field: Field, pattern: Pattern) -> Search {
        match field {
            Field::Id => Search::IdLike(pattern),
            Field::Username => Search::UsernameLike(pattern),
            Field::Status => self.states(|word| pattern.matches(word.as_ref())),
        }
    }

    /// The states that this surface calls by such a word.
    fn states(&self, is: impl Fn(Word) -> bool) -> Search {
        let states = StateName::VARIANTS.iter().filter(|state| is(state.word(self.surface)));
        Search::State(states.copied().collect())
    }

    fn shows(&self, word: Word) -> bool {
        StateName::VARIANTS.iter().any(|state| state.word(self.surface) == word)
    }

    fn list(&mut self) -> Result<Vec<String>, SearchError> {
        self.expect(&Token::Open, "an opening parenthesis")?;
        let mut values = vec![self.text()?];
        while self.sign(&Token::Comma) {
            values.push(self.text()?);
        }
        self.expect(&Token::Close, "a closing parenthesis")?;
        Ok(values)
    }

    fn text(&mut self) -> Result<String, SearchError> {
        match self.tokens.split_first() {
            Some((Token::Text(text), rest)) => {
                self.tokens = rest;
                Ok(text.clone())
            }
            Some(_) | None => Err(SearchError::Expected("text in single quotes")),
        }
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        match self.tokens.split_first() {
            Some((Token::Word(word), rest)) if word.eq_ignore_ascii_case(keyword) => {
                self.tokens = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    fn sign(&mut self, sign: &Token) -> bool {
        match self.tokens.split_first() {
            Some((token, rest)) if token == sign => {
                self.tokens = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    fn expect(&mut self, sign: &Token, what: &'static str) -> Result<(), SearchError> {
        if self.sign(sign) { Ok(()) } else { Err(SearchError::Expected(what)) }
    }
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Id,
    Username,
    Status,
}
