//! all-MiniLM-L6-v2, run by ourselves: six layers of BERT, the mean of what comes out at its
//! tokens, at length 1. The weights are two files that are installed and never come with the
//! program; they are read only if they are, to the byte, those that are known here.

mod bert;
#[doc(hidden)]
pub mod tensors;
pub mod wheel;
mod wordpiece;

use std::io::ErrorKind;
use std::path::Path;

use callgate_call::bounded::read_path;

use bert::Bert;
pub use wordpiece::WordPiece;

/// What `usage` calls it, and the folder it is in.
pub const MODEL: &str = "all-MiniLM-L6-v2";
/// Numbers of its vectors.
pub const DIMENSIONS: usize = 384;
/// Tokens of a text that are read; what comes after does not count.
const TOKENS_MAX: usize = 128;

/// A file of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: u64,
    /// SHA-256, in hexadecimal digits, as others publish it.
    pub sha256: &'static str,
    /// BLAKE3, which is faster to check each time.
    pub blake3: &'static str,
}

/// The weights.
pub const WEIGHTS: Part = Part {
    name: "model.safetensors",
    bytes: 90_868_376,
    sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    blake3: "8087e9bf97c265f8435ed268733ecf3791825ad24850fd5d84d89e32ee3a589a",
};
/// The words.
pub const WORDS: Part = Part {
    name: "vocab.txt",
    bytes: 231_508,
    sha256: "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    blake3: "29a772c92cf4b7bc8f4c52d801f03d36ad8528ef964f856dadc4c4e7cb14e451",
};

/// The model with its digest: vectors of another one can not be compared with its own.
#[must_use]
pub fn model_id() -> String {
    id_of(MODEL, WEIGHTS.sha256)
}

/// A model with its digest, in short.
pub(crate) fn id_of(name: &str, digest: &str) -> String {
    format!("{name} ({})", digest.get(..16).unwrap_or(digest))
}

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It was not installed.
    #[error("no model is installed: run `callgate model install`")]
    Missing,
    /// A file can not be read.
    #[error("read {name} of the model")]
    Read {
        /// The file.
        name: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is not the one that is known.
    #[error("{name} of the model was changed: run `callgate model install`")]
    Changed {
        /// The file.
        name: &'static str,
    },
}

/// The model, in memory.
pub struct Model {
    words: WordPiece,
    bert: Bert,
}

impl Model {
    /// Reads the model from its folder.
    pub fn load(folder: &Path) -> Result<Self, ModelError> {
        let words = read(folder, &WORDS)?;
        let weights = read(folder, &WEIGHTS)?;
        let words = WordPiece::new(&String::from_utf8_lossy(&words));
        let changed = ModelError::Changed { name: WEIGHTS.name };
        let bert = tensors::read(&weights).and_then(|all| Bert::new(&all));
        let bert = bert.ok_or(changed)?;
        Ok(Self { words, bert })
    }

    /// The vector of a text.
    #[must_use]
    pub fn embed(&self, text: &str) -> Vec<f32> {
        self.bert.embed(&self.words.tokens(text, TOKENS_MAX))
    }
}

fn read(folder: &Path, part: &Part) -> Result<Vec<u8>, ModelError> {
    let name = part.name;
    let path = folder.join(name);
    let bytes = read_path(&path, part.bytes).map_err(|source| match source.kind() {
        ErrorKind::NotFound => ModelError::Missing,
        ErrorKind::FileTooLarge => ModelError::Changed { name },
        _ => ModelError::Read { name, source },
    })?;
    match blake3::hash(&bytes).to_hex().as_str() == part.blake3 {
        true => Ok(bytes),
        false => Err(ModelError::Changed { name }),
    }
}
