//! The agent's ConfigMap.

use std::collections::BTreeMap;
use std::time::Duration;

use golib::json::{At, FieldError};
use serde_json::Value;

use super::environment::go_duration;

/// Key of the ConfigMap that holds the configuration.
const CONFIG_KEY: &str = "config";

/// The fields that are read of the agent's configuration.
const FIELDS: [&str; 4] = [
    "labels",
    "clientID",
    "agentTLSMode",
    "garbageCollectionInterval",
];

/// The certificate authorities trusted for the upstream API server.
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
#[error("failed to parse the agent's configuration: {0}")]
pub struct AgentConfigError(String);

impl AgentConfig {
    /// Reads the ConfigMap's data: JSON or YAML under `config`, defaults where it says nothing. Numbers and booleans are text where text is
    /// wanted.
    ///
    /// # Errors
    /// The text is not YAML, or a field is of another type. An interval that is no duration counts as absent, with a log line.
    pub fn from_data(data: &BTreeMap<String, String>) -> Result<Self, AgentConfigError> {
        let text = data.get(CONFIG_KEY).map(String::as_str).unwrap_or_default();
        let value = golib::yaml::decode(text.as_bytes())
            .map_err(|error| AgentConfigError(error.to_string()))?;
        let mut config = Self::default();
        let read = At::new("Config", "config.Config", "").coercing().object(
            &value,
            &FIELDS,
            |field, at, value| config.set(field, at, value),
        );
        match read {
            Ok(()) => Ok(config),
            Err(error) => Err(AgentConfigError(error.to_string())),
        }
    }

    fn set(&mut self, field: &str, at: &At<'_>, value: &Value) -> Result<(), FieldError> {
        match field {
            "labels" => {
                for (key, value) in at.entries(value)?.into_iter().flatten() {
                    let label = self.labels.entry(key.clone()).or_default();
                    at.string(value, label)?;
                }
            }
            "clientID" => at.string(value, &mut self.client_id)?,
            "agentTLSMode" => {
                let mut mode = String::new();
                at.string(value, &mut mode)?;
                if mode == "system-store" {
                    self.tls_mode = TlsMode::SystemStore;
                }
            }
            _ if value.is_null() => {}
            _ => match value.as_str().and_then(go_duration) {
                Some(interval) if !interval.is_zero() => {
                    self.garbage_collection_interval = interval;
                }
                _ => {
                    ::logging::info!("garbageCollectionInterval is no duration, using the default");
                }
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

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

    /// As Fleet's `config.ReadConfig` answered.
    #[rstest]
    #[case(
        r#"{"labels": {"tier": 1, "gpu": true, "big": 16777216.5, "none": null}, "clientID": 12345}"#,
        "12345",
        &[("tier", "1"), ("gpu", "true"), ("big", "1.6777216e+07"), ("none", "")]
    )]
    #[case(
        "labels: {a: y, b: 010, c: 1.10, d: 1e21, e: 12345678901234567890, f: 2020-01-01, g: ~, i: -1, j: 1_000}",
        "",
        &[("a", "true"), ("b", "8"), ("c", "1.1"), ("d", "1e+21"), ("e", "12345678901234567890"), ("f", "2020-01-01"), ("g", ""), ("i", "-1"), ("j", "1000")]
    )]
    #[case("labels: {a: 0.1, b: 123456.789, c: 1e-7, d: 3.0}", "", &[("a", "0.1"), ("b", "123456.79"), ("c", "1e-07"), ("d", "3")])]
    #[case("labels: {1: a, true: b}\nclientID: 1.0", "1", &[("1", "a"), ("true", "b")])]
    #[case("CLIENTID: 5\nLabels: {a: 1}", "5", &[("a", "1")])]
    #[case("clientID: null", "", &[])]
    fn numbers_and_booleans_in_the_configuration_become_strings(
        #[case] text: &str,
        #[case] client_id: &str,
        #[case] labels: &[(&str, &str)],
    ) {
        let read = config(text);
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        assert_eq!(read.labels, labels.iter().map(owned).collect());
        assert_eq!(read.client_id, client_id);
    }

    /// As Fleet's `config.ReadConfig` answered.
    #[rstest]
    #[case("labels: {a: [1]}", "array into Go struct field Config.labels of type string")]
    #[case("labels: {a: {}}", "object into Go struct field Config.labels of type string")]
    #[case("labels: [a]", "array into Go struct field Config.labels of type map[string]string")]
    #[case("labels: 1", "number into Go struct field Config.labels of type map[string]string")]
    #[case("clientID: [a]", "array into Go struct field Config.clientID of type string")]
    #[case("agentTLSMode: [1]", "array into Go struct field Config.agentTLSMode of type string")]
    fn a_configuration_value_of_the_wrong_type_is_an_error(
        #[case] text: &str,
        #[case] problem: &str,
    ) {
        let data = [(CONFIG_KEY.to_owned(), text.to_owned())].into();
        let error = AgentConfig::from_data(&data).unwrap_err().to_string();
        let expected =
            format!("failed to parse the agent's configuration: json: cannot unmarshal {problem}");
        assert_eq!(error, expected);
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
