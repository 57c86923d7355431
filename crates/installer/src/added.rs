//! Servers that are described by a file: a bundle (`.mcpb`) or a registry's `server.json`. Both
//! become one description, whose open questions are inputs.
//!
//! Values stand where they are used as `${user_config.KEY}`, the notation of bundles. Not here: who
//! answers, and where secrets are kept.

mod bundle;
mod server_json;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use bundle::{Bundle, BundleSettings, UnpackedBundle, read_bundle};
pub use server_json::read_server_json;

use crate::request::PackageRequest;
use crate::spec::SpecError;

/// A server as a file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedServer {
    /// The name.
    pub name: String,
    /// The version of the description.
    pub version: Option<String>,
    /// The purpose, for people.
    pub description: Option<String>,
    /// How it is started or reached.
    pub start: AddedStart,
    /// Variables of the program, with templates as values.
    pub env: BTreeMap<String, String>,
    /// What is to be asked before the first start.
    pub inputs: Vec<AddedInput>,
}

/// The way in which a described server is started or reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddedStart {
    /// A package of a registry, with templates of arguments.
    Package {
        /// The package.
        request: PackageRequest,
        /// Its arguments.
        args: Vec<String>,
    },
    /// A command in an unpacked bundle: templates of its words.
    Command(Vec<String>),
    /// A container.
    Container {
        /// The image.
        image: String,
        /// Arguments of `run`.
        run_args: Vec<String>,
        /// Arguments behind the image.
        args: Vec<String>,
    },
    /// A bundle at an address.
    BundleUrl {
        /// The address.
        url: String,
        /// The SHA-256 of the bundle, in hex.
        sha256: Option<String>,
    },
    /// A server that runs elsewhere.
    Remote {
        /// The address, a template.
        url: String,
        /// The transport: `streamable-http` or `sse`.
        transport: String,
        /// Headers with templates as values.
        headers: BTreeMap<String, String>,
    },
}

/// A value that somebody has to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedInput {
    /// The key in templates.
    pub key: String,
    /// Words for people.
    pub title: Option<String>,
    /// What kind of value it is.
    pub kind: InputKind,
    /// Whether there must be a value.
    pub is_required: bool,
    /// Whether the value is a secret.
    pub is_secret: bool,
    /// Whether there may be several values.
    pub is_multiple: bool,
    /// The values that count if nobody gives any.
    pub default: Vec<String>,
    /// The values that are allowed; any if there are none.
    pub choices: Vec<String>,
}

/// The kind of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputKind {
    /// Text.
    #[default]
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A folder that the server is to read or write.
    Folder,
    /// A file that the server is to read or write.
    File,
}

/// The reason why a description is refused.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The file can not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The file is no archive.
    #[error("{} is not a bundle", path.display())]
    NotArchive {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: zip::result::ZipError,
    },
    /// An entry of the bundle is refused.
    #[error("the bundle's entry `{name}` {problem}")]
    Entry {
        /// The entry.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// The bundle is too large.
    #[error("the bundle has more than {bytes_max} bytes or {files_max} files")]
    TooLarge {
        /// The bound of bytes.
        bytes_max: u64,
        /// The bound of files.
        files_max: u64,
    },
    /// The description is not JSON of the expected form.
    #[error("the description can not be read")]
    Syntax(#[from] serde_json::Error),
    /// The description asks for something that is not supported.
    #[error("the description has {what}")]
    Unsupported {
        /// What it has.
        what: String,
    },
    /// A package of the description is refused.
    #[error("the description names a package that can not be installed")]
    Spec(#[from] SpecError),
    /// A template asks for a value that nobody gave.
    #[error("`{key}` has no value")]
    MissingInput {
        /// The key.
        key: String,
    },
    /// A template has a placeholder that means nothing here.
    #[error("`{placeholder}` is not a placeholder of a bundle")]
    Placeholder {
        /// The placeholder.
        placeholder: String,
    },
    /// The bundle can not be unpacked.
    #[error("unpack the bundle")]
    Unpack(#[from] crate::InstallError),
}

impl AddError {
    fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }
}

/// The values that templates are filled with.
#[derive(Clone, Debug, Default)]
pub struct TemplateValues {
    /// The folder of an unpacked bundle: `${__dirname}`.
    pub folder: Option<PathBuf>,
    /// The home of the user: `${HOME}`, and the folders in it that have names of their own.
    pub home: Option<PathBuf>,
    /// Values of inputs by key.
    pub inputs: BTreeMap<String, Vec<String>>,
}

impl TemplateValues {
    /// Fills the words of a command. A word that is one input becomes as many words as there are
    /// values: none where an input that is not required has none.
    ///
    /// # Errors
    ///
    /// `AddError` if a value is missing or a placeholder is unknown.
    pub fn fill_words(
        &self,
        words: &[String],
        inputs: &[AddedInput],
    ) -> Result<Vec<String>, AddError> {
        let mut filled = Vec::new();
        for word in words {
            let key = word
                .strip_prefix(INPUT)
                .and_then(|rest| rest.strip_suffix('}'))
                .filter(|key| !key.contains('}'));
            match key {
                Some(key) => filled.extend(self.values_of(key, inputs)?),
                None => filled.push(self.fill(word, inputs)?),
            }
        }
        Ok(filled)
    }

    /// Fills a template.
    ///
    /// # Errors
    ///
    /// As [`fill_words`](Self::fill_words).
    pub fn fill(&self, template: &str, inputs: &[AddedInput]) -> Result<String, AddError> {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            text.push_str(before);
            let unknown = || AddError::Placeholder {
                placeholder: template.to_owned(),
            };
            let (name, behind) = after.split_once('}').ok_or_else(unknown)?;
            rest = behind;
            let home = |folder: &str| self.home.as_ref().map(|home| home.join(folder));
            let folder: Option<PathBuf> = match name {
                "__dirname" => self.folder.clone(),
                "HOME" => self.home.clone(),
                "DESKTOP" => home("Desktop"),
                "DOCUMENTS" => home("Documents"),
                "DOWNLOADS" => home("Downloads"),
                "/" | "pathSeparator" => Some(Path::new("/").to_owned()),
                name => {
                    let key = name.strip_prefix("user_config.").ok_or_else(unknown)?;
                    text.push_str(&self.values_of(key, inputs)?.join(","));
                    continue;
                }
            };
            let folder = folder.ok_or_else(unknown)?;
            text.push_str(folder.to_str().ok_or_else(unknown)?);
        }
        text.push_str(rest);
        Ok(text)
    }

    fn values_of(&self, key: &str, inputs: &[AddedInput]) -> Result<Vec<String>, AddError> {
        let missing = || AddError::MissingInput {
            key: key.to_owned(),
        };
        let input = inputs.iter().find(|input| input.key == key);
        let input = input.ok_or_else(missing)?;
        if let Some(values) = self.inputs.get(key).filter(|values| !values.is_empty()) {
            return Ok(values.clone());
        }
        if input.default.is_empty() && input.is_required {
            return Err(missing());
        }
        // A default may name the user's folders, and no input.
        let folders = Self {
            inputs: BTreeMap::new(),
            ..self.clone()
        };
        let values = input.default.iter();
        values.map(|value| folders.fill(value, &[])).collect()
    }
}

/// The beginning of an input's placeholder.
const INPUT: &str = "${user_config.";

/// The placeholder of an input.
fn placeholder(key: &str) -> String {
    format!("{INPUT}{key}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(key: &str, default: &[&str], is_required: bool) -> AddedInput {
        AddedInput {
            key: key.to_owned(),
            title: None,
            kind: InputKind::Text,
            is_required,
            is_secret: false,
            is_multiple: true,
            default: default.iter().map(|&text| text.to_owned()).collect(),
            choices: Vec::new(),
        }
    }

    #[test]
    fn templates_are_filled() {
        let values = TemplateValues {
            folder: Some("/b".into()),
            home: Some("/h".into()),
            inputs: [("dirs".to_owned(), vec!["/x".to_owned(), "/y".to_owned()])].into(),
        };
        let inputs = [
            input("dirs", &[], true),
            input("free", &[], false),
            input("usual", &["${HOME}/z"], false),
            input("needed", &[], true),
        ];
        let fill = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            values.fill_words(&words, &inputs)
        };
        let words = [
            "${__dirname}/s.js",
            "${user_config.dirs}",
            "${user_config.free}",
        ];
        assert_eq!(fill(&words).unwrap(), ["/b/s.js", "/x", "/y"]);
        let words = [
            "--d=${user_config.dirs}",
            "${user_config.usual}",
            "${DESKTOP}${/}a",
        ];
        assert_eq!(fill(&words).unwrap(), ["--d=/x,/y", "/h/z", "/h/Desktop/a"]);
        for word in [
            "${user_config.needed}",
            "${user_config.other}",
            "${OTHER}",
            "${HOME",
        ] {
            assert!(fill(&[word]).is_err(), "{word}");
        }
    }
}
