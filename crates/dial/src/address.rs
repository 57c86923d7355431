//! Where a server is.

use std::fmt;

use hyper::http::uri::{Scheme, Uri};

/// An `http` or `https` address, taken apart once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    tls: bool,
    /// Without brackets.
    host: String,
    port: u16,
    authority: String,
    /// With the query.
    path: String,
}

impl Address {
    /// Reads an address. One with a user in it is refused: it would end up in messages.
    pub fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| format!("`{url}` is no address"))?;
        let tls = uri.scheme() == Some(&Scheme::HTTPS);
        let authority = uri.authority().filter(|at| !at.as_str().contains('@'));
        let (Some(authority), true) = (authority, tls || uri.scheme() == Some(&Scheme::HTTP))
        else {
            return Err(format!("`{url}` is no http or https address"));
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.to_string(),
            path: path.to_owned(),
        })
    }

    /// True if nobody on the way can read along or answer instead: TLS, or this machine.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.tls || ["localhost", "127.0.0.1", "::1"].contains(&self.host.as_str())
    }

    /// True for `https`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// A name or a number.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// 443 or 80 if not said.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As the `Host` header has it.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// With the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Another path at the same server; `path` gets the present one without a last slash.
    #[must_use]
    pub fn with_path(&self, path: impl FnOnce(&str) -> String) -> Self {
        let path = path(self.path.trim_end_matches('/'));
        Self {
            path,
            ..self.clone()
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (good, private) in [
            ("https://issuer.example", true),
            ("https://issuer.example:8443/realms/a", true),
            ("http://127.0.0.1:9/x?y", true),
            ("http://localhost/", true),
            ("http://[::1]:9/", true),
            ("http://issuer.example/", false),
            ("http://localhost.example/", false),
        ] {
            let address = Address::parse(good).unwrap();
            assert_eq!(address.is_private(), private, "{good}");
            assert!(address.to_string().starts_with(good), "{address}");
        }
        for bad in [
            "",
            "issuer.example",
            "ftp://issuer.example",
            "https://user@issuer.example",
            "file:///etc/passwd",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
        let realm = Address::parse("https://issuer.example/realms/a/").unwrap();
        let moved = realm.with_path(|path| format!("/.well-known/x{path}"));
        assert_eq!(moved.path(), "/.well-known/x/realms/a");
        assert_eq!(
            (moved.host(), moved.port(), moved.is_tls()),
            ("issuer.example", 443, true)
        );
    }
}
