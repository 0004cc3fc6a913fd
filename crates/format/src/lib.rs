//! Every on-disk record of a pool: encode, verify, show. No I/O.
