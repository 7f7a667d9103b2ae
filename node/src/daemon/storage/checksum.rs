//! CRC-64/XZ, the checksum of every sector of the ledger's files.
//!
//! Invariant: it never changes; files of years ago are checked with it. A CRC finds every change of up to three bits, and
//! every burst of up to 64, in a sector; it is not meant against forgers.

/// The reflected polynomial of ECMA-182.
const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// A checksum that is being computed.
#[derive(Debug, Clone, Copy)]
pub struct Checksum(u64);

impl Checksum {
    /// Of nothing yet.
    pub fn new() -> Checksum {
        Checksum(u64::MAX)
    }

    /// Goes on with `bytes`.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Checksum {
        let step = |value: u64, byte: &u8| TABLE[usize::from(value.to_le_bytes()[0] ^ byte)] ^ (value >> 8);
        Checksum(bytes.iter().fold(self.0, step))
    }

    /// The value.
    #[must_use]
    pub fn value(self) -> u64 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_value_comes_out() {
        assert_eq!(Checksum::new().with(b"123456789").value(), 0x995D_C9BB_DF19_39FA);
        assert_eq!(Checksum::new().with(b"1234").with(b"56789").value(), 0x995D_C9BB_DF19_39FA);
    }
}
