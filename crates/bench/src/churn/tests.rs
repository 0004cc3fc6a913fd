//! Tests of the analytic model, the distributions and a small pool.

use super::*;
use crate::draw::Draw;

#[test]
fn the_analytic_model_matches_published_figures() {
    // Desnoyers 2012: 2.69 at 80 %; nothing to clean in an empty pool.
    for (fill, expected) in [(0.0, 1.0), (0.5, 1.255), (0.8, 2.695), (0.9, 5.18)] {
        let found = greedy_amplification(fill);
        assert!((found - expected).abs() < 0.01 * expected, "{fill}: {found}");
    }
}

#[test]
fn draws_follow_their_distribution() {
    const BLOCKS: u64 = 1000;
    for distribution in [Distribution::Uniform, Distribution::Zipf] {
        let mut draw = Draw::new(distribution, BLOCKS, 1);
        let mut counts = vec![0u32; BLOCKS as usize];
        for _ in 0..200_000 {
            counts[draw.next() as usize] += 1;
        }
        assert!(counts.iter().all(|count| *count > 0));
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hottest = f64::from(counts[..10].iter().sum::<u32>()) / 200_000.0;
        // The sum of 1/r^0.99 over the first ten ranks is 38 % of the sum over a thousand.
        let expected = if distribution == Distribution::Zipf { 0.38 } else { 0.0115 };
        assert!((hottest - expected).abs() < expected / 10.0, "{distribution:?}: {hottest}");
    }
}

#[test]
fn a_churned_pool_keeps_its_contents() {
    let options = ChurnOptions {
        scheme: Scheme::new(4, 1).unwrap(),
        drive_bytes: 96 << 20,
        fill: 0.5,
        distribution: Distribution::Zipf,
        overwrites: 2,
        queue_depth: 16,
        seed: 1,
    };
    let mut measured = 0;
    let churn = run(&options, |step| measured += u32::from(matches!(step, ChurnStep::Measured(_)))).unwrap();
    assert_eq!((churn.wrong, measured, churn.windows.len()), (0, 8, 8));
    let written = churn.steady.amplification;
    assert_eq!(written.user_blocks as u64, churn.volume_bytes / BLOCK_BYTES / 4 * 4);
    assert!(written.total() > 1.25 && written.cleaning() >= 1.0, "{written:?}");
    assert!(churn.steady.p50_us <= churn.steady.p999_us && churn.segments.iter().sum::<u64>() > 10);
}
