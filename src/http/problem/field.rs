//! One fault of one field, and how a value from outside is shown without harm.
//!
//! Knows forms only. A value is shown only when the caller of [`FieldError::value`] says that it is not
//! meant to be a secret, and when it is too short to be one by mistake.

use serde::Serialize;

/// The longest name that is shown.
const MAX_SHOWN: usize = 128;
/// The longest word from outside that is shown again: a UUID fits, a token of any kind does not. A client
/// that puts a secret into the wrong field must not find it in an error, which others copy and publish.
const MAX_WORD: usize = 36;

/// One item of a problem's `errors`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The dotted path of the field.
    pub field: String,
    /// What was given, where it is no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The rule that it breaks.
    #[serde(flatten)]
    pub constraint: Constraint,
    /// The rule in words.
    pub message: String,
}

/// The rules that a field can break, each with what a client needs to keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "constraint", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the error model")]
pub enum Constraint {
    Required,
    Unknown { allowed_fields: Vec<String> },
    Enum { allowed_values: Vec<String> },
    Pattern { pattern: &'static str },
    Min { min_value: i64 },
    Max { max_value: i64 },
    MinLength { min_length: usize },
    MaxLength { max_length: usize },
    Type { expected: String },
    Format { format: &'static str },
    Unique,
    Equal,
}

impl Constraint {
    /// Whether it is about a field that is not there, which has a code of its own.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        matches!(self, Self::Required)
    }
}

impl FieldError {
    /// A fault whose value is not shown.
    pub fn new(
        field: impl Into<String>,
        constraint: Constraint,
        message: impl Into<String>,
    ) -> Self {
        let field = shown(&field.into());
        Self { field, value: None, constraint, message: message.into() }
    }

    /// Shows the value again, where it is short enough for a word. Not for anything that is a secret.
    #[must_use]
    pub fn value(mut self, value: &str) -> Self {
        self.value = word(value).map(shown);
        self
    }

    /// A required field that is not there.
    #[must_use]
    pub fn required(field: &str) -> Self {
        Self::new(field, Constraint::Required, "is required")
    }

    /// A word that is none of the known ones.
    #[must_use]
    pub fn not_one_of<S: AsRef<str>>(field: &str, value: &str, allowed: &[S]) -> Self {
        let allowed_values: Vec<String> = allowed.iter().map(|s| s.as_ref().to_owned()).collect();
        let message = format!("must be one of {}", allowed_values.join(", "));
        Self::new(field, Constraint::Enum { allowed_values }, message).value(value)
    }
}

/// A text from outside when it is short enough to be a word, and no secret that went astray.
#[must_use]
pub fn word(text: &str) -> Option<&str> {
    (text.chars().count() <= MAX_WORD).then_some(text)
}

/// A text from outside, cut and without control characters.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut cut: String = text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect();
    if text.chars().count() > MAX_SHOWN {
        cut.push_str("...");
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_the_members_of_its_constraint() {
        let fault = FieldError::not_one_of("registries", "qu\nay\u{7f}", &["quay", "rhit"]);
        let expected = serde_json::json!({
            "field": "registries", "value": "quay", "constraint": "enum",
            "message": "must be one of quay, rhit", "allowed_values": ["quay", "rhit"],
        });
        assert_eq!(serde_json::to_value(fault).unwrap(), expected);
        let missing = serde_json::to_value(FieldError::required("generation")).unwrap();
        assert_eq!(missing["constraint"], "required");
        assert_eq!(missing.get("value"), None);
    }

    #[test]
    fn a_value_that_may_be_a_token_is_not_shown() {
        let fault = |value: &str| FieldError::not_one_of("reason", value, &["manual"]).value;
        let uuid = "0196f3a0-7c1e-7d2a-9b3c-2f4a5b6c7d8e";
        assert_eq!(fault(uuid).as_deref(), Some(uuid));
        assert_eq!(fault(&"a".repeat(MAX_WORD + 1)), None);
    }

    #[test]
    fn a_long_value_is_cut() {
        assert_eq!(shown(&"é".repeat(500)).chars().count(), MAX_SHOWN + 3);
    }
}
