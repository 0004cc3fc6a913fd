//! The minimum write amplification of garbage collection under uniform random overwrites.
//!
//! The model is a log of segments with greedy cleaning. With uniform overwrites and many blocks per
//! segment, the victim is the oldest segment, and the share `u` of its blocks that are still live
//! follows from the overwrites since: with `f` the share of live space, `u = exp(-(1 - u) / f)`.
//! Each user block then costs `1 / (1 - u)` blocks. (Desnoyers, "Analytic modeling of SSD write
//! performance", 2012; Van Houdt, "A mean field model for a class of garbage collection algorithms
//! in flash-based solid state drives", 2013.)

/// Returns the write amplification of a greedy cleaner at this share of live blocks, without
/// headers and parity.
///
/// # Panics
/// If the share is not between 0 and 1.
pub fn greedy_amplification(fill: f64) -> f64 {
    assert!((0.0..1.0).contains(&fill), "a share of {fill}");
    if fill == 0.0 {
        return 1.0;
    }
    // Iterates to the smaller of two solutions (the other is 1) from below.
    let mut live: f64 = 0.0;
    for _ in 0..100_000 {
        live = (-(1.0 - live) / fill).exp();
    }
    1.0 / (1.0 - live)
}
