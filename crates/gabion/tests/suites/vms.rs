//! Gabion targets with virtual machines that run fio.

use rustix::process::Signal;

use crate::harness::{BenchHome, alive, cut, json, leftovers, results, text};

/// Returns the kernel installed by `./run setup`.
fn guest() -> Option<String> {
    let found = test_support::guest_kernel(env!("CARGO_BIN_EXE_gabion"));
    found.map(|path| path.display().to_string())
}

#[test]
fn machines_are_stopped_at_any_end_of_a_run() {
    let Some(home) = BenchHome::new() else { return };
    let Some(guest) = guest() else { return };
    let drives: Vec<String> =
        (0..3).map(|number| home.file(&format!("drive{number}.img"), 96 << 20)).collect();
    let (suite, target) = (home.suite(), format!("gabion:kernel={guest},cpus=1,memory=512,by=vm"));
    let mut arguments = vec!["run", &suite, "--vms", "--overwrite", "--target", &target, "--drives"];
    arguments.extend(drives.iter().map(String::as_str));
    let word = home.path("runs").display().to_string();
    cut(&home, &arguments, "gabion read:", Signal::KILL);
    let id = home.runs().pop().unwrap();
    let folder = home.path("runs").join(&id);
    // Two machines and the daemon; a resumed run stops them and starts others.
    assert_eq!(leftovers(&folder), 3);
    let summary = json(&home.bench(&["resume", &id, "--json"]));
    let measured = results(&summary, "gabion");
    assert_eq!(measured.len(), 3, "{summary}");
    assert!(measured.iter().all(|(_, iops)| iops.as_ref().is_ok_and(|iops| *iops > 0.0)), "{summary}");
    let cpu = &summary["results"][4]["cpu"];
    assert!(cpu["machines"].as_f64().is_some_and(|share| share > 0.0), "{summary}");
    assert_eq!((leftovers(&folder), alive(&word)), (0, 0));
    // The console output of each machine is stored.
    let fio = std::fs::read_dir(folder.join("fio")).unwrap().flatten();
    let names: Vec<String> = fio.map(|entry| entry.file_name().into_string().unwrap()).collect();
    for machine in ["machine1", "machine2"] {
        assert!(names.iter().any(|name| name.contains(machine) && name.ends_with(".json")), "{names:?}");
    }
    let systems = std::fs::read_to_string(folder.join("systems.json")).unwrap();
    assert!(systems.contains("virtual machines running fio (2 with 1 vCPUs and 512 MiB each)"), "{systems}");
}

#[test]
fn invalid_machine_options_are_refused() {
    let Some(home) = BenchHome::new() else { return };
    let suite = home.suite();
    let drive = home.file("drive.img", 64 << 20);
    for (target, expected) in [("gabion:by=vm,kernel=/nonexistent", "gabion: "), ("nbdkit", "--vms requires")]
    {
        let refused =
            home.bench(&["run", &suite, "--vms", "--overwrite", "--target", target, "--drives", &drive]);
        let error = text(&refused.stderr);
        assert!(
            !refused.status.success() && (error.contains(expected) || error.contains("not installed")),
            "{error}"
        );
    }
    assert!(home.runs().is_empty());
}
