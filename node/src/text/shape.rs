//! What the types of documents look like, for tests that must hold for every struct in them.
//!
//! A reader that reads nothing: it gives each field a value of the kind that is asked for, and remembers which objects were
//! structs. So a test sees a struct that is added later without being told of it.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor, value::Error},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

/// A document that fits a type, and where its structs are.
struct Sample {
    document: Value,
    /// The keys on the way, outermost first; a number is a place in a list.
    structs: Vec<Vec<String>>,
}

impl Sample {
    fn of<T: DeserializeOwned>() -> Sample {
        let mut sample = Sample { document: Value::Null, structs: Vec::new() };
        let shape = Shape { made: &mut sample.document, structs: &mut sample.structs, place: Vec::new() };
        T::deserialize(shape).map(drop).unwrap();
        sample
    }
}

/// Checks of every struct in a `T`, the outermost included, that `read` refuses a list of its fields in its place and names
/// its key; `read` gives the key that it complains about.
pub fn assert_that_no_list_is_taken<T: DeserializeOwned>(read: impl Fn(&Value) -> Result<(), String>) {
    let Sample { document, structs } = Sample::of::<T>();
    assert_eq!(read(&document), Ok(()), "{document}");
    assert!(structs.contains(&Vec::new()), "the document itself is a struct");
    for place in structs {
        let mut changed = document.clone();
        let part = place.iter().fold(&mut changed, |part, key| match part {
            Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
            object => &mut object[key],
        });
        let fields = part.as_object().unwrap().values().cloned().collect();
        *part = Value::Array(fields);
        let key = place.iter().fold(String::new(), |path, key| match key.parse::<usize>() {
            Ok(index) => format!("{path}[{index}]"),
            Err(_) if path.is_empty() => key.clone(),
            Err(_) => format!("{path}.{key}"),
        });
        assert_eq!(read(&changed), Err(key), "{changed}");
    }
}

struct Shape<'a> {
    made: &'a mut Value,
    structs: &'a mut Vec<Vec<String>>,
    place: Vec<String>,
}

impl Shape<'_> {
    fn within<'b>(&'b mut self, made: &'b mut Value, key: &str) -> Shape<'b> {
        let place = self.place.iter().cloned().chain([key.to_owned()]).collect();
        Shape { made, structs: self.structs, place }
    }

    /// A text that can be the name of anything, a key, and where one is asked for a signature.
    fn text(&self) -> String {
        let is_signature = self.place.last().is_some_and(|key| key == "signature");
        "a".repeat(if is_signature { 128 } else { 64 })
    }
}

impl<'de> Deserializer<'de> for Shape<'_> {
    type Error = Error;

    /// What may be a number or a text is a number, and so is every number.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.made = 1.into();
        visitor.visit_i64(1)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.made = true.into();
        visitor.visit_bool(true)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.text();
        *self.made = text.clone().into();
        visitor.visit_string(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(1, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Error> {
        *self.made = Value::Array(Vec::new());
        visitor.visit_seq(Items { shape: self, count })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.made = Value::Object(Map::new());
        let key = self.text();
        visitor.visit_map(Fields { shape: self, keys: vec![key] })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.structs.push(self.place.clone());
        *self.made = Value::Object(Map::new());
        let keys = fields.iter().rev().map(|key| (*key).to_owned()).collect();
        visitor.visit_map(Fields { shape: self, keys })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.made = variants[0].into();
        visitor.visit_enum(variants[0].into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple_struct identifier
        ignored_any
    }
}

/// The items of a list.
struct Items<'a> {
    shape: Shape<'a>,
    count: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.count.checked_sub(1) else { return Ok(None) };
        self.count = left;
        let index = self.shape.made.as_array().map_or(0, Vec::len);
        let mut made = Value::Null;
        let item = seed.deserialize(self.shape.within(&mut made, &index.to_string()))?;
        self.shape.made.as_array_mut().unwrap().push(made);
        Ok(Some(item))
    }
}

/// The fields of an object; the next key is the last.
struct Fields<'a> {
    shape: Shape<'a>,
    keys: Vec<String>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let key = self.keys.last().cloned();
        key.map(|key| seed.deserialize(key.into_deserializer())).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let key = self.keys.pop().unwrap();
        let mut made = Value::Null;
        let value = seed.deserialize(self.shape.within(&mut made, &key))?;
        self.shape.made.as_object_mut().unwrap().insert(key, made);
        Ok(value)
    }
}

#[test]
fn a_struct_is_found_wherever_it_is() {
    #[derive(Deserialize)]
    struct Leaf {
        #[serde(rename = "number")]
        _number: u8,
    }
    #[derive(Deserialize)]
    struct Tree {
        #[serde(rename = "leaves")]
        _leaves: Vec<Leaf>,
        #[serde(rename = "last")]
        _last: Option<Leaf>,
    }
    let Sample { document, structs } = Sample::of::<Tree>();
    assert_eq!(document, serde_json::json!({"leaves": [{"number": 1}], "last": {"number": 1}}));
    let places: Vec<String> = structs.iter().map(|place| place.join("/")).collect();
    assert_eq!(places, ["", "leaves/0", "last"]);
}
