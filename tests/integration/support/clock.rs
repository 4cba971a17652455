//! A wall clock that a test may move, for one process or several.

use std::fs;
use std::path::PathBuf;

use super::service::Setup;

pub const HOUR: i64 = 3600;
pub const YEAR: i64 = 365 * 24 * HOUR;
/// What the program logs when it sees a jump.
pub const JUMPED: &str =
    "the wall clock jumped: nothing is revoked or removed because time has passed";

pub struct WallClock {
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl WallClock {
    pub fn right() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Self { file: directory.path().join("clock"), _directory: directory };
        clock.is_off_by(0);
        clock
    }

    /// From now on it shows the true time and so many seconds.
    pub fn is_off_by(&self, seconds: i64) {
        let new = self.file.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// The program looks at this one.
    pub fn of(&self, setup: Setup) -> Setup {
        setup.env("HYPERFLEET_CLOCK_FILE", self.file.to_str().unwrap())
    }
}
