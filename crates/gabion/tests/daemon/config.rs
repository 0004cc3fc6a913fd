//! The configuration of the daemon.

use super::harness::{DaemonHome, command, run};

#[test]
fn print_config_prints_an_equivalent_file() {
    let home = DaemonHome::new();
    let first = run(home.serve(&["--threads", "3", "--print-config"]).env("GABION_POLL", "2ms"));
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.out.contains("threads = 3") && first.out.contains("poll = \"2ms\""), "{}", first.out);
    let file = home.arg("gabion.toml");
    std::fs::write(&file, &first.out).unwrap();
    let second = run(&mut command(&["serve", "--config", &file, "--print-config"]));
    assert_eq!(second.out, first.out);
}

#[test]
fn an_unknown_key_is_reported_with_line_and_suggestion() {
    let home = DaemonHome::new();
    let file = home.arg("gabion.toml");
    std::fs::write(&file, "[daemon]\nthreads = 1\nsokcet = \"/run/x\"\n").unwrap();
    let ran = run(&mut command(&["serve", "--config", &file]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains(":3: unknown key 'daemon.sokcet'; did you mean 'daemon.socket'?"), "{ran:?}");
    assert!(ran.err.contains("hint: "), "{ran:?}");
    // Other commands ignore the error.
    let ran = run(command(&["pool", "list"]).env("GABION_CONFIG", &file).env("GABION_SOCKET", home.socket()));
    assert!(ran.err.contains(&home.socket()), "{ran:?}");
}

#[test]
fn an_invalid_value_is_reported_with_its_source() {
    let home = DaemonHome::new();
    let ran = run(&mut home.serve(&["--poll", "soon"]));
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("--poll: 'soon' is not a duration"), "{ran:?}");
    let ran = run(home.serve(&[]).env("GABION_NBD_LISTEN", "nowhere"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("GABION_NBD_LISTEN: 'nowhere' is not an address"), "{ran:?}");
    let ran = run(&mut home.serve(&["--cores", "4000"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("core 4000"), "{ran:?}");
}

#[test]
fn commands_use_the_socket_of_the_configuration() {
    let home = DaemonHome::new();
    let file = home.arg("gabion.toml");
    std::fs::write(&file, format!("[daemon]\nsocket = \"{}\"\n", home.socket())).unwrap();
    let daemon = home.start();
    for (name, value) in [("GABION_CONFIG", file.as_str()), ("GABION_SOCKET", &home.socket())] {
        let ran = run(command(&["pool", "list"]).env(name, value));
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
    }
    daemon.stop();
}

#[test]
fn pools_of_the_configuration_are_opened_at_start() {
    let home = DaemonHome::new();
    let daemon = home.start();
    daemon.make_pool();
    daemon.ok(&["pool", "close", "fast", "--forget"]);
    assert_eq!(daemon.json(&["pool", "list"]), serde_json::json!([]));
    daemon.stop();
    let drives: Vec<_> =
        (0..5).map(|index| format!("{:?}", home.path(&format!("drives/fast-{index}.drive")))).collect();
    let file = home.arg("gabion.toml");
    std::fs::write(&file, format!("[pools.fast]\ndrives = [{}]\n", drives.join(", "))).unwrap();
    let daemon = home.start_with(&["--config", &file]);
    assert_eq!(daemon.pool("fast")["health"], "healthy");
    assert_eq!(daemon.json(&["volume", "list", "fast"])[0]["name"], "vm01");
    daemon.stop();
}

#[test]
fn reactors_use_threads_without_io_uring() {
    let home = DaemonHome::new();
    let daemon = home.start_with(&["--io", "threads", "--threads", "2", "--poll", "0"]);
    daemon.make_pool();
    daemon.ok(&["export", "create", "fast/vm01", "--nbd"]);
    let mut client = super::nbd::Client::connect(&home.nbd_socket(), "fast/vm01").unwrap();
    client.write(4096, &[7; 8192]).unwrap();
    assert_eq!(client.read(4096, 8192).unwrap(), [7; 8192]);
    drop(client);
    let log = daemon.stop();
    assert!(log.contains(r#""io":"threads""#), "{log}");
}
