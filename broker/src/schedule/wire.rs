//! Schedules as they are written down and sent: a list of `[time, used]` steps a resource.
//!
//! Invariant: what is read here passes the same checks as [`Occupancy::from_steps`], whoever sent it, and never makes
//! room for more steps than really arrive. What was added within capacities is written such that it can be read again,
//! since a capacity is at most [`crate::amount::Amount::MAX`].

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
    ser::SerializeSeq,
};

use super::{Occupancy, Schedule, block::RESTING_STEPS, occupancy::Builder};

impl Serialize for Occupancy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for step in self.iter() {
            list.serialize_element(&step)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Occupancy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(StepsVisitor)
    }
}

struct StepsVisitor;

impl<'de> Visitor<'de> for StepsVisitor {
    type Value = Occupancy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of [time, used] steps")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Occupancy, A::Error> {
        let mut builder = Builder::new(list.size_hint().unwrap_or(0).min(RESTING_STEPS));
        while let Some((time, used)) = list.next_element()? {
            builder.push(time, used).map_err(de::Error::custom)?;
        }
        Ok(builder.finish())
    }
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.occupancies.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}
