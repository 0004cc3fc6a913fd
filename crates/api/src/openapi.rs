//! The OpenAPI document, made from the table of endpoints and the wire types.

mod integers;

use std::collections::BTreeSet;

use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApiBuilder, PathItem, Paths, Ref,
    RefOr, Required, Response, ResponseBuilder, Schema,
};

use crate::paths::{ALL, Body, EndpointRow, Method};
use crate::types::{API_VERSION, ErrorResponse};

const DESCRIPTION: &str = "The API of the Gabion daemon, served over a Unix socket, and over HTTPS with a token. \
    Sizes are in bytes, times in seconds since 1970, and durations in seconds. An absent field has no value, or its \
    value is not known. A request that starts a long operation returns status 202 and the operation; \
    /v1/operations/{id} shows the progress.";

/// Returns the OpenAPI document of the API as JSON.
///
/// # Panics
/// If the document cannot be serialized, which a test rules out.
pub fn json() -> String {
    let mut paths = Paths::new();
    let mut schemas = Vec::new();
    <ErrorResponse as Body>::add_schemas(&mut schemas);
    for row in ALL {
        (row.add_schemas)(&mut schemas);
    }
    schemas.iter_mut().for_each(|(_, schema)| integers::bound(schema));
    let optional = optional_bodies(&schemas);
    for row in ALL {
        let item = PathItem::new(http_method(row.method), operation(row, &optional));
        match paths.paths.get_mut(row.path) {
            Some(present) => present.merge_operations(item),
            None => drop(paths.paths.insert(row.path.to_owned(), item)),
        }
    }
    let mut license = LicenseBuilder::new().name("Apache-2.0").build();
    license.identifier = Some("Apache-2.0".to_owned());
    let info = InfoBuilder::new()
        .title("Gabion")
        .version(API_VERSION)
        .description(Some(DESCRIPTION))
        .license(Some(license))
        .build();
    let components = ComponentsBuilder::new().schemas_from_iter(schemas).build();
    let document = OpenApiBuilder::new().info(info).paths(paths).components(Some(components)).build();
    match document.to_pretty_json() {
        Ok(json) => unwrap_paragraphs(&json) + "\n",
        Err(error) => panic!("the OpenAPI document cannot be serialized: {error}"),
    }
}

/// Joins the lines of each paragraph inside the strings of a JSON text, so that the line breaks of
/// doc comments do not matter. List items stay on lines of their own.
fn unwrap_paragraphs(json: &str) -> String {
    let mut lines = json.split("\\n");
    let mut unwrapped = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let kept = line.is_empty() || line.starts_with("- ") || unwrapped.ends_with("\\n");
        unwrapped += if kept { "\\n" } else { " " };
        unwrapped += line;
    }
    unwrapped
}

/// Returns the references to schemas without a required field. The body of such a request may be
/// absent, which stands for an empty object.
fn optional_bodies(schemas: &[(String, RefOr<Schema>)]) -> BTreeSet<String> {
    let is_optional = |schema: &RefOr<Schema>| matches!(schema, RefOr::T(Schema::Object(object)) if object.required.is_empty());
    let optional = schemas.iter().filter(|(_, schema)| is_optional(schema));
    optional.map(|(name, _)| Ref::from_schema_name(name).ref_location).collect()
}

fn http_method(method: Method) -> HttpMethod {
    match method {
        Method::Get => HttpMethod::Get,
        Method::Post => HttpMethod::Post,
        Method::Put => HttpMethod::Put,
        Method::Patch => HttpMethod::Patch,
        Method::Delete => HttpMethod::Delete,
    }
}

fn operation(row: &EndpointRow, optional_bodies: &BTreeSet<String>) -> OperationBuilder {
    let (summary, description) = split_doc(row.doc);
    let mut parameters: Vec<Parameter> = path_parameters(row.path).chain((row.parameters)()).collect();
    parameters.iter_mut().filter_map(|parameter| parameter.schema.as_mut()).for_each(integers::bound);
    let request = (row.request)().map(|schema| {
        let optional = matches!(&schema, RefOr::Ref(body) if optional_bodies.contains(&body.ref_location));
        let required = if optional { Required::False } else { Required::True };
        let content = ContentBuilder::new().schema(Some(schema)).build();
        RequestBodyBuilder::new().content("application/json", content).required(Some(required)).build()
    });
    let success = match row.status {
        201 => "Created",
        202 => "Started: the operation shows the progress",
        _ => "Done",
    };
    OperationBuilder::new()
        .tag(row.tag)
        .operation_id(Some(row.operation_id))
        .summary(Some(summary))
        .description(description)
        .parameters((!parameters.is_empty()).then_some(parameters))
        .request_body(request)
        .response(row.status.to_string(), response(success, (row.response)()))
        .response("default", response("Error", <ErrorResponse as Body>::schema()))
}

fn response(description: &str, schema: Option<RefOr<Schema>>) -> Response {
    let response = ResponseBuilder::new().description(description);
    match schema {
        Some(schema) => {
            response.content("application/json", ContentBuilder::new().schema(Some(schema)).build()).build()
        }
        None => response.build(),
    }
}

/// Returns the first paragraph and the other ones of a doc comment.
fn split_doc(doc: &str) -> (String, Option<String>) {
    let join = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    match doc.split_once("\n\n") {
        Some((summary, description)) => (join(summary), Some(join(description))),
        None => (join(doc), None),
    }
}

fn path_parameters(path: &str) -> impl Iterator<Item = Parameter> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        let (description, format) = match name {
            "pool" => ("Name of the pool", None),
            "volume" => ("Name of the volume, or `volume@snapshot`", None),
            "index" => ("Index of the drive in the pool", Some(KnownFormat::UInt16)),
            "bucket" => ("Name of the bucket", None),
            "key" => ("Identifier of the access key", None),
            "machine" => ("Name of the virtual machine", None),
            "console" => ("Number of the open console", Some(KnownFormat::UInt64)),
            "token" => ("Identifier of the token", None),
            "user" => ("Name of the user", None),
            "group" => ("Name of the group", None),
            "policy" => ("Name of the policy", None),
            "provider" => ("Name of the identity provider", None),
            "role" => ("Name of the role", None),
            "cluster" => ("Name of the cluster", None),
            "webhook" => ("Name of the webhook", None),
            "id" => ("Number of the operation", Some(KnownFormat::UInt64)),
            other => panic!("the path parameter '{other}' has no description"),
        };
        let schema = match format {
            None => ObjectBuilder::new().schema_type(Type::String),
            Some(format) => ObjectBuilder::new()
                .schema_type(Type::Integer)
                .format(Some(SchemaFormat::KnownFormat(format)))
                .minimum(Some(0)),
        };
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(description))
            .schema(Some(schema.build()))
            .build()
    })
}
