//! An event's typed fields as JSON values.
//!
//! `a.b` becomes the member `b` of an object `a`. `a.json` holds JSON text and is shown as `a`, as what
//! the text says: objects and lists have no type of their own in an event.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};

/// The end of a name whose value is JSON text.
const JSON: &str = ".json";

/// Takes fields in.
#[derive(Default)]
pub(super) struct Collect(pub(super) Map<String, Value>);

impl Collect {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        // What the bridge from the `log` crate adds about source files is of no use to an operator.
        if field.name().starts_with("log.") {
            return;
        }
        match (field.name().strip_suffix(JSON), value.into()) {
            (Some(name), Value::String(text)) => match serde_json::from_str(&text) {
                Ok(Value::Null) => {}
                Ok(value) => insert(&mut self.0, name, value),
                Err(_) => insert(&mut self.0, name, Value::String(text)),
            },
            (Some(_) | None, value) => insert(&mut self.0, field.name(), value),
        }
    }
}

fn insert(fields: &mut Map<String, Value>, name: &str, value: Value) {
    if let Some((outer, inner)) = name.split_once('.') {
        let object = fields.entry(outer).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(object) = object {
            return insert(object, inner, value);
        }
    }
    fields.insert(name.to_owned(), value);
}

impl Visit for Collect {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        self.put(field, text);
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
