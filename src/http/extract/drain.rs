//! What is left of a body that nobody wants.
//!
//! Over HTTP/2 a client that is still sending may never see an answer that came before its end: the stream is reset
//! right behind it. So a little is read away first. HTTP/1 has no streams, and clients that wait for the answer
//! before they send anything.

use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::Version;
use futures_util::StreamExt as _;

/// Whoever sends more may miss the answer.
const MOST: usize = 1024 * 1024;
/// Whoever takes longer may, too.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads it away.
pub async fn drain(version: Version, payload: &mut Payload) {
    if version != Version::HTTP_2 {
        return;
    }
    let all = async {
        let mut left = MOST;
        while let Some(Ok(chunk)) = payload.next().await {
            let Some(rest) = left.checked_sub(chunk.len()) else { return };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, all).await;
}
