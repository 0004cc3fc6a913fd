//! The daemon: configuration, API, pools and exports on reactor threads.
