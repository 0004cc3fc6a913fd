//! Suites as data, load runners, comparisons and published figures.
