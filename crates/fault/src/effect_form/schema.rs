//! The JSON schema of an effect.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use rotproof_spec::{Bytes, Span};

use super::{Arguments, NAMES, build};
use crate::effect::Effect;
use crate::errno::Errno;

impl JsonSchema for Effect {
    fn schema_name() -> Cow<'static, str> {
        "Effect".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (span, bytes) = (generator.subschema_for::<Span>(), generator.subschema_for::<Bytes>());
        let draw = json_schema!({ "description": "What chance decided, as a ledger tells it.", "type": "integer", "minimum": 0 });
        let with = |word: &str, description: &str, value: Schema| {
            json_schema!({
                "description": description,
                "type": "object",
                "properties": { word: value },
                "required": [word],
                "additionalProperties": false
            })
        };
        let spans = json_schema!({ "type": "array", "items": span.clone(), "minItems": 2, "maxItems": 2 });
        let bits = json_schema!({
            "anyOf": [
                { "description": "One that follows from the seed.", "const": "random" },
                {
                    "type": "object",
                    "properties": {
                        "byte": { "description": "Byte of the block, from 0. Default 0.", "type": "integer", "minimum": 0, "maximum": crate::BLOCK_BYTES - 1 },
                        "bit": { "description": "Bit of the byte, 0 is the lowest. Default 0.", "type": "integer", "minimum": 0, "maximum": 7 },
                        "mask": { "description": "Bits of the byte, instead of one.", "type": "integer", "minimum": 1, "maximum": 255 },
                        "burst": { "description": "So many bits in a row, from byte and bit on; without them where chance says.", "type": "integer", "minimum": 1 },
                        "random": { "description": "So many bits, each where chance says.", "type": "integer", "minimum": 1 },
                        "draw": draw.clone()
                    },
                    "additionalProperties": false
                }
            ]
        });
        // Those that need an argument are not words alone.
        let alone: Vec<&str> =
            NAMES.into_iter().filter(|name| build(name, &Arguments::default()).is_ok()).collect();
        let sectors = json_schema!({ "description": "How many sectors of 512 bytes are stored. Default: chance.", "type": "integer", "minimum": 1, "maximum": 7 });
        json_schema!({
            "description": "What a hit does.",
            "anyOf": [
                {
                    "description": "bit_flip: the lowest bit of byte 0 of the block flips. zeros, ones, noise: the block is that. lost_write: acknowledged, but the old data stays. misdirected_write: lands on another block. stale_read: brings what was there before the last write. torn_write: some sectors are stored. shorn_write: the first 3 or 7 eighths are stored. medium_error: the block cannot be transferred. error: the whole request fails (EIO). no_space: ENOSPC. read_only, gone: from now on. power_cut: nothing is served any more, and what was volatile is lost, or a part of it. hang: the request does not come back until it is released.",
                    "enum": alone
                },
                {
                    "description": "The short form, arguments in parentheses: torn_write(new=last).",
                    "type": "string",
                    "pattern": r"^[a-z_]+\(.*\)$"
                },
                with("bit_flip", "Bits of the block flip.", bits),
                with("noise", "The block is noise.", json_schema!({ "type": "object", "properties": { "draw": draw.clone() }, "additionalProperties": false })),
                with("misdirected_write", "A write lands on another block; the right one keeps the old data.", json_schema!({
                    "type": "object",
                    "properties": { "by": bytes.clone(), "to": bytes.clone(), "draw": draw.clone() },
                    "additionalProperties": false
                })),
                with("torn_write", "Only some sectors of the block are stored.", json_schema!({
                    "anyOf": [
                        { "enum": ["first", "last", "scattered"] },
                        {
                            "type": "object",
                            "properties": { "new": { "description": "Which sectors are stored. Default first.", "enum": ["first", "last", "scattered"] }, "sectors": sectors.clone(), "draw": draw.clone() },
                            "additionalProperties": false
                        }
                    ]
                })),
                with("shorn_write", "Only the first eighths of the block are stored.", json_schema!({
                    "type": "object",
                    "properties": { "sectors": sectors, "draw": draw },
                    "additionalProperties": false
                })),
                with("error", "The whole request fails with this error.", json_schema!({
                    "anyOf": [
                        { "enum": Errno::NAMES },
                        {
                            "type": "object",
                            "properties": {
                                "errno": { "description": "The error. Default EIO.", "enum": Errno::NAMES },
                                "after": { "description": "Only after it took effect.", "type": "boolean" }
                            },
                            "additionalProperties": false
                        }
                    ]
                })),
                with("power_cut", "The power goes, and what was volatile may be lost.", json_schema!({
                    "type": "object",
                    "properties": {
                        "keeps": { "description": "How much of it is kept. Default: a part.", "enum": ["part", "none", "all"] },
                        "everywhere": { "description": "The whole stack loses its power, not only what is below. Default false.", "type": "boolean" },
                        "draw": draw.clone()
                    },
                    "additionalProperties": false
                })),
                with("delay", "The whole request takes longer.", json_schema!({
                    "anyOf": [
                        span.clone(),
                        with("uniform", "Any span between the two.", spans.clone()),
                        with("normal", "A normal distribution: mean and deviation.", spans),
                        with("exponential", "An exponential distribution with this mean.", span.clone()),
                        with("histogram", "Spans with their weights: [\"1ms*90\", \"50ms*10\"].", json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1 }))
                    ]
                })),
                with("bandwidth", "Requests take as long as if no more than that many bytes a second could pass.", bytes),
                with("hang", "The request does not come back until then, or until it is released or the rule is removed or paused.", span)
            ]
        })
    }
}
