//! Programs of others with the S3 service: s3cmd, rclone, the AWS CLI, restic, s3fs, Delta Lake,
//! the AWS SDK for JavaScript, and the end-to-end tests of s3s. Each runs against a real daemon;
//! its results are compared with files.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use super::harness::{Daemon, DaemonHome, until};
use super::mounts::{UnmountGuard, is_mounted, run, unmount};
use super::nbd::pattern;

/// Name of the mount point in the directory of a test.
const MOUNT: &str = "mount";

/// A daemon with a bucket, and an environment of clients.
struct ClientTest<'h> {
    home: &'h DaemonHome,
    daemon: Daemon<'h>,
    endpoint: String,
    access_key: String,
    secret: String,
}

impl<'h> ClientTest<'h> {
    fn start(home: &'h DaemonHome) -> Self {
        let daemon = home.start();
        let files = home.arg("drives");
        let create = ["pool", "create", "fast", "--scheme", "4+1", "--files", &files];
        daemon.ok(&[&create[..], &["--file-size", "256M", "--count", "5"]].concat());
        let endpoint = daemon.ok(&["s3", "start", "fast", "--listen", "127.0.0.1:0"]).trim().to_owned();
        let key = daemon.json(&["key", "create"]);
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        Self { home, endpoint, access_key: text("access_key"), secret: text("secret"), daemon }
    }

    fn host(&self) -> &str {
        self.endpoint.trim_start_matches("http://")
    }

    /// Makes a directory of files: empty, small, larger than a part, and with other characters.
    fn make_files(&self) -> PathBuf {
        let root = self.home.path("files");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for (name, length) in
            [("empty", 0), ("a/small", 10), ("a/b/large", 18 << 20), ("a/b/ü +%&.txt", 3000)]
        {
            std::fs::write(root.join(name), pattern(length as u64 + 1, length)).unwrap();
        }
        root
    }

    /// Returns a command without the settings of the user.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", self.home.path("")).env("XDG_CONFIG_HOME", self.home.path("config"));
        command.env("AWS_ACCESS_KEY_ID", &self.access_key).env("AWS_SECRET_ACCESS_KEY", &self.secret);
        command.env("AWS_DEFAULT_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
        for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"] {
            command.env_remove(name);
        }
        command
    }

    fn bytes(&self, bucket: &str) -> u64 {
        self.daemon.json(&["bucket", "show", &format!("fast/{bucket}")])["bytes"].as_u64().unwrap()
    }
}

/// Runs a command that must succeed. Returns its output.
#[track_caller]
fn ok(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}\n{error}");
    out.into_owned()
}

/// Compares two directories.
#[track_caller]
fn same(one: &Path, other: &Path) {
    ok(Command::new("diff").arg("-r").args([one, other]));
}

fn size(root: &Path) -> u64 {
    let entries = std::fs::read_dir(root).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => size(&entry.path()),
            metadata => metadata.len(),
        })
        .sum()
}

#[test]
fn s3cmd_puts_syncs_and_deletes() {
    if !test_support::has_program("s3cmd") {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let settings = home.path("s3cmd");
    let (host, files) = (test.host(), test.make_files());
    std::fs::write(
        &settings,
        format!(
            "[default]\naccess_key = {}\nsecret_key = {}\nhost_base = {host}\nhost_bucket = {host}\n\
             use_https = False\nbucket_location = us-east-1\nmultipart_chunk_size_mb = 5\n",
            test.access_key, test.secret
        ),
    )
    .unwrap();
    let s3cmd = |arguments: &[&str]| ok(test.command("s3cmd").arg("-c").arg(&settings).args(arguments));
    s3cmd(&["mb", "s3://photos"]);
    let source = format!("{}/", files.display());
    s3cmd(&["sync", &source, "s3://photos/copy/"]);
    assert_eq!(test.bytes("photos"), size(&files));
    let listed = s3cmd(&["ls", "--recursive", "s3://photos"]);
    assert!(listed.contains("s3://photos/copy/a/b/ü +%&.txt") && listed.lines().count() == 4, "{listed}");
    let back = home.path("back");
    std::fs::create_dir(&back).unwrap();
    s3cmd(&["sync", "s3://photos/copy/", &format!("{}/", back.display())]);
    same(&files, &back);
    // Nothing has changed, so nothing is sent.
    let again = s3cmd(&["sync", &source, "s3://photos/copy/"]);
    assert!(!again.contains("upload:"), "{again}");
    s3cmd(&["cp", "s3://photos/copy/a/b/large", "s3://photos/large"]);
    s3cmd(&["info", "s3://photos/large"]);
    s3cmd(&["mv", "s3://photos/large", "s3://photos/moved"]);
    s3cmd(&["setacl", "--acl-public", "s3://photos/moved"]);
    s3cmd(&["del", "--recursive", "--force", "s3://photos"]);
    s3cmd(&["rb", "s3://photos"]);
    test.daemon.stop();
}

fn rclone(test: &ClientTest<'_>) -> Command {
    let mut command = test.command("rclone");
    for (name, value) in [
        ("TYPE", "s3"),
        ("PROVIDER", "Other"),
        ("ENV_AUTH", "true"),
        ("REGION", "us-east-1"),
        ("ENDPOINT", &test.endpoint),
        ("FORCE_PATH_STYLE", "true"),
        ("CHUNK_SIZE", "5M"),
        ("UPLOAD_CUTOFF", "8M"),
    ] {
        command.env(format!("RCLONE_CONFIG_GABION_{name}"), value);
    }
    command.env("RCLONE_CONFIG", test.home.path("rclone.conf"));
    command
}

#[test]
fn rclone_copies_syncs_and_checks() {
    if !test_support::has_program("rclone") {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let files = test.make_files();
    let source = files.to_str().unwrap();
    let run = |arguments: &[&str]| ok(rclone(&test).args(arguments));
    run(&["mkdir", "gabion:photos"]);
    run(&["copy", source, "gabion:photos/copy"]);
    run(&["check", "--download", source, "gabion:photos/copy"]);
    std::fs::write(files.join("a/small"), "changed").unwrap();
    std::fs::remove_file(files.join("empty")).unwrap();
    let differs = rclone(&test).args(["check", source, "gabion:photos/copy"]).output().unwrap();
    assert!(!differs.status.success(), "the check finds the differences");
    run(&["sync", source, "gabion:photos/copy"]);
    run(&["check", source, "gabion:photos/copy"]);
    assert_eq!(test.bytes("photos"), size(&files));
    assert_eq!(run(&["cat", "gabion:photos/copy/a/small"]), "changed");
    let back = home.path("back");
    run(&["copy", "gabion:photos/copy", back.to_str().unwrap()]);
    same(&files, &back);
    run(&["purge", "gabion:photos"]);
    assert!(!run(&["lsd", "gabion:"]).contains("photos"));
    test.daemon.stop();
}

/// A client that serves a mount, which ends with it.
struct MountedClient<'a> {
    child: Child,
    _guard: UnmountGuard<'a>,
}

impl<'a> MountedClient<'a> {
    fn start(command: &mut Command, mount_point: &'a Path) -> Self {
        let mut child = command.spawn().unwrap();
        let guard = UnmountGuard(mount_point);
        until("the client mounts the bucket", || {
            assert!(child.try_wait().unwrap().is_none(), "the client has ended");
            is_mounted(mount_point)
        });
        Self { child, _guard: guard }
    }

    /// Unmounts, and waits until the client has sent all data.
    fn stop(mut self, mount_point: &str) {
        unmount(mount_point);
        self.child.wait().unwrap();
    }
}

/// Uses a mounted bucket like a file system.
fn use_mount(files: &Path, mount_point: &Path) {
    let copy = mount_point.join("copy");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run("cp", &["-r", &text(files), &text(&copy)]);
    same(files, &copy);
    std::fs::rename(copy.join("a/small"), copy.join("a/renamed")).unwrap();
    std::fs::write(copy.join("a/new"), "new").unwrap();
    std::fs::remove_file(copy.join("empty")).unwrap();
    assert_eq!(std::fs::read(copy.join("a/new")).unwrap(), b"new");
}

/// Mounts the bucket `photos` by a client, uses the mount, and checks the objects.
fn mount_and_use(test: &ClientTest<'_>, client: &mut Command) {
    test.daemon.ok(&["bucket", "create", "fast/photos"]);
    let (files, mount_point) = (test.make_files(), test.home.path(MOUNT));
    std::fs::create_dir(&mount_point).unwrap();
    let mounted = MountedClient::start(client, &mount_point);
    use_mount(&files, &mount_point);
    mounted.stop(mount_point.to_str().unwrap());
    check_mounted_objects(test);
}

fn check_mounted_objects(test: &ClientTest<'_>) {
    let listed = test.daemon.ok(&["object", "list", "fast/photos", "--quiet"]);
    let has = |key: &str| listed.lines().any(|line| line == key);
    assert!(has("copy/a/renamed") && has("copy/a/new") && has("copy/a/b/large"), "{listed}");
    assert!(!has("copy/a/small") && !has("copy/empty"), "{listed}");
    let large = test.home.path("large");
    test.daemon.ok(&["object", "get", "fast/photos", "copy/a/b/large", large.to_str().unwrap()]);
    assert!(std::fs::read(large).unwrap() == std::fs::read(test.home.path("files/a/b/large")).unwrap());
}

#[test]
fn rclone_mounts_a_bucket() {
    if !test_support::has_fuse() || !test_support::has_program("rclone") {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let mut command = rclone(&test);
    command.args(["mount", "gabion:photos", &home.arg(MOUNT), "--vfs-cache-mode", "writes"]);
    command.args(["--vfs-write-back", "0s", "--cache-dir", &home.arg("cache")]);
    mount_and_use(&test, &mut command);
    test.daemon.stop();
}

#[test]
fn s3fs_mounts_a_bucket() {
    if !test_support::has_fuse() || !test_support::has_program("s3fs") {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let url = format!("url={}", test.endpoint);
    let mut command = test.command("s3fs");
    command.args(["photos", &home.arg(MOUNT), "-f", "-o", &url, "-o", "use_path_request_style"]);
    command.args(["-o", "endpoint=us-east-1", "-o", "sigv4", "-o", "multipart_size=5"]);
    mount_and_use(&test, &mut command);
    test.daemon.stop();
}

/// The installations of the AWS CLI: that of the path, and that of the distribution. Versions from
/// 2.23 on send checksums in trailers.
fn aws_programs() -> Vec<PathBuf> {
    let installed = [test_support::find_program("aws"), Some(PathBuf::from("/usr/bin/aws"))];
    let mut programs: Vec<_> = installed.into_iter().flatten().filter(|path| path.is_file()).collect();
    programs.dedup();
    programs
}

#[test]
fn the_aws_cli_copies_and_syncs_with_old_and_new_checksums() {
    if !test_support::has_program("aws") {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let files = test.make_files();
    let source = files.to_str().unwrap();
    let mut runs = 0;
    for (index, program) in aws_programs().into_iter().enumerate() {
        // Versions before 2.23 have no setting.
        let settings = if index == 0 { &["when_supported", "when_required"][..] } else { &["when_required"] };
        for checksums in settings {
            runs += 1;
            let aws = |arguments: &[&str]| {
                let mut command = test.command(program.to_str().unwrap());
                command.env("AWS_REQUEST_CHECKSUM_CALCULATION", checksums);
                command.env("AWS_RESPONSE_CHECKSUM_VALIDATION", checksums);
                ok(command.args(["--endpoint-url", &test.endpoint]).args(arguments))
            };
            aws(&["s3", "mb", "s3://photos"]);
            aws(&["s3", "sync", source, "s3://photos/copy"]);
            assert_eq!(test.bytes("photos"), size(&files));
            let back = home.path(&format!("back{runs}"));
            aws(&["s3", "sync", "s3://photos/copy", back.to_str().unwrap()]);
            same(&files, &back);
            assert_eq!(aws(&["s3", "sync", source, "s3://photos/copy"]), "", "nothing has changed");
            aws(&["s3", "cp", "s3://photos/copy/a/b/large", "s3://photos/large"]);
            aws(&["s3", "mv", "s3://photos/large", "s3://photos/moved"]);
            let head = aws(&["s3api", "head-object", "--bucket", "photos", "--key", "moved"]);
            assert!(head.contains(&(18 << 20).to_string()), "{head}");
            aws(&["s3", "rb", "--force", "s3://photos"]);
        }
    }
    assert!(runs >= 2);
    test.daemon.stop();
}

#[test]
fn restic_stores_checks_and_restores_a_backup() {
    if !test_support::has_program("restic") {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let files = test.make_files();
    let restic = |arguments: &[&str]| {
        let mut command = test.command("restic");
        command.env("RESTIC_REPOSITORY", format!("s3:{}/backup", test.endpoint));
        command.env("RESTIC_PASSWORD", "secret").env("RESTIC_CACHE_DIR", home.path("cache"));
        ok(command.args(arguments))
    };
    restic(&["init"]);
    restic(&["backup", files.to_str().unwrap()]);
    std::fs::write(files.join("a/small"), "changed").unwrap();
    restic(&["backup", files.to_str().unwrap()]);
    restic(&["check", "--read-data"]);
    restic(&["forget", "--keep-last", "1", "--prune"]);
    restic(&["check", "--read-data"]);
    let back = home.path("back");
    restic(&["restore", "latest", "--target", back.to_str().unwrap()]);
    same(&files, &back.join(files.strip_prefix("/").unwrap()));
    test.daemon.stop();
}

/// The interpreter with `deltalake` that `./run setup` installs next to cargo's build directories.
fn delta_python() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_gabion"));
    built.ancestors().map(|path| path.join("deltalake/bin/python")).find(|path| path.exists())
}

#[test]
fn concurrent_writers_of_a_delta_table_lose_no_commit() {
    let missing = || "there is no virtual environment with it".to_owned();
    if !test_support::has("deltalake", delta_python().map(drop).ok_or_else(missing)) {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    test.daemon.ok(&["bucket", "create", "fast/lake"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/delta_table.py");
    let python = delta_python().unwrap();
    let out = ok(test.command(python.to_str().unwrap()).args([script, &test.endpoint, "4", "10"]));
    assert_eq!(out.trim(), "versions 0 to 40, 40 rows");
    test.daemon.stop();
}

/// A directory that `./run setup` installs next to cargo's build directories.
fn installed(name: &str, file: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_gabion"));
    let mut found = built.ancestors().map(|path| path.join(name));
    found.find(|path| path.join(file).exists())
}

#[test]
fn the_aws_sdk_for_javascript_uses_all_kinds_of_operations() {
    let sdk = installed("aws-sdk", "node_modules/@aws-sdk/client-s3");
    let missing = || "it is not in the target directory; it needs npm and Node.js 20".to_owned();
    if !test_support::has("aws-sdk", sdk.clone().map(drop).ok_or_else(missing)) {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/aws_sdk.mjs");
    let modules = sdk.unwrap();
    let mut node = test.command("node");
    node.env("AWS_REGION", "us-east-1").args([script, modules.to_str().unwrap(), &test.endpoint]);
    assert_eq!(ok(&mut node).trim(), "done");
    test.daemon.stop();
}

/// The tests of the protocol library, by the AWS SDK for Rust.
#[test]
fn the_end_to_end_tests_of_s3s_pass() {
    let suite = installed("s3s-e2e", "bin/s3s-e2e");
    let missing = || "it is not in the target directory".to_owned();
    if !test_support::has("s3s-e2e", suite.clone().map(drop).ok_or_else(missing)) {
        return;
    }
    let home = DaemonHome::new();
    let test = ClientTest::start(&home);
    let program = suite.unwrap().join("bin/s3s-e2e");
    let mut command = test.command(program.to_str().unwrap());
    command.env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT_URL", &test.endpoint);
    // All but Advanced/STS: AssumeRole without a token of an identity provider is not supported.
    let out = ok(command.args(["--filter", "^(Basic/|Advanced/[^S])"]));
    let passed = out.lines().filter(|line| line.contains("PASSED") && line.contains("/test_")).count();
    assert_eq!((passed, out.contains("FAILED")), (17, false), "{out}");
    test.daemon.stop();
}
