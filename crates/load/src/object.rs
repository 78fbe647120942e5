//! What a load works on: a device, or the files of a set. An *object* has a name and a size and takes requests.

use crate::BLOCK_BYTES;

/// One object of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The name in reports and targets: a file's, or `device`.
    pub name: String,
    /// Its size. What is left after the last whole content block of 4096 bytes is not used.
    pub size_bytes: u64,
}

impl ObjectInfo {
    /// An object of `size_bytes`.
    pub fn new(name: impl Into<String>, size_bytes: u64) -> Self {
        Self { name: name.into(), size_bytes }
    }

    /// How many whole content blocks it has.
    pub fn blocks(&self) -> u64 {
        self.size_bytes / BLOCK_BYTES as u64
    }
}

/// The bytes of all whole content blocks of `objects`.
pub fn content_bytes(objects: &[ObjectInfo]) -> u64 {
    objects.iter().map(|object| object.blocks() * BLOCK_BYTES as u64).sum()
}

/// The name of the file number `index`, counted from zero: a, b, ... z, then f26, f27, ...
pub fn file_name(index: u32) -> String {
    match u8::try_from(index) {
        Ok(letter) if letter < 26 => char::from(b'a' + letter).to_string(),
        _ => format!("f{index}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_letters_and_then_numbers() {
        assert_eq!([0, 25, 26, 300].map(file_name), ["a", "z", "f26", "f300"]);
    }
}
