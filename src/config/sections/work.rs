//! What the service does: rotations, tries, background work, break-glass.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, VariantNames};

use super::{days, hours, secs};
use crate::config::duration;
use crate::config::secret_url::SecretUrl;

words!(
    /// What happens when the grace period ends without proof.
    OnDeadline {
        /// Keep both, raise attention.
        Hold,
        /// Delete the old ones.
        Revoke,
        /// Go back to the old ones.
        Rollback,
    }
);

words!(
    /// What happens to an account that somebody else deleted.
    OnDrift {
        /// Raise attention.
        Report,
        /// Issue a new one.
        Reissue,
    }
);

words!(
    /// What counts as proof that a cluster uses a generation.
    Proof {
        /// The cluster presented the credential.
        Heartbeat,
        /// The registry saw it used.
        Registry,
        /// An adapter said that it applied it.
        Adapter,
    }
);

section!(
    /// Rotations.
    Rotation {
        /// How often each cluster is rotated.
        #[serde(with = "duration")]
        interval: Duration = days(90),
        /// How long both generations work at least.
        #[serde(with = "duration")]
        min_overlap: Duration = hours(24),
        /// How long proof is waited for.
        #[serde(with = "duration")]
        grace_period: Duration = days(7),
        /// What happens then.
        on_deadline: OnDeadline = OnDeadline::Hold,
        /// The deadline after a compromise.
        #[serde(with = "duration")]
        compromise_deadline: Duration = hours(1),
        /// How long the old generation must not have been seen.
        #[serde(with = "duration")]
        quiet: Duration = hours(1),
        /// How long a consumer's last word counts.
        #[serde(with = "duration")]
        consumer_ttl: Duration = hours(48),
        /// Which kinds of evidence count.
        proof: Vec<Proof> = vec![Proof::Heartbeat, Proof::Registry, Proof::Adapter],
        /// How many may do work at once.
        max_concurrent: u32 = 64,
        /// Over which last part of the interval due times are spread.
        spread: f64 = 0.1,
        /// When scheduled rotations may begin.
        window: RotationWindow = RotationWindow::default(),
        /// How often each account is looked at.
        #[serde(with = "duration")]
        drift_interval: Duration = hours(24),
        /// What happens when one is missing.
        on_drift: OnDrift = OnDrift::Report,
    }
);

section!(
    /// When scheduled rotations may begin.
    RotationWindow {
        /// When it opens, in UTC; none: always open.
        cron: Option<String> = None,
        /// How long it stays open.
        #[serde(with = "duration")]
        length: Duration = hours(4),
    }
);

section!(
    /// Repeating of calls to registries.
    Retry {
        /// The first pause.
        #[serde(with = "duration")]
        initial: Duration = secs(5),
        /// By what the pause grows.
        factor: f64 = 2.0,
        /// The longest pause.
        #[serde(with = "duration")]
        max: Duration = hours(1),
        /// Which part of a pause is random.
        jitter: f64 = 0.2,
        /// When lasting trouble of one account becomes `failed`.
        #[serde(with = "duration")]
        give_up_after: Duration = hours(24),
    }
);

section!(
    /// Background work.
    Scheduler {
        /// How often the database is asked what is due.
        #[serde(with = "duration")]
        tick: Duration = secs(1),
        /// How many due items are claimed at once.
        batch: u32 = 200,
        /// How long a silent replica keeps its credentials.
        #[serde(with = "duration")]
        lease: Duration = secs(30),
        /// How often a registry's accounts are compared with ours.
        #[serde(with = "duration")]
        sweep_interval: Duration = hours(6),
        /// How long an unknown account is left alone.
        #[serde(with = "duration")]
        sweep_safety_age: Duration = hours(1),
    }
);

section!(
    /// What is forgotten, and when.
    Cleanup {
        /// `denied` records.
        #[serde(with = "duration")]
        denied_after: Duration = hours(48),
        /// `failed` records.
        #[serde(with = "duration")]
        failed_after: Duration = hours(48),
        /// Ended rotations.
        #[serde(with = "duration")]
        history_after: Duration = days(90),
        /// Audit rows.
        #[serde(with = "duration")]
        audit_after: Duration = days(400),
        /// How long a POST after a DELETE is refused.
        #[serde(with = "duration")]
        tombstone: Duration = Duration::ZERO,
    }
);

words!(
    /// How reads of secrets enter the audit.
    AuditReads {
        /// In batches, at most a second late.
        Batched,
        /// Before the answer.
        Sync,
        /// Not at all.
        Off,
    }
);

section!(
    /// The audit.
    Audit {
        /// How reads of secrets enter it.
        reads: AuditReads = AuditReads::Batched,
    }
);

section!(
    /// CloudEvents over HTTP.
    Events {
        /// Where they go; none: nowhere.
        sink: Option<SecretUrl> = None,
        /// The file of the secret that signs them.
        secret_file: Option<PathBuf> = None,
        /// Whether the sink may be plain `http` beyond loopback.
        allow_http: bool = false,
    }
);

words!(
    /// Whether a person has to agree to a break-glass credential.
    Approval {
        /// Nobody has to.
        Auto,
        /// Somebody other than the requester has to.
        Required,
    }
);

words!(
    /// Who signs break-glass certificates.
    SignerKind {
        /// The service itself.
        LocalCa,
        /// HyperShift's control-plane-pki-operator.
        KubernetesCsr,
    }
);

section!(
    /// Break-glass credentials.
    BreakGlass {
        /// Their life when the request does not say.
        #[serde(with = "duration")]
        default_expiration: Duration = hours(24),
        /// Their longest life.
        #[serde(with = "duration")]
        max_expiration: Duration = hours(24),
        /// Whether a person has to agree.
        approval: Approval = Approval::Auto,
        /// Who signs.
        signer: SignerKind = SignerKind::LocalCa,
        /// The certificate's organisation.
        group: String = "system:masters".to_owned(),
        /// How long a request waits for `issued`.
        #[serde(with = "duration")]
        wait: Duration = secs(25),
        /// Which cluster is where.
        clusters_file: PathBuf = PathBuf::from("/etc/hyperfleet/clusters.yaml"),
        /// When an unanswered signing request has failed.
        #[serde(with = "duration")]
        issue_deadline: Duration = secs(600),
        /// Asking API servers.
        probe: Probe = Probe::default(),
    }
);

section!(
    /// Asking API servers whether they accept a certificate.
    Probe {
        /// How often.
        #[serde(with = "duration")]
        interval: Duration = secs(10),
        /// How long one question may take.
        #[serde(with = "duration")]
        timeout: Duration = secs(5),
        /// How many equal answers in a row count.
        successes: u32 = 2,
    }
);
