//! A reader around another one in which the fields of a struct are given by their names.
//!
//! serde's own code for structs takes a list of the fields in their order as well, at every depth. Invariant: what is read is what the
//! reader inside gives, to the last value and error, but that no list is ever taken for a struct.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor},
};

/// A reader, or a part of one, whose structs are read by name.
pub struct ByName<T>(pub T);

/// What a value is given to; it hands the parts of the value on by name.
struct Receiver<V> {
    visitor: V,
    is_struct: bool,
}

impl<V> Receiver<V> {
    fn of_any(visitor: V) -> Receiver<V> {
        Receiver { visitor, is_struct: false }
    }

    fn of_struct(visitor: V) -> Receiver<V> {
        Receiver { visitor, is_struct: true }
    }
}

/// A type's name, and those of its fields or variants.
type Name = &'static str;
type Names = &'static [&'static str];

macro_rules! read_as_they_are {
    ($($read:ident($($argument:ident: $kind:ty),*);)*) => {$(
        fn $read<V: Visitor<'de>>(self, $($argument: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$read($($argument,)* Receiver::of_any(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ByName<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(self, name: Name, fields: Names, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Receiver::of_struct(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }

    read_as_they_are! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: Name);
        deserialize_newtype_struct(name: Name);
        deserialize_seq();
        deserialize_tuple(count: usize);
        deserialize_tuple_struct(name: Name, count: usize);
        deserialize_map();
        deserialize_enum(name: Name, variants: Names);
        deserialize_identifier();
        deserialize_ignored_any();
    }
}

macro_rules! receive_as_they_are {
    ($($receive:ident($kind:ty);)*) => {$(
        fn $receive<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.visitor.$receive(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Receiver<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        if self.is_struct {
            return Err(A::Error::invalid_type(Unexpected::Seq, &"an object"));
        }
        self.visitor.visit_seq(ByName(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(ByName(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, choice: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(ByName(choice))
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(ByName(inner))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(ByName(inner))
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    receive_as_they_are! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ByName<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(ByName(reader))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for ByName<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(ByName(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ByName<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(ByName(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(ByName(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for ByName<A> {
    type Error = A::Error;
    type Variant = ByName<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0.variant_seed(ByName(seed)).map(|(variant, content)| (variant, ByName(content)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for ByName<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(ByName(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(count, Receiver::of_any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: Names, visitor: V) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Receiver::of_struct(visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Leaf {
        number: i64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Shell(Leaf);

    #[derive(Debug, PartialEq, Deserialize)]
    enum Choice {
        Nothing,
        One(Leaf),
        Two(Leaf, u8),
        Named { leaf: Leaf },
    }

    /// A struct at every place where one can stand.
    #[derive(Debug, PartialEq, Deserialize)]
    struct Everywhere {
        plain: Leaf,
        maybe: Option<Leaf>,
        shell: Shell,
        list: Vec<Leaf>,
        pair: (Leaf, bool),
        map: BTreeMap<String, Leaf>,
        choices: Vec<Choice>,
        numbers: (f64, Option<u64>, [i8; 2], char, ()),
    }

    fn read(value: &Value) -> Result<Everywhere, String> {
        let text = value.to_string();
        let mut reader = serde_json::Deserializer::from_str(&text);
        Everywhere::deserialize(ByName(&mut reader)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_by_name_is_read_and_no_list_is() {
        let leaf = json!({"number": 7});
        let written = json!({
            "plain": leaf, "maybe": leaf, "shell": leaf, "list": [leaf], "pair": [leaf, true], "map": {"a": leaf},
            "choices": ["Nothing", {"One": leaf}, {"Two": [leaf, 1]}, {"Named": {"leaf": leaf}}],
            "numbers": [0.5, null, [1, -1], "x", null],
        });
        let everywhere = read(&written).unwrap();
        assert_eq!(everywhere.choices[3], Choice::Named { leaf: Leaf { number: 7 } });
        let places = [
            "/plain",
            "/maybe",
            "/shell",
            "/list/0",
            "/pair/0",
            "/map/a",
            "/choices/1/One",
            "/choices/2/Two/0",
            "/choices/3/Named/leaf",
            "/choices/3/Named",
        ];
        for place in places {
            let mut changed = written.clone();
            let list = if place.ends_with("Named") { json!([leaf]) } else { json!([7]) };
            *changed.pointer_mut(place).unwrap() = list;
            // The reader inside does take it.
            assert!(serde_json::from_str::<Everywhere>(&changed.to_string()).is_ok(), "{place}");
            let error = read(&changed).unwrap_err();
            assert!(error.contains("invalid type: sequence, expected an object"), "{place}: {error}");
        }
    }
}
