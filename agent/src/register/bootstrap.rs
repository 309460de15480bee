//! The bootstrap Secret: where upstream is and the token to ask with.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::Value;

/// What the bootstrap Secret says. The token never prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Bootstrap {
    pub api_server_url: String,
    /// PEM; empty when none is given.
    pub api_server_ca: Vec<u8>,
    pub token: String,
    pub token_name: String,
    pub cluster_namespace: String,
    pub system_registration_namespace: String,
}

impl Bootstrap {
    /// Reads the Secret's data. A non-empty `values` key holding YAML replaces all other keys.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Self {
        let values = values(data);
        let text = |key: &str| values.get(key).cloned().unwrap_or_default();
        let string = |key: &str| String::from_utf8_lossy(&text(key)).into_owned();
        Self {
            api_server_url: string("apiServerURL"),
            api_server_ca: text("apiServerCA"),
            token: string("token"),
            token_name: string("tokenName"),
            cluster_namespace: string("clusterNamespace"),
            system_registration_namespace: string("systemRegistrationNamespace"),
        }
    }
}

fn values(data: &BTreeMap<String, ByteString>) -> BTreeMap<String, Vec<u8>> {
    let raw = || {
        data.iter()
            .map(|(key, value)| (key.clone(), value.0.clone()))
            .collect()
    };
    let Some(yaml) = data.get("values").filter(|values| !values.0.is_empty()) else {
        return raw();
    };
    match golib::yaml::decode(&yaml.0) {
        Ok(Value::Object(values)) => values
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_str()?.as_bytes().to_vec())))
            .collect(),
        _ => raw(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), ByteString((*v).into())))
            .collect()
    }

    #[test]
    fn values_replace_every_key() {
        let read = Bootstrap::from_data(&data(&[
            ("token", "outer"),
            ("tokenName", "outer"),
            (
                "values",
                "token: inner\napiServerURL: https://x\nclusterNamespace: 7\n",
            ),
        ]));
        assert_eq!(
            (read.token.as_str(), read.token_name.as_str()),
            ("inner", "")
        );
        assert_eq!(
            (
                read.api_server_url.as_str(),
                read.cluster_namespace.as_str()
            ),
            ("https://x", "")
        );
    }

    #[test]
    fn values_that_do_not_parse_are_ignored() {
        let read = Bootstrap::from_data(&data(&[("token", "raw"), ("values", "{")]));
        assert_eq!(read.token, "raw");
    }
}
