//! The seven promises about a running tool, and who asked for each.

use std::collections::BTreeSet;

/// One promise. The order is the one in which checks and traces list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Guarantee {
    NoFilesystemRead,
    NoFilesystemWrite,
    NoNetwork,
    NoSubprocess,
    NoEnvRead,
    NoEnvWrite,
    /// Only the secrets of a list can be read.
    SecretsAllowed,
}

impl Guarantee {
    /// All, in order.
    pub const ALL: [Self; 7] = [
        Self::NoFilesystemRead,
        Self::NoFilesystemWrite,
        Self::NoNetwork,
        Self::NoSubprocess,
        Self::NoEnvRead,
        Self::NoEnvWrite,
        Self::SecretsAllowed,
    ];

    /// The promise in requests, configuration and the chain.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoFilesystemRead => "no_filesystem_read",
            Self::NoFilesystemWrite => "no_filesystem_write",
            Self::NoNetwork => "no_network",
            Self::NoSubprocess => "no_subprocess",
            Self::NoEnvRead => "no_env_read",
            Self::NoEnvWrite => "no_env_write",
            Self::SecretsAllowed => "secrets_allowed",
        }
    }

    /// What it takes away, as checks and traces call it.
    #[must_use]
    pub fn capability(self) -> &'static str {
        match self {
            Self::NoFilesystemRead => "filesystem_read",
            Self::NoFilesystemWrite => "filesystem_write",
            Self::NoNetwork => "network",
            Self::NoSubprocess => "subprocess",
            Self::NoEnvRead => "env_read",
            Self::NoEnvWrite => "env_write",
            Self::SecretsAllowed => "secrets",
        }
    }

    /// The promise of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Who asked for a promise. Later ones come after earlier ones and only ever tighten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// Callgate's own default for tools (P-10), or a call that is confined as such.
    Engine,
    /// The pack the tool is from.
    Pack,
    /// The tool's own declaration.
    Tool,
    /// The user: overrides of the project, or a request.
    User,
    /// The owner's policy.
    Policy,
}

impl Asker {
    /// The word in checks and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Pack => "pack",
            Self::Tool => "tool",
            Self::User => "user",
            Self::Policy => "policy",
        }
    }

    /// The asker of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [
            Self::Engine,
            Self::Pack,
            Self::Tool,
            Self::User,
            Self::Policy,
        ]
        .into_iter()
        .find(|asker| asker.as_str() == word)
    }
}

/// What a tool must be held to. Nothing in here can be taken back: the only way is tighter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Guarantees {
    required: [Option<Asker>; 6],
    secrets: Option<(BTreeSet<String>, Asker)>,
}

impl Guarantees {
    /// All six and no secret: what a pure tool is held to (TP-32).
    #[must_use]
    pub fn pure(asker: Asker) -> Self {
        Self {
            required: [Some(asker); 6],
            secrets: Some((BTreeSet::new(), asker)),
        }
    }

    /// Asks for one of the six. `SecretsAllowed` asks for an empty list. Who asks last is
    /// named.
    pub fn require(&mut self, guarantee: Guarantee, asker: Asker) {
        match self.required.get_mut(guarantee as usize) {
            Some(place) => *place = Some(asker),
            None => self.allow_secrets(BTreeSet::new(), asker),
        }
    }

    /// Narrows the secrets to those that are in `names` too.
    pub fn allow_secrets(&mut self, names: BTreeSet<String>, asker: Asker) {
        let names = match self.secrets.take() {
            Some((known, _)) => known.intersection(&names).cloned().collect(),
            None => names,
        };
        self.secrets = Some((names, asker));
    }

    /// Adds what `other` asks for.
    pub fn tighten(&mut self, other: &Self) {
        for (place, asked) in self.required.iter_mut().zip(other.required) {
            *place = asked.or(*place);
        }
        if let Some((names, asker)) = &other.secrets {
            self.allow_secrets(names.clone(), *asker);
        }
    }

    /// Who asked for it, if anybody did.
    #[must_use]
    pub fn asker(&self, guarantee: Guarantee) -> Option<Asker> {
        match self.required.get(guarantee as usize) {
            Some(asker) => *asker,
            None => self.secrets.as_ref().map(|(_, asker)| *asker),
        }
    }

    /// True if it is asked for.
    #[must_use]
    pub fn requires(&self, guarantee: Guarantee) -> bool {
        self.asker(guarantee).is_some()
    }

    /// The only secrets it may read; nothing said means no restriction.
    #[must_use]
    pub fn secrets(&self) -> Option<&BTreeSet<String>> {
        self.secrets.as_ref().map(|(names, _)| names)
    }

    /// All that is asked for, in order, with who asked.
    pub fn iter(&self) -> impl Iterator<Item = (Guarantee, Asker)> + '_ {
        Guarantee::ALL
            .into_iter()
            .filter_map(|one| self.asker(one).map(|asker| (one, asker)))
    }

    /// True if nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// TP-29, TP-30: seven, and their order.
    #[test]
    fn names_and_capabilities() {
        let words = Guarantee::ALL.map(Guarantee::capability);
        assert_eq!(
            words.join(" "),
            "filesystem_read filesystem_write network subprocess env_read env_write secrets"
        );
        for one in Guarantee::ALL {
            assert_eq!(Guarantee::from_name(one.name()), Some(one));
        }
        assert_eq!(Guarantee::from_name("network"), None);
    }

    /// TP-31: only ever tighter; who asked last is named.
    #[test]
    fn askers_only_tighten() {
        let mut all = Guarantees::default();
        all.require(Guarantee::NoNetwork, Asker::Pack);
        all.allow_secrets(names(&["A", "B"]), Asker::Pack);
        let mut user = Guarantees::default();
        user.require(Guarantee::NoNetwork, Asker::User);
        user.allow_secrets(names(&["B", "C"]), Asker::User);
        all.tighten(&user);
        all.tighten(&Guarantees::default());
        assert_eq!(all.asker(Guarantee::NoNetwork), Some(Asker::User));
        assert_eq!(all.secrets(), Some(&names(&["B"])));
        assert!(!all.requires(Guarantee::NoSubprocess));
        assert_eq!(all.iter().count(), 2);
    }

    /// TP-32.
    #[test]
    fn pure_is_everything() {
        let pure = Guarantees::pure(Asker::Tool);
        assert_eq!(pure.iter().count(), 7);
        assert_eq!(pure.secrets(), Some(&BTreeSet::new()));
        assert!(Guarantees::default().is_empty());
    }
}
