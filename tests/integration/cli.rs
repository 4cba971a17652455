//! The program as a person or a script runs it, and its exit codes.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in a directory, without this machine's settings.
pub fn run(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hyperfleet-credentials"))
        .current_dir(dir)
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

/// Exit code, standard output, standard error.
pub fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| told(&run(dir.path(), args, &[]));
    assert_eq!(run(&[]).0, 2);
    assert_eq!(run(&["dance"]).0, 2);
    assert_eq!(run(&["keys", "generate"]).0, 2);
    assert_eq!(run(&["serve", "--db-url", "x"]).0, 2);
    let (code, out, _) = run(&["--help"]);
    assert!(code == 0 && out.contains("serve") && out.contains("migrate"), "{out}");
    let (code, out, _) = run(&["serve", "--help"]);
    assert!(code == 0 && out.contains("--server-port") && out.contains("--dev"), "{out}");
    let (code, out, _) = run(&["--version"]);
    assert!(code == 0 && out.starts_with("hyperfleet-credentials "), "{out}");
}

#[test]
fn completions_for_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, _) = told(&run(dir.path(), &["completions", "bash"], &[]));
    assert!(code == 0 && out.contains("complete -F _hyperfleet"), "{out}");
}
