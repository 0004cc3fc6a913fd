//! Prints the API's OpenAPI document: `cargo run -p server --example openapi > crates/server/openapi.json`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(server::openapi_json().as_bytes())
}
