//! The OpenAPI document that is checked in is the one that the daemon serves.

use serde_json::Value;

const CHECKED_IN: &str = include_str!("../openapi.json");

#[test]
fn the_document_that_is_checked_in_is_current() {
    assert!(
        CHECKED_IN == server::openapi_json(),
        "the API has changed: look at the difference, then\n  \
         cargo run -p server --example openapi > crates/server/openapi.json"
    );
}

#[test]
fn every_route_is_versioned_and_says_what_it_answers() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 10);
    let mut ids = std::collections::BTreeSet::new();
    for (path, methods) in paths {
        assert!(path.starts_with("/v1/"), "{path}");
        for (method, operation) in methods.as_object().unwrap() {
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.keys().any(|status| status.starts_with('2')), "{method} {path} never succeeds");
            assert!(operation["summary"].is_string(), "{method} {path} is not explained");
            assert!(answers.values().all(|answer| answer["description"].is_string()), "{method} {path}");
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "two operations are called {id}");
        }
    }
}

#[test]
fn every_field_is_explained() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        let Some(fields) = schema["properties"].as_object() else { continue };
        for (field, description) in fields {
            // A field that is another schema may carry its words around the reference.
            let inside = |number: usize| description["oneOf"][number]["description"].is_string();
            let explained = description["description"].is_string() || inside(0) || inside(1);
            assert!(explained, "{name}.{field}: {description}");
        }
    }
}
