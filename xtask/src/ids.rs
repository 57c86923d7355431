//! The name of a clause or decision: `TH-12`, `G-6b`.

use std::fmt;

/// One or more capitals, a hyphen, a number, perhaps a small letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(String);

impl Id {
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('-')?;
        let number = rest
            .strip_suffix(|c: char| c.is_ascii_lowercase())
            .unwrap_or(rest);
        let shaped = !prefix.is_empty()
            && prefix.bytes().all(|b| b.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit());
        shaped.then(|| Self(text.to_owned()))
    }

    /// `TH` of `TH-12`.
    pub fn prefix(&self) -> &str {
        self.0.split('-').next().unwrap_or_default()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The ids on a line, each as a whole word: `T-1` is not in `T-12`, nor `F-8`
/// in `UTF-8`. A range such as `TH-3..TH-7` names its two ends only.
pub fn ids_in(line: &str) -> impl Iterator<Item = Id> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
        .filter_map(|word| Id::parse(word.trim_matches('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        ids_in(line).map(|id| id.to_string()).collect()
    }

    #[test]
    fn ids_have_one_shape() {
        for good in ["TH-12", "T-5", "G-6b", "F-1"] {
            assert!(Id::parse(good).is_some(), "{good}");
        }
        for bad in [
            "T-", "-5", "t-5", "T5", "T-5bc", "T-5-6", "T-b", "", "T--5", "T-5B",
        ] {
            assert!(Id::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn ids_match_as_whole_words() {
        assert_eq!(found("// T-12 and (G-6b), TH-3."), ["T-12", "G-6b", "TH-3"]);
        assert_eq!(
            found("xT-1 T-1x2 T_T-1 T-1-2 lease_T-1"),
            Vec::<String>::new()
        );
        assert_eq!(found("T-5's, `T-6`/T-7"), ["T-5", "T-6", "T-7"]);
    }

    #[test]
    fn ranges_name_their_ends() {
        assert_eq!(
            found("TH-3..TH-7, TH-9 to TH-11"),
            ["TH-3", "TH-7", "TH-9", "TH-11"]
        );
    }
}
