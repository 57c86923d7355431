//! The words of a command line: which name scripts, modules and files, and whether the program
//! loads code from the folder that it is started in. Knows the usual interpreters; of any other
//! program words with the ending of a script are scripts.

use std::path::Path;

/// Endings of files that are scripts wherever they stand on a command line.
const ENDINGS: [&str; 20] = [
    "bash", "cjs", "jar", "jl", "js", "lua", "mjs", "mts", "php", "pl", "pm", "ps1", "py", "pyz",
    "r", "rb", "sh", "tcl", "ts", "zsh",
];

/// Programs that run what the folder they start in describes, and what that is.
const FOLDER_PROGRAMS: [(&str, &str); 24] = [
    ("make", "\"Makefile\""),
    ("gmake", "\"Makefile\""),
    ("just", "\"justfile\""),
    ("rake", "\"Rakefile\""),
    ("ninja", "\"build.ninja\""),
    ("npm", "\"package.json\""),
    ("npx", "\"package.json\""),
    ("pnpm", "\"package.json\""),
    ("yarn", "\"package.json\""),
    ("cargo", "\"Cargo.toml\", \"src/**\""),
    ("go", "\"go.mod\", \"main.go\""),
    ("ant", "\"build.xml\""),
    ("mvn", "\"pom.xml\", \"src/**\""),
    ("gradle", "\"build.gradle\", \"src/**\""),
    ("pytest", "\"tests/**\""),
    ("tox", "\"tox.ini\""),
    ("nox", "\"noxfile.py\""),
    ("uv", "\"pyproject.toml\""),
    ("poetry", "\"pyproject.toml\""),
    ("bazel", "\"BUILD\""),
    ("R", "\".Rprofile\""),
    ("Rscript", "\".Rprofile\""),
    ("luajit", "\"lib/**\""),
    ("php", "\"lib/**\""),
];

const PACKAGE_MANAGERS: [&str; 4] = ["npm", "npx", "pnpm", "yarn"];
const NODES: [&str; 6] = ["node", "nodejs", "bun", "deno", "tsx", "ts-node"];
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "busybox"];

/// Further programs whose first word is a script.
const INTERPRETERS: [&str; 9] = [
    "perl", "ruby", "php", "lua", "luajit", "Rscript", "tclsh", "java", "julia",
];

/// The letters of Python's options that take no value.
const PYTHON_FLAGS: &str = "bBdEiIOPqRsSuvx";

/// A word that names code.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    /// A script, or a folder that is run.
    Script(String),
    /// A Python module.
    Module(String),
    /// A file that may be anything.
    File(String),
}

/// What a command line says of code.
#[derive(Debug, Default)]
pub struct Words {
    pub list: Vec<Word>,
    pub is_python: bool,
    pub is_node: bool,
    pub is_package_manager: bool,
    /// The program loads code from the folder it is started in.
    pub loads_from_folder: Option<String>,
    /// What it usually loads, as entries of `code`.
    pub usual_code: &'static str,
}

/// The name of a program without its folder and its version: `python` for `python3.11`.
fn plain_name(program: &str) -> &str {
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        plain @ ("python" | "pypy" | "lua" | "ruby" | "perl" | "php" | "node") => plain,
        _ => name,
    }
}

/// Reads the words after a program.
pub fn words_of(program: &str, words: &[String]) -> Words {
    let name = plain_name(program);
    if name == "env" {
        // `env [-S] [NAME=value…] program word…`
        let is_own = |word: &String| word.starts_with('-') || word.contains('=');
        let rest = words.iter().skip_while(|word| is_own(word));
        let rest: Vec<String> = rest.cloned().collect();
        return match rest.split_first() {
            Some((program, words)) => {
                let mut found = words_of(program, words);
                found.list.push(Word::Script(program.clone()));
                found
            }
            None => Words::default(),
        };
    }
    let usual = FOLDER_PROGRAMS.iter().find(|(known, _)| *known == name);
    let mut found = Words {
        is_python: matches!(name, "python" | "pypy"),
        is_node: NODES.contains(&name),
        is_package_manager: PACKAGE_MANAGERS.contains(&name),
        loads_from_folder: usual.map(|_| format!("`{name}`")),
        usual_code: usual.map_or("\"lib/**\"", |(_, code)| code),
        ..Words::default()
    };
    let is_shell = SHELLS.contains(&name);
    let takes_script = is_shell || found.is_python || found.is_node || INTERPRETERS.contains(&name);
    let mut has_script = false;
    let mut is_safe = false;
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let is_option = word.starts_with('-') && word.len() > 1;
        if found.is_python && !has_script && is_option {
            let letters = word[1..].trim_end_matches(['c', 'm']);
            let are_flags = letters.chars().all(|letter| PYTHON_FLAGS.contains(letter));
            is_safe |= are_flags && letters.contains(['I', 'P']);
            if matches!(word.as_str(), "-X" | "-W") {
                rest.next();
            }
            let ends = |letter: char| are_flags && word.ends_with(letter);
            if ends('m') || ends('c') {
                has_script = true;
                let Some(next) = rest.next() else { break };
                if ends('m') {
                    found.list.push(Word::Module(next.clone()));
                }
                if !is_safe {
                    let option = if ends('m') { "-m" } else { "-c" };
                    found.loads_from_folder = Some(format!("`{name} {option}`"));
                }
            }
            continue;
        }
        if is_shell && !has_script && is_option && !word.starts_with("--") && word.ends_with('c') {
            has_script = true;
            if let Some(text) = rest.next() {
                found.list.extend(scripts_in(text));
            }
            continue;
        }
        if is_option {
            // `--require=./hook.js`
            if let Some((_, value)) = word.split_once('=') {
                found.list.push(file_or_script(value));
            }
            continue;
        }
        let script = takes_script && !has_script && !(found.is_python && word == "-");
        found.list.push(match script {
            true => Word::Script(word.clone()),
            false => file_or_script(word),
        });
        // The value of an option may stand before the script.
        has_script |= found.is_python && word != "-" || is_shell || has_ending(word);
    }
    if found.is_python && !has_script && !is_safe {
        found.loads_from_folder = Some(format!("`{name}` without a script"));
    }
    found
}

fn has_ending(word: &str) -> bool {
    let end = Path::new(word).extension().and_then(|end| end.to_str());
    end.is_some_and(|end| ENDINGS.contains(&end.to_ascii_lowercase().as_str()))
}

fn file_or_script(word: &str) -> Word {
    match has_ending(word) {
        true => Word::Script(word.to_owned()),
        false => Word::File(word.to_owned()),
    }
}

/// What look like paths of scripts in the text of a shell's `-c`.
fn scripts_in(text: &str) -> Vec<Word> {
    let ends = |c: char| c.is_whitespace() || "\"'`;|&()<>$={}".contains(c);
    let words = text.split(ends).filter(|word| !word.is_empty());
    words
        .filter(|word| has_ending(word) || word.starts_with("./"))
        .map(|word| Word::Script(word.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Words {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        words_of(&words[0], &words[1..])
    }

    #[test]
    fn scripts_modules_and_files() {
        let script = |word: &str| Word::Script(word.to_owned());
        let file = |word: &str| Word::File(word.to_owned());
        let module = |word: &str| Word::Module(word.to_owned());
        for (line, wanted) in [
            ("/bin/sh tool.sh", vec![script("tool.sh")]),
            (
                "python3.11 -u a/x.py d.json",
                vec![script("a/x.py"), file("d.json")],
            ),
            (
                "python3 -m pkg.x y.py",
                vec![module("pkg.x"), script("y.py")],
            ),
            (
                "/usr/bin/env -S python3 x.py",
                vec![script("x.py"), script("python3")],
            ),
            (
                "node --require=./h.js a.js",
                vec![script("./h.js"), script("a.js")],
            ),
            (
                "node --import h.mjs a.js",
                vec![script("h.mjs"), script("a.js")],
            ),
            (
                "sh -c ._./lib.sh;_a/x.py_>out.txt",
                vec![script("./lib.sh"), script("a/x.py")],
            ),
            ("jq -f f.jq", vec![file("f.jq")]),
            ("sh -e tool data", vec![script("tool"), file("data")]),
            (
                "python3 -W ignore::ImportWarning x.py",
                vec![script("x.py")],
            ),
        ] {
            assert_eq!(read(line).list, wanted, "{line}");
        }
    }

    #[test]
    fn programs_that_load_from_their_folder() {
        for (line, does) in [
            ("make x", true),
            ("/usr/bin/npm run x", true),
            ("python3 -m a", true),
            ("python3 -c print(1)", true),
            ("python3", true),
            ("python3 -I -c print(1)", false),
            ("python3 -Im a", false),
            ("python3 -WImport -m a", true),
            ("python3 - x", true),
            ("python3 a/x.py", false),
            ("/bin/sh x.sh", false),
            ("/bin/echo make", false),
        ] {
            assert_eq!(read(line).loads_from_folder.is_some(), does, "{line}");
        }
    }
}
