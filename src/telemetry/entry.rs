//! One log entry, as JSON or as text. Pure: the time and the origin come in.

use std::fmt::Write;

use serde_json::{Map, Value};
use tracing::Level;

use super::redact::{is_secret_name, scrub};
use super::{COMPONENT, version};
use crate::config::REDACTED;
use crate::time::Timestamp;

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The longest entry, in bytes, without the line's end.
const MAX_ENTRY: usize = 64 * 1024;
/// The names that every entry has; an event's own field of such a name is renamed.
const RESERVED: [&str; 6] = ["timestamp", "level", "message", "component", "version", "hostname"];
const CUT: &str = "...";

/// Who logs.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The component.
    pub component: &'static str,
    /// Its release.
    pub version: String,
    /// The machine or pod.
    pub hostname: String,
}

impl Origin {
    /// This process.
    #[must_use]
    pub fn of_process() -> Self {
        let hostname = std::env::var("HOSTNAME")
            .ok()
            .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "unknown".to_owned());
        Self { component: COMPONENT, version: version().to_owned(), hostname }
    }
}

/// What is logged.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// How bad.
    pub level: Level,
    /// What happened, in a few words.
    pub message: String,
    /// The event's fields over those of the spans around it.
    pub fields: Map<String, Value>,
}

/// One line of JSON, fields at the top level, without the line's end.
#[must_use]
pub fn format_json(entry: &Entry, origin: &Origin) -> String {
    let mut fields = shown_fields(&entry.fields);
    let head = [
        ("timestamp", entry.at.to_millis_text()),
        ("level", level_name(entry.level).to_lowercase()),
        ("message", shown_message(&entry.message)),
        ("component", origin.component.to_owned()),
        ("version", origin.version.clone()),
        ("hostname", origin.hostname.clone()),
    ];
    loop {
        let mut line = String::from("{");
        for (name, text) in &head {
            let _ = write!(line, "{}\"{name}\":{}", comma(&line), Value::from(text.as_str()));
        }
        for (name, value) in &fields {
            let _ = write!(line, ",{}:{value}", Value::from(name.as_str()));
        }
        line.push('}');
        if line.len() <= MAX_ENTRY || fields.is_empty() {
            return line;
        }
        shrink(&mut fields);
    }
}

/// `{time} {LEVEL} [component] [version] [host] message k=v ...` on one line.
#[must_use]
pub fn format_text(entry: &Entry, origin: &Origin) -> String {
    let mut fields = shown_fields(&entry.fields);
    loop {
        let mut line = format!(
            "{} {} [{}] [{}] [{}] {}",
            entry.at.to_millis_text(),
            level_name(entry.level),
            origin.component,
            origin.version,
            origin.hostname,
            one_line(&shown_message(&entry.message)),
        );
        for (name, value) in &fields {
            let plain = |text: &str| {
                !text.is_empty()
                    && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'=')
            };
            let _ = match value {
                Value::String(text) if plain(text) => write!(line, " {name}={text}"),
                other => write!(line, " {name}={other}"),
            };
        }
        if line.len() <= MAX_ENTRY || fields.is_empty() {
            return line;
        }
        shrink(&mut fields);
    }
}

const fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

fn comma(line: &str) -> &'static str {
    if line.len() > 1 { "," } else { "" }
}

fn shown_message(message: &str) -> String {
    cut(&scrub(message), MAX_MESSAGE)
}

/// A newline in a text entry would let a caller forge the next one.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The names of the entry's own members are taken only at its top.
fn shown_fields(fields: &Map<String, Value>) -> Map<String, Value> {
    fields.iter().map(|(name, value)| shown_field(name, value)).collect()
}

fn shown_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(scrub(text).into_owned()),
        Value::Object(inside) => {
            let shown = |(name, value): (&String, &Value)| {
                let secret = is_secret_name(name);
                (name.clone(), if secret { Value::from(REDACTED) } else { shown_value(value) })
            };
            Value::Object(inside.iter().map(shown).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(shown_value).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn shown_field(name: &str, value: &Value) -> (String, Value) {
    let value = if is_secret_name(name) { Value::from(REDACTED) } else { shown_value(value) };
    let name = if RESERVED.contains(&name) { format!("field_{name}") } else { name.to_owned() };
    (name, value)
}

/// Makes an entry that is too long shorter: long texts first, then whole fields.
fn shrink(fields: &mut Map<String, Value>) {
    let mut shortened = false;
    for value in fields.values_mut() {
        if let Value::String(text) = value
            && text.len() > MAX_MESSAGE
        {
            *text = cut(text, MAX_MESSAGE);
            shortened = true;
        }
    }
    if !shortened {
        // An eighth at a time: an entry of a thousand fields must not cost a thousand renderings.
        for _ in 0..=fields.len() / 8 {
            if let Some(name) = longest(fields) {
                fields.remove(&name);
            }
        }
    }
    if !fields.is_empty() {
        fields.insert("truncated".to_owned(), Value::Bool(true));
    }
}

fn longest(fields: &Map<String, Value>) -> Option<String> {
    let longest = fields.iter().max_by_key(|(_, value)| value.to_string().len());
    longest.map(|(name, _)| name.clone())
}

/// At most `max` bytes, ending at a character's border and with dots when something is missing.
fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max - CUT.len());
    format!("{}{CUT}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn origin() -> Origin {
        Origin { component: "credentials", version: "1.2.3".into(), hostname: "pod-1".into() }
    }

    fn entry(message: &str, fields: Value) -> Entry {
        let Value::Object(fields) = fields else { panic!() };
        let at = Timestamp::from_micros(1_780_000_000_123_456);
        Entry { at, level: Level::INFO, message: message.to_owned(), fields }
    }

    #[test]
    fn json_is_flat_and_complete() {
        let entry = entry("rotation started", json!({"cluster_id": "c1", "generation": 4}));
        assert_eq!(
            format_json(&entry, &origin()),
            "{\"timestamp\":\"2026-05-28T20:26:40.123Z\",\"level\":\"info\",\"message\":\"rotation \
             started\",\"component\":\"credentials\",\"version\":\"1.2.3\",\"hostname\":\"pod-1\",\
             \"cluster_id\":\"c1\",\"generation\":4}"
        );
    }

    #[test]
    fn text_is_one_line() {
        let entry = entry("a\nb", json!({"cluster_id": "c1", "error": "two words\nlines", "n": 1}));
        assert_eq!(
            format_text(&entry, &origin()),
            "2026-05-28T20:26:40.123Z INFO [credentials] [1.2.3] [pod-1] a b cluster_id=c1 \
             error=\"two words\\nlines\" n=1"
        );
    }

    #[test]
    fn secrets_are_replaced_and_names_do_not_clash() {
        let entry = entry(
            "got Bearer abcdefghijklmnopqrst",
            json!({
                "token": "abc", "level": 3, "ctx": {"password": "abc", "method": "GET"},
                "list": [{"token": "abc"}, "Bearer abcdefghijklmnopqrst"],
            }),
        );
        for line in [format_json(&entry, &origin()), format_text(&entry, &origin())] {
            assert!(!line.contains("abc"), "{line}");
            assert!(line.contains("field_level") && line.contains("GET"), "{line}");
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let long = "é".repeat(40_000);
        let mut fields = Map::new();
        for i in 0..200 {
            fields.insert(format!("f{i}"), Value::from(long.clone()));
        }
        let entry = entry(&long, Value::Object(fields));
        let json = format_json(&entry, &origin());
        assert!(json.len() <= MAX_ENTRY);
        let read: Value = serde_json::from_str(&json).unwrap();
        assert!(read["message"].as_str().unwrap().len() <= MAX_MESSAGE);
        assert_eq!(read["truncated"], true);
        assert!(format_text(&entry, &origin()).len() <= MAX_ENTRY);
        let huge = super::tests::entry("m", json!({"list": vec!["x".repeat(100); 1000]}));
        assert!(format_json(&huge, &origin()).len() <= MAX_ENTRY);
    }
}
