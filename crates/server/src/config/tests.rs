//! Tests: every key from every source, precedence, invalid configurations, and the systemd unit.

use std::path::Path;

use super::*;

fn load(
    file: Option<&str>,
    environment: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Config, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gabion.toml");
    std::fs::write(&path, file.unwrap_or_default()).unwrap();
    let find = |from: &[(&str, &str)], name: &str| {
        from.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    Config::load(Some(&path), &|name| find(environment, name), &|name| find(flags, name))
}

fn refusal(file: &str) -> String {
    let error = load(Some(file), &[], &[]).unwrap_err().to_string();
    let (_, after_path) = error.split_once("gabion.toml").unwrap();
    after_path.to_owned()
}

#[test]
fn every_key_is_read_from_the_file_the_environment_and_a_flag() {
    for key in KEYS {
        // Each of these keys is refused without the other.
        let needed = match key.path().as_str() {
            "api.certificate" => Some(("api-key", "/etc/gabion/key.pem")),
            "api.key" => Some(("api-certificate", "/etc/gabion/certificate.pem")),
            _ => None,
        };
        let needed = needed.as_slice();
        let mut expected = load(None, &[], &[]).unwrap();
        for (flag, value) in needed {
            KEYS.iter().find(|key| key.flag() == *flag).unwrap().apply(&mut expected, value).unwrap();
        }
        let unset = expected.clone();
        key.apply(&mut expected, key.example).unwrap();
        assert_ne!(expected, unset, "the example of {} is its default", key.path());

        let file = format!("[{}]\n{} = \"{}\"", key.section, key.name, key.example);
        assert_eq!(load(Some(&file), &[], needed).unwrap(), expected, "{}", key.path());
        let variable = key.variable();
        assert_eq!(load(None, &[(&variable, key.example)], needed).unwrap(), expected, "{variable}");
        let flag = key.flag();
        let flags = [&[(flag.as_str(), key.example)], needed].concat();
        assert_eq!(load(None, &[], &flags).unwrap(), expected, "--{flag}");
    }
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let file = "[daemon]\nthreads = 2";
    let threads = |environment, flags| load(Some(file), environment, flags).unwrap().threads;
    assert_eq!(threads(&[], &[]), Some(2));
    assert_eq!(threads(&[("GABION_THREADS", "3")], &[]), Some(3));
    assert_eq!(threads(&[("GABION_THREADS", "3")], &[("threads", "4")]), Some(4));
}

#[test]
fn names_are_unique() {
    let mut names: Vec<String> =
        KEYS.iter().flat_map(|key| [key.flag(), key.variable(), key.path()]).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_rendered_file_parses_to_the_same_settings() {
    let flags: Vec<(String, &str)> =
        KEYS.iter().filter(|key| key.name != "threads").map(|key| (key.flag(), key.example)).collect();
    let flags: Vec<(&str, &str)> = flags.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let pools = "[pools.fast]\ndrives = [\"/dev/a\", \"/dev/b c\"]\n[pools.\"x.y\"]\ndrives = [\"/dev/c\"]";
    let config = load(Some(pools), &[], &flags).unwrap();
    assert_eq!(config.pools.len(), 2);
    assert_eq!(load(Some(&config.to_file()), &[], &[]).unwrap(), config);
    let unset = load(None, &[], &[]).unwrap();
    assert_eq!(load(Some(&unset.to_file()), &[], &[]).unwrap(), unset);
}

#[test]
fn lists_and_numbers_need_no_quotes() {
    let config =
        load(Some("[daemon]\ncores = [0, 2]\nthreads = 2\nmap_memory = 1_048_576"), &[], &[]).unwrap();
    assert_eq!((config.cores, config.threads, config.map_memory), (vec![0, 2], Some(2), Size(1 << 20)));
    let config = load(Some("[nbd]\nlisten = [\"0.0.0.0:1\", \"[::]:2\"]"), &[], &[]).unwrap();
    assert_eq!(config.nbd_listen.len(), 2);
}

#[test]
fn an_unknown_key_is_reported_with_its_line_and_a_suggestion() {
    for (file, message) in [
        ("[daemon]\n\nsokcet = \"/a\"", ":3: unknown key 'daemon.sokcet'; did you mean 'daemon.socket'?"),
        ("[deamon]\nsocket = \"/a\"", ":1: unknown key 'deamon'; did you mean 'daemon'?"),
        ("socket = \"/a\"", ":1: unknown key 'socket'; did you mean 'daemon.socket'?"),
        ("[nbd]\nlisten_on = \"\"", ":2: unknown key 'nbd.listen_on'; did you mean 'nbd.listen'?"),
        ("[pools.a]\ndrive = [\"/a\"]", ":2: unknown key 'pools.a.drive'; did you mean 'pools.a.drives'?"),
        ("\n[something.else]\nx = 1", ":2: unknown key 'something'"),
        ("[daemon]\nquite_another = 1", ":2: unknown key 'daemon.quite_another'"),
    ] {
        assert_eq!(refusal(file), message);
    }
}

#[test]
fn an_invalid_value_is_reported_with_its_place() {
    for (file, message) in [
        ("[daemon]\nthreads = 0", ":2: daemon.threads: '0' is not a number from 1 to 1024"),
        ("[daemon]\nthreads = -1", ":2: daemon.threads: '-1' is not"),
        ("[daemon]\npoll = 3", ":2: daemon.poll: '3' is not a duration"),
        ("[daemon]\npoll = true", ":2: daemon.poll: expected a string"),
        ("[daemon]\ncores = [1, 1]", ":2: daemon.cores: core 1 is listed twice"),
        ("[daemon]\nsocket = \"here\"", ":2: daemon.socket: 'here' is not an absolute path"),
        ("[daemon]\nio = \"uring\"", ":2: daemon.io: unknown I/O backend"),
        ("[daemon]\nlog_level = \"loud\"", ":2: daemon.log_level: 'loud' is not a log level"),
        ("[daemon]\nmap_memory = \"1K\"", ":2: daemon.map_memory: 1 KiB is less"),
        ("[daemon]\nlatency_target = 100", ":2: daemon.latency_target: '100' is not a percentage from 110"),
        ("[nbd]\nlisten = \"localhost\"", ":2: nbd.listen: 'localhost' is not an address"),
        ("[pools]\nfast = 3", ":2: pools.fast: expected a section [pools.fast]"),
        ("[pools.fast]", ":1: pools.fast: the pool needs 'drives'"),
        ("[pools.fast]\ndrives = [\"sda\"]", ":2: pools.fast.drives: expected a list of absolute paths"),
        ("[pools.fast]\ndrives = []", ":2: pools.fast.drives: expected a list"),
        ("[daemon", ": TOML parse error at line 1"),
    ] {
        assert!(refusal(file).starts_with(message), "{}", refusal(file));
    }
    let error = load(None, &[("GABION_POLL", "soon")], &[]).unwrap_err().to_string();
    assert!(error.starts_with("GABION_POLL: 'soon' is not a duration"), "{error}");
    let error = load(None, &[], &[("nbd-listen", "x")]).unwrap_err().to_string();
    assert!(error.starts_with("--nbd-listen: 'x' is not an address"), "{error}");
    let error = load(Some("[daemon]\ncores = [0]\nthreads = 2"), &[], &[]).unwrap_err().to_string();
    assert!(error.contains("set only one of them"), "{error}");
}

#[test]
fn a_file_given_by_flag_must_exist() {
    let error = Config::load(Some(Path::new("/nonexistent/gabion.toml")), &|_| None, &|_| None).unwrap_err();
    assert!(error.to_string().starts_with("cannot read /nonexistent/gabion.toml"), "{error}");
}

/// Returns the values of a setting of the systemd unit, split at spaces.
fn unit_values(name: &str) -> Vec<&'static str> {
    let unit = include_str!("../../../../deploy/systemd/gabion.service");
    let setting = |line: &'static str| line.split_once('=').filter(|(key, _)| *key == name);
    unit.lines().filter_map(setting).flat_map(|(_, value)| value.split_whitespace()).collect()
}

#[test]
fn the_systemd_unit_agrees_with_the_default_paths() {
    let paths = DefaultPaths::of_root();
    assert_eq!(
        unit_values("RuntimeDirectory"),
        [paths.runtime.strip_prefix("/run").unwrap().to_str().unwrap()]
    );
    assert_eq!(
        unit_values("StateDirectory"),
        [paths.state.strip_prefix("/var/lib").unwrap().to_str().unwrap()]
    );
    let configuration = Path::new(DEFAULT_FILE).parent().unwrap().strip_prefix("/etc").unwrap();
    assert_eq!(unit_values("ConfigurationDirectory"), [configuration.to_str().unwrap()]);
    let command = unit_values("ExecStart");
    assert_eq!(command[..2], ["/usr/bin/gabion", "serve"]);
    for argument in &command[2..] {
        let flag = argument.strip_prefix("--").and_then(|flag| flag.split('=').next());
        assert!(KEYS.iter().any(|key| Some(key.flag().as_str()) == flag), "unknown flag {argument}");
    }
    // The daemon sends READY=1 and STOPPING=1 itself.
    assert_eq!((unit_values("Type"), unit_values("NotifyAccess")), (vec!["notify"], vec!["main"]));
}

#[test]
fn the_systemd_unit_does_not_hide_drives_or_fuse_mounts() {
    // Each of these options makes systemd create a mount namespace, which disables mount
    // propagation to the host, or a device filter, which hides the drives.
    for option in [
        "BindPaths",
        "BindReadOnlyPaths",
        "DeviceAllow",
        "DevicePolicy",
        "DynamicUser",
        "InaccessiblePaths",
        "PrivateDevices",
        "PrivateMounts",
        "PrivateTmp",
        "ProcSubset",
        "ProtectClock",
        "ProtectControlGroups",
        "ProtectHome",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectProc",
        "ProtectSystem",
        "ReadOnlyPaths",
        "ReadWritePaths",
        "RootDirectory",
        "TemporaryFileSystem",
        "User",
    ] {
        assert!(unit_values(option).is_empty(), "{option}");
    }
    for capability in ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_SYS_PTRACE", "CAP_CHOWN", "CAP_DAC_OVERRIDE"]
    {
        assert!(unit_values("CapabilityBoundingSet").contains(&capability), "{capability}");
    }
    assert_eq!(unit_values("LimitMEMLOCK"), ["infinity"]);
}

#[test]
fn reactors_follow_threads_or_cores() {
    let cores = |flags: &[(&str, &str)]| load(None, &[], flags).unwrap().reactors().cores;
    assert_eq!(cores(&[("threads", "2")]), [None, None]);
    assert_eq!(cores(&[("cores", "1,3")]), [Some(1), Some(3)]);
    assert!(!cores(&[]).is_empty());
}
