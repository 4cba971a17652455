//! How the process is watched: log entries and metrics.
//!
//! Knows forms and names. Must not know what the events mean: no state, no database, no HTTP.
//! Nothing here is global but the one subscriber that [`init`] installs.

mod entry;
mod fields;
mod layer;
pub mod metrics;
mod redact;

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogLevel, LogOutput};

pub use entry::{Entry, Origin, format_json, format_text};
pub use layer::LogLayer;
pub use metrics::Metrics;
pub use redact::{is_secret_name, scrub};

/// The component's name in logs and metrics.
pub const COMPONENT: &str = "credentials";

/// A stack trace has at most so many frames.
const MAX_FRAMES: usize = 15;

/// The release; the image's build sets it, otherwise it is the crate's.
#[must_use]
pub const fn version() -> &'static str {
    match option_env!("APP_VERSION") {
        Some(version) => version,
        None => env!("CARGO_PKG_VERSION"),
    }
}

/// The commit that was built; the image's build sets it.
#[must_use]
pub const fn commit() -> &'static str {
    match option_env!("GIT_SHA") {
        Some(commit) => commit,
        None => "unknown",
    }
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("logging is set up already: {0}")]
pub struct InitError(String);

/// Sends everything that is logged from now on where the configuration says.
///
/// Our own events count from the configured level on, those of libraries from `info` on at most:
/// at `debug` they would drown ours and show payloads.
///
/// # Errors
/// When a subscriber is installed already.
pub fn init(log: &Log) -> Result<(), InitError> {
    let level = match log.level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    let libraries = level.min(LevelFilter::INFO);
    let filter = Targets::new()
        .with_default(libraries)
        .with_target("hyperfleet_credentials", level)
        .with_target(COMPONENT, level);
    let origin = Origin::of_process();
    let registry = tracing_subscriber::registry().with(filter);
    let installed = match log.output {
        LogOutput::Stdout => {
            registry.with(LogLayer::new(log.format, origin, io::stdout)).try_init()
        }
        LogOutput::Stderr => {
            registry.with(LogLayer::new(log.format, origin, io::stderr)).try_init()
        }
    };
    installed.map_err(|error| InitError(error.to_string()))?;
    log_panics();
    Ok(())
}

/// A panic becomes one log entry instead of lines on standard error.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = info
            .payload()
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| info.payload().downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no text");
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        let trace = frames(&std::backtrace::Backtrace::force_capture().to_string());
        let trace = serde_json::Value::from(trace);
        tracing::error!(error = text, location, stack_trace.json = %trace, "panic");
    }));
}

/// The names of the functions that led to a panic, the innermost first; what comes before and after our
/// own code is left out.
fn frames(backtrace: &str) -> Vec<String> {
    let names = backtrace.lines().filter_map(|line| {
        let (number, name) = line.trim_start().split_once(": ")?;
        number.parse::<u32>().ok().map(|_| name.trim().to_owned())
    });
    let names: Vec<String> = names.collect();
    let begin = names.iter().rposition(|name| name.starts_with("core::panicking::"));
    names.into_iter().skip(begin.map_or(0, |last| last + 1)).take(MAX_FRAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_trace_begins_where_the_panic_was() {
        let mut text =
            "   0: std::backtrace::Backtrace::create\n   1: core::panicking::panic_fmt\n"
                .to_owned();
        text.push_str("             at /rustc/x/core/src/panicking.rs:80:14\n   2: ours::inner\n");
        for number in 3..40 {
            text.push_str(&format!("  {number}: ours::outer\n             at src/x.rs:1:2\n"));
        }
        let frames = frames(&text);
        assert_eq!((frames[0].as_str(), frames.len()), ("ours::inner", MAX_FRAMES));
        assert!(frames.iter().all(|frame| frame.starts_with("ours::")), "{frames:?}");
    }
}
