//! `[traces]` and `[telemetry]` as written.

use callgate_store::TRACES_BYTES_MIN;
use serde::{Deserialize, Deserializer, de};

/// `[traces]`: what is kept of calls beyond the chain.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// All traces together; 0 keeps none.
    #[serde(default, deserialize_with = "ring")]
    pub max_bytes: Option<u64>,
}

fn ring<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let bytes = u64::deserialize(from)?;
    if bytes != 0 && bytes < TRACES_BYTES_MIN {
        return Err(de::Error::custom(format!(
            "max_bytes: {bytes} is neither 0 nor {TRACES_BYTES_MIN} or more"
        )));
    }
    Ok(Some(bytes))
}

/// `[telemetry]`: who is told of calls.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryConfig {
    /// A collector of OpenTelemetry, by HTTP: `http://127.0.0.1:4318`.
    #[serde(default)]
    pub otlp: Option<String>,
    /// The variable with headers for it: `name=value,name=value`.
    #[serde(default)]
    pub headers_env: Option<String>,
}
