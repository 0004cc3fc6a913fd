//! One thread's executor, drives, sockets, clock and messages.
