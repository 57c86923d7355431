//! The command of a server, as people write it: a program, a package, or a launcher of packages.

use callgate_installer::{
    Launcher, LauncherError, PackageProgram, PackageRequest, PackageSpec, SpecError, parse_launcher,
};
use callgate_registry::servers::edit::NewServer;

/// Why a command is not taken behind the gate.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A package that cannot be named.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A launcher whose meaning would not be kept.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// A command for a shell.
    #[error("no shell is run: write the command as words of its own, not as `{0}`")]
    ShellLine(String),
    /// A container.
    #[error("containers are not taken behind the gate yet")]
    Container,
}

/// What a command line of a server means: its table, and the package that is to be installed.
pub fn read_command(
    name: &str,
    command: &[String],
) -> Result<(NewServer, Option<PackageRequest>), CommandError> {
    let mut server = NewServer {
        name: name.to_owned(),
        ..NewServer::default()
    };
    let first = command.first().map(String::as_str).unwrap_or_default();
    if first.starts_with("npm:") || first.starts_with("pypi:") {
        let request = PackageRequest::new(PackageSpec::parse(first)?);
        server.args = command[1..].to_vec();
        return Ok((server, Some(request)));
    }
    let request = match parse_launcher(command)? {
        Launcher::Npm(launch) => {
            server.args.clone_from(&launch.args);
            PackageRequest::from(&launch)
        }
        Launcher::Pypi(launch) if launch.program != PackageProgram::Interpreter => {
            server.args.clone_from(&launch.args);
            PackageRequest::from(&launch)
        }
        Launcher::Shell(line) => {
            return match line.words {
                Some(words) => read_command(name, &words),
                None => Err(CommandError::ShellLine(line.line)),
            };
        }
        Launcher::Docker(_) => return Err(CommandError::Container),
        Launcher::Pypi(_) | Launcher::Plain => {
            server.command = command.to_vec();
            return Ok((server, None));
        }
    };
    server.with = request.with.iter().map(PackageSpec::requirement).collect();
    server.python.clone_from(&request.python);
    server.program = match &request.program {
        PackageProgram::Default | PackageProgram::Interpreter => None,
        PackageProgram::Script(script) => Some(script.clone()),
        PackageProgram::Module(module) => Some(format!("-m {module}")),
    };
    Ok((server, Some(request)))
}
