//! `server.json`, the description of a server in the registry of MCP: packages and addresses, with
//! the values that somebody has to give.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{AddError, AddedInput, AddedServer, AddedStart, InputKind, placeholder};
use crate::launcher::PackageProgram;
use crate::request::PackageRequest;
use crate::spec::PackageSpec;

/// Bytes of a description.
const BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Description {
    name: String,
    description: Option<String>,
    version: Option<String>,
    #[serde(default)]
    packages: Vec<Package>,
    #[serde(default)]
    remotes: Vec<Transport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    registry_type: String,
    identifier: String,
    version: Option<String>,
    file_sha256: Option<String>,
    #[serde(default)]
    runtime_arguments: Vec<Argument>,
    #[serde(default)]
    package_arguments: Vec<Argument>,
    #[serde(default)]
    environment_variables: Vec<Variable>,
    transport: Option<Transport>,
}

#[derive(Deserialize)]
struct Transport {
    #[serde(rename = "type")]
    kind: String,
    url: Option<String>,
    #[serde(default)]
    headers: Vec<Variable>,
    #[serde(default)]
    variables: BTreeMap<String, Input>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    value_hint: Option<String>,
    #[serde(flatten)]
    input: Input,
    #[serde(default)]
    variables: BTreeMap<String, Input>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    #[serde(flatten)]
    input: Input,
    #[serde(default)]
    variables: BTreeMap<String, Input>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Input {
    description: Option<String>,
    value: Option<String>,
    default: Option<String>,
    format: Option<String>,
    choices: Option<Vec<String>>,
    is_required: bool,
    is_secret: bool,
    is_repeated: bool,
}

/// Reads a `server.json`: one description for each package and each address in it.
///
/// # Errors
///
/// `AddError` if the text has another form, or names no package and no address that is known.
pub fn read_server_json(text: &str) -> Result<Vec<AddedServer>, AddError> {
    if text.len() > BYTES_MAX {
        return Err(AddError::unsupported(format!(
            "more than {BYTES_MAX} bytes"
        )));
    }
    let description: Description = serde_json::from_str(text)?;
    let mut all = Vec::new();
    for package in &description.packages {
        all.push(description.package(package)?);
    }
    for remote in &description.remotes {
        all.push(description.remote(remote)?);
    }
    match all.is_empty() {
        true => Err(AddError::unsupported("no package and no address")),
        false => Ok(all),
    }
}

impl Description {
    fn server(&self, start: AddedStart, templates: Templates) -> AddedServer {
        AddedServer {
            name: self.name.clone(),
            version: self.version.clone(),
            description: self.description.clone(),
            start,
            env: templates.env,
            inputs: templates.inputs,
        }
    }

    fn package(&self, package: &Package) -> Result<AddedServer, AddError> {
        if let Some(transport) = &package.transport
            && transport.kind != "stdio"
        {
            let kind = &transport.kind;
            return Err(AddError::unsupported(format!(
                "a package with the transport `{kind}`"
            )));
        }
        let mut templates = Templates::default();
        let args = templates.arguments(&package.package_arguments)?;
        let run_args = templates.arguments(&package.runtime_arguments)?;
        for variable in &package.environment_variables {
            let value = templates.value(&variable.name, &variable.input, &variable.variables);
            templates.env.insert(variable.name.clone(), value);
        }
        let identifier = &package.identifier;
        let start = match package.registry_type.as_str() {
            "npm" => templates.of_package(PackageSpec::parse_npm(identifier)?, package, args)?,
            "pypi" => templates.of_package(PackageSpec::parse_pypi(identifier)?, package, args)?,
            "oci" => AddedStart::Container {
                image: match &package.version {
                    Some(version) if !identifier.contains(['@', ':']) => {
                        format!("{identifier}:{version}")
                    }
                    _ => identifier.clone(),
                },
                run_args,
                args,
            },
            "mcpb" => AddedStart::BundleUrl {
                url: identifier.clone(),
                sha256: package.file_sha256.clone(),
            },
            other => {
                return Err(AddError::unsupported(format!(
                    "a package of the registry `{other}`"
                )));
            }
        };
        Ok(self.server(start, templates))
    }

    fn remote(&self, remote: &Transport) -> Result<AddedServer, AddError> {
        let mut templates = Templates::default();
        let Some(url) = &remote.url else {
            return Err(AddError::unsupported("an address without one"));
        };
        if !["streamable-http", "sse"].contains(&remote.kind.as_str()) {
            let kind = &remote.kind;
            return Err(AddError::unsupported(format!("the transport `{kind}`")));
        }
        let url = templates.curly(url, &remote.variables);
        let headers = remote.headers.iter();
        let headers = headers
            .map(|header| {
                let value = templates.value(&header.name, &header.input, &header.variables);
                (header.name.clone(), value)
            })
            .collect();
        let start = AddedStart::Remote {
            url,
            transport: remote.kind.clone(),
            headers,
        };
        Ok(self.server(start, templates))
    }
}

/// Templates with the inputs that they ask for.
#[derive(Default)]
struct Templates {
    env: BTreeMap<String, String>,
    inputs: Vec<AddedInput>,
}

impl Templates {
    fn of_package(
        &self,
        spec: PackageSpec,
        package: &Package,
        args: Vec<String>,
    ) -> Result<AddedStart, AddError> {
        if !package.runtime_arguments.is_empty() {
            // They are options of npx or uvx, which does not start it here.
            return Err(AddError::unsupported("arguments of a launcher"));
        }
        let spec = match &package.version {
            Some(version) => {
                let exact = spec.at_version(version);
                // Read again, so that the version is one.
                let exact = PackageSpec::parse(&exact.to_string())?;
                if !exact.is_exact() {
                    return Err(AddError::unsupported(format!("the version `{version}`")));
                }
                exact
            }
            None => spec,
        };
        let request = PackageRequest {
            spec,
            with: Vec::new(),
            python: None,
            program: PackageProgram::Default,
        };
        Ok(AddedStart::Package { request, args })
    }

    fn arguments(&mut self, arguments: &[Argument]) -> Result<Vec<String>, AddError> {
        let mut words = Vec::new();
        for argument in arguments {
            let Argument {
                name, value_hint, ..
            } = argument;
            let (input, variables) = (&argument.input, &argument.variables);
            match (argument.kind.as_str(), name) {
                ("named", Some(name)) => {
                    let is_switch = input.value.is_none()
                        && input.default.is_none()
                        && value_hint.is_none()
                        && !input.is_required;
                    words.push(name.clone());
                    if !is_switch {
                        let key = name.trim_start_matches('-');
                        words.push(self.value(key, input, variables));
                    }
                }
                ("positional", _) => {
                    let key = value_hint.as_deref().or(name.as_deref());
                    let key = key.unwrap_or("argument");
                    words.push(self.value(key, input, variables));
                }
                (kind, _) => {
                    return Err(AddError::unsupported(format!(
                        "an argument of type `{kind}` without a name"
                    )));
                }
            }
        }
        Ok(words)
    }

    /// The template of a value: what is written, or an input.
    fn value(&mut self, key: &str, input: &Input, variables: &BTreeMap<String, Input>) -> String {
        match &input.value {
            Some(value) => self.curly(value, variables),
            None => self.ask(key, input),
        }
    }

    /// A value in which `{name}` stands for a variable.
    fn curly(&mut self, value: &str, variables: &BTreeMap<String, Input>) -> String {
        let mut text = value.to_owned();
        for (name, input) in variables {
            let place = format!("{{{name}}}");
            if text.contains(&place) {
                let own = self.value(name, input, &BTreeMap::new());
                text = text.replace(&place, &own);
            }
        }
        text
    }

    fn ask(&mut self, key: &str, input: &Input) -> String {
        if !self.inputs.iter().any(|known| known.key == key) {
            self.inputs.push(AddedInput {
                key: key.to_owned(),
                title: input.description.clone(),
                kind: match input.format.as_deref() {
                    Some("number") => InputKind::Number,
                    Some("boolean") => InputKind::Boolean,
                    Some("filepath") => InputKind::File,
                    _ => InputKind::Text,
                },
                is_required: input.is_required,
                is_secret: input.is_secret,
                is_multiple: input.is_repeated,
                default: input.default.iter().cloned().collect(),
                choices: input.choices.clone().unwrap_or_default(),
            });
        }
        placeholder(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: &Value) -> Result<Vec<AddedServer>, AddError> {
        read_server_json(&value.to_string())
    }

    #[test]
    fn packages_and_addresses_are_read() {
        let all = read(&json!({
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": "io.github.user/x",
            "version": "1.2.3",
            "packages": [
                {
                    "registryType": "npm",
                    "identifier": "@user/x",
                    "version": "1.2.3",
                    "transport": { "type": "stdio" },
                    "packageArguments": [
                        { "type": "positional", "valueHint": "dir", "isRequired": true,
                          "format": "filepath" },
                        { "type": "named", "name": "--mode", "value": "{mode}",
                          "variables": { "mode": { "default": "a", "choices": ["a", "b"] } } },
                        { "type": "named", "name": "--quiet" },
                    ],
                    "environmentVariables": [
                        { "name": "TOKEN", "isRequired": true, "isSecret": true },
                        { "name": "FIXED", "value": "1" },
                    ],
                },
                { "registryType": "pypi", "identifier": "x", "version": "1.0" },
                { "registryType": "oci", "identifier": "ghcr.io/u/x", "version": "1" },
                { "registryType": "mcpb", "identifier": "https://h.test/x.mcpb",
                  "fileSha256": "00" },
            ],
            "remotes": [{
                "type": "streamable-http",
                "url": "https://{tenant}.h.test/mcp",
                "variables": { "tenant": { "isRequired": true } },
                "headers": [{ "name": "Authorization", "value": "Bearer {key}",
                    "variables": { "key": { "isSecret": true } } }],
            }],
        }))
        .unwrap();
        assert_eq!(all.len(), 5);
        let AddedStart::Package { request, args } = &all[0].start else {
            panic!("{:?}", all[0]);
        };
        assert_eq!(request.spec.to_string(), "npm:@user/x@1.2.3");
        let wanted = [
            "${user_config.dir}",
            "--mode",
            "${user_config.mode}",
            "--quiet",
        ];
        assert_eq!(args, &wanted);
        assert_eq!(all[0].env["TOKEN"], "${user_config.TOKEN}");
        assert_eq!(all[0].env["FIXED"], "1");
        let keys: Vec<_> = all[0].inputs.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["dir", "mode", "TOKEN"]);
        assert!(all[0].inputs[2].is_secret && all[0].inputs[1].choices == ["a", "b"]);
        let AddedStart::Remote { url, headers, .. } = &all[4].start else {
            panic!("{:?}", all[4]);
        };
        assert_eq!(url, "https://${user_config.tenant}.h.test/mcp");
        assert_eq!(headers["Authorization"], "Bearer ${user_config.key}");
        let AddedStart::Container { image, .. } = &all[2].start else {
            panic!("{:?}", all[2]);
        };
        assert_eq!(image, "ghcr.io/u/x:1");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let with = |package: Value| read(&json!({ "name": "x", "packages": [package] }));
        for package in [
            json!({ "registryType": "nuget", "identifier": "x" }),
            json!({ "registryType": "npm", "identifier": "u/r" }),
            json!({ "registryType": "npm", "identifier": "x", "version": "1.0.0 || git" }),
            json!({ "registryType": "npm", "identifier": "x",
                "transport": { "type": "streamable-http" } }),
            json!({ "registryType": "npm", "identifier": "x",
                "runtimeArguments": [{ "type": "named", "name": "--registry" }] }),
        ] {
            assert!(with(package.clone()).is_err(), "{package}");
        }
        assert!(read(&json!({ "name": "x" })).is_err());
        assert!(read(&json!([])).is_err());
    }
}
