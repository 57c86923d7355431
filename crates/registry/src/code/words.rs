//! The words of a command line: which name scripts, modules and files, and whether a program in it
//! loads code from the folder that it is started in. Knows the usual interpreters, wherever they
//! stand in the command or in a text of it; of any other program words with the ending of a script
//! are scripts. Every further part of a word is a guess (`guesses.rs`).

use std::path::Path;

use super::guesses::{Guess, guesses_in, tokens_of};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// A script, or a folder that is run.
    Script(String),
    /// A Python module.
    Module(String),
    /// A file that may be anything.
    File(String),
    /// A folder that modules are searched in.
    SearchPath(String),
    /// Part of a word: code if the workspace has something of that name.
    Guess(Guess),
    /// A variable that is set for a program: its name and its value.
    Variable(String, String),
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

/// Reads a command: its program, the programs that it may start, and all names in it.
pub fn words_of(program: &str, words: &[String]) -> Words {
    let mut found = command_of(program, words);
    found.add_programs(words, words.len());
    let mut option = "";
    for (at, word) in words.iter().enumerate() {
        let attached = attached_text(word);
        let text = attached.unwrap_or(word);
        let tokens = tokens_of(text);
        let is_command = attached.is_some() || takes_text(option);
        let is_text = word.contains(char::is_whitespace);
        if is_command || is_text && tokens.first().is_some_and(|first| is_known(first)) {
            let count = tokens.len();
            // The words after the text of `env -S` belong to its command.
            let is_split = option.contains('S') || attached.is_some();
            let rest = words[at + 1..].iter().filter(|_| is_split);
            let line: Vec<String> = tokens.into_iter().chain(rest.cloned()).collect();
            found.add_programs(&line, count);
        }
        let before = std::mem::replace(&mut option, word);
        found.add_variable(word);
        let searched = match before {
            "-I" => Some(word.as_str()),
            _ => word.strip_prefix("-I").filter(|folder| !folder.is_empty()),
        };
        let searched = searched.map(|folder| Word::SearchPath(folder.to_owned()));
        found.list.extend(searched);
        found
            .list
            .extend(guesses_in(word).into_iter().map(Word::Guess));
    }
    let mut seen = Vec::new();
    found.list.retain(|word| {
        let is_new = !seen.contains(word);
        if is_new {
            seen.push(word.clone());
        }
        is_new
    });
    found
}

impl Words {
    /// Adds what each known program among the first `count` words loads, whoever starts it there.
    fn add_programs(&mut self, words: &[String], count: usize) {
        for (at, word) in words.iter().enumerate().take(count) {
            self.add_variable(word);
            if is_known(word) {
                self.merge(command_of(word, &words[at + 1..]));
            }
        }
    }

    /// Adds the variable that a word sets, as in `env PYTHONPATH=lib python3 x.py`.
    fn add_variable(&mut self, word: &str) {
        if let Some((name, value)) = word.split_once('=')
            && !value.is_empty()
        {
            let variable = Word::Variable(name.to_owned(), value.to_owned());
            self.list.push(variable);
        }
    }

    fn merge(&mut self, other: Self) {
        self.list.extend(other.list);
        self.is_python |= other.is_python;
        self.is_node |= other.is_node;
        self.is_package_manager |= other.is_package_manager;
        if self.loads_from_folder.is_none() && other.loads_from_folder.is_some() {
            self.loads_from_folder = other.loads_from_folder;
            self.usual_code = other.usual_code;
        }
    }
}

/// Returns whether a word is the name of a program whose words are known.
fn is_known(word: &str) -> bool {
    let name = plain_name(word);
    matches!(name, "env" | "python" | "pypy")
        || [&SHELLS[..], &NODES, &INTERPRETERS]
            .iter()
            .any(|names| names.contains(&name))
        || FOLDER_PROGRAMS.iter().any(|(known, _)| *known == name)
}

/// Returns whether the word after an option is a command line, as after `sh -ce` and `env -S`.
fn takes_text(word: &str) -> bool {
    let is_short = word.starts_with('-') && !word.starts_with("--") && word.contains(['c', 'S']);
    is_short || matches!(word, "--command" | "--split-string")
}

/// The command line in the same word as its option.
fn attached_text(word: &str) -> Option<&str> {
    let long = ["--command=", "--split-string="];
    let long = long.iter().find_map(|option| word.strip_prefix(option));
    let is_short = |word: &&str| word.starts_with('-') && !word.starts_with("--");
    // `-S` may follow other letters.
    long.or_else(|| {
        let word = Some(word).filter(is_short)?;
        let at = word.find(['c', 'S'])?;
        Some(&word[at + 1..]).filter(|text| !text.is_empty())
    })
}

/// Reads the words after one program.
fn command_of(program: &str, words: &[String]) -> Words {
    let name = plain_name(program);
    if name == "env" {
        // `env [-S] [NAME=value…] program word…`
        let is_own = |word: &String| word.starts_with('-') || word.contains('=');
        let rest = words.iter().skip_while(|word| is_own(word));
        let rest: Vec<String> = rest.cloned().collect();
        return match rest.split_first() {
            Some((program, words)) => {
                let mut found = command_of(program, words);
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
            // `-mpkg`, `-c'import x'`
            let attached = word.find(['m', 'c']).filter(|at| {
                let mut before = word[1..*at].chars();
                before.all(|letter| PYTHON_FLAGS.contains(letter)) && at + 1 < word.len()
            });
            if let Some(at) = attached.filter(|_| !are_flags) {
                let (before, rest) = word.split_at(at);
                has_script = true;
                is_safe |= before.contains(['I', 'P']);
                if let Some(module) = rest.strip_prefix('m') {
                    found.list.push(Word::Module(module.to_owned()));
                }
                if !is_safe {
                    found.loads_from_folder = Some(format!("`{name} {word}`"));
                }
                continue;
            }
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
        if is_shell && !has_script && is_option && !word.starts_with("--") && word.contains('c') {
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
        if found.is_python && !has_script && word == "-" {
            // The program is the input; the words after it are its own.
            has_script = true;
            if !is_safe {
                found.loads_from_folder = Some(format!("`{name} -`"));
            }
            continue;
        }
        let script = takes_script && !has_script;
        found.list.push(match script {
            true => Word::Script(word.clone()),
            false => file_or_script(word),
        });
        // The value of an option may stand before the script.
        has_script |= found.is_python || is_shell || has_ending(word);
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
    let mut before = "";
    let mut scripts = Vec::new();
    for word in words {
        let is_sourced = matches!(before, "." | "source") && word.contains('/');
        if has_ending(word) || word.starts_with("./") || is_sourced {
            scripts.push(Word::Script(word.to_owned()));
        }
        before = word;
    }
    scripts
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
            let is_sure =
                |word: &Word| matches!(word, Word::Script(_) | Word::Module(_) | Word::File(_));
            let list = read(line).list.into_iter().filter(is_sure);
            assert_eq!(list.collect::<Vec<_>>(), wanted, "{line}");
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
            ("python3 -ma x", true),
            ("python3 -Ima x", false),
            ("sh -ce x;_make", true),
            ("python3 a/x.py", false),
            ("/bin/sh x.sh", false),
            ("timeout 9 make x", true),
            ("timeout 9 python3 -m a", true),
            ("env -u X python3 -m a", true),
            ("env -S python3_-m_a", true),
            ("env -iSmake", true),
            ("env -S python3 a/x.py", false),
            ("env -S python3_-u a/x.py", false),
            ("env --split-string=make_x", true),
            ("sh -c cd_x_&&_make_-s", true),
            ("sh -c (make)", true),
            ("watch make_-s", true),
            ("xargs sh -ec make", true),
            ("mail -s to_make_or_not", false),
            ("/bin/echo made", false),
        ] {
            assert_eq!(read(line).loads_from_folder.is_some(), does, "{line}");
        }
    }
}
