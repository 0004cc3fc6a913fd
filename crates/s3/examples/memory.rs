//! Serves S3 from a store in memory, for work on the protocol without a pool.
//!
//! Usage: `memory ADDRESS:PORT LIFECYCLE_DAY_SECONDS`. The access keys are `MAIN` and `ALT`, with
//! the secrets `main-secret` and `alt-secret`, of the users `main` and `alt`.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use object::MemoryStore;
use s3::{KeyStore, S3Options, S3Server};

struct TwoUsers;

impl KeyStore for TwoUsers {
    fn secret(&self, access_key: &str) -> Option<String> {
        self.user(access_key).map(|user| format!("{user}-secret"))
    }

    fn user(&self, access_key: &str) -> Option<String> {
        matches!(access_key, "MAIN" | "ALT").then(|| access_key.to_lowercase())
    }

    fn has_user(&self, user: &str) -> bool {
        matches!(user, "main" | "alt")
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("the address is missing")?;
    let day = arguments.next().ok_or("the length of a day is missing")?.parse()?;
    let options = S3Options {
        domain: Some("s3.localhost".to_owned()),
        encryption_key: Some([7; 32]),
        lifecycle_day: Duration::from_secs(day),
        ..S3Options::default()
    };
    let store = Arc::new(MemoryStore::default());
    let server = S3Server::start(TcpListener::bind(address)?, store, Arc::new(TwoUsers), &options)?;
    println!("http://{}", server.address());
    loop {
        std::thread::park();
    }
}
