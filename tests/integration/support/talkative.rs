//! A registry that repeats whatever credential it is shown, wherever an answer has room for text: the worst
//! thing that can stand behind a `verify_url`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How it answers a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// As a registry does.
    Well,
    /// `500`.
    Broken,
    /// To another address, with the credential in it.
    Elsewhere,
    /// `429`.
    Busy,
    /// Lets everybody in.
    Open,
    /// `401` that asks for something else.
    Bearer,
    /// No HTTP at all.
    Garbage,
}

/// The server; dropping it ends it.
pub struct Talkative {
    /// `http://127.0.0.1:<port>`
    pub url: String,
    mood: Arc<Mutex<Mood>>,
    /// How it answered the latest login.
    answered: watch::Receiver<Option<Mood>>,
    task: tokio::task::JoinHandle<()>,
}

impl Talkative {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mood = Arc::new(Mutex::new(Mood::Well));
        let (told, answered) = watch::channel(None);
        let shared = mood.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mood = *shared.lock().unwrap();
                if answer(stream, mood).await.is_some_and(|had_credential| had_credential) {
                    told.send_replace(Some(mood));
                }
            }
        });
        Self { url, mood, answered, task }
    }

    /// Answers so from now on, and waits until it has done so.
    pub async fn answers(&mut self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
        let done = self.answered.wait_for(|answered| *answered == Some(mood));
        tokio::time::timeout(Duration::from_secs(60), done).await.expect("a login").unwrap();
    }

    /// Answers so from now on.
    pub fn turn(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Answers as it should again.
    pub fn be_well(&self) {
        self.turn(Mood::Well);
    }
}

impl Drop for Talkative {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Says whether there was a credential.
async fn answer(mut stream: TcpStream, mood: Mood) -> Option<bool> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).await.ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&some[..count]);
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let header = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
    });
    let said = header.clone().unwrap_or_default();
    let (status, more) = match (mood, &header) {
        (Mood::Garbage, _) => {
            let _ = stream.write_all(format!("{said}\r\n\r\n").as_bytes()).await;
            return Some(header.is_some());
        }
        (Mood::Well, Some(_)) | (Mood::Open, _) => ("200 OK".to_owned(), String::new()),
        (Mood::Well, None) => {
            ("401 No".to_owned(), "WWW-Authenticate: Basic realm=\"x\"\r\n".to_owned())
        }
        (Mood::Broken, _) => (format!("500 {said}"), String::new()),
        (Mood::Elsewhere, _) => {
            let to = format!("Location: http://u:{said}@127.0.0.1/{said}?t={said}\r\n");
            ("302 There".to_owned(), to.replace(' ', "%20").replacen("%20", " ", 1))
        }
        (Mood::Busy, _) => (format!("429 {said}"), format!("Retry-After: {said}\r\n")),
        (Mood::Bearer, _) => {
            ("401 No".to_owned(), format!("WWW-Authenticate: Bearer realm=\"{said}\"\r\n"))
        }
    };
    let body = format!("{{\"errors\": [{{\"code\": \"{said}\", \"message\": \"{said}\"}}]}}");
    let head = format!(
        "HTTP/1.1 {status}\r\n{more}X-Echo: {said}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()?;
    Some(header.is_some())
}
