//! Reads any `Deserialize` from a [`Tree`], so that every mistake knows its node.
//!
//! [`read`] finds more than the first mistake: it cuts the offending value out of the tree and tries again. An
//! error of something that was cut from is a consequence, not a finding, and is cut silently.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::diagnostic::Diagnostic;
use crate::failure::{ValueError, list};
use crate::scalar::Meaning;
use crate::tree::{NodeId, Tree, Value};

/// Mistakes reported at once. More help nobody, and bound the work.
pub const MISTAKES_MAX: usize = 20;

/// The value that the document describes; `None` if there were mistakes, all of them in `diagnostics`.
pub fn read<T: DeserializeOwned>(tree: &mut Tree, diagnostics: &mut Vec<Diagnostic>) -> Option<T> {
    let before = diagnostics.len();
    loop {
        let failure = match T::deserialize(NodeReader { tree, id: tree.root() }) {
            Ok(value) => return (diagnostics.len() == before).then_some(value),
            Err(failure) => failure,
        };
        let node = failure.node.unwrap_or(tree.root());
        if !tree.is_wounded(node) {
            let ValueError { message, help, .. } = failure;
            let (place, path) = (tree.mark(node).narrowed_to(&message), tree.path(node).as_str().to_owned());
            diagnostics.push(Diagnostic { message, help, place: Some(place), path });
        }
        if node == tree.root() || diagnostics.len() - before >= MISTAKES_MAX {
            return None;
        }
        tree.cut(node);
    }
}

/// One node as a source of data.
#[derive(Clone, Copy)]
struct NodeReader<'a> {
    tree: &'a Tree,
    id: NodeId,
}

impl<'a> NodeReader<'a> {
    fn value(self) -> &'a Value {
        &self.tree.node(self.id).value
    }

    fn child(self, id: NodeId) -> Self {
        Self { id, ..self }
    }

    /// The one entry of a mapping that names a variant.
    fn variant(
        self,
        entries: &'a [(NodeId, NodeId)],
        known: &[&str],
    ) -> Result<(NodeId, NodeId), ValueError> {
        let mut left = self.tree.entries(entries);
        match (left.next(), left.next()) {
            (Some(entry), None) => Ok(entry),
            (None, _) => {
                Err(ValueError::new("nothing is named here", Some(format!("one of {}", list(known)))))
            }
            (Some((first, value)), Some((second, _))) => {
                let (first, second) = (self.tree.text(first), self.tree.text(second));
                let help = if is_empty(self.tree, value) && !known.contains(&second) {
                    format!("indent `{second}` deeper than `{first}`, so that it belongs to it")
                } else {
                    format!("give one of {}, and its options below it", list(known))
                };
                Err(ValueError::new(
                    format!("`{first}` and `{second}` side by side, where one belongs"),
                    Some(help),
                ))
            }
        }
        .map_err(|failure: ValueError| failure.at(self.id))
    }
}

/// Whether nothing stands there, not even `null`.
fn is_empty(tree: &Tree, id: NodeId) -> bool {
    matches!(&tree.node(id).value, Value::Scalar { text, plain: true } if text.is_empty())
}

impl<'de> Deserializer<'de> for NodeReader<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value() {
            Value::Scalar { text, plain: false } => visitor.visit_str(text),
            Value::Scalar { text, plain: true } => match Meaning::of(text) {
                Meaning::Nothing => visitor.visit_unit(),
                Meaning::Truth(truth) => visitor.visit_bool(truth),
                Meaning::Whole(number) => match u64::try_from(number) {
                    Ok(number) => visitor.visit_u64(number),
                    Err(_) => Err(ValueError::new(format!("{number} is beyond any number used here"), None)),
                },
                Meaning::Negative(number) => match i64::try_from(number) {
                    Ok(number) => visitor.visit_i64(number),
                    Err(_) => Err(ValueError::new(format!("{number} is beyond any number used here"), None)),
                },
                Meaning::Fraction(number) => visitor.visit_f64(number),
                Meaning::Text(text) => visitor.visit_str(text),
            },
            Value::Sequence(items) => visitor.visit_seq(Items { reader: self, left: self.tree.items(items) }),
            Value::Mapping(entries) => {
                visitor.visit_map(Entries { reader: self, left: self.tree.entries(entries), value: None })
            }
        }
        .map_err(|failure: ValueError| failure.within(self.id, self.tree))
    }

    /// A text may look like a number: a file may be called 42.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value() {
            Value::Scalar { text, plain } if !(*plain && Meaning::of(text) == Meaning::Nothing) => {
                visitor.visit_str(text).map_err(|failure: ValueError| failure.at(self.id))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_str(visitor)
    }

    /// `null` is no value; a key with nothing behind it is a mistake, as it could mean anything.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value() {
            Value::Scalar { text, plain: true }
                if !text.is_empty() && Meaning::of(text) == Meaning::Nothing =>
            {
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
        .map_err(|failure: ValueError| failure.at(self.id))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self).map_err(|failure| failure.at(self.id))
    }

    /// A variant is a word, or the one key of a mapping whose value has its content.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let (name, content) = match self.value() {
            Value::Scalar { .. } => (self.id, None),
            Value::Mapping(entries) => {
                let (key, value) = self.variant(entries, known)?;
                (key, Some(value))
            }
            Value::Sequence(_) => {
                let help = Some(format!("give one of {}", list(known)));
                return Err(ValueError::new("a list where one word belongs", help).at(self.id));
            }
        };
        visitor.visit_enum(Variant { reader: self, name, content }).map_err(|failure| failure.at(self.id))
    }

    /// Serde would also fill a struct from a list, by position; people would not.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.value() {
            Value::Sequence(_) => Err(ValueError::invalid_type(Unexpected::Seq, &visitor).at(self.id)),
            Value::Scalar { .. } | Value::Mapping(_) => self.deserialize_any(visitor),
        }
    }

    /// Skips without a look: what is inside has no meaning.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map
    }
}

/// The elements of a list.
struct Items<'a, I> {
    reader: NodeReader<'a>,
    left: I,
}

impl<'de, I: Iterator<Item = NodeId>> SeqAccess<'de> for Items<'_, I> {
    type Error = ValueError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ValueError> {
        let Some(item) = self.left.next() else { return Ok(None) };
        seed.deserialize(self.reader.child(item)).map(Some).map_err(|failure| failure.at(item))
    }
}

/// The entries of a mapping.
struct Entries<'a, I> {
    reader: NodeReader<'a>,
    left: I,
    /// Of the key that was read last.
    value: Option<NodeId>,
}

impl<'de, I: Iterator<Item = (NodeId, NodeId)>> MapAccess<'de> for Entries<'_, I> {
    type Error = ValueError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ValueError> {
        let Some((key, value)) = self.left.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(self.reader.child(key)).map(Some).map_err(|failure| failure.at(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ValueError> {
        let value =
            self.value.take().ok_or_else(|| ValueError::custom("a value was asked for before its key"))?;
        seed.deserialize(self.reader.child(value)).map_err(|failure| failure.at(value))
    }
}

/// The name of a variant, and its content if it has any.
struct Variant<'a> {
    reader: NodeReader<'a>,
    name: NodeId,
    content: Option<NodeId>,
}

impl<'a> Variant<'a> {
    fn content(&self) -> Result<NodeReader<'a>, ValueError> {
        let name = self.reader.tree.text(self.name);
        match self.content {
            Some(content) => Ok(self.reader.child(content)),
            None => Err(ValueError::new(
                format!("`{name}` needs options"),
                Some(format!("write {{ {name}: ... }}")),
            )
            .at(self.name)),
        }
    }
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = ValueError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ValueError> {
        let name: StrDeserializer<'_, ValueError> = self.reader.tree.text(self.name).into_deserializer();
        Ok((seed.deserialize(name).map_err(|failure| failure.at(self.name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        let name = self.reader.tree.text(self.name);
        match self.content.map(|content| self.reader.child(content)) {
            None => Ok(()),
            Some(content) => match content.value() {
                Value::Scalar { text, plain: true } if Meaning::of(text) == Meaning::Nothing => Ok(()),
                Value::Mapping(entries) if entries.is_empty() => Ok(()),
                _ => Err(ValueError::new(
                    format!("`{name}` takes no options"),
                    Some(format!("write `{name}` alone")),
                )
                .at(content.id)),
            },
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ValueError> {
        let content = self.content()?;
        seed.deserialize(content).map_err(|failure| failure.at(content.id))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.content()?.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use rotproof_spec::Bytes;
    use serde::Deserialize;

    use super::*;
    use crate::parse::parse;
    use crate::source::Source;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Shape {
        Point,
        Circle { radius: u32 },
        Named(String),
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Drawing {
        title: String,
        size: Bytes,
        hidden: bool,
        scale: Option<f64>,
        shapes: Vec<Shape>,
        colours: BTreeMap<String, u8>,
    }

    /// The drawing, or its mistakes as `line:column path: message; help`.
    fn drawing(yaml: &str) -> Result<Drawing, Vec<String>> {
        let source = Arc::new(Source { name: "t.yaml".into(), text: yaml.into() });
        let mut diagnostics = Vec::new();
        let value = parse(&source, &mut diagnostics).and_then(|mut tree| read(&mut tree, &mut diagnostics));
        match value {
            Some(value) if diagnostics.is_empty() => Ok(value),
            _ => Err(diagnostics
                .into_iter()
                .map(|d| {
                    let place = d.place.expect("a mistake in a document has a place");
                    let help = d.help.map_or(String::new(), |help| format!("; {help}"));
                    format!("{}:{} {}: {}{help}", place.line(), place.column(), d.path, d.message)
                })
                .collect()),
        }
    }

    #[test]
    fn every_form_of_value_is_read() {
        let wanted = Drawing {
            title: "42".into(),
            size: Bytes(4096),
            hidden: true,
            scale: Some(2.0),
            shapes: vec![
                Shape::Point,
                Shape::Circle { radius: 3 },
                Shape::Named("a: b".into()),
                Shape::Circle { radius: 3 },
            ],
            colours: BTreeMap::from([("red".into(), 255)]),
        };
        let yaml = "
            title: 42
            size: 4KiB
            hidden: true
            scale: 2
            shapes: [point, &c { circle: { radius: 3 } }, { named: 'a: b' }, *c]
            colours:
              red: 0xff
        ";
        assert_eq!(drawing(yaml), Ok(wanted));
        assert_eq!(drawing("scale: null"), Ok(Drawing::default()));
    }

    #[test]
    fn every_mistake_of_a_file_is_found_at_once_and_what_follows_from_one_is_not_another() {
        let yaml = "titel: x\nsize: 12 apples\nhidden: maybe\nshapes:\n  - circle: { radius: big }\n  - sqare\n  - point\ncolours: { red: 300 }\n";
        assert_eq!(
            drawing(yaml).expect_err("it has mistakes"),
            [
                "1:1 titel: unknown key `titel`; did you mean `title`?",
                "2:7 size: `12 apples` is no size; write for example 4096, 4KiB or 1.5GiB",
                "3:9 hidden: the text `maybe` where true or false belongs",
                "5:23 shapes[0].circle.radius: the text `big` where a whole number from 0 on belongs",
                "6:5 shapes[1]: unknown value `sqare`; one of point, circle or named",
                "8:17 colours.red: the number 300 is not a whole number from 0 on",
            ]
        );
    }

    #[test]
    fn each_mistake_says_what_belongs_there_instead() {
        for (yaml, wanted) in [
            (
                "size:\n",
                "1:1 size: no value stands here; give a size such as 4096, 4KiB or 1.5GiB, or remove the key",
            ),
            ("scale:\n", "1:1 scale: no value stands here; give a number, or remove the key"),
            ("shapes: 5\n", "1:9 shapes: the number 5 where a list belongs"),
            ("shapes: [circle]\n", "1:10 shapes[0]: `circle` needs options; write { circle: ... }"),
            (
                "shapes: [{ point: 3 }]\n",
                "1:19 shapes[0].point: `point` takes no options; write `point` alone",
            ),
            (
                "shapes: [{ circle: {} }]\n",
                "1:12 shapes[0].circle: `radius` is missing here; add `radius:` and its value",
            ),
            (
                "shapes:\n  - circle:\n    radius: 3\n",
                "2:5 shapes[0]: `circle` and `radius` side by side, where one belongs; indent `radius` deeper than `circle`, so that it belongs to it",
            ),
            ("[]", "1:1 : a list where keys with values belong"),
            ("title: [1]\n", "1:1 title: a list where a text belongs"),
            (
                "title: a\ntitle: b\n",
                "2:1 : `title` is given twice; it stands on line 1 already; remove one of them",
            ),
            ("{ [1]: 2 }", "1:3 : a key must be a word; write `key: value`"),
            ("title: !secret x", "1:16 : a tag has no meaning in a trial file; remove the `!` word"),
            ("a: 1\n---\nb: 2\n", "3:1 : a second document in one file; give each trial a file of its own"),
            (
                "shapes: *nowhere",
                "1:9 : this is not YAML: while parsing node, found unknown anchor; define it with `&name` further up, or quote the text",
            ),
            (
                "size: 99999999999999999999999999\n",
                "1:7 size: 99999999999999999999999999 is beyond any number used here",
            ),
        ] {
            assert_eq!(drawing(yaml).expect_err(yaml).join(" | "), wanted, "{yaml}");
        }
    }

    #[test]
    fn a_hostile_file_is_refused_in_the_time_it_takes_to_read_it() {
        let mut bomb = String::from("a0: &a0 [x]\n");
        for level in 1..100 {
            let aliases = vec![format!("*a{}", level - 1); 20].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        for hostile in [
            bomb,
            "a: &a [*a]\n".into(),
            "[".repeat(100_000),
            "{a: ".repeat(100_000),
            "- ".repeat(100_000),
            (0..40).fold(String::from("a0: &a0 [x]\n"), |text, level| {
                text + &format!("a{}: &a{} [*a{level}]\n", level + 1, level + 1)
            }),
        ] {
            let start = std::time::Instant::now();
            let mistakes = drawing(&hostile).expect_err("hostile");
            assert!(start.elapsed().as_secs() < 5, "{mistakes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text: String) {
            let _ = drawing(&text);
        }

        #[test]
        fn nothing_made_of_the_signs_of_yaml_makes_the_reader_panic(text in "[a-c0-9:,&*!|>'\"%@{}\\[\\]~ \n#-]{0,60}") {
            let _ = drawing(&text);
        }
    }
}
