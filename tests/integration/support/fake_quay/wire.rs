//! HTTP/1.1 by hand over plain threads: a fake has to break connections, cut answers and let them
//! drip, which no server library does. Knows nothing of Quay.

use std::io::{self, BufRead, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

/// A request, its path and query decoded.
#[derive(Debug)]
pub struct HttpRequest {
    pub method: String,
    pub segments: Vec<String>,
    pub query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// What follows the scheme in `Authorization`.
    pub fn authorization(&self, scheme: &str) -> Option<&str> {
        self.header("authorization")?.strip_prefix(scheme)?.strip_prefix(' ')
    }

    /// None at the end of the connection.
    pub fn read(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) =
            (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let segments = path.trim_start_matches('/').split('/').map(|part| decode(part, false));
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key, true), decode(value, true))
        });
        let mut request = Self {
            method,
            segments: segments.collect(),
            query: pairs.collect(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            request.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let length = request.header("content-length").and_then(|text| text.parse().ok());
        request.body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut request.body)?;
        Ok(Some(request))
    }
}

fn decode(text: &str, form: bool) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let pair = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match (first, pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) if form => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self::text(status, "application/json", body.to_string())
    }

    pub fn html(status: u16, body: &str) -> Self {
        Self::text(status, "text/html; charset=utf-8", body)
    }

    pub fn text(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self { status, content_type, headers: Vec::new(), body: body.into() }
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// `nginx` when there are too many requests: no `Retry-After` (measured).
    pub fn rate_limited() -> Self {
        Self::html(429, "<html><head><title>429 Too Many Requests</title></head></html>")
    }

    /// The lockout after failed logins, the only `429` with `Retry-After` (measured).
    pub fn locked_out(seconds: u32) -> Self {
        Self::text(429, "text/plain", "Too many login attempts")
            .with("Retry-After", seconds.to_string())
    }

    /// Quay's own answer to what it did not expect.
    pub fn server_error() -> Self {
        Self::html(500, "<h1>Internal Server Error</h1>")
    }

    /// A gateway's answer in the registry's stead.
    pub fn gateway(status: u16) -> Self {
        Self::html(status, "<html><body>the gateway has no better words</body></html>")
    }

    /// Bytes of the answer; `date` is the registry's clock.
    pub fn bytes(&self, date: &str) -> Vec<u8> {
        let mut head = format!(
            "HTTP/1.1 {} Answer\r\nDate: {date}\r\nContent-Type: {}\r\n",
            self.status, self.content_type
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.status == 204 {
            return format!("{head}\r\n").into_bytes();
        }
        format!("{head}Content-Length: {}\r\n\r\n{}", self.body.len(), self.body).into_bytes()
    }
}

/// Byte by byte.
pub fn drip(stream: &mut TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(std::slice::from_ref(byte))?;
        sleep(pause);
    }
    Ok(())
}
