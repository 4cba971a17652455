//! Collects an event's fields and those of its spans, and writes one line per event.

use std::io::Write;

use serde_json::{Map, Value};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::entry::{Entry, Origin, format_json, format_text};
use super::fields::Collect;
use crate::config::LogFormat;
use crate::time::{Clock, SystemClock};

/// Writes events in the form that the standard asks for.
pub struct LogLayer<W> {
    format: LogFormat,
    origin: Origin,
    writer: W,
}

impl<W> LogLayer<W> {
    /// A layer that writes to `writer`.
    pub const fn new(format: LogFormat, origin: Origin, writer: W) -> Self {
        Self { format, origin, writer }
    }
}

/// The fields of a span, kept beside it.
struct SpanFields(Map<String, Value>);

impl<S, W> Layer<S> for LogLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Collect::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Collect::default();
        values.record(&mut fields);
        if let Some(span) = context.span(id)
            && let Some(SpanFields(known)) = span.extensions_mut().get_mut()
        {
            known.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Map::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(known)) = span.extensions().get() {
                fields.extend(known.clone());
            }
        }
        let mut own = Collect::default();
        event.record(&mut own);
        let message = match own.0.remove("message") {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        fields.extend(own.0);
        let (at, level) = (SystemClock.now(), *event.metadata().level());
        let entry = Entry { at, level, message, fields };
        let mut line = match self.format {
            LogFormat::Json => format_json(&entry, &self.origin),
            LogFormat::Text => format_text(&entry, &self.origin),
        };
        line.push('\n');
        // Nowhere to tell that telling failed, and no reason to stop working.
        let _ = self.writer.make_writer_for(event.metadata()).write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, story: impl FnOnce()) -> String {
        let memory = Memory::default();
        let writer = memory.clone();
        let layer = LogLayer::new(format, Origin::of_process(), move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), story);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn fields_of_spans_stand_beside_those_of_the_event() {
        let text = logged(LogFormat::Json, || {
            let outer = tracing::info_span!("request", request_id = "r1", cluster_id = "outer");
            let _outer = outer.enter();
            let inner =
                tracing::info_span!("step", cluster_id = "c1", status = tracing::field::Empty);
            inner.record("status", 200);
            let _inner = inner.enter();
            tracing::warn!(generation = 4_u32, token = "abc", ok = true, "it {}", "happened");
        });
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["level"], "warn");
        assert_eq!(read["message"], "it happened");
        assert_eq!(read["request_id"], "r1");
        assert_eq!(read["cluster_id"], "c1");
        assert_eq!(read["status"], 200);
        assert_eq!(read["generation"], 4);
        assert_eq!(read["token"], "**REDACTED**");
        assert_eq!(read["component"], "credentials");
        assert!(read["hostname"].as_str().is_some_and(|host| !host.is_empty()));
        assert!(read.get("fields").is_none() && read.get("target").is_none());
        assert!(text.ends_with("}\n") && text.lines().count() == 1);
    }

    #[test]
    fn a_name_with_a_dot_is_a_member_and_json_is_what_it_says() {
        let text = logged(LogFormat::Json, || {
            let detail = serde_json::json!({"registries": ["quay"], "token": "abc"});
            tracing::info!(
                request_context.method = "GET",
                request_context.path = "/v1",
                request_context.field = None::<&str>,
                detail.json = %detail,
                nothing.json = %serde_json::Value::Null,
                broken.json = "{",
                "it happened"
            );
        });
        let read: Value = serde_json::from_str(&text).unwrap();
        let context = serde_json::json!({"method": "GET", "path": "/v1"});
        assert_eq!(read["request_context"], context);
        let detail = serde_json::json!({"registries": ["quay"], "token": "**REDACTED**"});
        assert_eq!((&read["detail"], read.get("nothing")), (&detail, None));
        assert_eq!(read["broken"], "{");
    }

    #[test]
    fn text_and_errors_with_their_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        let text = logged(LogFormat::Text, || {
            let error = Outer(io::Error::other("inner"));
            tracing::error!(error = &error as &dyn std::error::Error, "failed");
        });
        assert!(
            text.contains(" ERROR [credentials] ") && text.contains("error=\"outer: inner\""),
            "{text}"
        );
    }
}
