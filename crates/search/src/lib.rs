//! Finding pieces of the workspace. A file is cut into pieces at its functions (`cut`), a piece
//! is known by its words (`words`) and, where a model is there, by a vector of its meaning. What
//! is kept of them is in `store::search`; this crate has it in memory, follows what other
//! processes change and ranks (`Engine`).
//!
//! Not here: which files there are and who may see them, which `tools` knows.

pub mod chroma;
mod cut;
mod engine;
mod fuse;
mod language;
mod lexical;
pub mod model;
mod scan;
mod simd;
mod sketch;
mod slots;
mod store;
mod syntax;
mod words;

pub use cut::{BYTES_MAX, LINES_MAX, Piece, pieces};
pub use engine::{Answer, Ask, Engine, Found, Item, SearchError};
pub use language::{of as language_of, tags as tags_of};
pub use scan::{DIMENSIONS_MAX, from_bytes, to_bytes};
pub use store::VectorStore;
pub use words::{counted, packed};
