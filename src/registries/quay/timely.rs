//! A body that is handed to the connection only while its call may still act.
//!
//! The fence is asked before the request is built, but the request then waits for its connection. A process that
//! is stopped there and wakes up much later would still send it; the connection asks for the body at the very last
//! moment, and a request whose body fails never becomes whole.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::Instant;

#[derive(Debug, Error)]
#[error("the time of the call ran out before it was sent")]
pub(super) struct TooLate;

pub(super) struct Timely {
    bytes: Option<Bytes>,
    deadline: Instant,
}

impl Timely {
    pub(super) const fn new(bytes: Bytes, deadline: Instant) -> Self {
        Self { bytes: Some(bytes), deadline }
    }
}

impl Body for Timely {
    type Data = Bytes;
    type Error = TooLate;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TooLate>>> {
        let late = Instant::now() >= self.deadline;
        let bytes = self.bytes.take();
        Poll::Ready(bytes.map(|bytes| if late { Err(TooLate) } else { Ok(Frame::data(bytes)) }))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::time::Duration;

    use reqwest::{Body as RequestBody, Client};

    use super::*;

    /// What a server that only listens gets to read of a request with this body.
    async fn received(deadline: Instant) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let reader = tokio::task::spawn_blocking(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut read = Vec::new();
            let _ = connection.read_to_end(&mut read);
            String::from_utf8(read).unwrap()
        });
        let body = RequestBody::wrap(Timely::new(Bytes::from_static(b"{\"a\":1}"), deadline));
        let request = Client::new().put(url).body(body).timeout(Duration::from_millis(200));
        assert!(request.send().await.is_err(), "nobody answers");
        reader.await.unwrap()
    }

    #[tokio::test]
    async fn a_body_in_time_is_sent_whole_with_its_length() {
        let request = received(Instant::now() + Duration::from_secs(60)).await;
        assert!(request.to_lowercase().contains("content-length: 7"), "{request}");
        assert!(request.ends_with("{\"a\":1}"), "{request}");
    }

    #[tokio::test]
    async fn a_body_that_comes_too_late_is_never_sent() {
        let request = received(Instant::now()).await;
        assert!(!request.contains("\"a\""), "{request}");
    }
}
