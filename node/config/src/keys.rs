//! One definition for each key of the configuration: [`settings!`] makes of it the field, its default, its flag, its help
//! and its comment in the printed configuration.

use toml::Value;

use super::values::Kind;

/// A key with its value in some configuration.
#[derive(Debug, Clone)]
pub struct Key {
    /// The table that it is in; empty at the top.
    pub section: &'static str,
    /// What the table is for, one item a line.
    pub about: &'static [&'static str],
    /// Its name in the table.
    pub name: &'static str,
    /// What it means, one item a line.
    pub doc: &'static [&'static str],
    /// What stands for the value in the help.
    pub value_name: &'static str,
    /// What holds when it is not written and the default is no plain value.
    pub unset: Option<&'static str>,
    /// A value, in TOML, to be shown where there is none.
    pub example: Option<&'static str>,
    /// How its value is written.
    pub kind: Kind,
    /// The words that it takes, if it takes only some.
    pub choices: &'static [&'static str],
    /// Its value; none when it has none.
    pub value: Option<Value>,
}

impl Key {
    /// Section and name, with a dot between.
    pub fn path(&self) -> String {
        if self.section.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.section, self.name) }
    }

    /// What it means, as one sentence without its full stop.
    pub fn meaning(&self) -> String {
        text_of(self.doc)
    }

    /// What holds when it is not written; `self` has the default as its value.
    pub fn default_text(&self) -> String {
        match (self.unset, &self.value) {
            (Some(unset), _) => unset.to_owned(),
            (None, Some(Value::String(text))) => text.clone(),
            (None, Some(Value::Integer(number))) => number.to_string(),
            (None, Some(Value::Boolean(flag))) => flag.to_string(),
            (None, _) => "none".to_owned(),
        }
    }
}

/// The lines of a doc comment as one sentence without its full stop.
pub fn text_of(lines: &[&str]) -> String {
    let text: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    text.join(" ").trim_end_matches('.').to_owned()
}

/// Defines a table of the configuration: keys, then the tables inside. A key has a type, a default, the word that stands for its
/// value in the help, what holds when the default is no plain value (`unset`), and what to show where it has no value (`example`).
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub struct $Table:ident {
            $(
                $(#[doc = $doc:literal])+
                $name:ident: $Type:ty = $default:expr, $value_name:literal
                    $(, unset $unset:literal)? $(, example $example:literal)?;
            )*
            $([$section:ident]: $Section:ty;)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $Table {
            $(
                $(#[doc = $doc])+
                #[serde(deserialize_with = "crate::values::Setting::read")]
                pub $name: $Type,
            )*
            $(
                #[doc = concat!("`[", stringify!($section), "]`")]
                pub $section: $Section,
            )*
        }

        impl Default for $Table {
            fn default() -> $Table {
                $Table { $($name: $default,)* $($section: <$Section>::default(),)* }
            }
        }

        impl $Table {
            const ABOUT: &'static [&'static str] = &[$($about),+];

            /// Its keys and those of the tables inside with their values, in order; `section` is its own name.
            pub fn keys(&self, section: &'static str) -> Vec<$crate::keys::Key> {
                #[allow(unused_mut, reason = "a table may have none inside")]
                let mut keys = vec![$($crate::keys::Key {
                    section,
                    about: Self::ABOUT,
                    name: stringify!($name),
                    doc: &[$($doc),+],
                    value_name: $value_name,
                    unset: None::<&'static str>$(.or(Some($unset)))?,
                    example: None::<&'static str>$(.or(Some($example)))?,
                    kind: <$Type as crate::values::Setting>::KIND,
                    choices: <$Type as crate::values::Setting>::CHOICES,
                    value: crate::values::Setting::write(&self.$name),
                }),*];
                $(keys.extend(self.$section.keys(stringify!($section)));)*
                keys
            }
        }
    };
}

pub(super) use settings;
