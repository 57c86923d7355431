//! Where a tool of a project comes from, as traces tell it.

/// Where a tool was found, and what was chosen for it when it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What kind of place.
    pub source: OriginSource,
    /// The pack, where there is one.
    pub pack: Option<PackOrigin>,
    /// `local`, `service` or `container`: chosen at load, whatever carries it out.
    pub runner: &'static str,
    /// `module:function`.
    pub entry: String,
    /// It says that it has no effects.
    pub pure: bool,
}

/// What kind of place a tool was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OriginSource {
    /// A pack that ships with the host.
    BuiltinPack,
    /// A pack that was installed and verified.
    InstalledPack,
    /// A pack that is part of the workspace.
    LocalPack,
    /// The workspace's own code, bound to a name.
    Binding,
}

impl OriginSource {
    /// The word in traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuiltinPack => "builtin_pack",
            Self::InstalledPack => "installed_pack",
            Self::LocalPack => "local_pack",
            Self::Binding => "binding",
        }
    }
}

/// The pack a tool is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackOrigin {
    /// `acme.greeter`.
    pub id: String,
    /// For people.
    pub name: String,
    /// Any text.
    pub version: String,
}
