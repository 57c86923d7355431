//! Files of a workspace: the configuration, a project's settings, seals of packs.

use callgate_registry::config;
use callgate_registry::pack::{Seal, read_policy};
use callgate_registry::project::Settings;

/// A configuration that is taken reads the same when its table is written and read again; an error
/// has words.
pub fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match config::parse(text) {
        Ok(config) => {
            let table: toml::Table = toml::from_str(text).expect("a configuration is TOML");
            let written = toml::to_string(&table).expect("what is read is written");
            let again = config::parse(&written).expect("what is written is read");
            assert_eq!(format!("{again:?}"), format!("{config:?}"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Settings and policies of a project are read or refused in words.
pub fn project(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Err(error) = Settings::read(text) {
        assert!(!error.to_string().is_empty());
    }
    if let Err(error) = read_policy(text) {
        assert!(!error.to_string().is_empty());
    }
}

/// A seal that is read is the same when written again.
pub fn seal(input: &[u8]) {
    if let Some(seal) = Seal::from_text(input) {
        let again = Seal::from_text(seal.to_text().as_bytes());
        assert_eq!(again.as_ref(), Some(&seal));
        let _ = seal.is_signed();
    }
}
