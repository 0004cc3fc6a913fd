//! What cleaning costs at best when blocks are overwritten uniformly at random.
//!
//! A log of segments that are cleaned when they have least left in them. With blocks drawn uniformly, and segments of many blocks, that is
//! the one written longest ago, and the share `u` of it that still lives is what was spared by all that users wrote since: with `f` the share of
//! all space that lives, `u = exp(-(1 - u) / f)`. Each user block then costs `1 / (1 - u)` blocks.
//! (Desnoyers, "Analytic modeling of SSD write performance", 2012; Van Houdt, "A mean field model for a class of garbage
//! collection algorithms in flash-based solid state drives", 2013.)

/// Blocks written for each that users write, headers and parity apart, by a greedy cleaner at this share of live blocks.
///
/// # Panics
/// If the share is not between 0 and 1.
pub fn greedy_amplification(fill: f64) -> f64 {
    assert!((0.0..1.0).contains(&fill), "a share of {fill}");
    if fill == 0.0 {
        return 1.0;
    }
    // The smaller of two solutions, the other one being 1: this comes closer to it with each step, from below.
    let mut live: f64 = 0.0;
    for _ in 0..100_000 {
        live = (-(1.0 - live) / fill).exp();
    }
    1.0 / (1.0 - live)
}
