//! `kmark schema`: the JSON Schema of what a run writes.

use super::{print, to_json};
use crate::cli::{SchemaArgs, SchemaWhat};
use crate::error::Result;
use kmark_core::record::{Record, SCHEMA, Status};
use kmark_core::run::Run;
use serde_json::{Value, json};

pub fn run(args: SchemaArgs) -> Result<u8> {
    print(&to_json(&match args.what {
        SchemaWhat::Record => record(),
        SchemaWhat::Run => of::<Run>("a run: run.json"),
        SchemaWhat::All => all(),
    }))?;
    Ok(0)
}

fn of<T: schemars::JsonSchema>(title: &str) -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    schema["title"] = json!(title);
    schema["properties"]["schema"] = json!({"const": SCHEMA});
    schema
}

/// The record, with what its validator demands and a schema can say: no times unless the answer was right, and a
/// passed verify on every `ok`.
fn record() -> Value {
    let mut schema = of::<Record>("a record: one line of records.jsonl");
    let timed = json!([Status::Ok, Status::Unverified, Status::Impossible]);
    schema["allOf"] = json!([
        {
            "if": {"properties": {"status": {"enum": timed}}},
            "then": {"properties": {"samples_ns": {"minItems": 1}}},
            "else": {"properties": {
                "samples_ns": {"maxItems": 0}, "clock_mhz": {"maxItems": 0}, "visits": {"maxItems": 0},
            }},
        },
        {
            "if": {"properties": {"status": {"const": Status::Ok}}},
            "then": {"required": ["verify"], "properties": {"verify": {"properties": {"problems": {"maxItems": 0}}}}},
        },
    ]);
    schema["properties"]["samples_ns"]["items"]["exclusiveMinimum"] = json!(0);
    schema
}

/// One schema that takes a run or a record.
fn all() -> Value {
    let mut defs = serde_json::Map::new();
    let mut part = |name: &str, mut schema: Value| {
        let object = schema.as_object_mut().expect("a schema is an object");
        object.remove("$schema");
        if let Some(Value::Object(inner)) = object.remove("$defs") {
            defs.extend(inner);
        }
        defs.insert(name.to_string(), schema);
    };
    part("Record", record());
    part("Run", of::<Run>("a run: run.json"));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "what kmark run writes: run.json, and each line of records.jsonl",
        "oneOf": [{"$ref": "#/$defs/Record"}, {"$ref": "#/$defs/Run"}],
        "$defs": defs,
    })
}
