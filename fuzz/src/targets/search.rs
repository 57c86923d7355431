//! Files of the search model: an archive and its tensors.

use callgate_search::model::{tensors, wheel};

/// The longest file that is unpacked here.
const FILE_BYTES_MAX: usize = 4096;

/// What is read of an archive or of tensors is within its bounds.
pub fn model_files(input: &[u8]) {
    for path_end in ["/b.txt", "x", ""] {
        if let Some(file) = wheel::file(input, path_end, FILE_BYTES_MAX) {
            assert!(file.len() <= FILE_BYTES_MAX);
        }
    }
    if let Some(tensors) = tensors::read(input) {
        for numbers in tensors.values() {
            assert!(numbers.len() * 4 <= input.len());
        }
    }
}
