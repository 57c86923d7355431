//! What a file is in, by its name.

use std::path::Path;

use crate::syntax::Grammar;

/// Name and grammar of the language of a file, where we know them.
#[must_use]
pub fn of(path: &str) -> (Option<&'static str>, Option<Grammar>) {
    let extension = Path::new(path).extension().and_then(|text| text.to_str());
    let (name, grammar) = match extension.unwrap_or_default() {
        "rs" => ("rust", Some(Grammar::Rust)),
        "py" | "pyi" => ("python", Some(Grammar::Python)),
        "ts" | "mts" | "cts" => ("typescript", Some(Grammar::TypeScript)),
        "tsx" => ("tsx", Some(Grammar::Tsx)),
        "js" | "mjs" | "cjs" | "jsx" => ("javascript", Some(Grammar::Tsx)),
        "go" => ("go", Some(Grammar::Go)),
        "c" | "h" => ("c", None),
        "cc" | "cpp" | "hpp" | "cxx" => ("cpp", None),
        "java" => ("java", None),
        "kt" => ("kotlin", None),
        "cs" => ("csharp", None),
        "swift" => ("swift", None),
        "md" => ("markdown", None),
        "rst" => ("rst", None),
        "toml" => ("toml", None),
        "yaml" | "yml" => ("yaml", None),
        "json" => ("json", None),
        "sh" | "bash" => ("shell", None),
        "sql" => ("sql", None),
        "html" => ("html", None),
        "css" => ("css", None),
        _ => return (None, None),
    };
    (Some(name), grammar)
}

/// Marks that a file's place gives its pieces: the language, `test`, `doc`.
#[must_use]
pub fn tags(path: &str) -> Vec<String> {
    let (name, _) = of(path);
    let mut tags: Vec<String> = name.map(str::to_owned).into_iter().collect();
    if name == Some("tsx") {
        tags.push("typescript".to_owned());
    }
    let mut parts = path.split('/').rev();
    let file = parts.next().unwrap_or_default();
    let stem = file.split('.').next().unwrap_or_default();
    let of_tests = stem.starts_with("test_")
        || stem.ends_with("_test")
        || file.contains(".test.")
        || file.contains(".spec.")
        || matches!(stem, "test" | "tests" | "conftest");
    if of_tests || parts.any(|part| matches!(part, "test" | "tests" | "__tests__")) {
        tags.push("test".to_owned());
    }
    if matches!(name, Some("markdown" | "rst")) || path.ends_with(".txt") {
        tags.push("doc".to_owned());
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tags() {
        assert_eq!(of("src/a.rs").0, Some("rust"));
        assert_eq!(of("Makefile"), (None, None));
        assert_eq!(tags("a/tests/b.rs"), ["rust", "test"]);
        assert_eq!(tags("pkg/test_x.py"), ["python", "test"]);
        assert_eq!(tags("web/x.spec.ts"), ["typescript", "test"]);
        assert_eq!(tags("web/x.tsx"), ["tsx", "typescript"]);
        assert_eq!(tags("docs/search.md"), ["markdown", "doc"]);
        assert_eq!(tags("latest.go"), ["go"]);
    }
}
