//! Tests of the OpenAPI document: the checked-in copy is current and complete.

use serde_json::Value;

const CHECKED_IN: &str = include_str!("../openapi.json");

#[test]
fn the_checked_in_document_is_current() {
    assert!(
        CHECKED_IN == api::openapi::json(),
        "the API has changed: review the difference, then run\n  \
         cargo run -q -p api --example openapi > crates/api/openapi.json"
    );
}

#[test]
fn every_endpoint_is_versioned_and_described() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 10);
    let mut ids = std::collections::BTreeSet::new();
    for (path, methods) in paths {
        assert!(path.starts_with("/v1/"), "{path}");
        for (method, operation) in methods.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path} never succeeds");
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            assert!(
                responses.values().all(|response| response["description"].is_string()),
                "{method} {path}"
            );
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "two operations have the name {id}");
        }
    }
}

#[test]
fn names_in_paths_are_strings_and_numbers_are_integers() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let parameters =
        operations.flat_map(|operation| operation["parameters"].as_array().into_iter().flatten());
    let mut count = 0;
    for parameter in parameters.filter(|parameter| parameter["in"] == "path") {
        let is_number = ["id", "index", "console"].contains(&parameter["name"].as_str().unwrap());
        assert_eq!(parameter["schema"]["type"] == "integer", is_number, "{parameter}");
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn every_field_is_described() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        let Some(fields) = schema["properties"].as_object() else { continue };
        for (field, description) in fields {
            // The description of a field with a referenced schema can be beside the reference.
            let inside = |number: usize| description["oneOf"][number]["description"].is_string();
            let described = description["description"].is_string() || inside(0) || inside(1);
            assert!(described, "{name}.{field}: {description}");
        }
    }
}

#[test]
fn a_body_is_required_if_one_of_its_fields_is() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let is_required = |path: &str, method: &str| {
        document["paths"][path][method]["requestBody"]["required"].as_bool().unwrap()
    };
    assert!(is_required("/v1/pools", "post"));
    assert!(is_required("/v1/pools/{pool}/volumes", "post"));
    assert!(!is_required("/v1/pools/{pool}/scrub", "patch"));
    assert!(!is_required("/v1/keys", "post"));
}

/// Calls `check` with each schema in a document that has a format of unsigned integers.
fn each_unsigned(value: &Value, check: &mut impl FnMut(&str, &Value)) {
    if let Some(format) = value["format"].as_str().filter(|format| format.starts_with("uint")) {
        check(format, value);
    }
    let fields = value.as_object().into_iter().flat_map(|fields| fields.values());
    fields.chain(value.as_array().into_iter().flatten()).for_each(|inner| each_unsigned(inner, check));
}

#[test]
fn unsigned_integers_have_a_minimum_and_a_maximum() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let mut count = 0;
    each_unsigned(&document, &mut |format, schema| {
        let bits: u32 = format.strip_prefix("uint").unwrap().parse().unwrap();
        let maximum = schema["maximum"].as_u64().unwrap_or_else(|| panic!("{schema}"));
        assert!(maximum <= u64::MAX >> (64 - bits), "{schema}");
        assert!(schema["minimum"].as_u64().is_some(), "{schema}");
        count += 1;
    });
    assert!(count > 100, "{count}");
}
