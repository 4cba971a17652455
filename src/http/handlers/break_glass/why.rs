//! Why somebody does what he does, as the audit keeps it: from the header `X-Reason`, or from the body.

use crate::http::extract::Reason;
use crate::http::problem::{ApiError, Constraint, FieldError};

const LONGEST: usize = 512;

/// The body's word comes before the header's: it may have letters that no header has.
pub(super) fn reason(body: Option<&str>, header: Reason) -> Result<Reason, ApiError> {
    let Some(reason) = body else { return Ok(header) };
    let visible = reason.chars().all(|c| !c.is_control());
    if visible && (1..=LONGEST).contains(&reason.chars().count()) {
        return Ok(Reason(Some(reason.to_owned())));
    }
    let rule = Constraint::MaxLength { max_length: LONGEST };
    let message = "must have 1 to 512 characters, none of them a control character";
    Err(ApiError::field(FieldError::new("reason", rule, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_comes_before_the_header() {
        let header = || Reason(Some("header".to_owned()));
        assert_eq!(reason(None, header()).unwrap(), header());
        assert_eq!(reason(Some("Störung 7"), header()).unwrap().0.as_deref(), Some("Störung 7"));
        assert_eq!(reason(Some(&"ä".repeat(512)), Reason(None)).unwrap().0.unwrap().len(), 1024);
        for bad in ["", "a\nb", &"ä".repeat(513)] {
            assert!(reason(Some(bad), header()).is_err(), "{bad}");
        }
    }
}
