//! Choices out of bytes: how a target that performs operations reads which ones.
//!
//! Invariant: any bytes are legal; after their end every choice is the first one.

/// Bytes that are used up choice by choice.
#[derive(Debug, Clone)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Two bytes, the higher first.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Eight bytes, the highest first.
    pub fn long(&mut self) -> u64 {
        u64::from_be_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit.max(1)
    }

    /// Whether, evenly.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of `choices`, of which there is at least one and at most 256.
    ///
    /// # Panics
    /// When there is none.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// All that is left.
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_follow_the_bytes_and_then_are_the_first() {
        let mut input = Input::new(&[7, 1, 2, 5, 9]);
        assert_eq!((input.byte(), input.short(), input.one_of(&["a", "b", "c"])), (7, 258, "c"));
        assert_eq!((input.flag(), input.is_empty()), (true, true));
        assert_eq!((input.byte(), input.long(), input.below(0), input.one_of(&[3, 4])), (0, 0, 0, 3));
        assert_eq!(input.rest(), &[] as &[u8]);
    }
}
