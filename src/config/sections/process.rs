//! What the process is and stands on: listeners, database, keys, callers, logging.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, VariantNames};

use super::{hours, secs};
use crate::config::duration;
use crate::config::rate::{Burst, Rate};
use crate::config::secret_url::SecretUrl;

section!(
    /// Which installation this is.
    Installation {
        /// Must agree with the database's; empty only before `--dev` has made one.
        id: String = String::new(),
    }
);

section!(
    /// The API's listener.
    Server {
        /// The address to listen on.
        host: String = "0.0.0.0".to_owned(),
        /// The port; 0 picks a free one.
        port: u16 = 8080,
        /// How long a request waits for work that it started.
        #[serde(with = "duration")]
        request_wait: Duration = secs(5),
        /// How long requests are still served once the service has said that it is not ready.
        #[serde(with = "duration")]
        drain_delay: Duration = secs(5),
        /// How long a shutdown may take in all.
        #[serde(with = "duration")]
        shutdown_timeout: Duration = secs(20),
        /// TLS of the listener.
        tls: ServerTls = ServerTls::default(),
    }
);

section!(
    /// Both files or none.
    ServerTls {
        /// The certificate chain, PEM.
        cert_file: Option<PathBuf> = None,
        /// Its key, PEM.
        key_file: Option<PathBuf> = None,
    }
);

section!(
    /// The metrics' listener.
    Metrics {
        /// The address to listen on.
        host: String = "0.0.0.0".to_owned(),
        /// The port; 0 picks a free one.
        port: u16 = 9090,
    }
);

section!(
    /// The database.
    Db {
        /// Where it is; may hold a password.
        url: SecretUrl = SecretUrl::from("sqlite://data/credentials.db"),
        /// A file that holds the URL; wins over `url`.
        url_file: Option<PathBuf> = None,
        /// The size of the pool. Each replica on PostgreSQL has two more, so that it can always say that it lives,
        /// and hear from the others.
        max_connections: u32 = 10,
    }
);

section!(
    /// Keys of sealed values.
    Encryption {
        /// The directory of `<key id>.key` files.
        keys_dir: PathBuf = PathBuf::from("/etc/hyperfleet/keys"),
        /// The key that seals; without it the file `primary` names it.
        primary: Option<String> = None,
    }
);

words!(
    /// Who says who a caller is.
    AuthMode {
        /// TokenReview and SubjectAccessReview.
        Kubernetes,
        /// A file of hashed tokens.
        Static,
        /// JWTs of an issuer.
        Oidc,
    }
);

section!(
    /// Who may call.
    Auth {
        /// Which of the three below counts.
        mode: AuthMode = AuthMode::Kubernetes,
        /// For `kubernetes`.
        kubernetes: KubernetesAuth = KubernetesAuth::default(),
        /// For `static`.
        r#static: StaticAuth = StaticAuth::default(),
        /// For `oidc`.
        oidc: OidcAuth = OidcAuth::default(),
    }
);

section!(
    /// Kubernetes as the reviewer.
    KubernetesAuth {
        /// The audiences a token must have one of.
        audiences: Vec<String> = vec!["hyperfleet-api".to_owned()],
    }
);

section!(
    /// A file of hashed tokens.
    StaticAuth {
        /// Lines of `name role sha256:<hex>`.
        tokens_file: Option<PathBuf> = None,
    }
);

section!(
    /// JWTs.
    OidcAuth {
        /// The issuer, compared exactly.
        issuer: Option<String> = None,
        /// Where its keys are.
        jwks_url: Option<String> = None,
        /// The audiences a token must have one of.
        audiences: Vec<String> = Vec::new(),
        /// The claim that holds the roles.
        role_claim: String = "roles".to_owned(),
    }
);

section!(
    /// Limits per caller.
    Limits {
        /// Requests.
        requests: Rate = Rate::Limited { count: 6000, per: secs(60) },
        /// How many may come at once.
        burst: Burst = Burst::Of(200),
        /// Started rotations.
        rotations: Rate = Rate::Limited { count: 600, per: hours(1) },
    }
);

words!(
    /// From which level on things are logged.
    LogLevel {
        /// Everything.
        Debug,
        /// What happens.
        Info,
        /// What is odd.
        Warn,
        /// What failed.
        Error,
    }
);

words!(
    /// The form of a log entry.
    LogFormat {
        /// One line of text.
        Text,
        /// One line of JSON.
        Json,
    }
);

words!(
    /// Where log entries go.
    LogOutput {
        /// Standard output.
        Stdout,
        /// Standard error.
        Stderr,
    }
);

section!(
    /// Logging.
    Log {
        /// From which level on.
        level: LogLevel = LogLevel::Info,
        /// In which form.
        format: LogFormat = LogFormat::Json,
        /// Where to.
        output: LogOutput = LogOutput::Stdout,
    }
);
