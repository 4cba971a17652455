//! A one-layer image, pushed and pulled by a real client (Debian package `skopeo`).

use std::fs;
use std::path::Path;
use std::process::Command;

use data_encoding::HEXLOWER;
use serde_json::json;
use sha2::{Digest, Sha256};

/// Pushes the image with the given document.
pub fn push(auth_file: &Path, image: &str, directory: &Path) {
    let layout = directory.join("oci");
    make(&layout);
    let source = format!("oci:{}:v1", layout.display());
    skopeo(auth_file, "--dest-tls-verify=false", &source, &format!("docker://{image}")).unwrap();
}

/// Pulls it; the error is the client's own words.
pub fn pull(auth_file: &Path, image: &str, directory: &Path) -> Result<(), String> {
    let target = directory.join("pulled");
    let _ = fs::remove_dir_all(&target);
    let target = format!("dir:{}", target.display());
    skopeo(auth_file, "--src-tls-verify=false", &format!("docker://{image}"), &target)
}

fn skopeo(auth_file: &Path, tls: &str, from: &str, to: &str) -> Result<(), String> {
    let output = Command::new("skopeo")
        .args(["copy", "-q", "--authfile"])
        .arg(auth_file)
        .args([tls, from, to])
        .output()
        .unwrap_or_else(|error| {
            panic!("skopeo cannot be started ({error}): apt-get install -y skopeo")
        });
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// An OCI layout with one layer: 1,024 zero bytes, which is an empty tar archive.
fn make(layout: &Path) {
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let layer = vec![0_u8; 1024];
    let blob = |bytes: &[u8]| {
        let digest = HEXLOWER.encode(&Sha256::digest(bytes));
        fs::write(layout.join("blobs/sha256").join(&digest), bytes).unwrap();
        (format!("sha256:{digest}"), bytes.len())
    };
    let (layer_digest, layer_size) = blob(&layer);
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    });
    let (config_digest, config_size) = blob(config.to_string().as_bytes());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config_digest, "size": config_size,
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer_digest, "size": layer_size,
        }],
    });
    let (digest, size) = blob(manifest.to_string().as_bytes());
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest, "size": size,
            "annotations": {"org.opencontainers.image.ref.name": "v1"},
        }],
    });
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}
