//! What the last words of a program say of an access that failed: the paths beside a refusal, and
//! the host that could not be found. Untrusted text; whoever uses a clue checks it.

/// What is looked at of the text: its end.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Lines that are looked at, from the last.
const LINES_MAX: usize = 200;

/// A refusal is often stated below the lines that name its path.
const LINES_BEFORE: usize = 4;

/// The longest path.
const PATH_BYTES_MAX: usize = 4096;

/// Words by which programs state EACCES, EPERM and EROFS, in lower case.
const REFUSALS: [&str; 10] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "eacces",
    "eperm",
    "erofs",
    "errno 13]",
    "errno 1]",
    "errno 30]",
    "not permitted",
];

/// Words by which programs state ENOENT, which is what a folder answers that the view leaves out.
const ABSENCES: [&str; 5] = [
    "no such file or directory",
    "enoent",
    "errno 2]",
    "os error 2)",
    ": not found",
];

/// Those of EROFS, which only a mount answers.
const READ_ONLY: [&str; 3] = ["read-only file system", "erofs", "errno 30]"];

/// Words of an attempt to change something.
const WRITES: [&str; 12] = [
    "write",
    "creat",
    "mkdir",
    "touch",
    "remov",
    "delet",
    "unlink",
    "rename",
    "save",
    "chmod",
    "cannot open for",
    "install",
];

/// Words by which programs state that they could not look up or reach a host.
const NETWORK: [&str; 9] = [
    "could not resolve",
    "couldn't resolve",
    "name resolution",
    "eai_again",
    "enotfound",
    "getaddrinfo",
    "failed to lookup address",
    "network is unreachable",
    "dial tcp",
];

/// The end of what a program printed.
pub(super) struct Clues<'a> {
    lines: Vec<&'a str>,
}

/// A line that states a refusal, with those before it.
pub(super) struct Line<'a> {
    /// Nearest first.
    around: Vec<&'a str>,
    lower: String,
    is_absence: bool,
}

impl<'a> Clues<'a> {
    pub fn read(text: &'a str) -> Self {
        let mut start = text.len().saturating_sub(TEXT_BYTES_MAX);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        let lines = text[start..].lines().rev().take(LINES_MAX).collect();
        Self { lines }
    }

    /// Lines that state a refused access to a file, or that it is not there, the last one first.
    pub fn refused(&self) -> impl Iterator<Item = Line<'a>> + '_ {
        let numbered = self.lines.iter().enumerate();
        numbered.filter_map(|(at, line)| {
            let lower = line.to_ascii_lowercase();
            let states = |list: &[&str]| list.iter().any(|words| lower.contains(words));
            let (is_refusal, is_absence) = (states(&REFUSALS), states(&ABSENCES));
            (is_refusal || is_absence).then(|| Line {
                is_absence: !is_refusal,
                around: self.lines[at..]
                    .iter()
                    .take(LINES_BEFORE)
                    .copied()
                    .collect(),
                lower,
            })
        })
    }

    /// Nothing if no line says that a host could not be reached; else the host, where one is named.
    pub fn network(&self) -> Option<Option<String>> {
        let mut lines = self.lines.iter();
        let line = lines.find(|line| {
            let lower = line.to_ascii_lowercase();
            NETWORK.iter().any(|words| lower.contains(words))
        })?;
        Some(host_in(line))
    }
}

impl<'a> Line<'a> {
    /// It only says that something is not there.
    pub fn is_absence(&self) -> bool {
        self.is_absence
    }

    /// Only a mount answers so.
    pub fn is_read_only(&self) -> bool {
        READ_ONLY.iter().any(|words| self.lower.contains(words))
    }

    /// The words are those of a change.
    pub fn is_write(&self) -> bool {
        self.is_read_only() || WRITES.iter().any(|words| self.lower.contains(words))
    }

    /// What may be the name of a file, likely ones first, each once.
    pub fn names(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for line in &self.around {
            quoted(line, &mut names);
            // `cat: a name with blanks: Permission denied`
            names.extend(line.split(": ").map(str::trim));
            names.extend(line.split_whitespace().map(bare));
        }
        let mut seen = Vec::new();
        for name in names {
            let is_name = !name.is_empty()
                && name.len() <= PATH_BYTES_MAX
                && !name.contains(|c: char| c.is_control())
                && (name.contains('/') || is_plain(name));
            if is_name && !seen.contains(&name) {
                seen.push(name);
            }
        }
        // Those with a slash are seldom anything else.
        seen.sort_by_key(|name| !name.contains('/'));
        seen
    }
}

/// A word that may be a file's name beside us.
fn is_plain(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "._-+@".contains(c);
    name.chars().all(is_part) && name != "." && name != ".."
}

/// What stands between quotes.
fn quoted<'a>(line: &'a str, names: &mut Vec<&'a str>) {
    for (open, close) in [
        ('\'', '\''),
        ('"', '"'),
        ('`', '`'),
        ('`', '\''),
        ('‘', '’'),
    ] {
        let mut rest = line;
        while let Some(start) = rest.find(open) {
            let inner = &rest[start + open.len_utf8()..];
            let Some(end) = inner.find(close) else { break };
            names.push(&inner[..end]);
            rest = &inner[end + close.len_utf8()..];
        }
    }
}

/// A word without what surrounds it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| "\"'`‘’()[]<>{},;:".contains(c))
        .trim_end_matches('.')
}

/// The host that a line names, as `host:port`.
fn host_in(line: &str) -> Option<String> {
    if let Some(at) = line.find("://") {
        let scheme = &line[..at];
        let place = line[at + 3..]
            .split(|c: char| c == '/' || c.is_whitespace() || "\"'`)>".contains(c))
            .next()?;
        let place = place.rsplit('@').next()?;
        let port = if scheme.ends_with("http") { 80 } else { 443 };
        return host(place, port);
    }
    const BEFORE: [&str; 7] = [
        "host: ",
        "hostname: ",
        "lookup ",
        "eai_again ",
        "enotfound ",
        "host='",
        "resolve ",
    ];
    // ASCII letters change their case and nothing else, so that places are the same.
    let lower = line.to_ascii_lowercase();
    BEFORE.iter().find_map(|words| {
        let at = lower.find(words)? + words.len();
        let word = line[at..].split(|c: char| c.is_whitespace() || "'\"`,;()".contains(c));
        host(word.into_iter().next()?.trim_end_matches([':', '.']), 443)
    })
}

/// A name or an address with its port, if it can be one.
fn host(text: &str, port: u16) -> Option<String> {
    const HOST_BYTES_MAX: usize = 253;
    let (name, port) = match text.rsplit_once(':') {
        Some((name, number)) => (name, number.parse().ok()?),
        None => (text, port),
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let fits = name.len() <= HOST_BYTES_MAX
        && name.contains('.')
        && name.bytes().all(is_part)
        && !name.starts_with(['.', '-'])
        && !name.ends_with(['.', '-']);
    fits.then(|| format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let clues = Clues::read(text);
        let mut lines = clues.refused();
        let line = lines.next().expect("a refusal");
        line.names().into_iter().map(str::to_owned).collect()
    }

    /// The words of the programs of the recipe table.
    #[test]
    fn paths_beside_refusals() {
        for (text, path) in [
            (
                "warning: unable to access '/home/ada/.gitconfig': Permission denied",
                "/home/ada/.gitconfig",
            ),
            (
                "error: failed to open `/home/ada/.cargo/.package-cache`\n\nCaused by:\n  Permission denied (os error 13)",
                "/home/ada/.cargo/.package-cache",
            ),
            (
                "Error: EACCES: permission denied, open '/home/ada/.npm/_cacache/x'",
                "/home/ada/.npm/_cacache/x",
            ),
            (
                "PermissionError: [Errno 13] Permission denied: '/srv/my data/x'",
                "/srv/my data/x",
            ),
            ("cat: /srv/my data/x: Permission denied", "/srv/my data/x"),
            ("sh: 1: .venv/bin/pip: Permission denied", ".venv/bin/pip"),
            (
                "bash: /w/.venv/bin/pip: /w/.venv/bin/python3: bad interpreter: Permission denied",
                "/w/.venv/bin/python3",
            ),
            (
                "touch: cannot touch 'x.txt': Read-only file system",
                "x.txt",
            ),
            ("sh: 1: cargo: Permission denied", "cargo"),
        ] {
            let found = names(text);
            assert!(found.contains(&path.to_owned()), "{text}: {found:?}");
        }
        assert!(
            Clues::read("all is well\n/etc/passwd")
                .refused()
                .next()
                .is_none()
        );
    }

    #[test]
    fn hosts_that_were_not_found() {
        let host = |text| Clues::read(text).network();
        let named = |host: &str| Some(Some(host.to_owned()));
        for (text, wanted) in [
            ("all is well", None),
            (
                "curl: (6) Could not resolve host: example.com",
                named("example.com:443"),
            ),
            (
                "fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com",
                named("github.com:443"),
            ),
            (
                "npm error network request to http://registry.npmjs.org/x failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org",
                named("registry.npmjs.org:80"),
            ),
            (
                "dial tcp: lookup proxy.golang.org: no such host",
                named("proxy.golang.org:443"),
            ),
            (
                "<urlopen error [Errno -3] Temporary failure in name resolution>",
                Some(None),
            ),
            ("Could not resolve host: a\u{1b}[31m.com", Some(None)),
        ] {
            assert_eq!(host(text), wanted, "{text}");
        }
    }

    /// Whatever is printed, there is an end to it.
    #[test]
    fn hostile_text() {
        let long = "permission denied ".repeat(100_000);
        let quotes = "'`\"".repeat(50_000) + "permission denied";
        let wide = "é".repeat(20_000) + ": Permission denied";
        for text in [long, quotes, wide, "://".repeat(10_000)] {
            let clues = Clues::read(&text);
            for line in clues.refused() {
                assert!(line.names().iter().all(|name| name.len() <= PATH_BYTES_MAX));
            }
            let _ = clues.network();
        }
    }
}
