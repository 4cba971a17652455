//! From text to words and signs.

use super::SearchError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A bare word: a field, an operator.
    Word(String),
    /// Text in quotes.
    Text(String),
    Equal,
    NotEqual,
    Open,
    Close,
    Comma,
}

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, SearchError> {
    let mut tokens = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            '=' => Token::Equal,
            '!' if rest.next_if(|(_, c)| *c == '=').is_some() => Token::NotEqual,
            '<' if rest.next_if(|(_, c)| *c == '>').is_some() => Token::NotEqual,
            '\'' => Token::Text(quoted(&mut rest).ok_or(SearchError::Quote { at })?),
            c if is_word(c) => {
                let mut word = String::from(c);
                while let Some((_, c)) = rest.next_if(|(_, c)| is_word(*c)) {
                    word.push(c);
                }
                Token::Word(word)
            }
            _ => return Err(SearchError::Character { at }),
        };
        tokens.push(token);
    }
    Ok(tokens)
}

/// Up to the closing quote; a doubled one stands for itself.
fn quoted(rest: &mut std::iter::Peekable<std::str::CharIndices<'_>>) -> Option<String> {
    let mut text = String::new();
    loop {
        match rest.next()?.1 {
            '\'' if rest.next_if(|(_, c)| *c == '\'').is_some() => text.push('\''),
            '\'' => return Some(text),
            c => text.push(c),
        }
    }
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}
