//! Tests of the built-in suites, the checks and the scaling.

use super::*;

#[test]
fn the_raid_suite_matches_its_document() {
    let suite = Suite::raid_vm();
    assert_eq!(suite.jobs.len(), 7);
    assert_eq!(suite.jobs.iter().filter(|job| job.degraded).count(), 2);
    for published in &suite.published {
        assert_eq!(published.figures.len(), suite.jobs.len(), "{}", published.system);
    }
    let mixed = suite.published[0].figure("4k random 70:30").unwrap();
    assert_eq!(mixed.value, [7088.0, 2960.0]);
    assert_eq!(suite.published_for(16).count(), 2);
    for job in &suite.jobs {
        let (threads, engine) = if job.random { (6, Engine::IoUring) } else { (2, Engine::Libaio) };
        assert_eq!((job.depth, job.threads, job.engine), (32, threads, engine), "{}", job.name);
        assert_eq!(job.polled && job.fixed_buffers && job.registered_files && job.lfsr, job.random);
    }
}

#[test]
fn the_other_suites_match_their_documents() {
    let blender = Suite::find("io-blender").unwrap();
    assert_eq!((blender.instances.as_slice(), blender.instance_bytes), ([10].as_slice(), Some(30 << 30)));
    assert_eq!((blender.ramp_s, blender.run_s, blender.order), (5.0, 20.0, Order::Staggered));
    assert_eq!(blender.scaled(&Scaling::default()).unwrap().cases.len(), 12);
    let scaling = Scaling { profile: Some("document".into()), ..Scaling::default() };
    assert_eq!(blender.scaled(&scaling).unwrap().cases.len(), 4);

    let sweep = Suite::find("sweep").unwrap();
    assert_eq!((sweep.jobs.len(), sweep.ramp_s, sweep.run_s), (14, 600.0, 1800.0));
    assert!(sweep.jobs.iter().all(|job| job.depth == 32 && job.threads == 16 && job.refill));
    let target = |name: &str| {
        let job = sweep.jobs.iter().find(|job| job.name == name).unwrap();
        job.latency.map(|latency| (latency.target_ms, latency.window_s, latency.percentile))
    };
    assert_eq!(target("4M sequential write"), Some((300.0, 5.0, 99.999_99)));
    assert_eq!(target("4k sequential read"), Some((10.0, 5.0, 99.999_99)));
    assert_eq!(target("1M sequential read"), None);
    assert_eq!(target("64k random 80:20"), Some((20.0, 5.0, 99.999_99)));

    let simulations = Suite::find("simulations").unwrap();
    let log = simulations.jobs.iter().find(|job| job.name == "database log").unwrap();
    assert_eq!((log.block_bytes, log.read_percent, log.random), (8192, 20, false));
    assert_eq!(simulations.jobs[1].threads, 12);

    let scale = Suite::find("vm-scale").unwrap();
    assert_eq!((scale.instances.first(), scale.instances.last()), (Some(&1), Some(&80)));
    assert_eq!(scale.jobs.iter().filter(|job| job.block_bytes == 131_072).count(), 2);
    assert!(scale.jobs.iter().all(|job| job.threads == 1 && job.depths[0] == 1));
}

fn suite(job: &str) -> String {
    format!(
        "name = 'x'\ntitle = 't'\nsource = 's'\n[[jobs]]\nname = 'j'\nrandom = true\ndepth = 1\nthreads = 1\n{job}"
    )
}

#[test]
fn invalid_suites_are_rejected() {
    Suite::parse(&suite("block_bytes = 4096\nread_percent = 50")).unwrap();
    let published = "[[published]]\nsystem = 'y'\nfigures =";
    for (job, says) in [
        ("block_bytes = 1000\nread_percent = 50".to_owned(), "1000 bytes"),
        ("block_bytes = 4096\nread_percent = 101".into(), "above 100"),
        ("block_bytes = 4096\nread_percent = 1\nspeed = 3".into(), "speed"),
        ("block_bytes = 4096\nread_percent = 1\nprofile = 'p'".into(), "not listed"),
        (
            "block_bytes = 4096\nread_percent = 1\nlatency = { target_ms = 0, window_s = 1, percentile = 9 }"
                .into(),
            "latency target is out of range",
        ),
        (
            format!("block_bytes = 4096\nread_percent = 1\n{published} [{{ job = 'k', value = [1] }}]"),
            "unknown job 'k'",
        ),
        (
            format!("block_bytes = 4096\nread_percent = 1\n{published} [{{ job = 'j', value = [1] }}]"),
            "needs 2 values",
        ),
    ] {
        let error = Suite::parse(&suite(&job)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    for (head, says) in [
        ("instances = []", "instances must be"),
        ("run_s = 0", "run_s"),
        ("ramp_s = nan", "times"),
        ("pools = -1", "pools"),
    ] {
        let text = format!("{head}\n{}", suite("block_bytes = 4096\nread_percent = 50"));
        let error = Suite::parse(&text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_case_is_made_for_each_count_and_depth() {
    let scale = Suite::find("vm-scale").unwrap();
    let scaled = scale.scaled(&Scaling::default()).unwrap();
    assert_eq!(scaled.cases.len(), 9 * 5 * 6);
    assert_eq!(scaled.differences, Vec::<String>::new());
    assert_eq!(scaled.cases[0].name, "4k random read, 1 instance, depth 1");
    let names: std::collections::BTreeSet<&str> =
        scaled.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), scaled.cases.len());
}

#[test]
fn scaling_reports_changes_and_quick_runs_are_short() {
    for suite in Suite::built_in() {
        let scaling = Scaling { quick: true, cpus: 2, buffer_bytes: 1 << 30, ..Scaling::default() };
        let scaled = suite.scaled(&scaling).unwrap();
        #[allow(clippy::cast_precision_loss)]
        let seconds = scaled.cases.len() as f64 * (scaled.ramp_s + scaled.run_s + 1.0);
        assert!(seconds < 60.0, "{}: {seconds} s without filling and raw drives", suite.name);
        assert!(scaled.differences.iter().any(|one| one.contains("s per job after")), "{}", suite.name);
        for latency in scaled.cases.iter().filter_map(|case| case.job.latency) {
            assert!(latency.window_s <= scaled.run_s / 8.0, "{}", suite.name);
        }
        for case in &scaled.cases {
            let job = &case.job;
            let bytes =
                u64::from(job.threads) * u64::from(job.depth) * u64::from(case.instances) * job.block_bytes;
            assert!(bytes <= 1 << 30, "{}: buffers of {bytes} bytes", case.name);
        }
    }
    let suite = Suite::find("simulations").unwrap();
    let scaling = Scaling { buffer_bytes: 1 << 30, ..Scaling::default() };
    let differences = suite.scaled(&scaling).unwrap().differences;
    let says = |what: &str| assert!(differences.iter().any(|one| one.starts_with(what)), "{differences:?}");
    says("1 threads in 'backup' (limited");
    says("16 queue depth in 'backup'");
}

#[test]
fn degraded_cases_come_last_and_the_first_case_finds_data() {
    let suite = Suite::raid_vm();
    let scaling = Scaling { instances: vec![1, 16], ..Scaling::default() };
    let cases = suite.scaled(&scaling).unwrap().cases;
    let first_degraded = cases.iter().position(|case| case.job.degraded).unwrap();
    assert!(cases[first_degraded..].iter().all(|case| case.job.degraded));
    let scaling = Scaling { only: "1M write".into(), ..Scaling::default() };
    let cases = suite.scaled(&scaling).unwrap().cases;
    assert_eq!((cases.len(), cases[0].job.prepare), (1, Some(Prepare::Sequential)));
    let scaling = Scaling { only: "2M".into(), ..Scaling::default() };
    assert!(suite.scaled(&scaling).unwrap_err().to_string().contains("no job name contains '2M'"));
}
