//! Reads the sources: secrets have types that do not show themselves, and few places open them.

use std::fs;
use std::path::{Path, PathBuf};

/// The files that may look into a secret, and what for.
const MAY_EXPOSE: [(&str, &str); 16] = [
    ("actors/registries.rs", "a proxy's address"),
    ("cli/audit.rs", "the database's address"),
    ("cli/serve.rs", "the database's address"),
    ("config/dev.rs", "writes the admin token's file"),
    ("config/secret_url.rs", "hides the password of an address"),
    ("config/tests.rs", "a test"),
    ("crypto/keyring.rs", "seals"),
    ("crypto/keyring_tests.rs", "a test"),
    ("crypto/secret.rs", "compares"),
    ("crypto/tokens.rs", "hashes"),
    ("http/auth.rs", "a test"),
    ("http/document.rs", "the pull secret itself"),
    ("http/extract/headers.rs", "takes a Basic credential apart"),
    ("http/resource/credential.rs", "the kubeconfig itself"),
    ("http/tests/fixtures.rs", "a test"),
    ("registries/", "sends it to its registry"),
    ("signers/", "signs and logs in with it"),
];

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Each file's path below `src`, and its text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    let named = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    found.iter().map(|path| (named(path), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn few_files_look_into_a_secret() {
    for (file, text) in sources() {
        let allowed = MAY_EXPOSE.iter().any(|(start, _)| file.starts_with(start));
        assert!(allowed || !text.contains("expose_secret"), "{file} exposes a secret");
    }
}

/// A plain field of such a name, in a type that can be printed.
fn printable_secrets(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut derives = String::new();
    let mut printable = None;
    for line in lines {
        let bare = line.trim();
        if bare.starts_with("#[derive(") || !derives.is_empty() && !derives.contains(')') {
            derives.push_str(bare);
        } else if bare.contains("struct ") || bare.contains("enum ") {
            printable = (derives.contains("Debug") && bare.ends_with('{')).then(|| bare.to_owned());
            derives.clear();
        } else if line == "}" {
            printable = None;
        } else if let Some(owner) = &printable {
            let field = bare.trim_start_matches("pub ").trim_start_matches("pub(super) ");
            let Some((name, of)) = field.split_once(": ") else { continue };
            let plain = ["String", "Vec<u8>", "Option<String>", "Option<Vec<u8>>", "[u8; 32]"];
            let secret = ["secret", "token", "password", "passphrase", "credential", "private_key"]
                .iter()
                .any(|word| name == *word || name.ends_with(&format!("_{word}")));
            if secret && plain.contains(&of.trim_end_matches(',')) {
                found.push(format!("{owner} {field}"));
            }
        }
    }
    found
}

#[test]
fn no_secret_is_a_plain_field_of_a_type_that_can_be_printed() {
    for (file, text) in sources() {
        assert_eq!(printable_secrets(&text), Vec::<String>::new(), "{file}");
    }
}

#[test]
fn the_reader_finds_what_it_looks_for() {
    let text =
        "#[derive(Clone, Debug)]\npub struct A {\n    /// x\n    pub api_token: String,\n}\n";
    assert_eq!(printable_secrets(text).len(), 1);
    for harmless in [
        text.replace("Debug", "Eq"),
        text.replace("String", "SecretString"),
        text.replace("api_token", "token_file"),
    ] {
        assert_eq!(printable_secrets(&harmless), Vec::<String>::new(), "{harmless}");
    }
}
