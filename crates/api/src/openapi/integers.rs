//! The ranges of integers in the OpenAPI document.
//!
//! Formats such as `uint16` are names only: a validator that does not know them accepts any
//! integer. The daemon refuses a number that does not fit, so the schema gives the maximum too.

use utoipa::Number;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, KnownFormat, Object, SchemaFormat};
use utoipa::openapi::{RefOr, Schema};

/// Sets the name of the format and, where there is none, the maximum of each unsigned integer in a
/// schema.
pub(super) fn bound(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => bound_object(object),
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                bound(items);
            }
        }
        Schema::OneOf(choice) => choice.items.iter_mut().for_each(bound),
        Schema::AllOf(all) => all.items.iter_mut().for_each(bound),
        Schema::AnyOf(any) => any.items.iter_mut().for_each(bound),
        _ => {}
    }
}

fn bound_object(object: &mut Object) {
    object.properties.values_mut().for_each(bound);
    if let Some(AdditionalProperties::RefOr(values)) = object.additional_properties.as_deref_mut() {
        bound(values);
    }
    if let Some((name, maximum)) = object.format.as_ref().and_then(unsigned) {
        object.format = Some(SchemaFormat::Custom(name.to_owned()));
        object.maximum.get_or_insert(Number::UInt(maximum));
    }
}

/// Returns the name in the registry of OpenAPI formats, and the largest number, of an unsigned
/// format.
fn unsigned(format: &SchemaFormat) -> Option<(&'static str, usize)> {
    let SchemaFormat::KnownFormat(format) = format else { return None };
    match format {
        KnownFormat::UInt8 => Some(("uint8", usize::from(u8::MAX))),
        KnownFormat::UInt16 => Some(("uint16", usize::from(u16::MAX))),
        KnownFormat::UInt32 => Some(("uint32", u32::MAX as usize)),
        KnownFormat::UInt64 => Some(("uint64", usize::MAX)),
        _ => None,
    }
}
