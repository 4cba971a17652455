//! Imports run downwards only. Reads the `use` lines of each layer.

use std::fs;
use std::path::{Path, PathBuf};

/// Layer, and the modules of this crate that it may name.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("state", &["ids", "time", "window", "state"]),
    ("store", &["ids", "time", "window", "state", "store"]),
    ("crypto", &["ids", "time", "crypto"]),
    ("outside", &["outside"]),
    ("registries", &["ids", "time", "outside", "registries"]),
    ("signers", &["ids", "time", "outside", "signers"]),
    ("config", &["ids", "time", "window", "crypto", "config"]),
    ("telemetry", &["ids", "time", "config", "telemetry"]),
    (
        "actors",
        &[
            "ids",
            "time",
            "window",
            "state",
            "store",
            "crypto",
            "registries",
            "signers",
            "config",
            "telemetry",
            "actors",
            "failpoints",
        ],
    ),
    (
        "http",
        &[
            "ids",
            "time",
            "window",
            "state",
            "store",
            "crypto",
            "config",
            "telemetry",
            "actors",
            "registries",
            "signers",
            "http",
        ],
    ),
];

/// What the machine must never see.
const IMPURE: [&str; 9] = [
    "sqlx",
    "actix",
    "actix_web",
    "actix_rt",
    "reqwest",
    "tokio",
    "rand",
    "std::time::Instant",
    "std::time::SystemTime",
];

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn files_of(layer: &str) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let folder = source.join(layer);
    if folder.is_dir() {
        rust_files(&folder, &mut files);
    }
    assert!(!files.is_empty(), "no files in {layer}");
    files
}

/// Every `crate::<module>` in the text, comments aside.
fn named_modules(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .filter(|module: &String| !module.is_empty())
        .collect()
}

#[test]
fn imports_run_downwards_only() {
    for (layer, allowed) in ALLOWED {
        for file in files_of(layer) {
            let text = fs::read_to_string(&file).unwrap();
            for module in named_modules(&text) {
                assert!(
                    allowed.contains(&module.as_str()),
                    "{} names crate::{module}; {layer} may name {allowed:?} only",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn the_machine_is_pure() {
    for file in files_of("state") {
        if file.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| line.trim_start().starts_with("use ")) {
            for name in IMPURE {
                let used = line.contains(&format!("use {name}::"))
                    || line.contains(&format!("use {name};"));
                assert!(!used, "{}: {line}", file.display());
            }
        }
        for forbidden in ["::now()", "now_v7", "std::env", "std::fs", "println!"] {
            assert!(!text.contains(forbidden), "{} has {forbidden}", file.display());
        }
    }
}
