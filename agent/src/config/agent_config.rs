//! The agent's ConfigMap.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::environment::go_duration;

/// Key of the ConfigMap that holds the configuration.
const CONFIG_KEY: &str = "config";

/// Which authorities vouch for the upstream API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// The given CA and no other.
    #[default]
    Strict,
    /// The system's authorities and the given CA.
    SystemStore,
}

/// The agent's ConfigMap, read once per start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Labels the cluster registers with.
    pub labels: BTreeMap<String, String>,
    /// Overrides the UID of `kube-system`; empty for none.
    pub client_id: String,
    pub tls_mode: TlsMode,
    pub garbage_collection_interval: Duration,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            labels: BTreeMap::new(),
            client_id: String::new(),
            tls_mode: TlsMode::default(),
            garbage_collection_interval: Duration::from_secs(15 * 60),
        }
    }
}

/// The ConfigMap holds something that is not a configuration.
#[derive(Debug, thiserror::Error)]
pub enum AgentConfigError {
    #[error("failed to parse the agent's configuration: {0}")]
    Syntax(String),
}

impl AgentConfig {
    /// Reads the ConfigMap's data: JSON or YAML under `config`, defaults where it says nothing.
    ///
    /// # Errors
    /// The text is not YAML. A field of the wrong type counts as absent, with a log line.
    pub fn from_data(data: &BTreeMap<String, String>) -> Result<Self, AgentConfigError> {
        let text = data.get(CONFIG_KEY).map(String::as_str).unwrap_or_default();
        let value = golib::yaml::decode(text.as_bytes())
            .map_err(|error| AgentConfigError::Syntax(error.to_string()))?;
        let mut config = Self::default();
        if let Some(Value::Object(labels)) = value.get("labels") {
            let pairs = labels
                .iter()
                .filter_map(|(key, v)| Some((key.clone(), v.as_str()?.into())));
            config.labels = pairs.collect();
        }
        if let Some(id) = value.get("clientID").and_then(Value::as_str) {
            config.client_id = id.to_owned();
        }
        if value.get("agentTLSMode").and_then(Value::as_str) == Some("system-store") {
            config.tls_mode = TlsMode::SystemStore;
        }
        match value.get("garbageCollectionInterval") {
            None | Some(Value::Null) => {}
            Some(given) => match given.as_str().and_then(go_duration) {
                Some(interval) if !interval.is_zero() => {
                    config.garbage_collection_interval = interval;
                }
                _ => {
                    ::logging::info!("garbageCollectionInterval is no duration, using the default")
                }
            },
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> AgentConfig {
        AgentConfig::from_data(&[(CONFIG_KEY.to_owned(), text.to_owned())].into()).unwrap()
    }

    #[test]
    fn agent_config_takes_json_with_blank_lines_and_unknown_fields() {
        let read = config(
            "{\n\n\"labels\": {\"env\": \"lab\"},\n \"clientID\":\"c1\", \"new\": 1,\n\
             \"agentTLSMode\": \"system-store\", \"garbageCollectionInterval\": \"20m\"}\n",
        );
        assert_eq!(read.labels, [("env".to_owned(), "lab".to_owned())].into());
        assert_eq!(
            (read.client_id.as_str(), read.tls_mode),
            ("c1", TlsMode::SystemStore)
        );
        assert_eq!(read.garbage_collection_interval, Duration::from_secs(1200));
    }

    #[test]
    fn agent_config_falls_back_to_defaults() {
        assert_eq!(config(""), AgentConfig::default());
        assert_eq!(
            AgentConfig::from_data(&BTreeMap::new()).unwrap(),
            AgentConfig::default()
        );
        assert_eq!(
            config("garbageCollectionInterval: 1d"),
            AgentConfig::default()
        );
        assert_eq!(
            config("labels: null\nagentTLSMode: strict"),
            AgentConfig::default()
        );
    }
}
