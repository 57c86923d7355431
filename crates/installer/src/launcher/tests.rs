//! Launcher commands and what they are read as.

use super::*;

/// The words of a line, cut at single spaces.
fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn parsed(line: &str) -> Result<Launcher, LauncherError> {
    parse_launcher(&words(line))
}

/// A launch in one line: package, further packages, program, arguments.
fn shown(line: &str) -> String {
    let list = |specs: &[PackageSpec]| {
        let texts: Vec<String> = specs.iter().map(ToString::to_string).collect();
        texts.join(" ")
    };
    match parsed(line).unwrap_or_else(|error| panic!("{line}: {error}")) {
        Launcher::Npm(npm) => format!(
            "{} [{}] {:?} {}",
            npm.spec,
            list(&npm.with),
            npm.bin.unwrap_or_default(),
            npm.args.join(" "),
        ),
        Launcher::Pypi(pypi) => format!(
            "{} [{}] {:?} {:?} {}",
            pypi.spec,
            list(&pypi.with),
            pypi.python.unwrap_or_default(),
            pypi.program,
            pypi.args.join(" "),
        ),
        Launcher::Docker(docker) => format!("{docker:?}"),
        Launcher::Shell(shell) => format!("shell {:?}", shell.words),
        Launcher::Plain => "plain".to_owned(),
    }
}

#[test]
fn npm_launchers_are_read() {
    for (line, wanted) in [
        (
            "npx -y @s/x@1.2.3 --flag /dir",
            "npm:@s/x@1.2.3 [] \"\" --flag /dir",
        ),
        ("npx x", "npm:x [] \"\" "),
        ("npx.cmd --yes x@latest", "npm:x [] \"\" "),
        ("/usr/local/bin/npx -y x -y", "npm:x [] \"\" -y"),
        ("npx -p p@1.0.0 -p q bin a", "npm:p@1.0.0 [npm:q] \"bin\" a"),
        ("npx --package=p -- bin -p", "npm:p [] \"bin\" -p"),
        ("npx -y --loglevel warn x", "npm:x [] \"\" "),
        ("npm exec -y -- x --flag", "npm:x [] \"\" --flag"),
        ("npm exec x a -- --flag", "npm:x [] \"\" a --flag"),
        ("npm x --package p bin", "npm:p [] \"bin\" "),
        ("pnpm dlx x@^1 --flag", "npm:x@^1 [] \"\" --flag"),
        ("pnpm --package=p dlx bin a", "npm:p [] \"bin\" a"),
        ("pnpx x", "npm:x [] \"\" "),
        ("bunx -y x --port 1", "npm:x [] \"\" --port 1"),
        ("bun x x@1.0.0", "npm:x@1.0.0 [] \"\" "),
        ("yarn dlx -q -p p bin", "npm:p [] \"bin\" "),
        ("npm run start", "plain"),
        ("pnpm run dlx", "plain"),
        ("yarn start", "plain"),
        ("bun run x.ts", "plain"),
        ("npm", "plain"),
    ] {
        assert_eq!(shown(line), wanted, "{line}");
    }
}

#[test]
fn python_launchers_are_read() {
    for (line, wanted) in [
        (
            "uvx mcp-server-time --local-timezone=UTC",
            "pypi:mcp-server-time [] \"\" Default --local-timezone=UTC",
        ),
        ("uvx x@1.2 --from y", "pypi:x==1.2 [] \"\" Default --from y"),
        (
            "uvx --from x[cli]==1 --with a,b>=1,<2 --python 3.12 bin a",
            "pypi:x[cli]==1 [pypi:a pypi:b>=1,<2] \"3.12\" Script(\"bin\") a",
        ),
        (
            "uvx --with a[b,c],d x",
            "pypi:x [pypi:a[b,c] pypi:d] \"\" Default ",
        ),
        ("uvx -q -p=3 x", "?"),
        (
            "uv tool run --from=x bin",
            "pypi:x [] \"\" Script(\"bin\") ",
        ),
        ("uv --quiet tool run x", "pypi:x [] \"\" Default "),
        (
            "uv run --with x bin -a",
            "pypi:x [] \"\" Script(\"bin\") -a",
        ),
        (
            "uv run --with x --with y python -m m a",
            "pypi:x [pypi:y] \"\" Module(\"m\") a",
        ),
        ("uv run --with x -m m a", "pypi:x [] \"\" Module(\"m\") a"),
        (
            "uv run --no-project --with x python3.12 s.py",
            "pypi:x [] \"\" Interpreter s.py",
        ),
        (
            "uv run --with x /d/s.py a",
            "pypi:x [] \"\" Interpreter /d/s.py a",
        ),
        (
            "uv run --with mcp[cli] mcp run s.py",
            "pypi:mcp[cli] [] \"\" Script(\"mcp\") run s.py",
        ),
        ("pipx run x==1.0 a", "pypi:x==1.0 [] \"\" Default a"),
        (
            "pipx run --spec x --python 3.11 bin",
            "pypi:x [] \"3.11\" Script(\"bin\") ",
        ),
        ("uv --directory /d run s.py", "plain"),
        ("uv run s.py", "plain"),
        ("uv run -- bin --with x", "plain"),
        ("uv sync", "plain"),
        ("uv", "plain"),
        ("pipx list", "plain"),
    ] {
        if wanted == "?" {
            assert!(parsed(line).is_err(), "{line}");
        } else {
            assert_eq!(shown(line), wanted, "{line}");
        }
    }
}

#[test]
fn flags_that_are_not_understood_are_named() {
    for (line, flag) in [
        ("npx --registry https://r.test x", "--registry"),
        ("npx --registry=https://r.test x", "--registry"),
        ("npx -c line", "-c"),
        ("npm exec x --flag", "--flag"),
        ("pnpm dlx --allow-build=x y", "--allow-build"),
        ("bunx --bun x", "--bun"),
        ("uvx --index-url https://r.test x", "--index-url"),
        ("uvx --with-editable . x", "--with-editable"),
        ("uvx --prerelease=allow x", "--prerelease"),
        ("uv run --with x --directory d bin", "--directory"),
        ("pipx run --pip-args=-x y", "--pip-args"),
        ("docker run -d image", "-d"),
        ("docker run --privileged image", "--privileged"),
        ("docker run -p 80:80 image", "-p"),
    ] {
        match parsed(line) {
            Err(LauncherError::Flag { flag: named, .. }) => assert_eq!(named, flag, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    for line in ["npx -p", "uvx --from", "docker run -e"] {
        assert!(
            matches!(parsed(line), Err(LauncherError::MissingValue { .. })),
            "{line}"
        );
    }
    for line in [
        "npx -y",
        "npx",
        "uvx",
        "npm exec --",
        "uv run --with x",
        "docker run -i",
    ] {
        assert!(
            matches!(parsed(line), Err(LauncherError::Nothing { .. })),
            "{line}"
        );
    }
    for line in [
        "npx github:u/r",
        "npx -y ./x",
        "uvx --from git+https://h/x bin",
        "uvx x.whl",
    ] {
        assert!(
            matches!(parsed(line), Err(LauncherError::Spec { .. })),
            "{line}"
        );
    }
    assert_eq!(parse_launcher(&[]), Err(LauncherError::Empty));
    assert_eq!(parse_launcher(&[" ".to_owned()]), Err(LauncherError::Empty));
}

#[test]
fn containers_are_read() {
    let line = "docker run -i --rm -e TOKEN -e A=b=c --env-file f -v /a:/b:ro \
        --mount type=bind,src=/c,dst=/d --network none --name n ghcr.io/o/i:1 stdio -e x";
    let wanted = DockerRun {
        client: "docker".to_owned(),
        image: "ghcr.io/o/i:1".to_owned(),
        env: vec![
            ("TOKEN".to_owned(), None),
            ("A".to_owned(), Some("b=c".to_owned())),
        ],
        env_files: vec!["f".to_owned()],
        volumes: vec!["/a:/b:ro".to_owned()],
        mounts: vec!["type=bind,src=/c,dst=/d".to_owned()],
        network: Some("none".to_owned()),
        args: words("stdio -e x"),
        ..DockerRun::default()
    };
    assert_eq!(parsed(line), Ok(Launcher::Docker(wanted)));
    for line in ["docker exec c sh", "docker mcp gateway run", "docker"] {
        assert_eq!(parsed(line), Ok(Launcher::Plain), "{line}");
    }
    assert!(matches!(
        parsed("podman container run -it i"),
        Ok(Launcher::Docker(_))
    ));
}

#[test]
fn shells_are_recognised() {
    let command = |words: &[&str]| -> Vec<String> { words.iter().map(|&w| w.to_owned()).collect() };
    let split = |words: &[&str]| match parse_launcher(&command(words)) {
        Ok(Launcher::Shell(shell)) => shell.words,
        other => panic!("{words:?}: {other:?}"),
    };
    let npx = Some(command(&["npx", "-y", "x"]));
    assert_eq!(split(&["npx -y x"]), npx);
    assert_eq!(split(&["sh", "-c", "npx -y 'x'"]), npx);
    assert_eq!(split(&["/bin/bash", "-lc", "npx \"-y\" x"]), npx);
    assert_eq!(split(&["cmd", "/c", "npx", "-y", "x"]), npx);
    assert_eq!(split(&["cmd.exe", "/C", "npx -y x"]), npx);
    for line in [
        "npx -y x && y",
        "npx $X",
        "A=b npx x",
        "cd d",
        "npx 'x",
        "npx \"$X\"",
        "npx x > f",
        "npx *",
        "npx `x`",
        "npx x\ny",
    ] {
        assert_eq!(split(&["sh", "-c", line]), None, "{line}");
    }
    for words in [
        &["node", "server.js"][..],
        &["/opt/a b/server"],
        &["python3", "-m", "x"],
        &["sh", "run.sh"],
        &["./x y"],
        &["C:\\a b\\x.exe"],
    ] {
        assert_eq!(
            parse_launcher(&command(words)),
            Ok(Launcher::Plain),
            "{words:?}"
        );
    }
}
