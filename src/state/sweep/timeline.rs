//! Whether a database is still the one that it was. Only databases that count their own lives can tell.

use std::fmt;
use std::str::FromStr;

/// One life of a database server's data: which server initialised it, and how often it was promoted or
/// recovered since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// The server's own identifier, given when its data was first made.
    pub system: String,
    /// Rises with each promotion and each recovery to a point in time.
    pub number: u32,
}

/// What became of the database since its timeline was last noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Nothing.
    Same,
    /// It was promoted, or recovered to a point in time. Which of them the database cannot tell; the registries can.
    Rose,
    /// Its rows were written by another life than the one that serves them: a dump was loaded, or an older
    /// copy put back.
    WentBack,
}

impl Timeline {
    /// The course from the timeline that stands in the rows to the one that serves them.
    #[must_use]
    pub fn course_to(&self, now: &Self) -> Course {
        if self.system != now.system || now.number < self.number {
            Course::WentBack
        } else if now.number > self.number {
            Course::Rose
        } else {
            Course::Same
        }
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.system, self.number)
    }
}

/// The text is not a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must look like <system>/<number>")]
pub struct ParseTimelineError;

impl FromStr for Timeline {
    type Err = ParseTimelineError;
    fn from_str(text: &str) -> Result<Self, ParseTimelineError> {
        let (system, number) = text.rsplit_once('/').ok_or(ParseTimelineError)?;
        let number = number.parse().map_err(|_| ParseTimelineError)?;
        Ok(Self { system: system.to_owned(), number })
    }
}
