//! Secrets out of output, and patterns of names. R-15.

use callgate_call::{Redactor, Secrets, fits};

use crate::cuts::cut;

/// Secrets that contain, overlap and repeat each other.
const SECRETS: [&str; 5] = ["hunter2", "hunter22", "aaaa", "aaaab", "2hun"];

/// Whatever a stream is cut into, no secret is in what comes out, nothing else is changed, and the
/// cuts do not show.
pub fn redaction(input: &[u8]) {
    let Some((whole, parts)) = cut::<3>(input) else {
        return;
    };
    let secrets = Secrets::new(SECRETS.map(str::to_owned).to_vec());
    for make in [Redactor::new, Redactor::in_place] {
        let at_once = redacted(make(&secrets), &[whole]);
        assert_eq!(redacted(make(&secrets), &parts), at_once);
        let single: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(redacted(make(&secrets), &single), at_once);
        if !SECRETS.iter().any(|secret| contains(whole, secret)) {
            assert_eq!(at_once, whole, "nothing to hide");
        }
    }
    let in_place = redacted(Redactor::in_place(&secrets), &parts);
    assert_eq!(in_place.len(), whole.len());
    for secret in SECRETS {
        assert!(!contains(&in_place, secret), "{secret} leaks");
    }
    if let Ok(text) = std::str::from_utf8(whole) {
        let cleaned = secrets.clean(text);
        let redacted = redacted(Redactor::new(&secrets), &parts);
        for secret in SECRETS {
            assert!(!cleaned.contains(secret), "{secret} leaks from a text");
            assert!(!contains(&redacted, secret), "{secret} leaks from a stream");
        }
    }
}

fn redacted(mut redactor: Redactor, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend(redactor.feed(part));
    }
    out.extend(redactor.finish());
    out
}

fn contains(bytes: &[u8], secret: &str) -> bool {
    bytes
        .windows(secret.len())
        .any(|window| window == secret.as_bytes())
}

/// A pattern fits the names that its definition says. An input is a pattern, a line feed and
/// a name.
pub fn patterns(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Some((pattern, name)) = text.split_once('\n')
        && pattern.len() <= 32
        && name.len() <= 64
    {
        let wanted = by_definition(pattern.as_bytes(), name.as_bytes());
        assert_eq!(fits(pattern, name), wanted);
    }
}

/// `*` stands for any run of bytes: a table of which prefixes of both fit each other.
fn by_definition(pattern: &[u8], name: &[u8]) -> bool {
    let mut fitting = vec![false; name.len() + 1];
    fitting[0] = true;
    for &letter in pattern {
        let before = fitting.clone();
        for (at, fits) in fitting.iter_mut().enumerate() {
            *fits = match letter {
                b'*' => before[..=at].contains(&true),
                _ => at > 0 && before[at - 1] && name[at - 1] == letter,
            };
        }
    }
    fitting[name.len()]
}
