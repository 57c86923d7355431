//! Params and results read into their types, with errors that name the field.
//!
//! The derived readers of serde know the field only where it is missing. The reader here keeps the
//! path, so that an error names the malformed field: `` `ref.type` must be a string ``.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde_json::Value;

use super::invalid;
use crate::jsonrpc::RpcError;

/// Reads params or a result into its type.
///
/// The error has the words of a -32602 that names the field.
pub fn read<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, FieldError> {
    T::deserialize(Fields(value))
}

/// Returns the value of a field that may be any JSON, `null` among it, if the field is there.
pub fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The reason why a value is not what its type wants, and the place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Names of members, and indexes of items as `[0]`; the outermost is the last.
    path: Vec<String>,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Missing,
    /// Another type is wanted.
    Wanted(String),
    /// Anything else, in words of its own.
    Other(String),
}

impl FieldError {
    fn new(problem: Problem) -> Self {
        Self {
            path: Vec::new(),
            problem,
        }
    }

    fn inside(mut self, step: String) -> Self {
        self.path.push(step);
        self
    }

    /// The path of the field, such as `ref.type`; empty for the value as a whole.
    #[must_use]
    pub fn field(&self) -> String {
        let mut field = String::new();
        for step in self.path.iter().rev() {
            if !field.is_empty() && !step.starts_with('[') {
                field.push('.');
            }
            field.push_str(step);
        }
        field
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        let field = if field.is_empty() { "params" } else { &field };
        match &self.problem {
            Problem::Missing => write!(f, "`{field}` is required"),
            Problem::Wanted(wanted) => write!(f, "`{field}` must be {wanted}"),
            Problem::Other(words) if self.path.is_empty() => f.write_str(words),
            Problem::Other(words) => write!(f, "`{field}`: {words}"),
        }
    }
}

impl std::error::Error for FieldError {}

impl From<FieldError> for RpcError {
    fn from(error: FieldError) -> Self {
        invalid(&error.to_string())
    }
}

impl Error for FieldError {
    fn custom<T: fmt::Display>(words: T) -> Self {
        Self::new(Problem::Other(words.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, wanted: &dyn serde::de::Expected) -> Self {
        Self::new(Problem::Wanted(plain(&wanted.to_string())))
    }

    fn invalid_value(_: Unexpected<'_>, wanted: &dyn serde::de::Expected) -> Self {
        Self::new(Problem::Wanted(plain(&wanted.to_string())))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Problem::Missing).inside(field.to_owned())
    }
}

/// The words of serde for a type, as those of JSON.
fn plain(wanted: &str) -> String {
    let name = wanted.split(' ').next().unwrap_or_default();
    match (wanted, name) {
        ("a map", _) | (_, "struct" | "internally") => "an object",
        ("a sequence", _) => "a list",
        ("a boolean", _) => "true or false",
        ("u64" | "u32" | "u16" | "usize", _) => "a whole number",
        ("i64" | "i32", _) => "an integer",
        ("f64", _) => "a number",
        (other, _) => other,
    }
    .to_owned()
}

/// A value that is read with the path kept.
struct Fields<'de>(&'de Value);

impl<'de> Deserializer<'de> for Fields<'de> {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, Some(number)) => visitor.visit_f64(number),
                _ => Err(FieldError::custom("a number beyond a double")),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(Items {
                rest: items.iter(),
                index: 0,
            }),
            Value::Object(members) => visitor.visit_map(Members {
                rest: members.iter(),
                value: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        // How serde_json recognises its raw values is its own affair.
        if name.starts_with("$serde_json") {
            let read = self.0.deserialize_newtype_struct(name, visitor);
            return read.map_err(FieldError::custom);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(Word(text)),
            _ => Err(FieldError::new(Problem::Wanted("a string".to_owned()))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        // A derived reader would take a list for the members in their order.
        match self.0 {
            Value::Array(_) => Err(FieldError::new(Problem::Wanted("an object".to_owned()))),
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Members<'de> {
    rest: serde_json::map::Iter<'de>,
    value: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, FieldError> {
        let Some((name, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some((name, value));
        let name = serde::de::value::BorrowedStrDeserializer::new(name);
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, FieldError> {
        let Some((name, value)) = self.value.take() else {
            return Err(FieldError::custom("a value without its name"));
        };
        let read = seed.deserialize(Fields(value));
        read.map_err(|error| error.inside(name.to_owned()))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Items<'de> {
    rest: std::slice::Iter<'de, Value>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = FieldError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, FieldError> {
        let Some(value) = self.rest.next() else {
            return Ok(None);
        };
        let index = self.index;
        self.index += 1;
        let read = seed.deserialize(Fields(value));
        read.map(Some)
            .map_err(|error| error.inside(format!("[{index}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A string where one of a set of words is wanted.
struct Word<'de>(&'de str);

impl<'de> EnumAccess<'de> for Word<'de> {
    type Error = FieldError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self), FieldError> {
        let word = StrDeserializer::new(self.0);
        seed.deserialize(word).map(|value| (value, self))
    }
}

impl<'de> VariantAccess<'de> for Word<'de> {
    type Error = FieldError;

    fn unit_variant(self) -> Result<(), FieldError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _: S) -> Result<S::Value, FieldError> {
        Err(FieldError::custom("a word has no content"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, FieldError> {
        Err(FieldError::custom("a word has no content"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, FieldError> {
        Err(FieldError::custom("a word has no content"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Sample {
        uri: String,
        #[serde(default)]
        count: Option<u64>,
        #[serde(default)]
        inner: Vec<Inner>,
        #[serde(default, deserialize_with = "present")]
        raw: Option<Box<RawValue>>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        word: Vec<String>,
    }

    #[test]
    fn errors_name_their_field() {
        for (value, wanted) in [
            (json!({}), "`uri` is required"),
            (json!({"uri": null}), "`uri` must be a string"),
            (json!({"uri": 7}), "`uri` must be a string"),
            (
                json!({"uri": "a", "count": -1}),
                "`count` must be a whole number",
            ),
            (
                json!({"uri": "a", "count": {}}),
                "`count` must be a whole number",
            ),
            (json!({"uri": "a", "inner": {}}), "`inner` must be a list"),
            (
                json!({"uri": "a", "inner": [7]}),
                "`inner[0]` must be an object",
            ),
            (
                json!({"uri": "a", "inner": [{"word": ["a", 1]}]}),
                "`inner[0].word[1]` must be a string",
            ),
            (
                json!({"uri": "a", "inner": [{}]}),
                "`inner[0].word` is required",
            ),
            (json!([]), "`params` must be an object"),
        ] {
            let error = read::<Sample>(&value).unwrap_err();
            assert_eq!(error.to_string(), wanted, "{value}");
        }
    }

    #[test]
    fn raw_values_are_there_even_as_null() {
        let raw = |value: &Value| {
            let sample: Sample = read(value).unwrap();
            assert_eq!((sample.uri.as_str(), sample.count), ("a", None));
            assert_eq!(sample.inner.len(), 0);
            sample.raw.map(|raw| raw.get().to_owned())
        };
        assert_eq!(raw(&json!({"uri": "a"})), None);
        assert_eq!(raw(&json!({"uri": "a", "raw": null})).unwrap(), "null");
        assert_eq!(raw(&json!({"uri": "a", "raw": [1]})).unwrap(), "[1]");
        let word: Inner = read(&json!({"word": ["a"]})).unwrap();
        assert_eq!(word.word, ["a"]);
    }
}
