//! Prints the OpenAPI document: `cargo run -p api --example openapi > crates/api/openapi.json`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(api::openapi::json().as_bytes())
}
