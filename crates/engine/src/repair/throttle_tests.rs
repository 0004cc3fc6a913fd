//! Throttling of background work: rate limit, priority of client I/O, guaranteed share.

use super::*;
use crate::repair::RepairLimits;

const MIB: u64 = 1 << 20;

/// Returns the limits of a pool with that many shards, and a throttle in one of them.
fn limits_and_throttle(limits: RepairLimits, shards: usize) -> (BackgroundLimiter, Throttle) {
    let limiter = BackgroundLimiter::new(limits, shards);
    let throttle = Throttle::new(Rc::new(limiter.budget()));
    (limiter, throttle)
}

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// Simulates a client operation in a shard from `from` to `to`.
#[allow(clippy::mem_forget)]
fn client_io(repair: &BackgroundLimiter, shard: usize, from: Instant, to: Instant) {
    let operation = repair.clients.begin_at(shard, from).unwrap();
    operation.end_at(to);
    // Dropping it would end it a second time.
    std::mem::forget(operation);
}

#[test]
fn without_limits_and_clients_chunks_run_in_parallel() {
    let (repair, throttle) = limits_and_throttle(RepairLimits::default(), 1);
    throttle.begin(&repair, at(0));
    for chunk in 0..100 {
        let started = at(10 * chunk);
        let permits = [throttle.grant(&repair, started), throttle.grant(&repair, started)];
        assert_eq!(throttle.wait(&repair, started), WaitReason::Nothing);
        for permit in permits {
            assert_eq!(permit.chunk_bytes(1 << 20), 1 << 20);
            permit.finish_at(MIB / 2, at(10 * (chunk + 1)));
        }
        assert_eq!(throttle.wait(&repair, at(10 * (chunk + 1))), WaitReason::Nothing);
    }
    assert!((98..=100).contains(&(throttle.rate() / MIB)), "{}", throttle.rate());
}

#[test]
fn under_client_io_one_small_chunk_runs_for_a_quarter_of_the_time() {
    let (repair, throttle) = limits_and_throttle(RepairLimits::default(), 2);
    throttle.begin(&repair, at(0));
    // The shard does not matter: all shards share the drives.
    client_io(&repair, 1, at(1), at(2));
    assert_eq!(throttle.wait(&repair, at(2)), WaitReason::Nothing);
    let permit = throttle.grant(&repair, at(2));
    assert_eq!((permit.chunk_bytes(1 << 20), permit.chunk_bytes(4096)), (64 << 10, 4096));
    assert_eq!(throttle.wait(&repair, at(3)), WaitReason::OtherChunk);
    permit.finish_at(MIB, at(12));
    assert_eq!(throttle.wait(&repair, at(12)), WaitReason::Until(at(42)));
    assert_eq!(throttle.wait(&repair, at(42)), WaitReason::Nothing, "the pause has ended");
    assert_eq!(throttle.wait(&repair, at(600)), WaitReason::Nothing, "clients are inactive");
    let permit = throttle.grant(&repair, at(600));
    assert_eq!(
        (permit.chunk_bytes(1 << 20), throttle.wait(&repair, at(600))),
        (1 << 20, WaitReason::Nothing)
    );
    client_io(&repair, 0, at(700), at(701));
    permit.finish_at(MIB, at(3600));
    assert_eq!(throttle.wait(&repair, at(3600)), WaitReason::Until(at(4100)), "the maximum wait");
}

#[test]
fn working_shards_share_a_quarter_of_the_time() {
    let repair = BackgroundLimiter::new(RepairLimits::default(), 2);
    let throttles = [(); 2].map(|()| Throttle::new(Rc::new(repair.budget())));
    for throttle in &throttles {
        throttle.begin(&repair, at(0));
    }
    client_io(&repair, 0, at(0), at(1));
    for throttle in &throttles {
        throttle.grant(&repair, at(1)).finish_at(MIB, at(11));
        assert_eq!(throttle.wait(&repair, at(11)), WaitReason::Until(at(81)));
    }
}

#[test]
fn the_limit_applies_to_all_shards_together_and_can_be_lifted() {
    let limits = RepairLimits { paused: false, bytes_per_second: 2 * MIB };
    let (repair, throttle) = limits_and_throttle(limits, 2);
    // Another shard repairs too.
    repair.set_working(true);
    throttle.begin(&repair, at(0));
    let mut now = at(0);
    for chunk in 1..=10 {
        throttle.grant(&repair, now).finish_at(MIB, now + Duration::from_millis(1));
        while let WaitReason::Until(until) = throttle.wait(&repair, now) {
            assert!(until > now && until <= now + REST_MAX);
            now = until;
        }
        assert_eq!(now, at(1000 * chunk), "this shard gets half of the limit");
    }
    throttle.grant(&repair, now).finish_at(100 * MIB, now);
    assert_ne!(throttle.wait(&repair, now), WaitReason::Nothing);
    repair.set(RepairLimits::default());
    assert_eq!(throttle.wait(&repair, now), WaitReason::Nothing);
}

#[test]
fn a_failed_chunk_ends() {
    let (repair, throttle) = limits_and_throttle(RepairLimits::default(), 1);
    throttle.begin(&repair, at(0));
    client_io(&repair, 0, at(0), at(1));
    let permit = throttle.grant(&repair, at(1));
    assert_eq!(throttle.wait(&repair, at(2)), WaitReason::OtherChunk);
    drop(permit);
    assert_ne!(throttle.wait(&repair, at(2)), WaitReason::OtherChunk);
}

#[test]
fn the_jobs_of_a_shard_share_one_budget() {
    let repair = BackgroundLimiter::new(RepairLimits::default(), 1);
    let scrub = repair.with_shared_load();
    let budget = Rc::new(repair.budget());
    let [repairer, scrubber] = [(); 2].map(|()| Throttle::new(budget.clone()));
    repairer.begin(&repair, at(0));
    scrubber.begin(&scrub, at(0));
    client_io(&repair, 0, at(0), at(1));
    let permit = repairer.grant(&repair, at(1));
    assert_eq!(scrubber.wait(&scrub, at(2)), WaitReason::OtherChunk, "one chunk of both jobs runs");
    permit.finish_at(MIB, at(11));
    // The quarter of drive time is that of one job alone: a second one neither doubles nor halves
    // it.
    for (throttle, limits) in [(&repairer, &repair), (&scrubber, &scrub)] {
        assert_eq!(throttle.wait(limits, at(11)), WaitReason::Until(at(41)));
    }
    repairer.end(&repair);
    scrubber.grant(&scrub, at(41)).finish_at(MIB, at(51));
    assert_eq!(scrubber.wait(&scrub, at(51)), WaitReason::Until(at(81)), "the other job has ended");
    scrubber.end(&scrub);
    assert!(budget.track_client_op(0).is_none(), "no job runs");
}

#[test]
fn a_rate_limit_applies_to_its_job_only() {
    let limits = RepairLimits { paused: false, bytes_per_second: MIB };
    let repair = BackgroundLimiter::new(limits, 1);
    let scrub = repair.with_shared_load();
    let budget = Rc::new(repair.budget());
    let [repairer, scrubber] = [(); 2].map(|()| Throttle::new(budget.clone()));
    repairer.begin(&repair, at(0));
    scrubber.begin(&scrub, at(0));
    repairer.grant(&repair, at(0)).finish_at(MIB, at(1));
    assert_ne!(repairer.wait(&repair, at(1)), WaitReason::Nothing);
    assert_eq!(scrubber.wait(&scrub, at(1)), WaitReason::Nothing);
}
