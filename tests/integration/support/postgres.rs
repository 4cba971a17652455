//! A real PostgreSQL server (Debian package `postgresql`), thrown away afterwards.
//!
//! It belongs to a shell that ends it, and removes its files, when the pipe to this process breaks: that holds
//! for a test run that was killed, too. Knows nothing of this program, so that unit tests can use it as well.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};

/// What the shell does; `$1` is where the programs are, `$2` the port. Each order is answered with a line.
const SHELL: &str = r#"
trap '' INT HUP
directory=$(mktemp -d) || exit 1
run() {
    "$bin/pg_ctl" -D "$directory/data" -s -w -l "$directory/log" -o "-p $port -k $directory \
        -c listen_addresses=127.0.0.1 -c fsync=off -c full_page_writes=off -c max_connections=400 \
        -c max_locks_per_transaction=128" start </dev/null >/dev/null 2>&1
}
bin=$1 port=$2
tls() {
    [ -z "$TLS_KEY" ] && return
    printf '%s' "$TLS_KEY" >"$directory/data/server.key" && chmod 600 "$directory/data/server.key"
    printf '%s' "$TLS_CERTIFICATE" >"$directory/data/server.crt"
    echo 'ssl = on' >>"$directory/data/postgresql.conf"
    echo 'hostssl all all all trust' >"$directory/data/pg_hba.conf"
    echo 'local all all trust' >>"$directory/data/pg_hba.conf"
}
{ "$bin/initdb" -D "$directory/data" -U tester --auth=trust --no-sync --encoding=UTF8 --locale=C.UTF-8 \
    </dev/null >"$directory/log" 2>&1 && tls && run; } && echo up || { cat "$directory/log"; echo down; }
while read -r order; do
    case $order in
    crash) "$bin/pg_ctl" -D "$directory/data" -s -w -m immediate stop </dev/null >/dev/null 2>&1 ;;
    start) run ;;
    esac
    echo "done $?"
done
"$bin/pg_ctl" -D "$directory/data" -s -w -m immediate stop </dev/null >/dev/null 2>&1
rm -rf "$directory"
"#;

/// A running server; dropping it breaks the pipe, which ends it.
pub struct Server {
    shell: Child,
    answers: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    /// Starts one.
    ///
    /// # Panics
    /// When the programs are missing or it does not come up: such a test fails, it is never skipped.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts one that takes nothing but TLS, with this certificate and its key, as PEM.
    pub fn start_tls(certificate: &str, key: &str) -> Self {
        Self::start_with(Some((certificate, key)))
    }

    fn start_with(tls: Option<(&str, &str)>) -> Self {
        let bin = programs();
        let mut log = String::new();
        // Between finding a port free and taking it somebody else may take it.
        for _ in 0..5 {
            match Self::try_start(&bin, tls) {
                Ok(server) => return server,
                Err(text) => log = text,
            }
        }
        panic!("PostgreSQL did not come up:\n{log}");
    }

    fn try_start(bin: &Path, tls: Option<(&str, &str)>) -> Result<Self, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.expect("a free port").port();
        let mut command = as_postgres();
        command.args(["sh", "-c", SHELL, "sh"]).arg(bin).arg(port.to_string());
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let (certificate, key) = tls.unwrap_or_default();
        command.env("TLS_CERTIFICATE", certificate).env("TLS_KEY", key);
        let mut shell = command.spawn().expect("a shell");
        let answers = BufReader::new(shell.stdout.take().expect("its output"));
        let mut server = Self { shell, answers, port };
        let mut log = String::new();
        loop {
            let mut line = String::new();
            let length = server.answers.read_line(&mut line).expect("a line");
            match line.trim_end() {
                "up" => return Ok(server),
                "down" => return Err(log),
                _ if length == 0 => return Err(log),
                _ => log.push_str(&line),
            }
        }
    }

    /// The port it listens on, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://tester@127.0.0.1:{}/{database}", self.port)
    }

    /// Ends it at once; what was committed is recovered at the next start.
    pub fn crash(&mut self) {
        self.order("crash");
    }

    /// After a crash.
    pub fn start_again(&mut self) {
        self.order("start");
    }

    fn order(&mut self, order: &str) {
        let mut orders = self.shell.stdin.as_ref().expect("its input");
        writeln!(orders, "{order}").expect("an order");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        assert_eq!(answer.trim_end(), "done 0", "{order}");
    }

    /// Makes a database, empty or as a copy; its address.
    pub async fn database(&self, template: Option<&str>) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.create(&name, template.unwrap_or("template0")).await;
        self.url(&name)
    }

    /// Makes a database of this name.
    pub async fn create(&self, name: &str, template: &str) {
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template}");
        execute(&self.url("postgres"), &sql).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Waiting closes the pipe first, which ends the shell.
        let _ = self.shell.wait();
    }
}

/// Does what no store would, on a connection of its own.
pub async fn execute(url: &str, sql: &str) {
    let mut db = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
}

/// The one that the tests of this run share; each has databases of its own in it.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::start)
}

/// PostgreSQL refuses to run as root.
fn as_postgres() -> Command {
    let id = Command::new("id").arg("-u").output().expect("id");
    if id.stdout.trim_ascii() == b"0" {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]);
        return command;
    }
    Command::new("env")
}

/// On the PATH, or where Debian keeps them: the newest.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<_> = debian.map(|entry| entry.path()).collect();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    debian.sort_by_key(|path| std::cmp::Reverse(number(path)));
    let places =
        std::env::split_paths(&path).chain(debian.into_iter().map(|path| path.join("bin")));
    let whole = |place: &PathBuf| place.join("initdb").exists() && place.join("pg_ctl").exists();
    places.into_iter().find(whole).unwrap_or_else(|| {
        panic!(
            "initdb and pg_ctl are neither on the PATH nor below /usr/lib/postgresql; these tests need \
             them: apt-get install -y postgresql"
        )
    })
}
